"""Our figures beside those of HolisticTraceAnalysis, on real traces.

`hta_figures.json` says with which version and how its figures were made. They are equal where HTA
counts what the trace says; where it does not, a test shows how its figure comes about.
"""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from gpuadvisor.collectors.kineto.reader import read
from gpuadvisor.columns import MemoryProfile
from gpuadvisor.domain.profile import UNKNOWN
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.time_breakdown import busy

DATA = Path(__file__).parents[3] / "data" / "profiles"
FIGURES = json.loads((DATA / "hta_figures.json").read_text())["traces"]
WITHIN = 1e-3
"""The two must agree to 0.1 %."""
RESOLUTION_US = 0.1
"""HTA adds up floating-point numbers of microseconds since 1970."""
NAMES = {"COMPUTATION": "compute", "COMMUNICATION": "communication", "MEMORY": "memory"}


def traces():
    """The traces that lie here, without those HTA has no figures of."""
    found = {path.name.partition(".")[0]: path for path in DATA.rglob("*.json.gz")}
    return {name: path for name, path in sorted(found.items()) if "exact" in FIGURES.get(name, {})}


@cache
def facts(name):
    profile = MemoryProfile()
    profile.finish(read(traces()[name], profile))
    return Facts(profile)


def with_gpu():
    return [name for name in traces() if "error" not in FIGURES[name]["exact"]]


def as_hta(name):
    """The busy time of what HTA takes into account: see the test of what it leaves out."""
    work, launched = facts(name).work, facts(name).launched
    columns = ("begin_ns", "end_ns", "device", "stream", "correlation", "kind", "name", "in_graph")
    known = {each: getattr(work, each)[launched.known] for each in columns}
    (device,) = busy(replace(work, **known))
    return device


def same(us, of_hta):
    return us == pytest.approx(of_hta, rel=WITHIN, abs=RESOLUTION_US)


def figures(device):
    """Ours as HTA names them."""
    return {
        "idle_us": device.idle_ns / 1e3,
        "compute_us": device.compute_ns / 1e3,
        "non_compute_us": (device.busy_ns - device.compute_ns) / 1e3,
        "span_us": device.span_ns / 1e3,
    }


def test_the_traces_that_the_following_is_about_lie_here():
    needed = {"h100_small_cnn_train", "hta_a100_launch_bound_rank0", "hta_a100_train_control"}
    assert needed <= set(with_gpu())


@pytest.mark.parametrize("name", with_gpu())
def test_the_temporal_breakdown_is_htas(name):
    for figure, us in figures(as_hta(name)).items():
        assert same(us, FIGURES[name]["exact"][figure]), figure


@pytest.mark.parametrize("name", [n for n in with_gpu() if n.startswith("hta_")])
def test_the_breakdown_by_kind_is_htas_in_traces_of_whole_microseconds(name):
    told = FIGURES[name]["rounded"]["kinds_us"]
    together = as_hta(name).together_ns
    ours = {frozenset(kinds.split("+")): ns / 1e3 for kinds, ns in together.items()}
    theirs = {
        frozenset(NAMES[kind] for kind in kinds.split(" overlapping ")): us
        for kinds, us in told.items()
    }
    assert ours == pytest.approx(theirs, rel=WITHIN)


def test_the_overlap_of_communication_is_htas():
    name = "hta_a100_train_control"
    (device,) = facts(name).busy
    told = FIGURES[name]["exact"]["communication_overlap_pct"]
    assert told == 46.24
    parts = device.together_ns.items()
    hidden_ns = sum(
        ns for kinds, ns in parts if {"compute", "communication"} <= {*kinds.split("+")}
    )
    assert 100 * hidden_ns / device.communication_ns == pytest.approx(told, abs=0.005)


def test_hta_leaves_out_kernels_whose_call_was_not_recorded():
    """Its filter for steps joins kernels to calls, so that 872 of 7,747 rows are missing in it:
    it says that the GPU was idle 848 ms of 1,229 ms where it was 793 ms of 1,231 ms."""
    name = "hta_a100_launch_bound_rank0"
    assert (~facts(name).launched.known).sum() == 872
    (device,) = facts(name).busy
    told = FIGURES[name]["exact"]
    assert (device.idle_ns / 1e3, told["idle_us"]) == (793_037, 848_216)
    for figure, us in figures(as_hta(name)).items():
        assert same(us, told[figure]), figure


def test_htas_rounding_to_whole_microseconds_makes_short_kernels_shorter():
    """By default it rounds begins up and ends down: a kernel of 1.9 us that begins within a
    microsecond becomes one of 1 us or of 0, and idle time grows by what they lose."""
    name = "h100_small_cnn_train"
    work = facts(name).work
    begin, end = np.ceil(_clock_us(name, work.begin_ns)), np.floor(_clock_us(name, work.end_ns))
    told = FIGURES[name]["rounded"]
    (device,) = facts(name).busy
    assert same(device.idle_ns / 1e3, FIGURES[name]["exact"]["idle_us"])
    assert told["idle_us"] > 1.01 * device.idle_ns / 1e3
    kept = np.maximum(end - begin, 0)[work.kind == 0].sum()
    assert kept == pytest.approx(told["compute_us"], rel=0.01)
    assert kept < 0.98 * device.compute_ns / 1e3


def _clock_us(name, time_ns):
    """Whole microseconds are those of the trace's clock, whose offset the profile left behind: any
    offset loses as much on average."""
    return time_ns / 1e3


def test_hta_cuts_each_stretch_of_a_kind_to_whole_microseconds():
    """Its breakdown by kind says 10,080 us of compute where its temporal breakdown, of the same
    kernels and with the rounding turned off, says 10,216 us."""
    told = FIGURES["h100_small_cnn_train"]["exact"]
    (device,) = facts("h100_small_cnn_train").busy
    assert told["kinds_us"]["COMPUTATION"] == 10_080
    assert same(device.compute_ns / 1e3, told["compute_us"])
    compute = facts("h100_small_cnn_train").work
    rows = compute.kind == 0
    stretches = compute.intervals(rows)
    cut = (stretches.end_ns - stretches.begin_ns) // 1000
    assert cut.sum() == pytest.approx(told["kinds_us"]["COMPUTATION"], abs=1)


def test_what_hta_calls_non_compute_is_what_no_compute_kernel_hides():
    """Issue 241 of HTA: users read it as the time of communication, of which this trace has
    164 ms, and miss the 76 ms that ran beside compute."""
    (device,) = facts("hta_a100_train_control").busy
    told = FIGURES["hta_a100_train_control"]["exact"]
    assert (told["non_compute_us"], device.communication_ns / 1e3) == (107_251, 163_535)
    together = device.together_ns
    hidden = together["compute+communication"] + together["compute+communication+memory"]
    exposed = together["communication"] + together["communication+memory"]
    assert (hidden / 1e3, exposed / 1e3) == (75_614, 87_921)
    assert device.communication_ns == hidden + exposed
    assert device.busy_ns - device.compute_ns == exposed + together["memory"]


@pytest.mark.parametrize("name", with_gpu())
def test_every_gap_has_a_cause(name):
    for device in facts(name).idle:
        assert sum(device.causes_ns.values()) == device.without_kernel_ns
    assert sum(each.idle_ns for each in facts(name).busy) <= sum(
        each.idle_ns for each in facts(name).idle
    )


def test_operators_of_the_trace_own_its_kernels():
    """The trace's own links say the same as the times do."""
    found = facts("h100_small_cnn_train")
    links = found.profile.columns("links")
    operators = found.profile.columns("operators", ("external_id",))["external_id"]
    owner = dict(zip(links["correlation"].tolist(), links["external_id"].tolist(), strict=True))
    rows = np.flatnonzero(found.launching.of_work != UNKNOWN)
    agree = [
        operators[found.launching.of_work[row]] == owner[int(found.work.correlation[row])]
        for row in rows.tolist()
        if int(found.work.correlation[row]) in owner
    ]
    assert len(agree) > 300
    assert np.mean(agree) > 0.99

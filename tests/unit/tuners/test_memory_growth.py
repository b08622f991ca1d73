"""How much more memory a plan takes, on runs whose peaks are made up."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.tuners.memory_growth import memory_growth
from tests.simulation import measurement

MIB = 2**20
BOTH = {"host_memory": "all", "channels_last": True}


def run(mib, settings=None, phase="proof", **changes):
    measured = replace(measurement((100.0,)), peak_memory_bytes=round(mib * MIB))
    trial = Trial(0, settings or {}, phase, TrialState.COMPLETE, measurement=measured)
    return replace(trial, **changes)


def proof(settings, base, head):
    return [*map(run, base), *(run(mib, settings) for mib in head)]


def test_what_grew_is_told_with_the_knob_that_takes_it():
    trials = [
        *proof(BOTH, (405, 407, 409), (799, 800, 801)),
        run(408, {"channels_last": True}, "ablation"),
        run(790, {"host_memory": "all"}, "search"),
    ]
    found = memory_growth(trials, BOTH)
    assert (found.base_bytes, found.head_bytes) == (407 * MIB, 800 * MIB)
    assert found.knobs == {"host_memory": pytest.approx(392 * MIB)}  # beside the other setting


def test_the_only_knob_of_a_plan_is_that_of_the_proof():
    settings = {"host_memory": "all"}
    found = memory_growth(proof(settings, (405, 407, 409), (799, 800, 801)), settings)
    assert found.knobs == {"host_memory": pytest.approx(393 * MIB)}


def test_without_a_run_without_it_no_knob_is_blamed():
    trials = proof(BOTH, (405, 407, 409), (799, 800, 801))
    # The resident set of a forked process lacks what nobody has used since.
    forked = run(300, {"channels_last": True}, "search", start_saved_s=2.0)
    failed = run(300, {"channels_last": True}, "search", state=TrialState.WRONG)
    assert memory_growth([*trials, forked, failed], BOTH).knobs == {}


@pytest.mark.parametrize(
    ("base", "head"),
    [
        ((400, 410, 420), (410, 420, 430)),  # no more than runs differ
        ((800, 801, 802), (405, 407, 409)),
        ((405,), (800, 800)),
        ((0, 0, 0), (800, 800, 800)),  # not measured
    ],
)
def test_nothing_is_told_where_it_is_not_surely_more(base, head):
    assert memory_growth(proof(BOTH, base, head), BOTH) is None


def test_peaks_that_differ_by_chance_are_no_growth():
    generator = random.Random(1)
    told = 0
    for _ in range(500):
        peaks = [generator.lognormvariate(6.0, 0.05) for _ in range(6)]
        told += memory_growth(proof(BOTH, peaks[:3], peaks[3:]), BOTH) is not None
    assert told <= 5

"""What small grids are told to be worth, and what other launches of the same kernel say of it."""

import pytest

from gpuadvisor.domain.profile import UNKNOWN, DeviceLimits
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.registry import load_rules
from tests.profiles import Made
from tests.rules.building import H100, timeline
from tests.rules.counted import HEALTHY, QUIET
from tests.rules.queued import K, grid, queued

IN_TRACE = "small_grid_in_trace"
RULES = [rule for rule in load_rules() if rule.name == "small_grid"]


COUNTED = {**HEALTHY, **QUIET}


def found(*launches, metrics=COUNTED, device=H100):
    """Return what is found in launches of so many blocks, threads each, and milliseconds."""
    made = Made()
    for number, (blocks, threads, ms) in enumerate(launches):
        made.kernel(
            "gemv", (0, 1000 * ms),
            grid_x=blocks, grid_y=1, grid_z=1, block_x=threads, block_y=1, block_z=1,
        )  # fmt: skip
        for name, value in {"gpu__time_duration.sum": ms / 1e3, **metrics}.items():
            made.row("metrics", kernel=number, metric=name, value=value)
    profile = made.profile(source="ncu", devices=(device,))
    return diagnose(Evidence(facts=Facts(profile)), RULES).findings


def test_where_more_blocks_were_hardly_faster_threads_come_first():
    alone = found((8, 1024, 8.0))[0]
    beside = found((8, 1024, 8.0), (64, 128, 7.9))[0]
    assert alone.improvement_pct.low > 40
    assert beside.improvement_pct.low < 2
    assert beside.advice.startswith("Give the work more threads first: with as many")
    # Launches with another size of work say nothing of it.
    other = found((8, 1024, 8.0), (64, 1024, 7.9))[0]
    assert other.advice == alone.advice


def test_of_few_threads_nothing_is_promised():
    (alone,) = found((1, 8, 400.0))
    assert alone.severity is Severity.WARNING
    assert alone.improvement_pct.low == 0
    assert alone.advice.startswith("Give the work more threads first, if it can be dealt out: 8 ")


@pytest.mark.parametrize(
    ("blocks", "threads", "is_few"), [(1, 1, True), (3, 40, True), (3, 64, False)]
)
def test_of_a_timeline_as_well(blocks, threads, is_few):
    evidence = queued([K("add", 5_000, more=grid(blocks, threads))] * 9)
    (each,) = diagnose(evidence, [rule for rule in load_rules() if rule.name == IN_TRACE]).findings
    assert (each.severity is Severity.WARNING) is is_few
    assert (each.improvement_pct.low == 0) is is_few
    assert ("more threads first" in each.advice) is is_few


MEASURED = [
    (20, 16, 32, 90.0),  # ten blocks of 16 threads on 28 multiprocessors, and of 512 each
    (64, 128, 36, 95.0),  # a product in 64 blocks on 142 multiprocessors, and in 8,192
]
"""Blocks, threads, registers, and what more of them saved of the kernel's time, in public
recordings (`n12_nus6`, `n15_hpc1`)."""


@pytest.mark.parametrize(("blocks", "threads", "registers", "saved"), MEASURED)
def test_more_blocks_may_gain_as_much_as_there_are_places_for_threads(
    blocks, threads, registers, saved
):
    evidence = queued([K("add", 5_000, more=grid(blocks, threads, registers))] * 9)
    (each,) = diagnose(evidence, [rule for rule in load_rules() if rule.name == IN_TRACE]).findings
    assert each.improvement_pct.high >= saved
    assert each.advice.startswith("Give each block more threads first: 16") is (threads == 16)


@pytest.mark.parametrize(("every", "is_told"), [(400, True), (200, False)])
def test_launches_on_several_streams_that_never_run_at_once_are_told(every, is_told):
    """Eight streams that the legacy default stream keeps apart: 82 % less with streams of their
    own (`n15_str1` and `n15_str2` of the public traces)."""
    made = Made()
    for number in range(16):
        runs = (1000 + every * number, 390)
        made.launched("mine", (5 * number, 4), runs, stream=7 + number % 8, **grid(2, 64))
    rules = [rule for rule in load_rules() if rule.name == IN_TRACE]
    (each,) = diagnose(timeline(made), rules).findings
    assert ("on 8 streams, and none ran beside another" in each.advice) is is_told


def test_a_kernel_whose_registers_fill_a_multiprocessor_gains_no_more_than_blocks_are_missing():
    evidence = queued([K("add", 5_000, more=grid(66, 256, 255))] * 9)
    (each,) = diagnose(evidence, [rule for rule in load_rules() if rule.name == IN_TRACE]).findings
    assert 45 < each.improvement_pct.high < 55


def test_small_grids_are_told_where_nothing_tells_how_busy_units_are():
    unknown = DeviceLimits(0, "NVIDIA H100 80GB HBM3", compute_capability=(9, 0))
    (few,) = found((42, 128, 0.02), (1, 128, 0.02), (200, 128, 0.02), metrics={}, device=unknown)
    assert few.severity is Severity.NOTICE and few.improvement_pct is None
    assert "2 launches with 67% of the captured kernel time have 1 to 42 blocks" in few.summary
    assert "for at least 78 multiprocessors" in few.summary
    assert not found((200, 128, 0.02), metrics={}, device=unknown)


@pytest.mark.parametrize(("blocks", "least", "most"), [(UNKNOWN, 5, 40), (1, 80, 100)])
def test_blocks_that_are_not_told_are_not_one(blocks, least, most):
    """Of kernels of 60 us that are launched every 85 us no more than 5 us need not grow with their
    work, as far as is known; with one block all of them may."""
    made = Made()
    for number in range(300):
        at = 85.0 * number
        made.operator("aten::mine", (at, 85))
        shape = {"grid_x": blocks, "grid_y": blocks, "grid_z": blocks}
        made.launched("mine", (at + 80, 5), (at + 87, 60), **shape)
    rules = [rule for rule in load_rules() if rule.name == "launch_bound"]
    (each,) = diagnose(timeline(made), rules).findings
    assert least < each.improvement_pct.high <= most

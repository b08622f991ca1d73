"""Programs with one planted bottleneck: what is found first, and whether the truth is in the range.

What they save without the profiler is known exactly; their traces are those of a slower host.
"""

from functools import cache
from statistics import median

import pytest

from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.engine import diagnose
from tests.rules.building import timeline
from tests.rules.cases.unfused_elementwise import MUL
from tests.rules.programs import Program

STEPS = 6


def fetching(program, cured):
    """A value is fetched after each step, of which the host takes half as long as the GPU."""
    program.works(200)
    program.launches("gemm", runs=100, times=30, op=40)
    if not cured:
        program.item()


def synchronizing(program, cured):
    """Every layer is timed with a synchronisation."""
    for _ in range(20):
        program.launches("gemm", runs=100, times=2, op=25)
        if not cured:
            program.waits()


def launching(program, cured):
    """300 tiny kernels a step."""
    if cured:
        program.launches("graph", runs=3 * 300, op=20)
    else:
        program.launches("tiny", runs=3, times=300, op=10)


def recurrent(program, cured):
    """A loop over time, which one fused kernel a layer replaces."""
    if cured:
        program.launches("lstm", runs=900, times=2, op=30)
    else:
        for _ in range(100):
            program.launches("gemm", runs=6, times=2, op=15)
            program.launches("pointwise", runs=2, times=2, op=8)


def updating(program, cured):
    """A forward pass, and an optimizer without foreach."""
    program.launches("gemm", runs=80, times=20, op=15)
    began = program.now
    program.launches("adam", runs=4, times=3 if cured else 400, op=6)
    program.marks("Optimizer.step#Adam.step", began)


def python(program, cured):
    """Python between the layers of a small model."""
    for _ in range(10):
        if not cured:
            program.works(400)
        program.launches("gemm", runs=20, times=2, op=15)


def loading(program, cured):
    """Batches that the script loads itself."""
    program.loads(200 if cured else 12_000)
    program.copies(1 << 20, 12)
    program.launches("conv", runs=150, times=20, op=20)


def augmenting(program, cured):
    """The same without a DataLoader."""
    program.computes("aten::normal_", 100 if cured else 9_000)
    program.copies(4 << 20, 12)
    program.launches("conv", runs=150, times=20, op=20)


def sending(program, cured):
    """Large batches from pageable memory."""
    program.works(100)
    program.copies(256 << 20, 50 if cured else 6, pinned=cured)
    program.launches("gemm", runs=300, times=10, op=20)


def receiving(program, cured):
    """Outputs that are copied to the host whole."""
    program.launches("gemm", runs=300, times=10, op=20)
    if not cured:
        program.copies(128 << 20, 5, to_host=True)


def allocating(program, cured):
    """The cache is emptied in each step."""
    for _ in range(6):
        if not cured:
            program.allocates(250)
        program.launches("gemm", runs=200, times=2, op=20)
    if not cured:
        for _ in range(6):
            program.allocates(200, free=True)


PLANTED = {
    fetching: "sync",
    synchronizing: "sync",
    launching: "launch_bound",
    recurrent: "launch_bound",
    updating: "optimizer",
    python: "launch_bound",
    loading: "input_bound",
    augmenting: "input_bound",
    sending: "copy",
    receiving: "copy",
    allocating: "allocator",
}
PACES = (1.6, 2.0, 2.7)
"""How much slower the host is under the profiler."""
DETAILS = {"record_shapes": "1", "profile_memory": "1"}


def run(step, cured, slower=1.0):
    program = Program(slower)
    for number in range(STEPS):
        began = program.now
        step(program, cured)
        program.step(number, began)
    return program


@cache
def found(step, slower):
    return diagnose(timeline(run(step, False, slower).made, recorded=DETAILS))


@cache
def saved_pct(step):
    before, after = (run(step, cured).time_us for cured in (False, True))
    return 100 * (1 - after / before)


@pytest.mark.parametrize("slower", PACES)
@pytest.mark.parametrize("step", PLANTED, ids=lambda step: step.__name__)
def test_the_planted_bottleneck_comes_first(step, slower):
    first = found(step, slower).findings[0]
    assert str(first.category) == PLANTED[step]
    assert first.severity.rank >= Severity.NOTICE.rank


def test_what_the_cure_saves_is_in_the_range_of_nine_in_ten():
    firsts = [(step, found(step, slower).findings[0]) for step in PLANTED for slower in PACES]
    spans = [(saved_pct(step), first.improvement_pct) for step, first in firsts]
    assert sum(span.low <= saved <= span.high for saved, span in spans) >= 0.9 * len(spans)
    assert median(span.width for _, span in spans) <= 30


@pytest.mark.parametrize("slower", PACES)
@pytest.mark.parametrize("step", PLANTED, ids=lambda step: step.__name__)
def test_one_bottleneck_gives_at_most_three_warnings(step, slower):
    shown = found(step, slower).shown
    assert sum(each.severity.rank >= Severity.WARNING.rank for each in shown) <= 3


def chained(program, own_us, cured):
    """A chain of elementwise kernels goes on after what the script does of its own."""
    for own in (own_us, 0):
        program.launches(MUL, runs=150 if cured else 100, times=1 if cured else 4, op=20)
        program.works(own)
    program.launches("gemm", runs=100, times=20, op=20)


@pytest.mark.parametrize("own_us", [0, 5_000, 20_000])
def test_a_chain_is_not_worth_what_the_script_does_between(own_us):
    made, before, after = Program(2.0), Program(), Program()
    for _ in range(STEPS):
        for program, cured in ((made, False), (before, False), (after, True)):
            chained(program, own_us, cured)
    (finding,) = (
        each
        for each in diagnose(timeline(made.made, recorded=DETAILS)).findings
        if each.rule == "unfused_elementwise"
    )
    saved = 100 * (1 - after.time_us / before.time_us)
    assert finding.improvement_pct.high < 2 * saved + 2


def test_waits_are_named_by_their_time_not_by_their_number():
    program = Program()
    for _ in range(8):
        program.launches("gemm", runs=1000)
        program.waits(operator="aten::nonzero")
        for _ in range(3):
            program.launches("fill", runs=2)
            program.waits(operator="aten::item")
    program.launches("last", runs=10)
    findings = diagnose(timeline(program.made)).findings
    named = next(each.summary for each in findings if each.rule == "sync_in_loop")
    assert "32 times in the run, mostly in nonzero() (aten::nonzero)" in named

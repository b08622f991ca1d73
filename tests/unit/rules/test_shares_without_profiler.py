"""What a cure is worth is a share of the run as it is without the profiler."""

import pytest

from gpuadvisor.domain.unprofiled import UNPROFILED_STEP
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.estimates import saved_shares
from gpuadvisor.rules.facts.host_waits import Host
from gpuadvisor.rules.facts.what_if import Scenario
from gpuadvisor.rules.launching import saved_by_launching
from gpuadvisor.rules.paces import longer_with_profiler
from gpuadvisor.rules.registry import load_rules
from tests.rules.building import timeline
from tests.rules.cases.input_bound import script
from tests.rules.programs import Program

(INPUT_BOUND,) = (each for each in load_rules() if each.name == "input_bound")
(LAUNCH_BOUND,) = (each for each in load_rules() if each.name == "launch_bound")


def loading_and_launching(launches):
    """Five steps that load a batch in 1 ms in the script's process, and launch short kernels."""
    program = Program()
    for _ in range(5):
        program.loads(1000, "_SingleProcessDataLoaderIter")
        program.launches("kernel", runs=5, times=launches, op=20)
    return timeline(program.made)


def test_waiting_is_a_larger_share_than_the_trace_shows_where_the_host_is_slow():
    evidence = loading_and_launching(50)
    (found,) = diagnose(evidence, [INPUT_BOUND]).findings
    shown = {each.metric: each.value for each in found.evidence}["gpu_idle_waiting_for_data"]
    assert longer_with_profiler(evidence.facts) > 1.2
    assert found.improvement_pct.high > 1.1 * shown


def test_no_share_is_larger_than_the_run_without_the_profiler_has():
    evidence = loading_and_launching(50)
    (found,) = diagnose(evidence, [INPUT_BOUND]).findings
    waited_ns, launched_ns = 5 * 1e6, 5 * 50 * 20e3
    assert found.improvement_pct.high <= 103 * waited_ns / (waited_ns + launched_ns / 3)


def waiting_for_workers(slower, recorded):
    """Eight steps of 4 ms: a loader's worker has a batch each 4 ms, and launching takes 1 ms, or
    so many times as long."""
    program = Program()
    for number in range(8):
        began = program.now
        program.loads(4000 - slower * 1000, "_MultiProcessingDataLoaderIter")
        program.launches("kernel", runs=5, times=50, op=slower * 20)
        program.step(number, began)
    return timeline(program.made, recorded=recorded)


@pytest.mark.parametrize("recorded", [{}, {UNPROFILED_STEP: "4000000"}])
def test_what_the_host_is_slower_with_the_profiler_is_not_waited_for_a_loader(recorded):
    """Three of the four milliseconds are waited without a profiler that makes the host twice as
    slow, and two with it."""
    evidence = waiting_for_workers(2, recorded)
    truly = 3 / 4
    (found,) = INPUT_BOUND.check(evidence)
    low, high = (each / evidence.run_ns for each in (found.saving.low_ns, found.saving.high_ns))
    (told,) = diagnose(evidence, [INPUT_BOUND]).findings
    assert low <= truly <= high
    assert told.improvement_pct.low <= 100 * truly <= told.improvement_pct.high
    assert ("no longer than those that were timed before" in told.method) is bool(recorded)


def test_steps_that_took_less_without_the_profiler_waited_less():
    """A batch that was late while the profiler began is not late in every step."""
    least, most = (
        saved_shares(waiting_for_workers(2, recorded).facts, Scenario({Host.LOADING: 0.0}))
        for recorded in ({UNPROFILED_STEP: "3000000"}, {})
    )
    assert least[1] < most[1] - 0.05


def preparing_and_launching(slower=2.0):
    """Five steps that compute a batch on the CPU for 5 ms, copy it, and launch short kernels."""
    program = Program(slower)
    for number in range(5):
        began = program.now
        program.computes("aten::abs", 5000)
        program.copies(4 << 20, 6)
        program.launches("kernel", runs=5, times=200, op=10)
        program.step(number, began)
    return timeline(program.made)


def test_what_prepares_batches_is_not_saved_by_launching_less():
    facts = preparing_and_launching().facts
    least, most = saved_by_launching(facts)
    prepared = 5 * 5e6 / facts.window.run_ns
    assert 0.2 < least < most < 1.03 * (1 - prepared)


def test_preparing_batches_is_a_larger_share_without_the_profiler():
    evidence = preparing_and_launching()
    (found,) = INPUT_BOUND.check(evidence)
    # The run begins with the first work of the GPU, after the first batch.
    truly = 4 * 5e6 / preparing_and_launching(slower=1.0).facts.window.run_ns
    low, high = (each / evidence.run_ns for each in (found.saving.low_ns, found.saving.high_ns))
    shown = {each.metric: each.value for each in found.evidence}["gpu_idle_before_copies_to_it"]
    assert low <= truly <= high
    assert shown < 90 * truly


@pytest.mark.parametrize(
    ("step_us", "words"),
    [(2000, "; without the profiler it is idle for 50% of the time in all"), (None, "")],
)
def test_idle_time_without_the_profiler_is_told_beside_that_of_the_trace(step_us, words):
    program = Program()
    for number in range(4):
        began = program.now
        program.launches("kernel", runs=5, times=200, op=10)
        program.step(number, began)
    recorded = {} if step_us is None else {UNPROFILED_STEP: str(1000 * step_us)}
    (found,) = LAUNCH_BOUND.check(timeline(program.made, recorded=recorded))
    assert found.summary.endswith("than they run" + words)


@pytest.mark.parametrize(("compiled", "counts"), [(40, True), (60, False)])
def test_kernels_that_a_compiler_made_are_merged_already(compiled, counts):
    """What is above launching for free is kernels that could be merged."""
    program = Program()
    for number in range(100):
        name = "triton_poi_fused_add_0" if number < compiled else "kernel"
        program.launches(name, runs=5, op=10)
    (found,) = diagnose(timeline(program.made), [LAUNCH_BOUND]).findings
    whole, alone = (
        found.improvement_pct.high,
        100 * saved_by_launching(timeline(program.made).facts)[1],
    )
    assert (whole > alone + 5) is counts


@pytest.mark.parametrize(("idle", "most"), [(None, 50.0), (1.0, 50.0), (0.4, 20.0)])
def test_a_wait_in_which_the_gpu_works_is_worth_nothing(idle, most):
    (found,) = diagnose(script(0.5, idle=idle), [INPUT_BOUND]).findings
    assert found.improvement_pct.low == 0
    assert found.improvement_pct.high == pytest.approx(most, abs=0.5)
    assert ("has nothing to do in" in found.summary) == (idle is not None)


def test_a_finding_is_not_about_a_kernel_of_which_it_saves_as_good_as_nothing():
    """Fewer launches save some microseconds of each kernel, of milliseconds as of microseconds."""
    program = Program()
    program.launches("short", runs=5, times=200, op=20)
    program.launches("long", runs=2_000)
    (found,) = diagnose(timeline(program.made), [LAUNCH_BOUND]).findings
    assert "kernel/short" in found.parts
    assert "kernel/long" not in found.parts

"""What a cure is worth is a share of the run as it is without the profiler."""

from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.estimates import longer_with_profiler
from gpuadvisor.rules.registry import load_rules
from tests.rules.building import timeline
from tests.rules.programs import Program

(INPUT_BOUND,) = (each for each in load_rules() if each.name == "input_bound")


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

"""What compiling or capturing a model can reach: its forward and backward passes."""

from pathlib import Path

import pytest

from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.rules.catalogue import cuda_graphs, host_bound
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.intervals import both
from gpuadvisor.rules.facts.summary import Facts
from tests.on_gpu import on_gpu
from tests.rules.building import timeline
from tests.rules.programs import Program

PROFILES = Path(__file__).parents[2] / "data" / "profiles"
ENGINE = "autograd::engine::evaluate_function: MmBackward0"
STEPS = 5


def trained(within_us, between_us, numbered=True):
    """Steps of four layers, with so much Python between two of them and between two steps."""
    program = Program()
    for number in range(STEPS):
        began = program.now
        program.works(between_us)
        nodes = range(4 * number, 4 * number + 4)
        for node in nodes:
            _layer(program, "aten::mm", node if numbered else -1, 0)
            program.works(within_us)
        for node in reversed(nodes):
            _layer(program, ENGINE, node if numbered else -1, 1)
        program.step(number, began)
    return timeline(program.made)


def _layer(program, name, sequence, forward_thread):
    began = program.now
    program.launches("gemm", runs=20, op=15)
    when = (began, program.now - began)
    program.made.operator(name, when, sequence=sequence, forward_thread=forward_thread)


def bound(evidence):
    (found,) = host_bound.check(evidence)
    return found


def test_compiling_is_the_cure_of_python_between_layers():
    found = bound(trained(1000, 0))
    assert found.knobs is None and "compile what is left of Python in the model" in found.advice


def test_and_none_of_python_between_steps():
    found = bound(trained(0, 4000))
    assert found.knobs == ("cpu_threads",)
    assert "outside of forward and backward passes" in found.advice


def test_where_the_trace_does_not_tell_the_passes_it_may_be():
    evidence = trained(0, 4000, numbered=False)
    assert evidence.known_facts.passes is None
    assert bound(evidence).knobs is None


@pytest.mark.parametrize("within_us, between_us, inside", [(1000, 0, 0.7), (0, 4000, 0.0)])
def test_passes_last_from_their_first_operator_to_the_last(within_us, between_us, inside):
    facts = trained(within_us, between_us).known_facts
    other = facts.host_idle.other_times
    assert both(other, facts.passes).total_ns / other.total_ns == pytest.approx(inside, abs=0.1)


def test_a_real_script_whose_python_is_between_the_steps():
    path = PROFILES / "h200_programs" / "slow_python.json.gz"
    assert bound(Evidence(facts=Facts(read_profile(path)))).knobs == ("cpu_threads",)


def test_capturing_a_model_leaves_what_the_optimizer_launches(tmp_path):
    """Lightning with Adam in single operations: most kernels are the optimizer's."""
    path = PROFILES / "closures" / "lightning_single.json.gz"
    evidence = Evidence(facts=on_gpu(path, tmp_path))
    (found,) = cuda_graphs.check(evidence)
    launching = evidence.known_facts.host_idle.launching_ns
    assert found.saving.low_ns < 0.1 * launching < 0.9 * found.saving.high_ns

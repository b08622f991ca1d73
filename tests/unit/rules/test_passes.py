"""What compiling or capturing a model can reach: its forward and backward passes."""

from pathlib import Path

import pytest

from gpuadvisor.domain.profile import Range
from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.rules.catalogue import cuda_graphs, host_bound, launch_bound
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.intervals import both
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.launching import saved_by_launching
from tests.on_gpu import on_gpu
from tests.rules.building import timeline
from tests.rules.programs import Program

PROFILES = Path(__file__).parents[2] / "data" / "profiles"
ENGINE = "autograd::engine::evaluate_function: MmBackward0"
STEPS = 5


def trained(within_us, between_us, numbered=True, reads=False):
    """Steps of four layers, with so much Python between two of them and between two steps; the
    second layer may read a value."""
    program = Program()
    for number in range(STEPS):
        began = program.now
        program.works(between_us)
        nodes = range(4 * number, 4 * number + 4)
        for node in nodes:
            _layer(program, "aten::mm", node if numbered else -1, 0)
            if reads and node == nodes[1]:
                program.item()
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


def test_where_no_value_is_read_before():
    found = bound(trained(1000, 0, reads=True))
    assert found.knobs == ("cpu_threads",)
    assert "The host reads a value from the GPU in the forward pass" in found.advice


def test_and_none_of_python_between_steps():
    found = bound(trained(0, 4000))
    assert found.knobs == ("cpu_threads",)
    assert "outside of forward and backward passes" in found.advice


def test_who_moves_what_is_between_steps_is_not_rid_of_launching():
    evidence = trained(0, 4000)
    facts = evidence.known_facts
    share = bound(evidence).saving.high_ns / evidence.run_ns
    assert share < saved_by_launching(facts)[1] - 0.02
    assert share > facts.window.share(facts.host_idle.other_times.total_ns)


def computing(name, us):
    """Steps of which an operator of the CPU takes the most, in the forward pass."""
    program = Program()
    for number in range(STEPS):
        began = program.now
        nodes = range(4 * number, 4 * number + 4)
        for node in nodes:
            _layer(program, "aten::mm", node, 0)
            program.computes(name, us)
        for node in reversed(nodes):
            _layer(program, ENGINE, node, 1)
        program.step(number, began)
    return timeline(program.made)


def test_a_compiler_of_the_model_makes_no_operator_of_the_cpu_shorter():
    """The loss of SSD300 that fills a tensor of the CPU, 16 ms a step."""
    found = bound(computing("aten::fill_", 2000))
    assert found.knobs == ("cpu_threads",)
    assert "compile" not in found.advice
    assert "in which the host launches" not in found.method


def test_where_the_trace_does_not_tell_the_passes_it_may_be():
    evidence = trained(0, 4000, numbered=False)
    assert evidence.known_facts.passes is None
    assert bound(evidence).knobs is None


@pytest.mark.parametrize("within_us, between_us, inside", [(1000, 0, 0.7), (0, 4000, 0.0)])
def test_passes_last_from_their_first_operator_to_the_last(within_us, between_us, inside):
    facts = trained(within_us, between_us).known_facts
    other = facts.host_idle.other_times
    assert both(other, facts.passes.times).total_ns / other.total_ns == pytest.approx(
        inside, abs=0.1
    )


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


def launched(layers=40, read_before=None, unnamed=0):
    """Steps of many short kernels, whose forward pass reads a value before one of its layers, and
    which launch so many in none of its passes."""
    program = Program()
    for number in range(STEPS):
        began = program.now
        nodes = range(layers * number, layers * (number + 1))
        for node in nodes:
            if read_before is not None and node == nodes[0] + read_before:
                program.item()
            _short(program, "aten::mm", node, 0)
        for node in reversed(nodes):
            _short(program, ENGINE, node, 1)
        program.launches("vectorized_elementwise_kernel", runs=3, times=unnamed, op=15)
        program.step(number, began)
    return timeline(program.made)


def _short(program, name, sequence, forward_thread):
    began = program.now
    program.launches("gemm", runs=3, op=15)
    when = (began, program.now - began)
    program.made.operator(name, when, sequence=sequence, forward_thread=forward_thread)


def slow_to_launch(evidence):
    (found,) = launch_bound.check(evidence)
    return found


def test_a_value_that_a_forward_pass_reads_first_keeps_a_compiler_from_most_of_it():
    """A Transformer of PyTorch's own modules that asks if its mask is causal: compiling it cost
    12 % on an H200, and CUDA graphs 10 %."""
    evidence = launched(read_before=5)
    found = slow_to_launch(evidence)
    assert found.knobs == ("batch_size",)
    assert "The host reads a value from the GPU in the forward pass" in found.advice
    passes = evidence.known_facts.passes
    assert passes.interrupted == STEPS
    assert passes.reached.total_ns < 0.2 * passes.times.total_ns


def test_one_that_it_reads_last_does_not():
    """A loss that looks at its value."""
    evidence = launched(read_before=38)
    assert "compile" in slow_to_launch(evidence).knobs
    passes = evidence.known_facts.passes
    assert passes.reached.total_ns > 0.9 * passes.times.total_ns


@pytest.mark.parametrize("trains", [True, False])
def test_an_optimizer_is_fused_only_where_one_steps(trains):
    program = Program()
    for _ in range(20):
        program.launches("gemm", runs=3, times=10, op=40)
        if trains:
            program.made.range("Optimizer.step#Adam.step", (program.now, 200), Range.USER)
        program.launches("adam", runs=3, times=3, op=40)
    found = slow_to_launch(timeline(program.made))
    assert ("fused_optimizer" in found.knobs) is trains


def test_without_any_all_of_the_passes_is_reached():
    passes = launched().known_facts.passes
    assert passes.reached.total_ns == passes.times.total_ns
    assert not passes.interrupted


def test_compiling_a_model_leaves_what_is_launched_between_its_passes():
    alone, beside = (slow_to_launch(launched(unnamed=each)).saving for each in (0, 160))
    assert alone.low_ns > 0.25 * alone.high_ns
    assert beside.low_ns < 0.1 * beside.high_ns


@pytest.mark.parametrize("layers, least", [(4, 0.0), (8, 0.0), (80, 0.35)])
def test_capturing_few_kernels_saves_less_than_calling_what_was_captured_takes(layers, least):
    """Lightning's autoencoder on an H200: 17 kernels a pass, and 1.9 % (-2.9 to 6.3) were saved."""
    (found,) = cuda_graphs.check(launched(layers=layers))
    assert found.saving.low_ns / found.saving.high_ns == pytest.approx(least, abs=0.05)

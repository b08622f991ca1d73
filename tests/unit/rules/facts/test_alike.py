"""What of one recording is alike in another one."""

import numpy as np

from gpuadvisor.domain.profile import Range
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.placing import calls_alike, work_alike
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.registry import load_rules
from tests.profiles import Made
from tests.rules.programs import Program


def made(order):
    """Kernels `gemm` of products of some sizes, each launched by an operator of its own."""
    profile = Made()
    for place, size in enumerate(order):
        profile.operator("aten::mm", (100 * place, 50), shapes=f"[[{size}]]")
        profile.launched("gemm", call=(100 * place + 10, 5), runs=(100 * place + 50, 10))
    return Facts(profile.profile())


def test_kernels_are_told_by_the_shapes_of_their_operators():
    one, other = made([1, 2]), made([2, 1, 2, 3])
    assert work_alike(one, np.array([1]), other).tolist() == [0, 2]
    assert calls_alike(one, np.array([0, 1]), other).tolist() == [0, 1, 2]
    assert work_alike(one, np.array([], np.int64), other).tolist() == []


def test_where_no_operator_is_alike_the_name_has_to_do():
    assert work_alike(made([9]), np.array([0]), made([1, 2])).tolist() == [0, 1]


def waiting(*frames):
    """A program whose host fetches values, with Python functions that run all the time."""
    program = Program()
    for _ in range(20):
        program.works(200)
        program.launches("kernel", runs=300)
        program.item()
    for frame in frames:
        program.made.range(frame, (0, 2 * program.time_us), Range.PYTHON)
    return Facts(program.made.profile())


def test_a_finding_of_steps_without_stacks_is_placed_by_one_with_them():
    rules = [rule for rule in load_rules() if rule.name == "sync_in_loop"]
    (bare,) = diagnose(Evidence(facts=waiting()), rules).findings
    (placed,) = diagnose(
        Evidence(facts=waiting(), stacked=waiting("log.py(4): show")), rules
    ).findings
    assert (bare.source, placed.source) == (None, "log.py:4")
    assert placed.place.function == "show"
    assert placed.improvement_pct == bare.improvement_pct

"""How far rounding carries a model that is given its own outputs, by lives that were made up."""

import pytest

from gpuadvisor.domain.rehearsal import Call, Life, Loop, LoopKind
from gpuadvisor.domain.study import TrialState
from gpuadvisor.tuners.rehearsal.rollouts import rollout_apart


def life(apart, planned=2000, shortened=True, plan=True, first_input=0):
    """A life with a loop of calls that put out one number each, so far apart from 1."""
    calls = tuple(
        Call(100 * n + (plan and n > 0) + first_input, 1, 1, False, ((1.0 + plan * each,),))
        for n, each in enumerate([apart[0], *apart])
    )
    loop = Loop("simulate.py, line 9", LoopKind.STEPS, planned, len(calls) - 1, shortened)
    return Life(TrialState.COMPLETE, calls=calls, loops=(loop,))


def at_end(apart, **changes):
    unchanged, plan = life(apart, plan=False, **changes), life(apart, **changes)
    found = rollout_apart(unchanged, unchanged, plan)
    return found and found[0]


LINEAR = [0.001 * (n + 1) for n in range(16)]


def test_a_difference_that_grows_is_extended_to_the_loops_end():
    assert at_end(LINEAR) == pytest.approx(0.001 * 2000, rel=0.5)
    assert at_end([0.001 * (n + 1) ** 0.5 for n in range(16)]) == pytest.approx(0.04, rel=0.5)
    assert at_end([0.001 * 2**n for n in range(16)]) > 100
    assert at_end(LINEAR, planned=None) > 0.3


@pytest.mark.parametrize("apart", [[0.004] * 16, [0.004, 0.005] * 8, [1e-9 * n for n in range(16)]])
def test_one_that_does_not_grow_is_not(apart):
    assert at_end(apart) <= 0.006


def test_what_is_no_rollout_or_was_lived_to_its_end():
    assert at_end(LINEAR, shortened=False) is None
    assert at_end(LINEAR[:5]) is None
    unchanged = life(LINEAR, plan=False)
    assert rollout_apart(unchanged, unchanged, unchanged) is None
    second_model = life(LINEAR, first_input=7)
    assert rollout_apart(unchanged, unchanged, second_model) is None
    assert rollout_apart(unchanged, second_model, life(LINEAR)) is None

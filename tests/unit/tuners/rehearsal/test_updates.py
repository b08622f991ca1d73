"""Steps that round otherwise, held against those with more digits."""

import random
from dataclasses import replace

import pytest

from gpuadvisor.domain.rehearsal import Update
from gpuadvisor.tuners.rehearsal.updates import error, less_near

COUNTS = (8,) * 12
LIMIT = 0.1
RATE = 0.001


def step(gradients, rate=RATE, loss=2.0):
    return Update(tuple(gradients), tuple(-rate * g for g in gradients), (loss,), counts=COUNTS)


def exact(seed):
    """Gradients of parameters that differ in size by powers of ten."""
    numbers = random.Random(f"exact {seed}")
    return step([numbers.gauss(0, 10.0 ** (n // 8 % 4 - 4)) for n in range(sum(COUNTS))])


def rounded(true, size, seed, of=range(12)):
    """A step whose gradients lose this part of each parameter's size, in those of these."""
    numbers = random.Random(f"rounded {seed}")
    gradients = list(true.gradients)
    for parameter in of:
        place = slice(8 * parameter, 8 * parameter + 8)
        norm = sum(g * g for g in gradients[place]) ** 0.5
        noise = [numbers.gauss(0, 1) for _ in range(8)]
        scale = size * norm / sum(n * n for n in noise) ** 0.5
        gradients[place] = [g + scale * n for g, n in zip(gradients[place], noise, strict=True)]
    return step(gradients)


def held(plan, own=0.3):
    """What is said of the plan's steps; of the unchanged script's, this part is rounding."""
    true = [exact(n) for n in range(4)]
    ours = [rounded(each, own, f"own {n}") for n, each in enumerate(true)]
    return less_near(ours, [plan(each, n) for n, each in enumerate(true)], true, LIMIT)


@pytest.mark.parametrize("size", [0.0, 0.05, 0.1, 0.25])
def test_what_is_nearer_is_as_good(size):
    assert held(lambda true, n: rounded(true, size, n)) is None


def test_as_near_to_the_limit_is_as_good_where_the_scripts_own_is_nearer():
    assert held(lambda true, n: rounded(true, 0.05, n), own=0.001) is None


TRAPS = {
    "more rounding": lambda true, n: rounded(true, 0.35, n),
    "more rounding in one of the steps": lambda true, n: rounded(true, 0.35 if n == 2 else 0.05, n),
    "one parameter is not trained": lambda true, n: step([*true.gradients[:-8], *(0.0,) * 8]),
    "a small parameter is turned round": lambda true, n: step(
        [*(-g for g in true.gradients[:8]), *true.gradients[8:]]
    ),
    "a parameter has those of another": lambda true, n: step(
        [*true.gradients[8:16], *true.gradients[:8], *true.gradients[16:]]
    ),
    "gradients of a scaled loss": lambda true, n: step([1.5 * g for g in true.gradients]),
    "gradients of half a loss": lambda true, n: step([0.6 * g for g in true.gradients]),
    "another learning rate": lambda true, n: step(true.gradients, rate=1.2 * RATE),
    "no step": lambda true, n: step(true.gradients, rate=0.0),
    "NaN": lambda true, n: step([float("nan"), *true.gradients[1:]]),
    "other parameters": lambda true, n: replace(true, counts=(4, 12, *COUNTS[2:])),
}


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_what_is_not_nearer_in_all_is_told(trap):
    assert held(trap)


def test_a_reference_of_another_function_excuses_nothing():
    true = [exact(n) for n in range(2)]
    other = [step([-g for g in each.gradients]) for each in true]
    plan = [rounded(each, 0.9, n) for n, each in enumerate(other)]
    assert "far from the script's own" in less_near(true, plan, other, LIMIT)


def test_a_parameter_without_gradients_is_told_however_far_off_the_scripts_own_are():
    true = [exact(n) for n in range(3)]
    ours = [rounded(each, 1.5, 1, of=[0]) for each in true]
    nothing = [step([*(0.0,) * 8, *each.gradients[8:]]) for each in true]
    assert "has no gradients" in less_near(ours, nothing, true, LIMIT)


def test_gradients_where_there_should_be_none_are_not_near_however_many_there_are():
    """Of a parameter that the reference does not train; the script's own has some, too."""
    true = [step([0.0] * 8 + [1.0] * 88)]
    ours, plan = ([step([size] * 8 + [1.0] * 88)] for size in (0.01, 0.001))
    assert less_near(ours, plan, true, LIMIT)


def test_steps_that_are_not_there_are_not_near():
    true = [exact(0), exact(1)]
    assert less_near([], [], [], LIMIT)
    assert less_near(true, true, true[:1], LIMIT)
    nameless = [replace(each, counts=()) for each in true]
    assert less_near(nameless, nameless, nameless, LIMIT)


def test_the_error_is_that_of_the_worst_step():
    true = [exact(n) for n in range(3)]
    steps = [rounded(each, size, 1) for each, size in zip(true, (0.1, 0.4, 0.2), strict=True)]
    assert error(steps, true) == pytest.approx(0.4)

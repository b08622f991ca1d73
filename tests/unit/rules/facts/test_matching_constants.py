"""Half and twice a constant of matching: which of them no result hangs on."""

import random
from functools import cache

import pytest

from gpuadvisor.rules.facts import matching
from gpuadvisor.rules.facts.ranks import ranks_of
from tests.unit.rules.facts.test_ranks import Simulated

FREE = ("FEWEST", "MOST_SHIFT", "MOST_APART", "MOST_SKEWED", "CLEARLY")
"""Those marked as our own that decide nothing between half and twice what they are."""


@cache
def program(seed, named, clocks_us):
    """The facts of ranks that meet in groups of all and of halves, recorded from other steps on,
    whose traces have names of groups or none."""
    drawn = random.Random(seed)
    simulated = Simulated(4)
    for number in range(24):
        for rank in range(4):
            simulated.compute(rank, drawn.uniform(100, 2000) + 300 * (rank == seed % 4))
        simulated.meet((0, 1, 2, 3), elements=1000 + number % 3, jitter_us=drawn.uniform(0, 3))
        if number % 2:
            for pair in ((0, 1), (2, 3)):
                simulated.meet(pair, group=f"half {pair[0]}", elements=500)
    return [
        simulated.facts(rank, named, clocks_us[rank], missing=3 * (rank % 2), numbered=False)
        for rank in range(4)
    ]


CASES = [
    (seed, named, clocks)
    for seed in range(4)
    for named in (True, False)
    for clocks in ((0.0, 0.0, 0.0, 0.0), (0.0, 40.0, -30.0, 7e6))
]


def told():
    """What is said of each program: who came last how often, and how long was waited."""
    return [
        (found.collectives, found.waited_ns, [(each.place, each.last) for each in found.late])
        for found in (ranks_of(program(*each)) for each in CASES)
    ]


@pytest.fixture(scope="module")
def usual():
    return told()


def test_these_programs_are_matched(usual):
    assert sum(collectives > 0 for collectives, _, _ in usual) >= len(CASES) / 2


@pytest.mark.parametrize("factor", [0.5, 2])
@pytest.mark.parametrize("name", FREE)
def test_nothing_hangs_on_half_or_twice_of(name, factor, usual, monkeypatch):
    value = getattr(matching, name)
    monkeypatch.setattr(matching, name, type(value)(factor * value))
    assert told() == usual

"""Proofs whose processes time both sides in turns: `benchmarks/proofs_in_turns.py`, with few
studies, and what they rest on."""

import math
from functools import partial

import pytest

from gpuadvisor.domain.study import InTurns
from gpuadvisor.tuners.statistics import Pair, proven_ratio, ratio_in_turns
from tests import simulation
from tests.benchmark_files import loaded

STUDIES = 60
MOST = 2
"""Most claims in 60 studies at 1 in 200 that all but three of 1,000 tests would see by chance."""


@pytest.fixture(scope="module")
def rates():
    return loaded("proofs_in_turns")


@pytest.mark.parametrize(("within", "pairs"), [(0.005, 4), (0.01, 6), (0.02, 8)])
def test_five_percent_are_proven_though_starts_differ_by_ten(rates, within, pairs):
    make = partial(rates.starts, within=within)
    found = rates.proofs(make, 0.05, STUDIES, pairs)
    assert found.faster >= 0.9 * STUDIES
    assert found.in_turns == 1.0
    assert rates.proofs(make, 0.05, STUDIES, pairs, blocks=0).faster <= MOST, "by starts alone"


WRONG = (
    "none",
    "each second block 5 % faster",
    "5 % faster from the first block to the last",
    "unchanged script 5 % slower once the plan was on",
    "plan 5 % faster when turned on than from the start",
    "plan 5 % faster where it was not on at the start",
    "blocks 5 % faster where the plan was on at the start",
    "blocks 5 % slower where the plan was on at the start",
)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_blocks_is_no_gain(rates, name):
    make = partial(rates.starts, within=0.005)
    assert rates.proofs(make, 0.0, STUDIES, 8, bias=rates.BIASES[name]).faster <= MOST


@pytest.mark.parametrize("period_s", [6, 30])
def test_a_neighbour_is_no_gain(rates, period_s):
    make = partial(rates.neighbour, period_s=period_s)
    assert rates.proofs(make, 0.0, STUDIES).faster <= MOST


def test_a_gain_of_live_blocks_that_fresh_starts_do_not_have_is_not_claimed(rates):
    """Turned on it is 5 % faster, from the start it brings nothing: no gain for any user."""
    bias = rates.BIASES["plan 5 % faster when turned on than from the start"]
    found = rates.proofs(partial(rates.starts, within=0.001), 0.0, STUDIES, 8, bias=bias)
    assert found.faster <= MOST


PAIRS = [
    Pair(10.0, 9.0, True),
    Pair(12.0, 10.8, False),
    Pair(15.0, 13.5, True),
    Pair(9, 8.1, False),
]


def in_turns(gain):
    """Return what both sides took where blocks agree with the starts, but for their gain."""
    return [
        tuple(InTurns(level * math.sqrt(gain), level / math.sqrt(gain)) for level in (base, base))
        for base in (each.base * 1e3 for each in PAIRS)
    ]


def test_the_ratio_is_that_of_the_starts():
    found = ratio_in_turns(PAIRS, in_turns(1 / 0.9))
    assert found.ratio == pytest.approx(1 / 0.9)
    assert found.in_turns
    assert found.ci99_low > 1.1
    assert proven_ratio(PAIRS).ci99_low < 1.0


def test_the_interval_holds_what_the_blocks_show_too():
    found = ratio_in_turns(PAIRS, in_turns(0.99))
    assert found.ci99_low < 1.0 < found.ci99_high


def test_processes_that_did_not_all_turn_are_compared_as_they_started():
    evaluator = simulation.SimulatedEvaluator(
        simulation.multiplied({"knob": 1.1}), simulation.quiet(), baselines=3, blocks=4
    )
    measured, blocks = [], evaluator._blocks

    def once(*arguments):
        measured.append(arguments)
        return None if len(measured) == 3 else blocks(*arguments)

    evaluator._blocks = once
    found = simulation.prove_point(evaluator, {"knob": True}, simulation.Objective.THROUGHPUT)
    assert not found.speedup.in_turns
    assert found.speedup.ratio == pytest.approx(1.1)

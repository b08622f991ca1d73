"""What is said of a gate that was interrupted: what its pairs showed, and no more than that."""

from dataclasses import replace

import pytest

from gpuadvisor.domain.gate import GateRun
from gpuadvisor.domain.study import InTurns, Trial, TrialState
from gpuadvisor.tuners.gate.metrics import chosen
from gpuadvisor.tuning.gate.unfinished import told_of
from tests.simulation import measurement

EARLY = "too early for a verdict"


def run(side, place, step_ms, **more):
    made = measurement([step_ms] * 8)
    trial = Trial(0, {}, "proof", TrialState.COMPLETE, "", made)
    return GateRun(side, replace(trial, **more), place=place)


def pair(number, base_ms, head_ms, more="", **known):
    place = f"pair {number}{more}"
    return [run("base", place, base_ms, **known), run("head", place, head_ms, **known)]


FIRST = [run("base", "first", 1.0), run("head", "first", 9.0), run("base", "known", 1.0)]
THREE = [*pair(1, 10, 17), *pair(2, 10, 24), *pair(3, 10, 19)]
TOLD = f"interrupted after 3 pairs of runs, {EARLY}; in them a step of new took 1.90 times as long"


def told(runs, only=()):
    return told_of(runs, "old", "new", chosen((), only))


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        (FIRST, "interrupted before anything was compared"),
        ([*FIRST, *pair(1, 10, 19)[:1]], "interrupted before anything was compared"),
        (
            [*FIRST, *pair(1, 10, 19)],
            f"interrupted after 1 pair of runs, {EARLY}; in it a step of new took 1.90 times as "
            "long as one of old",
        ),
        ([*FIRST, *THREE], f"{TOLD} as one of old (median; 1.70 to 2.40)"),
        # The fourth has one run only.
        ([*THREE, *pair(4, 1, 100)[:1]], f"{TOLD} as one of old (median; 1.70 to 2.40)"),
        # What was disturbed is made again, under another name where nothing is obvious any more.
        (
            [*pair(1, 10, 90, ", in turns, short"), *THREE],
            f"{TOLD} as one of old (median; 1.70 to 2.40)",
        ),
        # The third was being made again.
        (
            [*THREE, *pair(3, 10, 99)[:1]],
            f"interrupted after 2 pairs of runs, {EARLY}; in them a step of new took 2.05 times "
            "as long as one of old (median; 1.70 to 2.40)",
        ),
        (
            [*THREE[:4], *pair(3, 10, 19, disturbance="others used a core")],
            f"{TOLD} as one of old (median; 1.70 to 2.40); something else used the machine beside "
            "2 of 6 runs",
        ),
    ],
)
def test_what_the_pairs_have_shown(runs, words):
    assert told(runs) == words


def test_a_run_that_failed_makes_no_pair():
    failed = run("head", "pair 1", 9.0, state=TrialState.CRASHED, measurement=None)
    assert told([run("base", "pair 1", 1.0), failed]).endswith("before anything was compared")


def test_blocks_in_turns_are_compared_with_those_beside_them():
    base, head = pair(1, 10, 40, ", in turns")
    base, head = replace(base, blocks_ms=(10.0, 20.0)), replace(head, blocks_ms=(20.0, 40.0))
    assert "took 2.00 times as long as one of old" in told([base, head])


def test_sides_that_took_turns_in_each_process_are_compared_by_that():
    runs = pair(1, 10, 40, in_turns=InTurns(10.0, 30.0))
    assert "took 3.00 times as long as one of old" in told(runs)


def test_no_step_time_is_told_where_none_is_compared():
    assert told(THREE, only=("peak_memory",)) == f"interrupted after 3 pairs of runs, {EARLY}"

"""How often a proof whose processes time both sides in turns claims a gain that is not there.

    python benchmarks/proofs_in_turns.py [--studies 2000] [--jobs 1]

The real proof on simulated runs that differ by 10 % from start to start: each is measured as it
started, then both sides follow one another in blocks. Also on the noises and beside the neighbours
of `false_claims.py`, and with what may be wrong with blocks. Nothing is measured here.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.false_claims import (
    BASELINES,
    NOISES,
    PERIODS_S,
    TUNED,
    Make,
    Rates,
    neighbour,
    rate,
    tables,
)
from gpuadvisor.domain.study import Objective
from gpuadvisor.tuners.proof import is_faster, is_no_gain, prove_point
from tests import simulation

BETWEEN = 0.1
"""Relative standard deviation of runs of the same settings."""
WITHIN = (0.005, 0.01, 0.02)
"""That of a run's windows and blocks."""
RATIOS = 0.003
"""That of the gain, from one process to the next."""
BLOCKS = 8
"""Blocks of a process, of both sides together."""
PAIRS = (4, 6, 8)
"""Pairs of processes that a proof has at most."""


def _compiled(started: bool, tuned: bool, place: int) -> float:
    """Once the tuned side was on, the other is slower than it was from its start."""
    return 1.05 if place >= 0 and not tuned else 1.0


BIASES: Mapping[str, simulation.Bias] = {
    "none": lambda started, tuned, place: 1.0,
    "each second block 5 % faster": lambda started, tuned, place: 1 - 0.05 * (place % 2),
    "5 % faster from the first block to the last": lambda s, t, place: 1 - 0.006 * max(0, place),
    "first block 20 % slower": lambda started, tuned, place: 1 + 0.2 * (place == 0),
    "windows of the start 10 % slower": lambda started, tuned, place: 1 + 0.1 * (place < 0),
    "unchanged script 5 % slower once the plan was on": _compiled,
    "plan 5 % faster when turned on than from the start": lambda s, tuned, place: (
        1 - 0.05 * (tuned and place >= 0)
    ),
    "plan 5 % faster where it was not on at the start": lambda started, tuned, place: (
        1 - 0.05 * (tuned and not started)
    ),
    "blocks 5 % faster where the plan was on at the start": lambda started, tuned, place: (
        1 - 0.05 * (started and place >= 0)
    ),
    "blocks 5 % slower where the plan was on at the start": lambda started, tuned, place: (
        1 + 0.05 * (started and place >= 0)
    ),
}


@dataclass(frozen=True)
class InTurnsRates(Rates):
    """What came of some studies, of which a share rests on blocks."""

    in_turns: float = 0.0


def proofs(
    make: Make,
    gain: float,
    studies: int,
    pairs: int = 16,
    blocks: int = BLOCKS,
    bias: simulation.Bias = BIASES["none"],
) -> InTurnsRates:
    """Prove settings that are faster by `gain` so many times, within so many pairs."""
    model = simulation.multiplied({"knob": 1 + gain})
    faster = no_gain = total = turned = 0
    for study in range(studies):
        seed = f"in turns {study}"
        evaluator = simulation.SimulatedEvaluator(
            model,
            make(random.Random(seed)),
            seed=seed,
            baselines=BASELINES,
            budget=BASELINES + 2 * pairs,
            blocks=blocks,
            ratios=RATIOS,
            bias=bias,
        )
        if isinstance(evaluator.noise, simulation.Neighbour):
            evaluator.noise.pause(random.Random(seed).uniform(0, 600))
        proof = prove_point(evaluator, TUNED, Objective.THROUGHPUT, seed, shown=lambda found: False)
        found = proof.speedup  # a study may end where a gain is first shown
        faster += is_faster(found)
        no_gain += is_no_gain(found)
        total += found.pairs if found else 0
        turned += found is not None and found.in_turns
    return InTurnsRates(studies, faster, no_gain, total / studies, in_turns=turned / studies)


def starts(generator: random.Random, within: float) -> simulation.Noise:
    """Runs that differ from start to start, with their blocks."""
    return simulation.gaussian(generator, BETWEEN, within, simulation.WINDOWS + BLOCKS)


def restless(generator: random.Random, period_s: float) -> simulation.Neighbour:
    """A neighbour of this period beside a script whose starts differ, too."""
    made = neighbour(generator, period_s)
    made.between = BETWEEN
    return made


def _power_row(studies: int, within: float) -> str:
    make = partial(starts, within=within)
    cells = [f"{proofs(make, 0.05, studies, pairs).claims:.1%}" for pairs in PAIRS]
    alone = proofs(make, 0.05, studies, PAIRS[-1], blocks=0)
    none = proofs(make, 0.0, studies, PAIRS[-1])
    ends = [f"{alone.claims:.1%}", rate(none), f"{none.no_gain / studies:.1%}"]
    return f"| {within:.1%} | {' | '.join([*cells, *ends])} |"


def _bias_row(studies: int, name: str) -> str:
    make, bias = partial(starts, within=0.01), BIASES[name]
    none, five = (proofs(make, gain, studies, PAIRS[-1], bias=bias) for gain in (0.0, 0.05))
    return f"| {name} | {rate(none)} | {five.claims:.1%} | {five.in_turns:.0%} |"


def _noise_row(studies: int, name: str) -> str:
    # Half of a run's windows stand for its blocks: recorded runs have no others.
    found = proofs(NOISES[name], 0.0, studies, blocks=simulation.WINDOWS // 2)
    return f"| {name} | {rate(found)} | {found.in_turns:.0%} |"


def _neighbour_row(studies: int, period_s: float) -> str:
    alike, apart = (
        proofs(partial(make, period_s=period_s), 0.0, studies) for make in (neighbour, restless)
    )
    return f"| {period_s} s | {rate(alike)} | {rate(apart)} |"


def main() -> None:
    """Print tables of rates."""
    with tables(__doc__) as table:
        print(f"of their 95 % interval. Starts differ by {BETWEEN:.0%}.")
        of_pairs = " | ".join(f"5 % in {pairs} pairs" for pairs in PAIRS)
        head = f"| blocks differ by | {of_pairs} | without blocks | 0 % | no gain shown |"
        table(head, _power_row, WITHIN)
        table("| wrong with blocks | true gain 0 % | 5 % | by blocks |", _bias_row, BIASES)
        table("| noise | true gain 0 % | by blocks |", _noise_row, NOISES)
        head = "| neighbour's period | true gain 0 % | where starts differ by 10 %, too |"
        table(head, _neighbour_row, PERIODS_S)


if __name__ == "__main__":
    main()

"""How often a study claims a gain where there is none, and how often it proves one that there is.

    python benchmarks/false_claims.py [--studies 2000] [--jobs 1]

The real proof, and the real search with its ablation and proof, run on simulated and on recorded
noise (`tests/data/aa_runs.json`), and beside simulated neighbours: second jobs that come and go.
Nothing is measured here; with 2000 studies each it takes some ten minutes of two cores anywhere.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.rates import at_most
from gpuadvisor.domain.study import Objective
from gpuadvisor.tuners.proof import is_faster, is_no_gain, prove_point
from tests import simulation

Make = Callable[[random.Random], simulation.Noise]

NOISES: dict[str, Make] = {
    "recorded runs": simulation.recorded,
    "gaussian, 0.5 % between runs": simulation.gaussian,
    "gaussian, 5 % between runs": lambda generator: simulation.gaussian(generator, 0.05),
    "drift, 5 % over 40 runs": simulation.drifting,
    "drift, 50 % over 40 runs": lambda generator: simulation.drifting(generator, 0.5),
    "bimodal, 30 % of runs 5 % slower": simulation.bimodal,
    "bimodal, half of runs 20 % slower": lambda g: simulation.bimodal(g, 0.5, 0.2),
    "throttling, 5 % for some runs": simulation.throttling,
    "heavy tails (t, 2 degrees)": simulation.heavy_tailed,
}
PLACEBOS = tuple(simulation.Switch(f"placebo_{n}", (True, 2)) for n in range(8))
TUNED = {"knob": True}

PERIODS_S = (4, 6, 8, 10, 12, 15, 20, 25, 30, 40, 60, 90, 120, 180, 300)
"""Periods of the neighbours."""
SLOWER = (1.05, 1.2, 2.0, 3.0)
DUTIES = (0.1, 0.25, 0.5, 0.75, 0.9)
RUNS_S = (5.0, 30.0)
"""Shortest and longest run, without what the neighbour costs it."""
LONGER_STARTS = (0.0, 0.0, 0.5, 1.0, 2.0)
"""Parts of a run that the tuned side's start takes longer."""
SPREADS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05)
WITHIN_PAIRS = 16
FEW = (3, 4, 5, 6, 8, 12)
"""Pairs after which a budget ends a proof."""
BASELINES = 3


@dataclass(frozen=True)
class Rates:
    """What came of some studies."""

    studies: int
    faster: int
    no_gain: int
    pairs: float
    """Mean number of pairs."""
    missed: int = 0
    """Intervals beside the true gain."""

    @property
    def claims(self) -> float:
        return self.faster / self.studies

    @property
    def at_most(self) -> float:
        """Upper end of the one-sided 95 % interval of the rate of claims."""
        return at_most(self.faster, self.studies)


def neighbour(
    generator: random.Random, period_s: float, recognised: float = 0.0
) -> simulation.Neighbour:
    """Draw a job of this period, and a script that it disturbs."""
    run_s = generator.uniform(*RUNS_S)
    measure_s = min(4.0, max(1.5, run_s * generator.uniform(0.1, 0.5)))
    return simulation.Neighbour(
        generator,
        period_s,
        generator.choice(SLOWER),
        generator.choice(DUTIES),
        startup_s=run_s - measure_s,
        measure_s=measure_s,
        head_startup_s=generator.choice(LONGER_STARTS) * run_s,
        between=generator.choice((0.002, 0.005, 0.02)),
        recognised=recognised,
    )


def proofs(make: Make, gain: float, studies: int, pairs: int | None = None, seed: int = 0) -> Rates:
    """Prove settings that are faster by `gain` so many times, until a budget of so many pairs ends
    or, without one, until it is decided.
    """
    model = simulation.multiplied({"knob": 1 + gain})
    budget = {} if pairs is None else {"budget": BASELINES + 2 * pairs}
    faster = no_gain = total = missed = 0
    for study in range(studies):
        generator = random.Random(f"{seed} {study}")
        evaluator = simulation.SimulatedEvaluator(
            model, make(generator), seed=f"{seed} {study}", baselines=BASELINES, **budget
        )
        if isinstance(evaluator.noise, simulation.Neighbour):  # the search lasts its time
            evaluator.noise.pause(generator.uniform(0, 600))
        # A study may end where a gain is first shown, as its rehearsal takes the rest of the time.
        proof = prove_point(
            evaluator, TUNED, Objective.THROUGHPUT, evaluator.seed, shown=lambda found: False
        )
        found = proof.speedup
        faster += is_faster(found)
        no_gain += is_no_gain(found)
        total += found.pairs if found else 0
        missed += found is not None and not found.ci99_low <= 1 + gain <= found.ci99_high
    return Rates(studies, faster, no_gain, total / studies, missed)


def placebos(make: Make, studies: int, seed: int = 0) -> Rates:
    """Run whole studies over knobs that do nothing."""
    model = simulation.multiplied({})
    claims = 0
    for study in range(studies):
        evaluator = simulation.SimulatedEvaluator(
            model,
            make(random.Random(f"{seed} {study}")),
            seed=f"{seed} {study}",
            baselines=BASELINES,
        )
        proof = simulation.tuned(evaluator, PLACEBOS).proof
        claims += proof is not None and is_faster(proof.speedup)
    return Rates(studies, claims, 0, 0.0)


def beside(period_s: float, recognised: float, studies: int) -> Rates:
    """Prove nothing beside neighbours of a period."""
    return proofs(partial(neighbour, period_s=period_s, recognised=recognised), 0.0, studies)


def _noise_row(studies: int, name: str) -> str:
    make = NOISES[name]
    cells = [
        rate(proofs(make, 0.0, studies)),
        rate(placebos(make, studies)),
        f"{proofs(make, 0.03, studies).claims:.1%}",
        f"{proofs(make, 0.1, studies).claims:.1%}",
    ]
    return f"| {name} | {' | '.join(cells)} |"


def _neighbour_row(studies: int, period_s: float) -> str:
    found = [beside(period_s, recognised, studies) for recognised in (0.0, 0.8)]
    return f"| {period_s} s | {' | '.join(map(rate, found))} |"


def _few_row(studies: int, case: tuple[str, int]) -> str:
    name, pairs = case
    make = NOISES.get(name) or partial(neighbour, period_s=int(name.split()[1]))
    none, tenth, half = (proofs(make, gain, studies, pairs) for gain in (0.0, 0.1, 0.5))
    missed = max(each.missed for each in (none, tenth, half))
    return (
        f"| {name} | {pairs} | {rate(none)} | {tenth.claims:.0%} | {half.claims:.0%} |"
        f" {missed / studies:.2%} (at most {at_most(missed, studies):.2%}) |"
    )


def _power_row(studies: int, spread: float) -> str:
    make = partial(simulation.gaussian, between=spread)
    five, huge = (proofs(make, gain, studies, WITHIN_PAIRS) for gain in (0.05, 2.0))
    none = proofs(make, 0.0, studies, WITHIN_PAIRS)
    return (
        f"| {spread:.1%} | {five.claims:.1%} | {five.pairs:.1f} | {huge.claims:.1%} |"
        f" {huge.pairs:.1f} | {none.claims:.2%} | {none.no_gain / studies:.1%} |"
    )


def rate(found: Rates) -> str:
    """Return the rate of claims with the end of its interval."""
    return f"{found.claims:.2%} (at most {found.at_most:.2%})"


Table = Callable[[str, Callable[..., str], Iterable[object]], None]
"""Prints a table of its head, what makes a line of a number of studies and a case, and cases."""


@contextmanager
def tables(about: str) -> Iterator[Table]:
    """Read the arguments and give what prints a table of so many studies."""
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=1, help="processes that work side by side")
    chosen = parser.parse_args()
    with ProcessPoolExecutor(chosen.jobs) as pool:

        def table(head: str, row: Callable[..., str], of: Iterable[object]) -> None:
            columns = head.count("|") - 2
            print(f"\n{head}\n|---|{'--:|' * columns}")
            for line in pool.map(partial(row, chosen.studies), of):
                print(line, flush=True)

        print(f"Claims of a gain in {chosen.studies} studies each; in brackets the upper end")
        yield table


def main() -> None:
    """Print tables of rates."""
    with tables(__doc__) as table:
        print("of their 95 % interval.")
        head = "| noise | true gain 0 %: proof | 8 placebo knobs: study | 3 % | 10 % |"
        table(head, _noise_row, NOISES)
        head = "| neighbour's period | true gain 0 % | with 8 of 10 disturbed runs recognised |"
        table(head, _neighbour_row, PERIODS_S)
        print("\nWhere the budget ends a proof, the last look has half of the error that is left:")
        beside_few = (f"neighbour {period_s} s" for period_s in PERIODS_S[::3])
        cases = [(name, pairs) for name in (*NOISES, *beside_few) for pairs in FEW]
        head = (
            "| noise | pairs | 0 % claimed | 10 % proven | 50 % proven | true gain missed, worst |"
        )
        table(head, _few_row, cases)
        print(f"\nWithin {WITHIN_PAIRS} pairs, by the spread between runs:")
        head = "| spread | 5 % proven | pairs | 3x proven | pairs | 0 % claimed | no gain shown |"
        table(head, _power_row, SPREADS)


if __name__ == "__main__":
    main()

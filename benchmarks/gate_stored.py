"""How often `gpuadvisor gate check` fails for an unchanged version, and finds a slower one.

    python benchmarks/gate_stored.py [--studies 4000] [--jobs 1]

The real decision and the real search for changes of level run on simulated days: each has a level
of its own, around which its runs differ. Beside them, on the same days, what benchmark tools do
with stored results: fail where the mean of the new runs is 5 % above that of the newest recording,
and Welch's test of the new runs and all recorded ones at 1 %. Nothing is measured here; 4000 gates
each take some ten minutes of two cores anywhere.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpuadvisor.domain.gate import GateVerdict
from gpuadvisor.tuners.gate.change_points import change_points
from gpuadvisor.tuners.gate.decision import TOLERANCE, Bounds
from gpuadvisor.tuners.gate.stored import LEAST, RUNS, compare_stored

SHARE = 0.9
"""Part of the error that step times may use up, as in a gate."""
SLOWER = (0.0, 0.01, 0.03, 0.05)
RECORDED = (5, 10, 20)
BETWEEN = (0.005, 0.01, 0.02)
BIMODAL_SHARE, BIMODAL = 0.2, 0.015
"""Share of processes that are slower, and by how much: as *typical* in `gate_decision.py`."""
WITHIN = 0.005
FREEDOM = 3
"""Degrees of freedom of days with heavy tails (Student's t)."""


@dataclass(frozen=True)
class Days:
    """How days differ."""

    between: float
    """Standard deviation of their levels."""
    lasting: float = 0.0
    """Correlation of a day's level with that of the day before."""
    heavy: bool = False
    """Whether their tails are heavy."""

    def levels(self, generator: np.random.Generator, count: int) -> np.ndarray:
        fresh = (
            generator.standard_t(FREEDOM, count) / math.sqrt(FREEDOM / (FREEDOM - 2))
            if self.heavy
            else generator.normal(size=count)
        )
        levels = [fresh[0]]
        for each in fresh[1:]:
            levels.append(self.lasting * levels[-1] + math.sqrt(1 - self.lasting**2) * each)
        return self.between * np.asarray(levels)

    def __str__(self) -> str:
        words = f"{100 * self.between:g} %"
        words += ", heavy tails" if self.heavy else ""
        return words + (f", lasting ({self.lasting:g})" if self.lasting else "")


def sessions(days: Days, generator: np.random.Generator, count: int) -> list[list[float]]:
    """Return the step times of each day's runs, around 1."""
    runs = generator.normal(0, WITHIN, (count, RUNS))
    runs += BIMODAL * (generator.random((count, RUNS)) < BIMODAL_SHARE)
    found: list[list[float]] = np.exp(runs + days.levels(generator, count)[:, None]).tolist()
    return found


def verdict(recorded: list[list[float]], new: list[float]) -> GateVerdict:
    """Return what `gate check` says."""
    means = [math.exp(np.mean(np.log(each))) for each in recorded]
    level = recorded[[0, *change_points(means, TOLERANCE / 2)][-1] :]
    if len(level) < LEAST:
        return GateVerdict.INCONCLUSIVE
    return compare_stored("step_time", level, new, Bounds(error_share=SHARE)).verdict


def fixed(recorded: list[list[float]], new: list[float]) -> bool:
    """Fail where the mean is 5 % above that of the newest recording."""
    return bool(np.mean(new) > 1.05 * np.mean(recorded[-1]))


def welch(recorded: list[list[float]], new: list[float]) -> bool:
    """Fail where Welch's test of runs says so at 1 %."""
    from scipy import stats

    all_runs = np.ravel(recorded)
    found = stats.ttest_ind(new, all_runs, equal_var=False, alternative="greater")
    return bool(found.pvalue < 0.01)


def row(gates: int, of: tuple[Days, int]) -> str:
    """Return a line of the table."""
    days, count = of
    cells = []
    for slower in SLOWER:
        verdicts, others = rates(gates, days, count, slower)
        cells.append(verdicts[GateVerdict.FAIL])
        if slower in (SLOWER[0], SLOWER[-1]):
            cells += [verdicts[GateVerdict.PASS], *others]
    return f"| {days} | {count} | {' | '.join(f'{each:.1%}' for each in cells)} |"


def rates(
    gates: int, days: Days, count: int, slower: float
) -> tuple[dict[GateVerdict, float], list[float]]:
    """Return how often gates of a version so much slower end how, and how often others fail it."""
    verdicts: Counter[GateVerdict] = Counter()
    others = {fixed: 0, welch: 0}
    rule: Callable[[list[list[float]], list[float]], bool]
    for number in range(gates):
        generator = np.random.default_rng([number, count, round(1e4 * days.between)])
        *recorded, new = sessions(days, generator, count + 1)
        new = [each * (1 + slower) for each in new]
        verdicts[verdict(recorded, new)] += 1
        for rule in others:
            others[rule] += rule(recorded, new)
    shares = {each: verdicts[each] / gates for each in GateVerdict}
    return shares, [others[rule] / gates for rule in others]


def main() -> None:
    """Print a table of rates."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--studies", type=int, default=4000)
    parser.add_argument("--jobs", type=int, default=1, help="processes that work side by side")
    chosen = parser.parse_args()
    kinds = [*map(Days, BETWEEN), Days(0.01, heavy=True), Days(0.01, lasting=0.5)]
    cases = [(days, count) for days in kinds for count in RECORDED]
    print(f"{chosen.studies} gates each, with the default tolerance (1 %) and limit (3 %).\n")
    fixed_and_welch = "by 5 % above the newest | by Welch's test"
    print(f"| days differ by | recorded | unchanged: fails | passes | {fixed_and_welch}", end="")
    print(" | 1 % slower: fails | 3 %: fails | 5 %: fails | passes", end="")
    print(f" | {fixed_and_welch} |\n|---|{'--:|' * 11}")
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for line in pool.map(partial(row, chosen.studies), cases):
            print(line, flush=True)


if __name__ == "__main__":
    main()

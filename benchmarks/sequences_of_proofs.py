"""How often a study claims something false when it searches on after a gain that it has proven.

    python benchmarks/sequences_of_proofs.py [--seconds 900] [--jobs 1]

Whole studies of the real `tune` on simulated machines: one knob brings something, what has no
room before it is proven brings nothing, a little, or harm. What a study proposes in the end
is compared with what is true. Nothing is measured here: time passes on the machines' own clocks,
and a study takes about half a second.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest
from false_claims import NOISES, Make
from rates import at_most
from simulated_studies import quick_studies

from gpuadvisor.domain.study import StudyResult
from gpuadvisor.errors import ScriptError
from gpuadvisor.tuners.proof import is_faster
from gpuadvisor.tuning.proving import Prover
from tests import simulation
from tests.study_simulation import Machine

BUDGETS_S = (1110.0, 1300.0)
"""Least and most: with less there is no room for what starts slowly, with more there is from the
beginning."""
STARTS_S = (3.0, 5.0, 8.0)
KINDS: dict[str, Make] = {
    **{name: NOISES[name] for name in NOISES if "5 % " in name and "half" not in name},
    "heavy tails (t, 2 degrees)": simulation.heavy_tailed,
    **{
        f"gaussian, {each:.0%}": partial(simulation.gaussian, between=each)
        for each in (0.01, 0.02, 0.03)
    },
}
"""Kinds of noise beside which a first proof ends before the budget does, and what brings nothing
looks better now and then."""
COMPILES_S = (10.0, 20.0, 60.0)
GAINS = (1.2, 1.5, 2.0)
"""What the one knob brings that is found first."""
ON_TOP = (0.97, 1.0, 1.0, 1.0, 1.05)
"""What one that starts slowly brings on top of that."""
LEADING = ("tf32", "channels_last", "bf16_autocast")
SLOW = "compile_max_autotune"
"""What starts slowly: it has room where the others were proven sooner than they might have been."""
STUDIES_A_STORE = 40
"""Studies that share a store: what is looked for in it grows with them."""
FALSE = ("not better", "no gain at all", "too much")
"""What is false: a replaced plan that was as good, a gain where there is none, an interval that
lies above what is true."""
NARROW = 1e-9
"""Relative difference of two gains that are equal but for rounding."""


class Noisy(Machine):
    """A machine whose runs differ as one of the kinds of noise does."""

    loaded_ms = 0.0
    computed_ms = 40.0

    def __init__(self, generator: random.Random) -> None:
        super().__init__(generator.random())
        choose = generator.choice
        self.kind, leading = choose(list(KINDS)), choose(LEADING)
        self.start_s, self.compiles_s = choose(STARTS_S), choose(COMPILES_S)
        self.life_s = 2.0 * self.start_s
        self.brings = {leading: choose(GAINS), SLOW: choose(ON_TOP)}
        others = generator.sample(LEADING, choose((0, 1)))
        self.only = frozenset({leading, SLOW, *others})
        self._noise = KINDS[self.kind](generator)
        self._is_screened = generator.random() < 0.2

    def factor(self) -> float:
        windows = next(self._noise)
        return sum(windows) / len(windows)

    def live(self, *arguments: Any) -> Any:
        if not self._is_screened:
            raise ScriptError("its steps cannot be timed in one process")
        return super().live(*arguments)


@dataclass
class Found:
    """What came of some studies."""

    count: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    """The false ones, in words."""


def judged(machine: Noisy, result: StudyResult, steps: list[tuple[Any, Any]]) -> Counter[str]:
    """Return what a study did, and what of that is false."""
    count = Counter(studies=1, improvements=len(steps))
    count["sequences"] = bool(steps)
    for before, after in steps:
        replaced = before.settings != after.settings
        count["replaced"] += replaced
        better = machine.gain(after.settings) > machine.gain(before.settings) * (1 + NARROW)
        count["not better"] += replaced and not better
    found, true = result.speedup, machine.gain(result.settings)
    if found is not None and is_faster(found):
        count["faster"] = 1
        count["no gain at all"] = true <= 1 + NARROW
        count["too much"] = found.ci99_low > true * (1 + NARROW)
    count["false"] = any(count[name] for name in FALSE)
    return count


def run(until: float, worker: int) -> Found:
    """Run studies until a moment of `time.time`."""
    found, number = Found(), 0
    improve = Prover.improve
    steps: list[tuple[Any, Any]] = []

    def noted(self: Prover, known: StudyResult, *rest: Any) -> StudyResult:
        after = improve(self, known, *rest)
        steps.append((known, after))
        return after

    while time.time() < until:
        with quick_studies() as tuned, pytest.MonkeyPatch.context() as patch:
            patch.setattr(Prover, "improve", noted)
            for _ in range(STUDIES_A_STORE):
                number += 1
                steps.clear()
                seed = f"{worker} {number}"
                generator = random.Random(seed)
                machine, budget_s = Noisy(generator), generator.uniform(*BUDGETS_S)
                result, _ = tuned(machine, budget_s, seed=number, only=machine.only)
                count = judged(machine, result, steps)
                found.count += count
                if count["false"]:
                    kinds = [n for n in ("not better", "no gain at all", "too much") if count[n]]
                    found.examples.append(
                        f"{', '.join(kinds)}: {machine.kind}, {budget_s:.0f} s, {machine.brings}"
                    )
                if time.time() >= until:
                    break
    return found


def main() -> None:
    """Print what was claimed, and how much of it is false."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--jobs", type=int, default=1, help="processes that work side by side")
    parser.add_argument(
        "--small", type=float, default=1.0, help="gain of a knob that starts slowly"
    )
    chosen = parser.parse_args()
    count: Counter[str] = Counter()
    with ProcessPoolExecutor(chosen.jobs) as pool:
        until = time.time() + chosen.seconds
        for found in pool.map(partial(run, until), range(chosen.jobs)):
            count += found.count
            print(*found.examples, sep="\n")
    studied = count["studies"]
    for name in ("sequences", "improvements", "replaced", "faster"):
        print(f"{name}: {count[name]}")
    for name in ("false", *FALSE):
        rate = count[name] / studied if studied else 0.0
        print(f"{name}: {count[name]} of {studied} studies, {rate:.2%}", end=" ")
        print(f"(at most {at_most(count[name], studied):.2%})")
    print(f"of {count['sequences']} studies with more proofs after a gain, not better:", end=" ")
    print(f"{count['not better']} (at most {at_most(count['not better'], count['sequences']):.2%})")


if __name__ == "__main__":
    main()

"""How often a live screening takes a knob for worthless that is not, or for a gain that is none.

    python benchmarks/screening_errors.py [--studies 300] [--jobs 1]

The real screening runs on a simulated script of 100 ms a step, on the noises of `false_claims.py`,
each of their runs being a block of steps, and beside simulated neighbours: second jobs that come
and go. Nothing is measured here; it takes a quarter of an hour of two cores anywhere.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.false_claims import DUTIES, NOISES, SLOWER, Make
from gpuadvisor.domain.screening import Screened, ScreenedAs
from tests import simulation
from tests.live_simulation import LiveScript, screened

QUIET = {
    "gaussian, 0.2 % between blocks": lambda g: simulation.gaussian(g, 0.002, 0.0),
    "gaussian, 0.4 % between blocks": lambda g: simulation.gaussian(g, 0.004, 0.0),
    "gaussian, 0.5 % between blocks": lambda g: simulation.gaussian(g, 0.005, 0.0),
    "gaussian, 0.75 % between blocks": lambda g: simulation.gaussian(g, 0.0075, 0.0),
    "gaussian, 1 % between blocks": lambda g: simulation.gaussian(g, 0.01, 0.0),
    "drift, 5 % a minute": lambda g: simulation.drifting(g, 0.05, 75),
}
PERIODS_S = (0.8, 1.6, 2.4, 3.2, 4.8, 6.4, 10.0, 20.0, 60.0)
"""Periods of the neighbours: multiples of what a block of 100 ms steps lasts, and longer."""
TRUE = {f"knob_{n}": gain for n, gain in enumerate((1.0, 1.0, 1.0, 1.0, 1.05, 1.05))}
"""Six cheap knobs and what each is worth."""


@dataclass(frozen=True)
class Rates:
    """What some screenings found, in shares of the knobs that it concerns."""

    false_gain: float
    """Knobs worth nothing that were kept at the end."""
    missed: float
    """Knobs worth 5 % that were found worthless."""
    found: float
    """Knobs worth 5 % that were kept."""
    open_: float
    """All knobs that were not resolved."""
    outside: float
    """Intervals that missed the truth."""
    minute: float
    """Screenings that had decided all six knobs a minute after the script was warm."""
    seconds: float
    """Mean time of a whole screening, with all combinations and without a limit."""


@dataclass
class _Decided:
    """Hears when a screening has decided each knob for the first time."""

    script: LiveScript
    open_: set[str]
    after_s: float = math.inf
    """Time that all took after the script was warm."""

    def hear(self, screened: Screened) -> None:
        if self.open_ and screened.state is not ScreenedAs.UNRESOLVED:
            self.open_.discard(screened.knob)
            if not self.open_:
                self.after_s = self.script.now_s - self.script.start_s


def beside(generator: random.Random, period_s: float) -> simulation.Neighbour:
    """Draw a job of this period."""
    slower, duty = generator.choice(SLOWER), generator.choice(DUTIES)
    return simulation.Neighbour(generator, period_s, slower, duty, between=0.002)


def rates(make: Make, studies: int, true: Mapping[str, float] = TRUE) -> Rates:
    """Screen so many scripts."""
    space = simulation.space_of([simulation.Switch(name) for name in true])
    count: Counter[str] = Counter()
    taken_s = 0.0
    for study in range(studies):
        generator = random.Random(f"screening {study}")
        script = LiveScript(simulation.multiplied(true), make(generator))
        decided = _Decided(script, set(true))
        found = screened(script, space, str(study), told=decided.hear)
        taken_s += script.now_s - script.start_s
        count["minute"] += decided.after_s <= 60
        for each in found.values:
            is_gain = true[each.knob] > 1
            count[f"{'real' if is_gain else 'none'} {each.state}"] += 1
            count["real" if is_gain else "none"] += 1
            if each.ratio is not None:
                count["outside"] += not each.ratio.low <= true[each.knob] <= each.ratio.high
    all_ = count["real"] + count["none"]
    unresolved = count[f"real {ScreenedAs.UNRESOLVED}"] + count[f"none {ScreenedAs.UNRESOLVED}"]
    return Rates(
        count[f"none {ScreenedAs.KEPT}"] / max(1, count["none"]),
        count[f"real {ScreenedAs.WORTHLESS}"] / max(1, count["real"]),
        count[f"real {ScreenedAs.KEPT}"] / max(1, count["real"]),
        unresolved / all_,
        count["outside"] / all_,
        count["minute"] / studies,
        taken_s / studies,
    )


def _row(studies: int, name: str) -> str:
    found = rates(ALL[name], studies)
    shares = (found.false_gain, found.missed, found.found, found.open_, found.outside, found.minute)
    return f"| {name} | {' | '.join(f'{share:.2%}' for share in shares)} | {found.seconds:.0f} s |"


ALL = {**QUIET, **NOISES, **{f"neighbour, {s} s": partial(beside, period_s=s) for s in PERIODS_S}}


def main() -> None:
    """Print a table of rates."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--studies", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=1, help="processes that work side by side")
    chosen = parser.parse_args()
    print("| noise | 0 % kept | 5 % worthless | 5 % kept | unresolved | interval misses |", end="")
    print(" six within a minute | mean |\n|---|--:|--:|--:|--:|--:|--:|--:|")
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for line in pool.map(partial(_row, chosen.studies), ALL):
            print(line, flush=True)


if __name__ == "__main__":
    main()

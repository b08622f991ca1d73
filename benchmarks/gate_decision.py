"""How often a gate fails for an unchanged version, and how often it finds a slower one.

    python benchmarks/gate_decision.py [--studies 1000] [--jobs 1]

The real decision and loop of `gpuadvisor gate` run on simulated noise, and beside simulated
neighbours: second jobs that come and go. Beside them, on the same noise: a fixed threshold, and
Welch's test on all steps, as benchmark tools have them. Nothing is measured here; with 1000 gates
each it takes some ten minutes of two cores anywhere.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.false_claims import PERIODS_S, neighbour
from gpuadvisor.domain.gate import GateRun, GateVerdict
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.tuners.gate.comparing import KNOWN, Comparing
from gpuadvisor.tuners.gate.decision import LOOKS
from gpuadvisor.tuners.proof import Delay
from tests import simulation

STEPS, WINDOWS = 80, 8
"""Steps of a run, and windows into which they fall: 4 s of 50 ms each."""
SLOWER = (0.0, 0.01, 0.02, 0.03, 0.05)
VISIBLE = 0.8
"""Part of a clock's effect that the sampled clocks show."""


@dataclass(frozen=True)
class Noise:
    """What runs of one version differ by. Log units: 0.01 is 1 %.

    The parameters are assumed; runs of one script on GPUs that we could use differed by 0.2 to
    0.8 % when quiet, and by 1 to 2 % with clocks that move.
    """

    process: float
    """Standard deviation of fresh processes."""
    mode_share: float
    """Share of processes that are slower by `mode`: another layout of memory, another kernel."""
    mode: float
    correlation: float
    """Of a step's noise with that of the step before it."""
    step: float
    """Standard deviation of steps."""
    cap: float
    """What a step takes longer while the clock is capped."""
    cap_on: float
    cap_off: float
    """Chances by which a step begins, or ends, to be capped."""
    stalls: float
    """Share of steps that take 10 to 80 % longer."""
    drift: float
    """What everything takes longer at the end of a session."""


NOISES = {
    "quiet": Noise(0.002, 0.0, 0.0, 0.6, 0.005, 0.0, 0.0, 1.0, 0.002, 0.002),
    "typical": Noise(0.005, 0.2, 0.015, 0.7, 0.010, 0.025, 0.004, 0.01, 0.01, 0.010),
    "hard": Noise(0.010, 0.3, 0.050, 0.8, 0.015, 0.050, 0.01, 0.01, 0.02, 0.020),
}


def runs(noise: Noise, generator: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the step times (runs x steps, around 1) of a session, and the clocks of its runs."""
    logs = generator.normal(0, noise.process, (count, 1)) + noise.mode * (
        generator.random((count, 1)) < noise.mode_share
    )
    logs = np.repeat(logs, STEPS, axis=1)
    capped = generator.random(count) < noise.cap_on / (noise.cap_on + noise.cap_off)
    state, fresh = generator.normal(0, noise.step, count), math.sqrt(1 - noise.correlation**2)
    clocks = np.zeros((count, STEPS))
    for step in range(STEPS):
        chance = generator.random(count)
        capped = np.where(capped, chance > noise.cap_off, chance < noise.cap_on)
        state = noise.correlation * state + generator.normal(0, noise.step * fresh, count)
        logs[:, step] += state + noise.cap * capped
        clocks[:, step] = np.exp(-VISIBLE * noise.cap * capped)
    stalled = generator.random(logs.shape) < noise.stalls
    logs += np.where(stalled, generator.uniform(0.1, 0.6, logs.shape), 0)
    logs += noise.drift * (1 - np.exp(-3 * np.arange(count) / count))[:, None]
    return np.exp(logs), clocks.mean(axis=1)


@dataclass
class Session:
    """`run` of a gate on simulated noise: a session of runs, one after the other."""

    steps: Iterator[np.ndarray]
    clocks: Iterator[float | None]
    slower: float

    def run(self, side: str, place: str) -> GateRun:
        times = next(self.steps) * (1 + self.slower if side == "head" else 1.0)
        windows = times.reshape(WINDOWS, -1).sum(axis=1) / 20  # steps of 50 ms
        measured = replace(
            simulation.measurement([1.0]),
            windows=tuple(StepWindow(STEPS // WINDOWS, float(each)) for each in windows),
        )
        trial = Trial(0, {}, "proof", TrialState.COMPLETE, measurement=measured)
        return GateRun(side, trial, next(self.clocks), place)


@dataclass
class Beside:
    """`run` of a gate beside a neighbour, with the delays by chance of a real one."""

    noise: simulation.Neighbour
    delay: Delay
    slower: float
    trials: list[Trial] = field(default_factory=list)

    def run(self, side: str, place: str) -> GateRun:
        settings = {"version": "head"} if side == "head" else {}
        factors = self.noise.run(settings, self.delay.next_s(self.trials))
        cost_ms = 50 * (1 + self.slower if settings else 1.0)
        measured = simulation.measurement([cost_ms * factor for factor in factors])
        trial = Trial(
            len(self.trials),
            settings,
            "proof",
            TrialState.COMPLETE,
            measurement=measured,
            wall_s=self.noise.wall_s,
            disturbance=self.noise.disturbance,
        )
        self.trials.append(trial)
        return GateRun(side, trial, None, place)


@dataclass(frozen=True)
class Rates:
    """What came of some gates."""

    gates: int
    failed_after: tuple[int, ...]
    """Pairs after which each of the failed ones failed."""
    passed: int
    pairs: float
    """Mean number of pairs."""

    def failed(self, within: int = LOOKS[-1]) -> float:
        return sum(pairs <= within for pairs in self.failed_after) / self.gates

    @property
    def inconclusive(self) -> float:
        return 1 - (self.passed + len(self.failed_after)) / self.gates

    @property
    def at_most(self) -> float:
        """Upper end of the one-sided 95 % interval of the rate of failures (Clopper-Pearson)."""
        from scipy.special import betaincinv

        return float(
            betaincinv(len(self.failed_after) + 1, self.gates - len(self.failed_after), 0.95)
        )


def gated(make: Callable[[int], Session | Beside], gates: int) -> Rates:
    """Run so many gates."""
    failed, passed, pairs = [], 0, 0
    for number in range(gates):
        session = make(number)
        found = Comparing(session.run, seed=str(number)).go()
        verdict = next(d.verdict for d in found.differences if d.metric == "step_time")
        pairs += found.pairs
        passed += verdict is GateVerdict.PASS
        if verdict is GateVerdict.FAIL:
            failed.append(found.pairs)
    return Rates(gates, tuple(failed), passed, pairs / gates)


def session(name: str, slower: float, has_clocks: bool, number: int) -> Session:
    """Return a session of a named noise."""
    steps, clocks = runs(NOISES[name], np.random.default_rng(number), KNOWN + 2 * LOOKS[-1])
    return Session(iter(steps), iter(clocks if has_clocks else [None] * len(clocks)), slower)


def beside(period_s: float, slower: float, number: int) -> Beside:
    """Return a session beside a neighbour of a period that nobody notices."""
    generator = random.Random(f"gate {period_s} {number}")
    noise = neighbour(generator, period_s)
    noise.pause(generator.uniform(0, 600))
    return Beside(noise, Delay(str(number)), slower)


def fixed(base: np.ndarray, head: np.ndarray) -> bool:
    """Fail where the mean of all steps is longer by 5 %."""
    return bool(head.mean() > 1.05 * base.mean())


def welch(base: np.ndarray, head: np.ndarray) -> bool:
    """Fail where Welch's test of all steps says so at 1 %."""
    from scipy import stats

    found = stats.ttest_ind(head, base, axis=None, equal_var=False, alternative="greater")
    return bool(found.pvalue < 0.01)


def others(
    rule: Callable[[np.ndarray, np.ndarray], bool], name: str, slower: float, gates: int
) -> float:
    """Return how often another rule fails: eight runs of the base, then eight of the head."""
    failed = 0
    for number in range(gates):
        steps, _ = runs(NOISES[name], np.random.default_rng(number), 16)
        failed += rule(steps[:8], steps[8:] * (1 + slower))
    return failed / gates


def _noise_row(gates: int, of: tuple[str, bool, float]) -> str:
    name, has_clocks, slower = of
    found = gated(partial(session, name, slower, has_clocks), gates)
    cells = [
        f"{found.failed():.1%}",
        f"{found.failed(12):.1%}",
        f"{found.failed(15):.1%}",
        f"{found.passed / gates:.1%}",
        f"{found.inconclusive:.1%}",
        f"{found.pairs:.1f}",
        f"{others(fixed, name, slower, gates):.1%}",
        f"{others(welch, name, slower, gates):.1%}",
    ]
    clocks = "sampled" if has_clocks else "unknown"
    return f"| {name} | {clocks} | {slower:.0%} | {' | '.join(cells)} |"


def _neighbour_row(gates: int, period_s: float) -> str:
    none, slow = (gated(partial(beside, period_s, slower), gates) for slower in (0.0, 0.05))
    return (
        f"| {period_s} s | {none.failed():.2%} (at most {none.at_most:.2%}) |"
        f" {none.passed / gates:.0%} | {none.inconclusive:.0%} | {slow.failed():.0%} |"
        f" {slow.passed / gates:.1%} |"
    )


def main() -> None:
    """Print tables of rates."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1, help="processes that work side by side")
    chosen = parser.parse_args()
    with ProcessPoolExecutor(chosen.jobs) as pool:

        def table(head: str, row: Callable[[int, object], str], of: Iterable[object]) -> None:
            columns = head.count("|") - 2
            print(f"\n{head}\n|---|{'--:|' * columns}")
            for line in pool.map(partial(row, chosen.studies), of):
                print(line, flush=True)

        print(f"{chosen.studies} gates each, with the default tolerance (1 %) and limit (3 %).")
        head = "| noise | clocks | slower by | fails | within 12 pairs | within 15 | passes "
        head += "| inconclusive | pairs | fixed 5 %: fails | Welch: fails |"
        cases = [(n, c, s) for n in NOISES for c in (True, False) for s in SLOWER]
        table(head, _noise_row, cases)
        head = "| neighbour's period | unchanged: fails | passes | inconclusive "
        table(head + "| 5 % slower: fails | passes |", _neighbour_row, PERIODS_S)


if __name__ == "__main__":
    main()

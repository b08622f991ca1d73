"""How often a gate fails for an unchanged version, and how often it finds a slower one.

    python benchmarks/gate_decision.py [--studies 1000] [--jobs 1] [--tables noise,neighbours]

The real decision and loop of `gpuadvisor gate` run on simulated noise, and beside simulated
neighbours: second jobs that come and go. Beside them, on the same noise, rules as other tools have
them. Nothing is measured here; a gate takes 5 ms, and all tables with 1000 gates each some seven
minutes of two cores anywhere.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.false_claims import PERIODS_S, neighbour
from gpuadvisor.collectors.script.child.live_blocks import SETTLING_STEPS
from gpuadvisor.collectors.script.child.windows import MIN_WINDOWS
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.script.specification import Schedule
from gpuadvisor.collectors.script.turns import MOST_LONGER
from gpuadvisor.domain.gate import GateRun, GateVerdict
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.domain.screening import BlockTime
from gpuadvisor.domain.study import InTurns, Trial, TrialState
from gpuadvisor.tuners.gate.comparing import KNOWN, Comparing
from gpuadvisor.tuners.gate.decision import LOOKS
from gpuadvisor.tuners.proof import MAX_REPEATED, Delay
from gpuadvisor.tuners.turns import is_precise
from gpuadvisor.tuning.gate.lengths import Lengths
from gpuadvisor.tuning.gate.options import GateOptions
from gpuadvisor.tuning.turning import MOST_PAIRS, Turning
from tests import simulation

STEPS, WINDOWS = 80, 8
"""Steps of a run, and windows into which they fall: 4 s of 50 ms each."""
GUARDED_STEPS = 240
"""Steps of a run that is measured for long enough for the 95th percentile to be compared."""
POWER = 0.01
"""Relative standard deviation of the power that runs of one version draw."""
SLOWER = (0.0, 0.01, 0.02, 0.03, 0.05, 1.5)
VISIBLE = 0.8
"""Part of a clock's effect that the sampled clocks show."""
MEASURED_S, BLOCK_S, SETTLED_S = 4.0, 0.1, 0.02
"""Time for which a run is measured, of the blocks of it where runs take turns, and between two."""
BLOCK_NOISE = 0.01
"""Relative standard deviation of blocks of one process, beside a neighbour that does not change."""
TURNED_BLOCKS = 2 * MOST_PAIRS
"""Blocks of a process that times both sides, half of them of each."""
TURNED_STEPS = SETTLING_STEPS + 10
"""Steps of each: 0.5 s of 50 ms, and those that settle."""
TURNED_NOISE = BLOCK_NOISE / 2
"""Relative standard deviation of such blocks, beside a neighbour that does not change."""
PAIRS = [f"pair {number}" for number in range(1, LOOKS[-1] + 1)]
STEP_MS = 50.0


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
STILL = {
    "still": Noise(0.0005, 0.0, 0.0, 0.6, 0.001, 0.0, 0.0, 1.0, 0.0, 0.0005),
    "still steps of hard processes": Noise(0.010, 0.3, 0.050, 0.6, 0.001, 0.0, 0.0, 1.0, 0.0, 0.0),
}
"""Noise in which runs are measured for a second: of steps as on a quiet H200, where runs of one
version differed by 0.03 to 0.06 %; and the same, with processes that no step tells of."""
TWO_SPEEDS = {
    "a third 6 % slower": Noise(0.002, 1 / 3, 0.06, 0.6, 0.005, 0.0, 0.0, 1.0, 0.002, 0.002),
    "the same, still steps": Noise(0.0005, 1 / 3, 0.06, 0.6, 0.001, 0.0, 0.0, 1.0, 0.0, 0.0005),
    "a tenth 20 % slower": Noise(0.002, 0.1, 0.2, 0.6, 0.005, 0.0, 0.0, 1.0, 0.002, 0.002),
    "that with still steps": Noise(0.0005, 0.1, 0.2, 0.6, 0.001, 0.0, 0.0, 1.0, 0.0, 0.0005),
}
"""Processes of two speeds, each as a whole and nothing between them: another layout of memory, or
cores of another kind. Few runs may happen to show one speed of each version: two of the base and
three pairs do so in 0.5 of 100 gates, where a third of the processes is slow."""
CROWDED = "crowded"
"""As beside the work of eight others on two cores, where pairs in turns of 4 s a side differed by
3.9 %, of which 3.5 % was how blocks differed."""
IN_TURNS = {
    **NOISES,
    **STILL,
    **TWO_SPEEDS,
    CROWDED: Noise(0.012, 0.0, 0.0, 0.0, 0.22, 0.0, 0.0, 1.0, 0.0, 0.0),
}


def runs(
    noise: Noise, generator: np.random.Generator, count: int, steps: int = STEPS
) -> tuple[np.ndarray, np.ndarray]:
    """Return the step times (runs x steps, around 1) of a session, and the clocks of its runs."""
    logs = generator.normal(0, noise.process, (count, 1)) + noise.mode * (
        generator.random((count, 1)) < noise.mode_share
    )
    logs = np.repeat(logs, steps, axis=1)
    capped = generator.random(count) < noise.cap_on / (noise.cap_on + noise.cap_off)
    state, fresh = generator.normal(0, noise.step, count), math.sqrt(1 - noise.correlation**2)
    clocks = np.zeros((count, steps))
    for step in range(steps):
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
    powers: Iterator[float] | None = None
    """Watts of each run, where energy is counted."""
    turned: random.Random | None = None
    """Order of the blocks in which the processes of pairs time both sides; None where they do
    not."""
    lengths: Lengths | None = field(default_factory=lambda: lengths_of_a_gate())
    """For how long each run is measured; None for all of its steps in eight windows."""

    def run(self, side: str, place: str) -> GateRun:
        own = 1 + self.slower if side == "head" else 1.0
        times_ms = STEP_MS * next(self.steps) * own
        within = None
        if self.turned is not None:
            times_ms, after = times_ms[:STEPS], times_ms[STEPS:].reshape(TURNED_BLOCKS, -1)
            blocks_ms = after[:, SETTLING_STEPS:].mean(axis=1)
            within = _within(side, place, blocks_ms, self.slower, self.turned)
        count, each = WINDOWS, len(times_ms) // WINDOWS
        if self.lengths is not None:
            count, each = _windows(self.lengths.schedule(side, place), STEP_MS * own)
        windows = times_ms[: count * each].reshape(-1, each)
        seconds = windows.sum(axis=1) / 1e3
        watts = None if self.powers is None else next(self.powers)
        measured = replace(
            simulation.measurement([1.0]),
            step_ms=tuple(windows.ravel()),
            windows=tuple(
                StepWindow(windows.shape[1], float(s), energy_j=watts and float(watts * s))
                for s in seconds
            ),
        )
        trial = Trial(0, {}, "proof", TrialState.COMPLETE, measurement=measured, in_turns=within)
        run = GateRun(side, trial, next(self.clocks), place)
        if self.lengths is not None:
            self.lengths.learn(run)
        return run


@dataclass
class Beside:
    """`run` of a gate beside a neighbour, with the delays by chance of a real one."""

    noise: simulation.Neighbour
    delay: Delay
    slower: float
    guarded: bool = False
    """Whether runs have steps enough for the 95th percentile, and energy."""
    turned: random.Random | None = None
    """As of a `Session`."""
    trials: list[Trial] = field(default_factory=list)
    lengths: Lengths | None = field(default_factory=lambda: lengths_of_a_gate())
    """As of a `Session`."""

    def run(self, side: str, place: str) -> GateRun:
        settings = {"version": "head"} if side == "head" else {}
        own = 1 + self.slower if settings else 1.0
        count, each, within, window_s = WINDOWS, GUARDED_STEPS // WINDOWS, None, None
        if self.lengths is not None and not self.guarded:
            count, each = _windows(self.lengths.schedule(side, place), STEP_MS * own)
            window_s = each * STEP_MS * own / 1e3
        more = TURNED_BLOCKS if self.turned is not None and place in PAIRS else 0
        delay_s = self.delay.next_s(self.trials)
        factors = self.noise.run(settings, delay_s, count, more, window_s)
        cost_ms = STEP_MS * own
        windows_ms = [cost_ms * factor for factor in factors[:count]]
        if self.turned is not None and more:
            noises = [self.turned.gauss(0, TURNED_NOISE) for _ in range(more)]
            blocks_ms = cost_ms * np.array(factors[count:]) * np.exp(noises)
            within = _within(side, place, blocks_ms, self.slower, self.turned)
        measured = replace(
            simulation.measurement([1.0]),
            step_ms=tuple(ms for ms in windows_ms for _ in range(each)),
            windows=tuple(
                StepWindow(each, each * ms / 1e3, energy_j=ms if self.guarded else None)
                for ms in windows_ms
            ),
        )
        trial = Trial(
            len(self.trials),
            settings,
            "proof",
            TrialState.COMPLETE,
            measurement=measured,
            wall_s=self.noise.wall_s,
            disturbance=self.noise.disturbance,
            in_turns=within,
        )
        if place != "first":  # of which a gate's delays know nothing
            self.trials.append(trial)
        run = GateRun(side, trial, None, place)
        if self.lengths is not None:
            self.lengths.learn(run)
        return run


# Pairs that take turns. -----------------------------------------------------------------------


@dataclass
class SessionInTurns:
    """Both versions of a gate on simulated noise, their pairs in turns on one machine.

    What a machine does to steps, it does to those of both, one after the other as they come; what
    is a process's own differs from process to process, as where one runs alone.
    """

    alone: Session
    noise: Noise
    generator: np.random.Generator

    def run(self, side: str, place: str) -> GateRun:
        return self.alone.run(side, place)

    def both(self, sides: Sequence[str], place: str) -> dict[str, GateRun]:
        blocks = _blocks(self.alone, place)
        each = 1 + STEPS * round(BLOCK_S * 1e3) // round(MEASURED_S * 1e3)  # one settles
        shared = replace(self.noise, process=0.0, mode_share=0.0, drift=0.0)
        own = replace(self.noise, step=0.0, cap=0.0, stalls=0.0, drift=0.0)
        levels = 50 * runs(own, self.generator, 2, 1)[0][:, 0]

        def taken() -> Iterator[np.ndarray]:
            while True:
                steps = runs(shared, self.generator, 1, 2 * blocks * each)[0][0]
                yield from steps.reshape(-1, 2, each)[:, :, 1:].mean(axis=2)

        return _in_turns(sides, place, levels, blocks, taken(), self.generator, self)

    @property
    def slower(self) -> float:
        return self.alone.slower


@dataclass
class BesideInTurns:
    """Both versions of a gate beside a neighbour, their pairs in turns and without delays."""

    alone: Beside
    generator: np.random.Generator

    def run(self, side: str, place: str) -> GateRun:
        return self.alone.run(side, place)

    def both(self, sides: Sequence[str], place: str) -> dict[str, GateRun]:
        noise = self.alone.noise
        blocks = _blocks(self.alone, place)
        levels = 50 * np.exp(self.generator.normal(0, noise.between, 2))
        noise.blocks(0, BLOCK_S, SETTLED_S)  # both start

        def taken() -> Iterator[np.ndarray]:
            while True:
                factors = noise.blocks(2, BLOCK_S, SETTLED_S, starts=False)
                yield np.array(factors) * np.exp(self.generator.normal(0, BLOCK_NOISE, 2))

        return _in_turns(sides, place, levels, blocks, taken(), self.generator, self)

    @property
    def slower(self) -> float:
        return self.alone.slower


def _in_turns(
    sides: Sequence[str],
    place: str,
    levels_ms: np.ndarray,
    blocks: int,
    taken: Iterator[np.ndarray],
    generator: np.random.Generator,
    of: SessionInTurns | BesideInTurns,
) -> dict[str, GateRun]:
    """Return the runs of a pair, of which each pair of blocks has an order by chance.

    There are so many, and more, as the gate has them, where they do not agree well enough.
    """
    made_pairs: list[np.ndarray] = []
    while len(made_pairs) < MOST_LONGER * blocks:
        if len(made_pairs) >= blocks and is_precise(*np.array(made_pairs).T):
            break
        two = next(taken)
        made_pairs.append(two[::-1] if generator.random() < 0.5 else two)
    of_pairs = np.array(made_pairs)
    made = {}
    for number, side in enumerate(sides):
        cost_ms = levels_ms[number] * (1 + of.slower if side == "head" else 1.0)
        blocks_ms = tuple(float(each) for each in cost_ms * of_pairs[:, number])
        trial = Trial(0, {}, "proof", TrialState.COMPLETE)
        trial = replace(trial, measurement=simulation.measurement(list(blocks_ms)))
        made[side] = GateRun(side, trial, None, place, blocks_ms=blocks_ms)
    return made


def _within(
    side: str, place: str, blocks_ms: np.ndarray, slower: float, generator: random.Random
) -> InTurns | None:
    """Return what both sides took in blocks of a process that `side` has started, by turns."""
    if place not in PAIRS:
        return None
    turning = Turning({"plan": True}, {}, TURNED_BLOCKS // 2, 0.0, 0.0)
    blocks = turning.blocks(str(generator.random()))
    own = 1 + slower if side == "head" else 1.0
    times = [
        BlockTime(float(ms) / own * (1 + slower if block.settings else 1.0))
        for block, ms in zip(blocks, blocks_ms, strict=True)
    ]
    return turning.told(blocks, times)


def lengths_of_a_gate() -> Lengths:
    """Return what decides how long the runs of a usual gate are measured."""
    return Lengths(GateOptions(Command("python", "train.py")), saves=True)


def _windows(schedule: Schedule, step_ms: float) -> tuple[int, int]:
    """Return the windows of a run of steps that take so long, and the steps of each."""
    each = max(1, math.ceil(1e3 * schedule.window_s / step_ms))
    steps = max(1e3 * schedule.measure_s / step_ms, schedule.min_steps)
    return max(MIN_WINDOWS, math.ceil(steps / each - 1e-9)), each


def _blocks(alone: Session | Beside, place: str) -> int:
    """Return the blocks of each side in a pair that takes turns, as long as blocks agree."""
    if alone.lengths is None:
        return round(MEASURED_S / BLOCK_S)
    return round(alone.lengths.schedule("", place, in_turns=True).measure_s / BLOCK_S)


@dataclass(frozen=True)
class Rates:
    """What came of some gates."""

    gates: int
    failed_after: tuple[int, ...]
    """Pairs after which each of the failed ones failed."""
    passed: int
    pairs: float
    """Mean number of pairs."""
    starts: float
    """Mean number of runs, those before the pairs too."""
    early: int
    """Gates that ended without an answer, as more pairs would hardly have told."""
    by_metric: Mapping[str, int]
    """Gates that failed for a metric."""

    def failed(self, within: int = LOOKS[-1]) -> float:
        return sum(pairs <= within for pairs in self.failed_after) / self.gates

    @property
    def inconclusive(self) -> float:
        return 1 - (self.passed + len(self.failed_after)) / self.gates

    @property
    def fails(self) -> str:
        """Rate of failures with the upper end of its 95 % interval."""
        most = interval(len(self.failed_after), self.gates)[1]
        return f"{self.failed():.2%} (at most {most:.2%})"


def interval(count: int, of: int) -> tuple[float, float]:
    """Return the ends of the 95 % interval of a rate, both sides (Clopper-Pearson)."""
    from scipy.special import betaincinv

    low = float(betaincinv(count, of - count + 1, 0.025)) if count else 0.0
    return low, float(betaincinv(count + 1, of - count, 0.975)) if count < of else 1.0


def _same(value: Any) -> Any:
    return value


AnySession = Session | Beside | SessionInTurns | BesideInTurns


def gated(make: Callable[[int], AnySession], gates: int) -> Rates:
    """Run so many gates."""
    failed, passed, pairs, starts, early = [], 0, 0, 0, 0
    by_metric: Counter[str] = Counter()
    for number in range(gates):
        session = make(number)

        def run(side: str, place: str, session: AnySession = session) -> GateRun:
            nonlocal starts
            starts += 1
            return session.run(side, place)

        def both(
            sides: Sequence[str], place: str, session: AnySession = session
        ) -> dict[str, GateRun]:
            nonlocal starts
            starts += 2
            return session.both(sides, place)

        first = [run(side, "first") for side in ("base", "head")]
        pairs_run = both if isinstance(session, (SessionInTurns, BesideInTurns)) else None
        in_turns = partial(_same, pairs_run)
        found = Comparing(run, first, seed=str(number), in_turns=in_turns).go()
        pairs += found.pairs
        early += found.hopeless
        passed += found.verdict is GateVerdict.PASS
        if found.verdict is GateVerdict.FAIL:
            failed.append(found.pairs)
            by_metric.update(d.metric for d in found.differences if d.verdict is GateVerdict.FAIL)
    return Rates(
        gates, tuple(failed), passed, pairs / gates, starts / gates, early, dict(by_metric)
    )


def session(
    name: str, slower: float, has_clocks: bool, number: int, guarded: bool = False
) -> Session:
    """Return a session of a named noise, with energy and the 95th percentile where `guarded`."""
    generator = np.random.default_rng(number)
    count = 2 + KNOWN + 2 * (LOOKS[-1] + MAX_REPEATED)
    steps, clocks = runs(IN_TURNS[name], generator, count, GUARDED_STEPS if guarded else STEPS)
    powers = iter(300 * np.exp(generator.normal(0, POWER, count))) if guarded else None
    lengths = None if guarded else lengths_of_a_gate()
    clocks_of = iter(clocks if has_clocks else [None] * count)
    return Session(iter(steps), clocks_of, slower, powers, lengths=lengths)


def beside(period_s: float, slower: float, number: int, guarded: bool = False) -> Beside:
    """Return a session beside a neighbour of a period that nobody notices."""
    generator = random.Random(f"gate {period_s} {number}")
    noise = neighbour(generator, period_s)
    noise.pause(generator.uniform(0, 600))
    return Beside(noise, Delay(str(number)), slower, guarded)


def session_turned(name: str, slower: float, number: int) -> Session:
    """Return a session of two plans of one script, each process of which times both."""
    generator = np.random.default_rng(number)
    count = 2 + KNOWN + 2 * (LOOKS[-1] + MAX_REPEATED)
    steps, _ = runs(NOISES[name], generator, count, STEPS + TURNED_BLOCKS * TURNED_STEPS)
    return Session(iter(steps), iter([None] * count), slower, turned=random.Random(number))


def beside_turned(period_s: float, slower: float, number: int) -> Beside:
    """Return a session of two plans of one script beside a neighbour that nobody notices."""
    return replace(beside(period_s, slower, number), turned=random.Random(number))


def session_in_turns(name: str, slower: float, number: int) -> SessionInTurns:
    """Return a session of a named noise whose pairs take turns."""
    generator = np.random.default_rng([number, 1])
    return SessionInTurns(session(name, slower, False, number), IN_TURNS[name], generator)


def beside_in_turns(period_s: float, slower: float, number: int) -> BesideInTurns:
    """Return a session beside a neighbour that nobody notices, with pairs that take turns."""
    generator = np.random.default_rng([number, 2])
    return BesideInTurns(beside(period_s, slower, number), generator)


# Rules of other tools, of the steps (runs x steps) of eight runs of each version. -----------------


def fixed(base: np.ndarray, head: np.ndarray) -> bool:
    """Fail where the mean of all steps is longer by 5 %."""
    return bool(head.mean() > 1.05 * base.mean())


def welch(base: np.ndarray, head: np.ndarray) -> bool:
    """Fail where Welch's test of all steps says so at 1 %."""
    from scipy import stats

    found = stats.ttest_ind(head, base, axis=None, equal_var=False, alternative="greater")
    return bool(found.pvalue < 0.01)


def compare_fail(base: np.ndarray, head: np.ndarray) -> bool:
    """Fail as pytest-benchmark's `--benchmark-compare-fail=min:5%`: one process of each version."""
    return bool(head[0].min() > 1.05 * base[0].min())


def asv_factor(base: np.ndarray, head: np.ndarray) -> bool:
    """Fail as `asv continuous`: two rounds each, Mann-Whitney at 0.002, and a factor of 1.1."""
    from scipy import stats

    base, head = base[:2].ravel(), head[:2].ravel()
    if np.median(head) <= 1.1 * np.median(base):
        return False
    return bool(stats.mannwhitneyu(head, base, alternative="two-sided").pvalue < 0.002)


OTHERS = (fixed, welch, compare_fail, asv_factor)
EIGHT = 8
"""Runs of each version that they have; one version's after the other's."""


def steps_of(name: str, number: int) -> np.ndarray:
    """Return the steps of a session of a named noise."""
    return runs(NOISES[name], np.random.default_rng(number), 2 * EIGHT)[0]


def steps_beside(period_s: float, number: int) -> np.ndarray:
    """Return the steps of a session beside a neighbour; those of a window take equally long."""
    noise = beside(period_s, 0.0, number).noise
    made = [noise.run({"version": "head"} if n >= EIGHT else {}) for n in range(2 * EIGHT)]
    return np.repeat(np.array(made), STEPS // WINDOWS, axis=1)


def others(make: Callable[[int], np.ndarray], slower: float, gates: int) -> list[str]:
    """Return how often each of the other rules fails."""
    failed = [0] * len(OTHERS)
    for number in range(gates):
        steps = make(number)
        for place, rule in enumerate(OTHERS):
            failed[place] += rule(steps[:EIGHT], steps[EIGHT:] * (1 + slower))
    return [f"{count / gates:.1%}" for count in failed]


# Tables. ------------------------------------------------------------------------------------------


def _noise_row(gates: int, of: tuple[str, bool, float]) -> list[str]:
    name, has_clocks, slower = of
    found = gated(partial(session, name, slower, has_clocks), gates)
    return [
        name,
        "sampled" if has_clocks else "unknown",
        f"{slower:.0%}",
        f"{found.failed():.1%}" if slower else found.fails,
        f"{found.failed(12):.1%}",
        f"{found.failed(15):.1%}",
        f"{found.passed / gates:.1%}",
        f"{found.inconclusive:.1%}",
        f"{found.early / gates:.1%}",
        f"{found.pairs:.1f}",
        f"{found.starts:.1f}",
    ]


def _neighbour_row(gates: int, period_s: float) -> list[str]:
    none, slow = (
        gated(partial(beside, period_s, slower), of)
        for slower, of in ((0.0, gates), (0.05, gates // 10))
    )
    return [
        f"{period_s} s",
        none.fails,
        f"{none.passed / gates:.0%}",
        f"{none.inconclusive:.0%}",
        f"{none.pairs:.1f}",
        f"{slow.failed():.0%}",
        f"{slow.passed / slow.gates:.1%}",
    ]


def _turns_row(gates: int, of: str | float) -> list[str]:
    return _of_small(gates, of, session_in_turns if isinstance(of, str) else beside_in_turns)


def _plans_row(gates: int, of: str | float) -> list[str]:
    return _of_small(gates, of, session_turned if isinstance(of, str) else beside_turned)


def _of_small(gates: int, of: str | float, made: Callable[..., AnySession]) -> list[str]:
    """Return what comes of gates of small differences."""
    make = partial(made, of)
    none, one, three, five = (
        gated(partial(make, slower), count)
        for slower, count in ((0.0, gates), (0.01, gates), (0.03, gates // 5), (0.05, gates // 5))
    )
    return [
        of if isinstance(of, str) else f"beside a neighbour of {of} s",
        none.fails,
        f"{none.passed / gates:.1%}",
        f"{none.pairs:.1f}",
        f"{none.starts:.1f}",
        one.fails,
        f"{three.failed():.0%}",
        f"{five.failed():.0%}",
        f"{five.passed / five.gates:.1%}",
        f"{five.pairs:.1f}",
    ]


def _guards_row(gates: int, of: str | float) -> list[str]:
    if isinstance(of, str):
        found = gated(lambda number: session(of, 0.0, True, number, guarded=True), gates)
    else:
        found = gated(lambda number: beside(of, 0.0, number, guarded=True), gates)
    named = "; ".join(f"{name} {count}" for name, count in sorted(found.by_metric.items()))
    beside_what = of if isinstance(of, str) else f"beside a neighbour of {of} s"
    return [beside_what, found.fails, named or "none", f"{found.inconclusive:.1%}"]


def _other_row(gates: int, of: tuple[str | float, float]) -> list[str]:
    where, slower = of
    make = partial(steps_of if isinstance(where, str) else steps_beside, where)
    named = where if isinstance(where, str) else f"beside a neighbour of {where} s"
    return [named, f"{slower:.0%}", *others(make, slower, gates)]


GUARDED = (*NOISES, 30, 60)
Row = Callable[[int, Any], list[str]]
TABLES: Mapping[str, tuple[str, Row, Iterable[Any]]] = {
    "noise": (
        "noise | clocks | slower by | fails | within 12 pairs | within 15 | passes "
        "| inconclusive | of these early | pairs | starts",
        _noise_row,
        [
            (name, has_clocks, slower)
            for name in (*NOISES, *STILL, *TWO_SPEEDS)
            for has_clocks in ((True, False) if name in ("typical", "hard") else (True,))
            for slower in SLOWER
        ],
    ),
    "guards": (
        "energy and 95th percentile, too | unchanged: fails | gates by metric | inconclusive",
        _guards_row,
        GUARDED,
    ),
    "neighbours": (
        "neighbour's period | unchanged: fails | passes | inconclusive | pairs "
        "| 5 % slower: fails | passes",
        _neighbour_row,
        PERIODS_S,
    ),
    "turns": (
        "pairs in turns of 0.1 s | unchanged: fails | passes | pairs | starts | 1 % slower: fails "
        "| 3 %: fails | 5 %: fails | passes | pairs",
        _turns_row,
        (*IN_TURNS, *PERIODS_S),
    ),
    "plans": (
        "both timed within each process | unchanged: fails | passes | pairs | starts "
        "| 1 % slower: fails | 3 %: fails | 5 %: fails | passes | pairs",
        _plans_row,
        (*NOISES, *PERIODS_S),
    ),
    "others": (
        "noise | slower by | fixed 5 % | Welch, 1 % | pytest-benchmark, min:5% | asv, 1.1",
        _other_row,
        [(where, slower) for where in GUARDED for slower in (0.0, 0.03, 0.05)],
    ),
}


def main() -> None:
    """Print tables of rates."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1, help="processes that work side by side")
    parser.add_argument("--tables", default=",".join(TABLES), help=f"some of {', '.join(TABLES)}")
    chosen = parser.parse_args()
    print(f"{chosen.studies} gates each, with the default tolerance (1 %) and limit (3 %);")
    print("in brackets the upper end of the 95 % interval.")
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for name in chosen.tables.split(","):
            head, row, of = TABLES[name]
            print(f"\n| {head} |\n|---|{'--:|' * head.count('|')}")
            for cells in pool.map(partial(row, chosen.studies), of):
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

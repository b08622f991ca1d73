"""Simulated sessions of a gate: runs of two versions on noise, and beside neighbours.

`gate_decision.py` counts what the gate decides on them. Time passes on the sessions' own clocks,
and nothing is measured.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.false_claims import neighbour
from gpuadvisor.collectors.script.child.live_blocks import SETTLING_STEPS
from gpuadvisor.collectors.script.child.windows import MIN_WINDOWS
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.script.specification import Schedule
from gpuadvisor.collectors.script.turns import MOST_LONGER
from gpuadvisor.domain.gate import GateRun
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.domain.screening import BlockTime
from gpuadvisor.domain.study import InTurns, Trial, TrialState
from gpuadvisor.tuners.gate.comparing import KNOWN
from gpuadvisor.tuners.gate.decision import LOOKS
from gpuadvisor.tuners.proof import MAX_REPEATED
from gpuadvisor.tuners.turn_order import Delay
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


AnySession = Session | Beside | SessionInTurns | BesideInTurns


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

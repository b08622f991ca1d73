"""An evaluator that runs nothing: costs come from a model, noise from a generator or a recording.

It implements `gpuadvisor.tuners.space.Evaluator`, so the real search, ablation and proof run on it,
thousands of times in seconds.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Settings, Value
from gpuadvisor.domain.measurement import Measurement, StepWindow
from gpuadvisor.domain.study import InTurns, Objective, Trial, TrialState
from gpuadvisor.tuners.ablation import Ablation
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knob_space import knob_parameter
from gpuadvisor.tuners.proof import Proof, prove_point
from gpuadvisor.tuners.search import Best, OrderedSearch
from gpuadvisor.tuners.space import Space
from gpuadvisor.tuners.turn_order import Delay

RECORDING = Path(__file__).parent / "data" / "aa_runs.json"
WINDOWS = 8
STEPS = 10
"""Steps of a window."""

Model = Callable[[Settings], float | TrialState]
"""The cost of settings in ms a step, or the state in which they end."""
Noise = Iterator[Sequence[float]]
"""For each run in turn, the factors by which its windows are slower."""
SETTLING = 0.5
"""Windows that steps settle before each block."""
Bias = Callable[[bool, bool, int], float]
"""Factor by which a block takes longer: whether its process started as the tuned side, whether it
is tuned itself, and its place. Places below 0 are windows of the start."""
NOTICED_SHARE = 0.1
"""Part of a run's measured time that a neighbour has to work for it to be noticed, here."""


def quiet() -> Noise:
    while True:
        yield (1.0,) * WINDOWS


def gaussian(
    generator: random.Random, between: float = 0.005, within: float = 0.005, windows: int = WINDOWS
) -> Noise:
    """Runs that differ by `between` and windows by `within`, as relative standard deviations."""
    while True:
        run = math.exp(generator.gauss(0, between))
        yield [run * math.exp(generator.gauss(0, within)) for _ in range(windows)]


def drifting(generator: random.Random, total: float = 0.05, runs: int = 40) -> Noise:
    """A machine that gets slower by `total` over so many runs, as it warms up."""
    base = gaussian(generator)
    for place, windows in enumerate(base):
        slower = 1 + total * min(1.0, place / runs)
        yield [slower * window for window in windows]


def bimodal(generator: random.Random, share: float = 0.3, slower: float = 0.05) -> Noise:
    """Fresh processes of which a `share` is slower: another layout of memory, another kernel."""
    for windows in gaussian(generator):
        mode = 1 + slower if generator.random() < share else 1.0
        yield [mode * window for window in windows]


def throttling(generator: random.Random, slower: float = 0.05, stay: float = 0.85) -> Noise:
    """A clock that is high or capped for some runs on end."""
    capped = False
    for windows in gaussian(generator):
        if generator.random() > stay:
            capped = not capped
        yield [window * (1 + slower * capped) for window in windows]


def heavy_tailed(generator: random.Random, scale: float = 0.005) -> Noise:
    """Student's t with two degrees of freedom, whose variance is infinite."""
    while True:
        ratio = generator.gauss(0, 1) / math.sqrt(generator.expovariate(1.0))
        run = math.exp(max(-1.0, min(1.0, scale * ratio)))
        yield (run,) * WINDOWS


def recorded(generator: random.Random, block: int = 12) -> Noise:
    """Stretches of recorded runs of one script, some `block` long, so that their order is kept."""
    runs = recorded_runs()
    place = generator.randrange(len(runs))
    while True:
        yield runs[place % len(runs)]
        jump = generator.random() < 1 / block
        place = generator.randrange(len(runs)) if jump else place + 1


def recorded_runs() -> list[list[float]]:
    """Return the step times of each recorded run's windows, in ms."""
    if not _RUNS:
        _RUNS.extend(json.loads(RECORDING.read_text("utf-8"))["runs"])
    return _RUNS


_RUNS: list[list[float]] = []


@dataclass
class Neighbour:
    """A second job on the machine that comes and goes, in continuous time: a `Noise` with a clock.

    A run starts up, which takes longer beside the neighbour, and is then measured for a fixed
    time, part of which may be disturbed.
    """

    generator: random.Random
    period_s: float
    slower: float
    """Factor by which everything takes longer while the neighbour works."""
    duty: float = 0.5
    """Part of the period in which it works."""
    startup_s: float = 5.0
    measure_s: float = 3.0
    head_startup_s: float = 0.0
    """What the tuned side takes longer to start."""
    between: float = 0.005
    """Relative standard deviation of runs without the neighbour."""
    recognised: float = 0.0
    """Chance that a clearly disturbed run is noticed."""
    disturbance: str = field(default="", init=False)
    """What was noticed in the last run."""

    def __post_init__(self) -> None:
        self._now_s = self.generator.uniform(0, self.period_s)
        self.wall_s = 0.0

    def pause(self, seconds: float) -> None:
        """Let time pass without a run."""
        self._now_s += seconds

    def __iter__(self) -> Iterator[Sequence[float]]:
        return self

    def __next__(self) -> Sequence[float]:
        return self.run({})

    def run(
        self,
        settings: Settings,
        delay_s: float = 0.0,
        windows: int = WINDOWS,
        blocks: int = 0,
        window_s: float | None = None,
    ) -> Sequence[float]:
        """Return the factors of a run that starts now and is measured later by a delay.

        So many windows are measured, of `window_s` where that is not the usual time, and then
        blocks of the usual one, before each of which steps settle.
        """
        started_s = self._now_s
        self._start_up(self.startup_s + (self.head_startup_s if settings else 0.0))
        self._now_s += delay_s
        began_s, factors = self._now_s, []
        own = math.exp(self.generator.gauss(0, self.between))
        usual_s = self.measure_s / WINDOWS
        for place in range(windows + blocks):
            window_s = usual_s if place >= windows else window_s or usual_s
            if place >= windows:
                self._now_s += SETTLING * window_s
            busy_s = self._busy_s(self._now_s, self._now_s + window_s)
            self._now_s += window_s
            factors.append(own * window_s / (window_s - busy_s * (1 - 1 / self.slower)))
        share = self._busy_s(began_s, self._now_s) / (self._now_s - began_s)
        noticed = share > NOTICED_SHARE and self.generator.random() < self.recognised
        self.disturbance = f"a neighbour worked for {share:.0%} of it" if noticed else ""
        self.wall_s = self._now_s - started_s
        return factors

    def blocks(
        self, count: int, block_s: float, settled_s: float, starts: bool = True
    ) -> list[float]:
        """Return the factors of so many blocks of two runs that start now and take turns.

        Steps settle before each of them. Where no run `starts`, they follow those before.
        """
        started_s, factors = self._now_s, []
        if starts:
            self._start_up(self.startup_s + self.head_startup_s)
        for _ in range(count):
            self._now_s += settled_s
            busy_s = self._busy_s(self._now_s, self._now_s + block_s)
            self._now_s += block_s
            factors.append(block_s / (block_s - busy_s * (1 - 1 / self.slower)))
        self.disturbance, self.wall_s = "", self._now_s - started_s
        return factors

    def _start_up(self, work_s: float) -> None:
        """Pass the time in which so much undisturbed work is done."""
        while work_s > 1e-9:
            phase_s = self._now_s % self.period_s
            busy = phase_s < self.duty * self.period_s
            left_s = (self.duty if busy else 1.0) * self.period_s - phase_s
            factor = self.slower if busy else 1.0
            passed_s = min(max(left_s, 1e-6), work_s * factor)
            self._now_s += passed_s
            work_s -= passed_s / factor

    def _busy_s(self, begin_s: float, end_s: float) -> float:
        """Return for how long the neighbour works in an interval of time."""

        def until(moment_s: float) -> float:
            periods, phase_s = divmod(moment_s, self.period_s)
            working_s = self.duty * self.period_s
            return periods * working_s + min(phase_s, working_s)

        return until(end_s) - until(begin_s)


def measurement(windows_ms: Sequence[float], **changes: Any) -> Measurement:
    """Return a measurement of windows with these step times."""
    known: dict[str, Any] = {
        "marker": "optimizer",
        "step_ms": tuple(windows_ms),
        "windows": tuple(StepWindow(STEPS, STEPS * ms / 1e3) for ms in windows_ms),
        "warmup_steps": 4,
        "samples_source": None,
        "peak_memory_bytes": 1 << 30,
        "reserved_memory_bytes": 1 << 30,
        "startup_s": 3.0,
        "wall_s": 8.0,
    }
    return Measurement(**{**known, **changes})


@dataclass
class SimulatedEvaluator:
    """`Evaluator` on a model. Gains are relative to the first run, as in a study."""

    model: Model
    noise: Noise = field(default_factory=quiet)
    parallel: int = 1
    references: Sequence[float] = ()
    """What each GPU's reference is off by, as a factor; right where nothing is given."""
    budget: int = 10_000
    """Runs after which nothing is affordable."""
    seed: str = ""
    """Decides the order of the proof's pairs."""
    baselines: int = 1
    """Runs of the unchanged script before anything else; a study makes two or three."""
    change: Callable[[Settings, Measurement], Measurement] = lambda settings, run: run
    """What else the settings do to a measurement."""
    blocks: int = 0
    """Blocks in which both sides of a proof follow one another within each run, if any; the last
    of what the noise yields for a run."""
    bias: Bias = lambda started, tuned, place: 1.0
    ratios: float = 0.0
    """Relative standard deviation of the gain from one process to the next."""
    trials: list[Trial] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._delay = Delay(self.seed)
        self._order = random.Random(f"blocks: {self.seed}")
        first = self._run({}, "baseline").measurement
        assert first is not None
        self.baseline = first
        self.reference_ms = first.mean_step_ms
        for _ in range(self.baselines - 1):
            self._run({}, "baseline")

    def measure(
        self,
        settings: Sequence[Settings],
        phase: str,
        slower_than: float | None = None,
        turned: tuple[Settings, Settings] | None = None,
    ) -> list[Trial]:
        used = min(self.parallel, len(settings))
        return [self._run(each, phase, n % used, turned) for n, each in enumerate(settings)]

    def affordable(self, batch: Sequence[Settings]) -> bool:
        return len(self.trials) + len(batch) <= self.budget

    def _run(
        self,
        settings: Settings,
        phase: str,
        gpu: int = 0,
        turned: tuple[Settings, Settings] | None = None,
    ) -> Trial:
        cost, noise, in_turns = self.model(settings), self.noise, None
        blocks = self.blocks if turned is not None else 0
        if isinstance(noise, Neighbour):
            delay_s = self._delay.next_s(self.trials) if phase == "proof" else 0.0
            factors = noise.run(settings, delay_s, WINDOWS, blocks)
        else:
            factors = next(noise)
        if blocks and turned is not None:
            own = math.exp(self._order.gauss(0, self.ratios))
            started = settings == turned[1]
            if started and not isinstance(cost, TrialState):
                cost *= own
            in_turns = self._blocks(turned, started, own, factors[-blocks:])
            own = self.bias(started, started, -1)
            factors = [own * factor for factor in factors[:-blocks]]
        measured = None
        if not isinstance(cost, TrialState):
            measured = self.change(settings, measurement([cost * factor for factor in factors]))
        reference = self.reference_ms if self.trials else None
        if reference and self.references:
            reference *= self.references[gpu]
        trial = Trial(
            number=len(self.trials),
            settings=dict(settings),
            phase=phase,
            state=TrialState.COMPLETE if measured is not None else cost,
            measurement=measured,
            gain=reference / measured.mean_step_ms if measured and reference else None,
            gpu=gpu,
            wall_s=noise.wall_s if isinstance(noise, Neighbour) else 0.0,
            disturbance=noise.disturbance if isinstance(noise, Neighbour) else "",
            in_turns=in_turns,
        )
        self.trials.append(trial)
        return trial

    def _blocks(
        self, sides: tuple[Settings, Settings], started: bool, own: float, factors: Sequence[float]
    ) -> InTurns | None:
        """Return what both sides took in blocks, whose pairs have an order by chance."""
        costs = self.model(sides[0]), self.model(sides[1])
        if isinstance(costs[0], TrialState) or isinstance(costs[1], TrialState):
            return None
        logs: tuple[list[float], list[float]] = [], []
        for place, tuned in enumerate(in_order(len(factors), self._order)):
            cost = costs[1] * own if tuned else costs[0]
            factor = factors[place] * self.bias(started, tuned, place)
            logs[tuned].append(math.log(cost * factor))
        base, head = (math.exp(math.fsum(each) / len(each)) for each in logs)
        return InTurns(base, head)


def in_order(blocks: int, generator: random.Random) -> list[bool]:
    """Return which of so many blocks are tuned: one of each pair, by chance."""
    firsts = (generator.random() < 0.5 for _ in range(blocks // 2))
    return [tuned for first in firsts for tuned in (first, not first)]


class Switch(Knob):
    """A knob that only the model knows."""

    title = "simulated"
    level = Level.CONSERVATIVE
    effect = Effect.NONE
    plausible = (True,)

    def __init__(
        self,
        name: str,
        values: Sequence[Value] = (True,),
        *,
        excludes: Sequence[str] = (),
        needs: str | None = None,
        progressive: bool = False,
        cures: Callable[[Measurement], str | None] = lambda best: None,
        relieves: Callable[[Measurement], Value | None] = lambda run: None,
    ) -> None:
        self.name, self._values, self._needs, self._cures = name, values, needs, cures
        self._relieves = relieves
        self.excludes, self.progressive = frozenset(excludes), progressive

    def choices(self, device: Any, facts: ScriptFacts) -> Sequence[Value]:
        return self._values

    def missing(self, settings: Settings, facts: ScriptFacts) -> str | None:
        return None if self._needs is None or settings.get(self._needs) else f"no {self._needs}"

    def pointless(self, best: Measurement) -> str | None:
        return self._cures(best)

    def relieves(self, device: Any, run: Measurement) -> Value | None:
        return self._relieves(run)

    def apply(self, value: Value, target: Any) -> None: ...

    def snippet(self, value: Value) -> str:
        return ""


def multiplied(factors: Mapping[str, float], base_ms: float = 100.0) -> Model:
    """Return a model in which each knob divides the cost by its factor."""

    def cost(settings: Settings) -> float:
        return base_ms / math.prod(factors.get(name, 1.0) for name in settings)

    return cost


def space_of(knobs: Iterable[Switch]) -> Space:
    """Return the space of all values of these knobs."""
    facts = ScriptFacts()
    return Space(
        tuple(knob_parameter(knob, knob.choices(None, facts), None, facts) for knob in knobs)
    )


def searched(evaluator: SimulatedEvaluator, knobs: Sequence[Switch]) -> OrderedSearch:
    """Run the ordered search."""
    search = OrderedSearch(evaluator, space_of(knobs), evaluator.baseline)
    search.run()
    return search


@dataclass
class Tuned:
    """What a whole study without the neighbourhood ends in."""

    found: Best
    settings: Settings
    proof: Proof | None


def tuned(evaluator: SimulatedEvaluator, knobs: Sequence[Switch]) -> Tuned:
    """Search, ablate and prove as a study does."""
    search = searched(evaluator, knobs)
    ablation = Ablation(evaluator, search.space, search.brought)
    settings, _ = ablation.run(search.best.settings)
    if settings:
        proof = prove_point(evaluator, settings, Objective.THROUGHPUT, evaluator.seed)
    else:
        proof = None
    return Tuned(search.best, settings, proof)

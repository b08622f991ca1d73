"""Runs of versions, one after the other on one device, as gates compare them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from gpuadvisor.collectors.clocks import ClockSampler
from gpuadvisor.collectors.energy import EnergyMeter
from gpuadvisor.collectors.gpu_errors import GpuErrors
from gpuadvisor.collectors.load import LoadMeter
from gpuadvisor.collectors.script.request import Event, RunOutcome
from gpuadvisor.collectors.script.run_folder import run_folder
from gpuadvisor.collectors.script.start_line import StartLine
from gpuadvisor.collectors.script.turns import BUSY, Place
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.gate import GateRun
from gpuadvisor.domain.knobs import Level, Settings
from gpuadvisor.domain.study import Objective, Trial, TrialState
from gpuadvisor.errors import RefusedError
from gpuadvisor.tuners.gate.comparing import SHORT
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuners.turn_order import Delay
from gpuadvisor.tuning.gate.counting import Counting
from gpuadvisor.tuning.gate.forking import Forks
from gpuadvisor.tuning.gate.lengths import BEFORE, FIRST, Lengths
from gpuadvisor.tuning.gate.options import GateOptions
from gpuadvisor.tuning.trials.in_turns import ApartError, Room, run_in_turns
from gpuadvisor.tuning.trials.trial_runner import Side, Silent, TrialRunner
from gpuadvisor.tuning.trials.validator import TrialValidator
from gpuadvisor.tuning.turning import Turning

OF_GPU = "GPU"
"""Word by which `collectors.load` tells what disturbed the GPU, not the CPU."""


class GateProgress(Protocol):
    """Hears of everything as it happens."""

    def on_message(self, sentence: str) -> None:
        """Show a sentence to the user."""

    def on_run_start(self, side: str, place: str) -> None:
        """Note that a run of a version begins, and what it is for."""

    def on_run_end(self, run: GateRun) -> None:
        """Note that it ended."""


@dataclass
class Runs:
    """Runs versions, and keeps every run."""

    options: GateOptions
    device: Device
    progress: GateProgress
    cancelled: Callable[[], bool]
    counting: Counting | None = None
    """Counts what steps do; None where nobody asks."""
    errors: GpuErrors | None = None
    """What the driver tells of the GPU meanwhile; None where nobody listens."""
    all: list[GateRun] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    """The end of what each side's last run printed."""
    limited: str = ""
    """Sentence on the first run that a container's CPU limit held back; empty where none was."""
    turning: Turning | None = None
    """What the processes of pairs turn after they were measured; None for nothing."""
    turned_nothing: str = ""
    """Why they turn nothing any more; empty where nothing speaks against it."""
    saves: bool = False
    """Whether runs are forked, and measured for less time, where that is found to be no matter."""

    def __post_init__(self) -> None:
        self._clock = ClockSampler(self.device)
        self._delay = Delay(str(self.options.seed))
        self._knobs = load_knobs()
        self._validator = TrialValidator(Objective.THROUGHPUT, Level.BALANCED, None, self._knobs)
        listen: Callable[[GateProgress, ClockSampler], _Ears] = _Ears
        self._ears = listen(self.progress, self._clock)
        self._is_in_turns = False
        """Whether the runs that begin now take turns: they have no delay, as nothing can be in step
        with one of them."""
        self._lengths = Lengths(self.options, self.saves)
        self._runner = TrialRunner(
            self._knobs,
            self._validator,
            FIRST,
            self.options.seed,
            self.options.samples_per_step,
            self.options.timeout_s,
            cancelled=self.cancelled,
            progress=self._ears,
            delay_s=self._delay_s,
        )
        self._forks = Forks(self._runner) if self.saves else None

    def _delay_s(self) -> float:
        """Return how much later than usual the next run is measured."""
        if self.only_counts or self._is_in_turns:
            return 0.0
        # The others differ anyway.
        return self._delay.next_s([run.trial for run in self.all if run.place not in BEFORE])

    def fork_ahead(self, base: Side, own: Sequence[str]) -> None:
        """Begin with what `fork` will need, once the base has had its first run."""
        if self._forks is not None:
            self._forks.begin_ahead(base, own)

    def fork(self, versions: Mapping[str, Side], own: Sequence[str]) -> None:
        """Have further runs of these sides begin in a process that has imported libraries already.

        In the folders `own` nothing is a library. Both have to have had their first run.
        NoTemplateError where that cannot be done.
        """
        if self._forks is not None:
            self._forks.begin(versions, own)

    @property
    def only_counts(self) -> bool:
        """Whether runs are counted and not timed."""
        return self._lengths.only_counts

    @property
    def same_steps(self) -> bool:
        """Whether runs are counted in the same steps of the script."""
        return self._lengths.same_steps

    @property
    def counts_pairs(self) -> bool:
        """Whether the runs of pairs are counted, too."""
        return self.counting is not None and self.counting.wants("pair", self.all)

    @property
    def how_forked(self) -> str:
        """What the user should know of how runs are forked; empty where they are not."""
        return self._forks.told if self._forks is not None else ""

    def end_forks(self) -> None:
        """Have further runs begin in fresh processes, as at first."""
        if self._forks is not None:
            self._forks.close()

    def run(self, version: Side, side: str, place: str) -> GateRun:
        """Run a version once, as one of the sides `base` and `head`.

        The limits of all further runs follow the first one of the base that was measured. Raises
        Interrupted if it was cancelled, and DependsError where a forked run did otherwise than
        fresh ones, and RefusedError where the GPU had an error.
        """
        self.progress.on_run_start(side, place)
        self._clock.end()
        self._runner.schedule = self._lengths.schedule(side, place)
        self._ears.measured_steps = None
        if self._forks is not None:
            self._forks.before(side, place)
        # The phase is one in which delays are drawn.
        trial, outcome = self._run(version, place)
        self._take_errors()
        run = self._kept(side, place, trial, outcome, self._clock.end())
        if self._forks is not None and not self._forks.after(side, place, outcome):
            self.progress.on_message(self._forks.retried)
            return self.run(version, side, place)
        self._lengths.learn(run)
        return run

    def begin_both(self, base: Side, head: Side, own: Sequence[str]) -> dict[str, GateRun]:
        """Run both versions for the first time: they start side by side, and while one is measured
        the other one waits. The process to fork from begins in between, as in `fork_ahead`.

        Returned is what counts: of both, of the base alone, or nothing; the rest is to be run
        alone. Raises as `run`.
        """
        found: dict[str, GateRun] = {}
        room = Room(self.device)
        if room.lacks():  # it is not known
            return found
        line = StartLine(room.lacks)
        with ExitStack() as held, ThreadPoolExecutor(1) as pool:
            first = self._begin_beside("base", base, line.first, held)
            second = self._begin_beside("head", head, line.second, held)
            self._clock.end()
            try:
                later = pool.submit(second.run)
                ended = first.run()
                is_alone = line.second.busy <= BUSY
                if line.first.was_let and is_alone and ended[1].measurement is not None:
                    found["base"] = self._begun("base", first, ended)
                    self.fork_ahead(base, own)
                    line.follow()
                else:
                    busy = "" if is_alone else "the head works while it waits"
                    line.give_up(busy or f"the base could not be measured ({ended[1].reason})")
                ended = later.result()
            finally:
                line.give_up("the base has failed")
            if found and line.second.was_let and ended[1].measurement is not None:
                found["head"] = self._begun("head", second, ended)
            else:
                why = line.why_apart or f"the head could not be measured ({ended[1].reason})"
                again = "the head starts" if found else "both versions start"
                self.progress.on_message(f"{again} anew, alone: side by side {why}")
        return found

    def _begin_beside(self, side: str, version: Side, place: Place, held: ExitStack) -> _Begun:
        """Return the first run of a version, which is to live beside that of the other one."""
        self.progress.on_run_start(side, "first")
        self._runner.schedule = self._lengths.schedule(side, "first")
        if self._forks is not None:
            self._forks.before(side, "first")
        folder = None
        if self.counting is not None and self.counting.wants("first", self.all):
            folder = held.enter_context(run_folder())
            self._runner.beside = (self.counting.application(folder),)
        try:
            beside = self._runner.begin_beside(version, place)
        finally:
            self._runner.beside = ()
        meters = EnergyMeter(self.device).read_j, LoadMeter(self.device)
        return _Begun(partial(self._runner.run_beside, beside, *meters), folder)

    def _begun(self, side: str, begun: _Begun, ended: tuple[Trial, RunOutcome]) -> GateRun:
        """Return such a run that has ended and counts, noted as one of the gate's."""
        trial, outcome = ended
        self._take_errors()
        if self.counting is not None and begun.folder is not None and trial.measurement is not None:
            found = self.counting.counted(trial.measurement, begun.folder)
            trial = replace(trial, measurement=found)
        run = self._kept(side, "first", trial, outcome, self._clock.end())
        self._ears.measured_steps = None
        if self._forks is not None:
            self._forks.after(side, "first", outcome)
        self._lengths.learn(run)
        return run

    def run_both(
        self, versions: Mapping[str, Side], sides: Sequence[str], place: str
    ) -> dict[str, GateRun]:
        """Run both versions at the same time, in turns; otherwise as `run`.

        Raises ApartError as `run_in_turns` does; a run that failed is kept.
        """
        for side in sides:
            self.progress.on_run_start(side, place)
        self._clock.end()
        self._runner.schedule = self._lengths.schedule("", place, in_turns=True)
        if self._forks is not None:
            self._forks.before(sides[0], place)  # of pairs, both sides begin alike
        self._is_in_turns = True
        try:
            seed = f"{self.options.seed} {len(self.all)}"
            ended, both_ms = run_in_turns(self._runner, {s: versions[s] for s in sides}, seed)
        except ApartError as error:
            if error.failed is not None:
                side, trial, outcome = error.failed
                self._kept(side, place, trial, outcome, None)
            raise
        finally:
            self._is_in_turns = False
            clock = self._clock.end()
        self._take_errors()
        found = {
            side: self._kept(side, place, trial, outcome, clock, blocks_ms)
            for side, (trial, outcome), blocks_ms in zip(sides, ended, both_ms, strict=True)
        }
        for side, (_, outcome) in zip(sides, ended, strict=True):
            if self._forks is not None and not self._forks.after(side, place, outcome):
                return self.run_both(versions, sides, place)
        return found

    def _take_errors(self) -> None:
        for error in self.errors.take() if self.errors is not None else ():
            raise RefusedError(
                f"{error.rstrip('.')}; nothing can be compared on it now: choose another GPU"
            )

    def _kept(
        self,
        side: str,
        place: str,
        trial: Trial,
        outcome: RunOutcome,
        clock: float | None,
        blocks_ms: tuple[float, ...] = (),
    ) -> GateRun:
        """Return a run that has ended, noted as one of the gate's."""
        self.outputs[side] = outcome.output
        if outcome.limit and not self.limited:
            self.limited = f"while the {side} was measured, {outcome.limit}"
        if trial.measurement is not None:  # a plan's results and headroom are for `verify`
            trial = replace(trial, state=TrialState.COMPLETE, reason="")
        # `Delay` and readers of the trials tell the sides apart by their settings.
        trial = replace(trial, settings={} if side == "base" else {"version": "head"})
        if self._validator.baseline is None and side == "base" and trial.measurement is not None:
            self._validator.baseline = trial.measurement  # limits of all further runs
        run = GateRun(side, trial, clock, place, self._counted_steps(trial), blocks_ms)
        self.all.append(run)
        self.progress.on_run_end(run)
        return run

    def _run(self, version: Side, place: str) -> tuple[Trial, RunOutcome]:
        """Run a version, with its steps counted where that is wanted.

        Where it ends badly after it was measured, counting is the reason, and it is run without.
        """
        if self.counting is None or not self.counting.wants(place, self.all):
            # What is obvious is so without.
            turning = None if place.endswith(SHORT) else self.turning
            trial, outcome = self._runner.run(version, "proof", turning=turning)
            if turning is not None and trial.measurement is not None and trial.in_turns is None:
                self.turning = None
                self.turned_nothing = (
                    "each process timed one side only: one ended, or failed, before both were timed"
                )
                self.progress.on_message(self.turned_nothing)
            return trial, outcome
        with run_folder() as folder:
            self._runner.beside = (self.counting.application(folder),)
            try:
                trial, outcome = self._runner.run(version, "proof")
            finally:
                self._runner.beside = ()
            if trial.measurement is None and self._ears.measured_steps is not None:
                self.counting.stop(f"with torch's profiler the script fails: {trial.reason}")
                trial, outcome = self._runner.run(version, "proof")
            if trial.measurement is not None:
                found = self.counting.counted(trial.measurement, folder)
                trial = replace(trial, measurement=found)
            return trial, outcome

    def _counted_steps(self, trial: Trial) -> tuple[int, int] | None:
        measured = self._ears.measured_steps
        if self.counting is None or measured is None or trial.measurement is None:
            return None
        return self.counting.steps(trial.measurement, measured)

    def resizes(self, settings: Settings) -> bool:
        """Say whether settings of a plan may change how much work a step is."""
        return self._validator.resizes(settings)

    def untried(self, settings: Settings) -> frozenset[str]:
        """Return the knobs among a plan's settings that had no effect in any run."""
        return self._validator.untried(settings)

    def disturbed(self, disturbance: str, repeated: bool, what: str = "this pair is") -> None:
        """Raise RefusedError where something else has the GPU or holds it down; else say it."""
        if repeated:
            self.progress.on_message(f"{what} run again: {disturbance}")
        elif OF_GPU in disturbance:
            raise RefusedError(
                f"{disturbance}, also when runs were repeated: versions cannot be compared so; "
                "wait until the GPU is free and cool, or choose another one"
            )


@dataclass(frozen=True)
class _Begun:
    """A run that is to live beside another one."""

    run: Callable[[], tuple[Trial, RunOutcome]]
    """To be called in any thread."""
    folder: Path | None
    """Where its steps are counted; None where they are not."""


class _Ears(Silent):
    """Hears of a run for the gate: it has clocks read while steps are measured."""

    def __init__(self, progress: GateProgress, clock: ClockSampler) -> None:
        self._progress, self._clock = progress, clock
        self.measured_steps: int | None = None
        """Steps of the script when all that is measured of the run was; None before that, and
        where nothing is counted after it."""

    def on_message(self, sentence: str) -> None:
        self._progress.on_message(sentence)

    def on_event(self, number: int, event: Event) -> None:
        if event["event"] == "warm":
            self._clock.begin()
        elif event["event"] == "measured":
            self.measured_steps = event["steps"]
            self._clock.pause()

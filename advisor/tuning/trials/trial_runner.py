"""Runs one side of a comparison in a fresh process and returns it as a trial."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from gpuadvisor.collectors.energy import EnergyMeter
from gpuadvisor.collectors.load import LoadMeter
from gpuadvisor.collectors.script.child.torch_profiler import NAME as PROFILER
from gpuadvisor.collectors.script.live import run_in_turns
from gpuadvisor.collectors.script.request import Command, Event, Limits, RunOutcome, RunRequest
from gpuadvisor.collectors.script.runner import is_forked, run_script
from gpuadvisor.collectors.script.specification import Schedule, Specification
from gpuadvisor.collectors.script.templates import Template
from gpuadvisor.collectors.script.turns import MOST_LONGER, Place, Seat, Turns
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Application, Settings
from gpuadvisor.domain.loader_supply import Supplied
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.screening import Screened
from gpuadvisor.domain.study import InTurns, Trial
from gpuadvisor.errors import Interrupted
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuning.arguments import applied, with_arguments
from gpuadvisor.tuning.budgeting.budget import Budget
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.trials.validator import TrialValidator
from gpuadvisor.tuning.turning import Turning

BASELINE_S = 1800.0
"""Most that the unchanged script may take after its first step, until it is measured."""
BASELINE_IDLE_S = 300.0
"""Longest silence of the unchanged script between two steps: an evaluation, a checkpoint."""
IMPORT_SHARE = 0.2
"""Part of the longest wait for a first step within which torch has to be imported: most scripts do
that first, and one that serves or computes with numpy would be waited for to the end."""
SLOW_BLOCKS = 3.0
"""Times their expected time that blocks in turns may take."""
STARTUP_SLACK_S = 60.0
"""Time that any run may take to start beyond three times what the unchanged script took."""
BASELINE = "baseline", "the unchanged script, and how much two runs of it differ"
"""Name of the phase that measures the unchanged script, and what it is about."""
RECORDER = "gpuadvisor.collectors.script.child.torch_profiler:AFTERWARDS"


@dataclass(frozen=True)
class Recording:
    """Steps of a run that torch's profiler records after those that are measured."""

    file: Path
    """Where its trace is, if it could be made."""
    steps: int

    @property
    def application(self) -> Application:
        """What makes it, inside the process of the run."""
        options = {"file": str(self.file), "steps": self.steps, "stacks": False}
        return Application(PROFILER, RECORDER, json.dumps(options))


@dataclass(frozen=True)
class Side:
    """One of the things that are compared: how a script is started, where, and what it gets.

    A study compares settings of a command with the bare command. Two scripts, two interpreters,
    two folders, two plans or two GPUs are compared in the same way.
    """

    command: Command
    """Interpreter, script, arguments and working directory."""
    device: Device
    settings: Settings = field(default_factory=dict)
    """Knobs to apply inside the process and arguments of the script to replace, as in a plan."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables set in addition to gpuadvisor's own environment and to those of the knobs."""
    cores: tuple[int, ...] = ()
    """CPU cores to keep to; empty for all."""


@dataclass(frozen=True)
class Beside:
    """A run of a side that lives at the same time as another one."""

    side: Side
    number: int
    request: RunRequest


class Progress(Protocol):
    """Hears of everything as it happens, from several threads where trials run side by side."""

    def on_message(self, sentence: str) -> None:
        """Show a sentence to the user."""

    def on_phase(self, name: str, detail: str = "") -> None:
        """Note that a phase begins: `baseline`, `loader`, `screening`, `search`, `proof`, ..."""

    def on_trial_start(self, number: int, settings: Settings, phase: str) -> None:
        """Note that a run begins."""

    def on_event(self, number: int, event: Event) -> None:
        """Note what happened inside a run."""

    def on_trial_end(self, trial: Trial) -> None:
        """Note that a run ended."""

    def on_life_start(self, name: str) -> None:
        """Note that a shortened life begins: `unchanged script`, or `with` its settings."""

    def on_life_end(self, name: str, seconds: float, problem: str = "") -> None:
        """Note that a shortened life ended after so long, and what was wrong with it if anything.

        Whatever is wrong is a clause: `it ended with status 1 at train.py, line 40`.
        """

    def on_screened(self, screened: Screened) -> None:
        """Note what a comparison in one running script says of a value of a knob."""

    def on_supplied(self, supplied: Supplied) -> None:
        """Note how fast the script's loader is alone, under some settings of it."""

    def on_best(self, settings: Settings, gain: float) -> None:
        """Note that the search stands on these settings from now on."""

    def on_time_left(self, seconds: float | None) -> None:
        """Note how long the study may still take; None where the budget is in trials."""


class Silent(Progress):
    """`Progress` that shows nothing, for library users and tests."""


@dataclass
class TrialRunner:
    """Runs sides, each validated by `validator` and then handed to `record`."""

    knobs: Mapping[str, Knob]
    validator: TrialValidator
    schedule: Schedule = field(default_factory=Schedule)
    seed: int = 0
    samples_per_step: float | None = None
    """Given by the user where the script does not show it."""
    timeout_s: float = 600.0
    """Longest wait for the first step of the unchanged script."""
    scratch: bool = False
    """Whether each run gets a private view of the file system."""
    room_s: Callable[[Settings], float | None] = lambda settings: None
    """Returns what a budget has left for a run of these settings, None if that is no matter."""
    cancelled: Callable[[], bool] = lambda: False
    record: Callable[[Trial], None] = lambda trial: None
    """Called with each trial, from the thread that ran it."""
    ended: Callable[[Trial, RunOutcome], None] = lambda trial, outcome: None
    """Called then with how the process of the trial ended."""
    progress: Progress = field(default_factory=Silent)
    delay_s: Callable[[], float] = lambda: 0.0
    """Returns how much later than usual the next run of a proof is measured."""
    notes: str | None = None
    """Where the unchanged script's first run notes what it imports, or the next one of a proof
    whose runs are forked; None for nowhere."""
    template: Template | None = None
    """What runs are forked from that are no proof; None for fresh processes."""
    proofs_fork: bool = False
    """Whether those of a proof are forked, too: both of its sides, from the same process."""
    begun: Callable[[RunRequest], RunOutcome | None] = lambda request: None
    """Returns the outcome of the requested run where that was begun before it was asked for; None
    where it was not."""
    start_saved_s: float = 0.0
    """Time by which a fork of it begins sooner than a fresh process."""
    beside: tuple[Application, ...] = ()
    """Applied in each run beside its settings."""
    shared: tuple[str, ...] = ()
    """Folders that a run in a private view of the file system has in common with us."""

    def __post_init__(self) -> None:
        self.start_numbers_at(0)
        self._measured_s: dict[int, float] = {}
        """When all was measured of a run whose later steps were for something else."""

    def start_numbers_at(self, number: int) -> None:
        """Give the next trial this number, and those after it the following."""
        self._numbers = itertools.count(number)

    def run(
        self,
        side: Side,
        phase: str,
        slower_than: float | None = None,
        seed: int | None = None,
        reads_since: float | None = None,
        turning: Turning | None = None,
    ) -> tuple[Trial, RunOutcome]:
        """Run a side once and return it as a trial, with how its process ended.

        A run whose gain falls clearly below `slower_than` is ended early as pruned. With `seed`,
        the script draws other random numbers than in the runs that it is compared with. With
        `reads_since`, in seconds since the epoch, the outcome names the files that were changed
        between then and now, and that it reads while it starts. With `turning`, both sides of a
        proof are timed in turns after the run itself, in the same process. Raises Interrupted if it
        was cancelled.
        """
        number = next(self._numbers)
        self.progress.on_trial_start(number, side.settings, phase)
        request = self.request(side, phase, slower_than, seed, number)
        if reads_since is not None:
            between = (reads_since, time.time())
            specification = replace(request.specification, reads_between=between)
            request = replace(request, specification=specification)
        outcome, in_turns = self._outcome(request, side, turning, number)
        if (measured_s := self._measured_s.pop(number, None)) is not None and phase == "baseline":
            # What is recorded after that says nothing of how long runs take.
            outcome = replace(outcome, wall_s=outcome.wall_s - (time.monotonic() - measured_s))
        if self.cancelled():
            raise Interrupted("interrupted")
        trial, outcome = self._validated(number, phase, side, outcome)
        trial = replace(trial, in_turns=in_turns)
        self.record(trial)
        self.ended(trial, outcome)
        return trial, outcome

    def run_both(
        self, sides: Sequence[Side], turns: Turns, private: bool = False
    ) -> list[tuple[Trial, RunOutcome]]:
        """Run two sides of a proof at the same time, in turns, and return each as `run` does.

        How long they are measured, `turns` decides; `schedule.window_s` is the time of a block.
        With `private` each has a view of the file system of its own. Energy is not read, as it is
        that of both; nor are they handed to `record`.
        """
        loads = [LoadMeter(side.device) for side in sides]  # both before either is there
        with ThreadPoolExecutor(len(sides)) as pool:
            runs = [
                pool.submit(self._run_seated, side, seat, load, private)
                for side, seat, load in zip(sides, turns.seats, loads, strict=True)
            ]
        return [run.result() for run in runs]

    def _run_seated(
        self, side: Side, seat: Seat, load: LoadMeter, private: bool
    ) -> tuple[Trial, RunOutcome]:
        try:
            beside = self.begin_beside(side, seat)
            request = beside.request
            longest_s = request.limits.total_s + MOST_LONGER * self.schedule.measure_s
            limits = replace(request.limits, total_s=longest_s)
            private |= request.scratch
            request = replace(request, limits=limits, scratch=private)
            return self.run_beside(replace(beside, request=request), lambda: None, load)
        finally:
            seat.leave()

    def begin_beside(self, side: Side, place: Place) -> Beside:
        """Return a run of a proof that is to live beside another one, to be given to `run_beside`
        in any thread: it is measured as this runner would measure it now."""
        number = next(self._numbers)
        self.progress.on_trial_start(number, side.settings, "proof")
        return Beside(side, number, replace(self.request(side, "proof", number=number), seat=place))

    def run_beside(
        self, beside: Beside, read_energy_j: Callable[[], float | None], load: LoadMeter
    ) -> tuple[Trial, RunOutcome]:
        """Run it as `run` does; it is not handed to `record`. Whatever comes of it, its place is
        free then."""
        try:
            outcome = run_script(beside.request, read_energy_j, load)
        finally:
            if beside.request.seat is not None:
                beside.request.seat.leave()
        if self.cancelled():
            raise Interrupted("interrupted")
        return self._validated(beside.number, "proof", beside.side, outcome)

    def _validated(
        self, number: int, phase: str, side: Side, outcome: RunOutcome
    ) -> tuple[Trial, RunOutcome]:
        trial = self.validator.validate(number, phase, side.settings, side.device, outcome)
        if outcome.forked:
            trial = replace(trial, start_saved_s=self.start_saved_s)
        return trial, replace(outcome, measurement=trial.measurement)

    def _outcome(
        self, request: RunRequest, side: Side, turning: Turning | None, number: int
    ) -> tuple[RunOutcome, InTurns | None]:
        """Run what is requested; where that fails as sides are turned, without turning them."""
        if turning is None and (begun := self.begun(request)) is not None:
            return begun, None
        meters = EnergyMeter(side.device).read_j, LoadMeter(side.device)
        if turning is None:
            return run_script(request, *meters), None
        blocks = turning.blocks(f"{self.seed} {number}")
        start = {n: value for n, value in side.settings.items() if n in turning.live}
        turned, told = run_in_turns(
            self._turned(request, turning), turning.live, start, blocks, *meters
        )
        if turned.measurement is not None or told is None or self.cancelled():
            return turned, turning.told(blocks, told or ())
        outcome = run_script(request, *meters)
        return replace(outcome, wall_s=outcome.wall_s + turned.wall_s), None

    def _turned(self, request: RunRequest, turning: Turning) -> RunRequest:
        """Return the request of a run with what is turned on in it, and with time for blocks."""
        both = {**turning.base, **turning.head}
        slow = limits_for(both, self.knobs, self.validator.baseline, self.timeout_s)
        total_s = max(slow.total_s, request.limits.total_s) + SLOW_BLOCKS * turning.expected_s
        of = request.specification.applications
        fixed = tuple(each for each in of if each.knob not in turning.live)
        return replace(
            request,
            specification=replace(request.specification, applications=fixed),
            limits=replace(request.limits, idle_s=slow.idle_s, total_s=total_s),
        )

    def request(
        self,
        side: Side,
        phase: str,
        slower_than: float | None = None,
        seed: int | None = None,
        number: int = 0,
    ) -> RunRequest:
        """Return the request of a run, with the arguments of `run`; `number` is the trial's."""
        settings, validator = side.settings, self.validator
        applications, environment = applied(settings, self.knobs)
        schedule = self.schedule
        if phase == "proof":
            schedule = replace(schedule, warmup_s=schedule.warmup_s + self.delay_s())
        specification = Specification(
            applications=(*applications, *self.beside),
            seed=self.seed if seed is None else seed,
            reseed=seed,
            cores=side.cores,
            samples_per_step=self.samples_per_step,
            schedule=schedule,
        )
        is_first = validator.baseline is None
        if (is_first and phase == "baseline") or self.proofs_fork:
            specification = replace(specification, notes=self.notes)
        may_fork = (phase != "proof" or self.proofs_fork) and self.may_fork(settings)
        room_s = self.room_s(settings) if settings or is_first else None
        return RunRequest(
            replace(side.command, args=with_arguments(side.command.args, settings)),
            specification,
            side.device,
            self._limits(settings, room_s),
            {**environment, **side.environment},
            scratch=self.scratch,
            shared=self.shared,
            slower_than_ms=validator.slowest_ms(settings, side.device, slower_than),
            needed=validator.untried(settings) if phase == "search" else frozenset(),
            template=self.template if may_fork else None,
            on_event=lambda event: self._tell(number, event),
            cancelled=self.cancelled,
        )

    def _limits(self, settings: Settings, room_s: float | None) -> Limits:
        """Return a run's time limits, with what it is measured longer than the baseline was."""
        baseline = self.validator.baseline
        limits = limits_for(settings, self.knobs, baseline, self.timeout_s, room_s)
        longer_s = self.schedule.measure_s - (baseline.seconds if baseline else 0.0)
        if longer_s <= 0 or room_s is not None:
            return limits
        return replace(limits, total_s=limits.total_s + longer_s)

    def forks(self, side: Side, template: Template | None = None) -> bool:
        """Say whether a run of a side is forked, if it is no proof, from its template or that which
        is given: what it sets at its start must be what the template began with."""
        settings, template = side.settings, template or self.template
        if template is None or not self.may_fork(settings):
            return False
        command = replace(side.command, args=with_arguments(side.command.args, settings))
        environment = {**applied(settings, self.knobs)[1], **side.environment}
        specification = Specification(cores=side.cores)
        request = RunRequest(command, specification, side.device, Limits(), environment)
        return is_forked(replace(request, template=template))

    def may_fork(self, settings: Settings) -> bool:
        """Say whether settings are the same in a process that has imported before."""
        return all(self.knobs[name].forkable for name in settings if name in self.knobs)

    def _tell(self, number: int, event: Event) -> None:
        if self.validator.baseline is None and (sentence := _shows_little(event)):
            self.progress.on_message(sentence)
        if event["event"] == "measured":
            self._measured_s[number] = time.monotonic()
        self.progress.on_event(number, event)


def runner_for(
    options: TuneOptions,
    knobs: Mapping[str, Knob],
    budget: Budget,
    cancelled: Callable[[], bool],
    schedule: Schedule,
) -> TrialRunner:
    """Return what runs a script as the user asked for, within a budget."""
    return TrialRunner(
        knobs,
        TrialValidator(options.objective, options.level, options.tolerance, knobs),
        schedule,
        options.seed,
        options.samples_per_step,
        options.timeout_s,
        options.scratch,
        budget.room_s,
        cancelled,
    )


def _shows_little(event: Event) -> str:
    """Return what to say of a script whose first run has shown little yet; empty for other events.

    Ten minutes are long for what may never come.
    """
    match event["event"]:
        case "waiting":
            seconds, limit_s = round(event["seconds"]), round(event["limit_s"])
            what = "though torch is imported:" if event["torch"] else "nor torch imported: without,"
            return (
                f"no step was seen in {seconds} s, {what} the run is given up after {limit_s} s; "
                "`gpuadvisor.step()` marks steps of its own kind"
            )
        case "few_steps":
            return (
                f"its steps have begun, and after {round(event['seconds'])} s there are too few to "
                "tell what one takes: they are long, or it compiles or evaluates between them"
            )
    return ""


def limits_for(
    settings: Settings,
    knobs: Mapping[str, Knob],
    baseline: Measurement | None,
    timeout_s: float,
    room_s: float | None = None,
) -> Limits:
    """Return time limits: generous for the baseline, drawn from it for all other runs.

    `timeout_s` is what the user allows for the unchanged script's first step, `room_s` what the
    budget has left for this run, if that matters.
    """
    if baseline is None:
        room_s = math.inf if room_s is None else room_s
        return Limits(
            min(timeout_s, room_s),
            min(BASELINE_IDLE_S, room_s),
            min(timeout_s + BASELINE_S, room_s),
            room_s,
            IMPORT_SHARE * timeout_s,
        )
    slow_s = sum(knobs[name].extra_startup_s for name in settings if name in knobs)
    startup_s = min(timeout_s, STARTUP_SLACK_S + 3 * baseline.startup_s) + slow_s
    idle_s = max(120.0, 20 * baseline.mean_step_ms / 1e3) + slow_s
    total_s = startup_s + slow_s + STARTUP_SLACK_S + 5 * baseline.wall_s
    if room_s is None:
        return Limits(startup_s, idle_s, total_s)
    return Limits(min(startup_s, room_s), min(idle_s, room_s), min(total_s, room_s), room_s)

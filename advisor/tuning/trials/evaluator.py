"""Measures points of a study's search on a script: one trial each, on whichever GPU is free."""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue

from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.collectors.script.specification import Schedule
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.study import InTurns, Trial, TrialState
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.turns import ratio_of_blocks
from gpuadvisor.tuning.budgeting.budget import Budget
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.trials.in_turns import ApartError, run_in_turns
from gpuadvisor.tuning.trials.proof_processes import ProofProcesses
from gpuadvisor.tuning.trials.trial_runner import Progress, Recording, Side, runner_for

STALE_AFTER = 8
"""Runs of the search on a GPU after which its reference is measured anew: at 12 % of the search's
time, a machine that gets slower by 5 % over 40 runs misleads it by no more than 1 %, which is what
a setting must be better by."""


class ScriptEvaluator:
    """`tuners.space.Evaluator` that runs a script on real devices."""

    def __init__(
        self,
        options: TuneOptions,
        devices: Sequence[Device],
        knobs: Mapping[str, Knob],
        budget: Budget,
        progress: Progress,
        store: Callable[[Trial], None],
        cancelled: Callable[[], bool],
        schedule: Schedule,
    ) -> None:
        self._command = options.command
        self._devices = list(devices)
        self._budget = budget
        self._progress = progress
        self._store = store
        self._lock = threading.Lock()
        self._since: Counter[int] = Counter()
        """Runs on each GPU since its reference was measured."""
        self._known: dict[frozenset[tuple[str, object]], Trial] = {}
        """Runs that a search need not repeat, by their settings: its own so far, those of this
        study's searches before, and of an earlier session."""
        self._told: set[int] = set()
        """Numbers of those that count in this session."""
        self.trials: list[Trial] = []
        self.runner = runner_for(options, knobs, budget, cancelled, schedule)
        self.runner.record, self.runner.progress = self._record, progress
        self.runner.delay_s = self._delay_s
        self.validator = self.runner.validator
        self.proof = ProofProcesses(
            options, self._devices, knobs, budget, progress, self.runner, self.side, self.trials
        )
        budget.durations.saved_s = self.proof.saved_s

    # -- what the search asks ----------------------------------------------------------------

    @property
    def parallel(self) -> int:
        return len(self._devices)

    def affordable(self, batch: Sequence[Settings]) -> bool:
        new = [point for point in batch if self._known_trial(point, self._budget.phase) is None]
        return not new or self._budget.affordable(new, self.parallel)

    def measure(
        self,
        points: Sequence[Settings],
        phase: str,
        slower_than: float | None = None,
        turned: tuple[Settings, Settings] | None = None,
    ) -> list[Trial]:
        """Run the points, one a GPU at a time; Interrupted if the user ended the study."""
        devices = self._devices[: len(points)]
        self._refresh_references(devices, phase, points)
        self.proof.prepare_for(turned)
        if phase == "proof":
            self.runner.proofs_fork = self.proof.next_forks()
        if len(devices) < 2:
            return [self._trial(point, phase, devices[0], slower_than) for point in points]
        free: SimpleQueue[Device] = SimpleQueue()  # one for each thread

        def work(point: Settings) -> Trial:
            device = free.get()
            try:
                return self._trial(point, phase, device, slower_than)
            finally:
                free.put(device)

        for device in devices:
            free.put(device)
        with ThreadPoolExecutor(len(devices)) as pool:
            return list(pool.map(work, points))

    def measure_both(
        self, pair: Sequence[Settings], head: Settings, base: Settings | None = None
    ) -> list[Trial] | None:
        """Run both sides of a proof at the same time, in turns; None where they do not take them.

        Interrupted if the user ended the study.
        """
        base = base or {}
        self.runner.proofs_fork = False
        if not self.proof.in_pairs(base, head):
            return None
        device = self._devices[0]
        self._refresh_references([device], "proof", pair)
        known = "script with what is proven" if base else "unchanged script"
        names = (("script with the settings" if each == head else known) for each in pair)
        sides = dict(zip(names, (self.side(each, device) for each in pair), strict=True))
        seed = f"{self.runner.seed} {len(self.trials)}"
        try:
            ended, blocks_ms = run_in_turns(self.runner, sides, seed, private=True)
        except ApartError as error:
            self._number_on()  # what became no pair is no trial
            self.proof.turn_nothing(f"{error}, when both were alive and took turns")
            return None
        of = dict(zip((each == head for each in pair), blocks_ms, strict=True))
        base_ms = math.exp(math.fsum(map(math.log, of[False])) / len(of[False]))
        in_turns = InTurns(base_ms, base_ms * ratio_of_blocks(of[False], of[True]))
        found = [replace(trial, in_turns=in_turns) for trial, _ in ended]
        for trial in found:
            self._record(trial)
        return found

    def measure_baseline(
        self,
        device: Device | None = None,
        seed: int | None = None,
        reads_since: float | None = None,
        recording: Recording | None = None,
    ) -> RunOutcome:
        """Run the unchanged script; its cost becomes part of the reference of its GPU.

        `seed` and `reads_since` are those of `TrialRunner.run`. With a `recording`, that is
        made of its later steps, if it can be.
        """
        device = device or self._devices[0]
        self._since[device.index] = 0
        side, runner = self.side({}, device), self.runner
        if recording is not None:
            runner.beside = (recording.application,)
            runner.shared = (str(recording.file.parent),)
        try:
            _, outcome = runner.run(side, "baseline", seed=seed, reads_since=reads_since)
        finally:
            runner.beside, runner.shared = (), ()
        return outcome

    def leave_out(self, run: RunOutcome, why: str, kept: RunOutcome) -> str:
        """Take a run of the unchanged script out of all that rests on such runs; `kept` is the
        first of the others. `why` is kept with the trial, and returned as a sentence to be told."""
        number = next(n for n, t in enumerate(self.trials) if t.measurement is run.measurement)
        left = replace(
            self.trials[number], state=TrialState.PRUNED, reason=why, measurement=None, gain=None
        )
        with self._lock:
            self.trials[number] = left
            if run.measurement is not None:
                self.validator.forget(run.measurement)
            self.validator.baseline = kept.measurement
        return f"run {left.number}, of the unchanged script, is left out: {why}"

    def begin_proof_with_last(self) -> Trial:
        """Make the last run, one of the unchanged script, the first one of the proof that is about
        to begin, and return it."""
        self.trials[-1] = replace(self.trials[-1], phase="proof")
        self.proof.began = len(self.trials) - 1
        return self.trials[-1]

    def remember(self, trials: Sequence[Trial]) -> None:
        """Take over the trials of an earlier, interrupted session of this study."""
        self._know(trials)
        self.trials.extend(trials)
        self._number_on()

    def _know(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            if trial.phase == "search" and trial.state is not TrialState.PRUNED:
                self._known[frozenset(trial.settings.items())] = trial

    def _known_trial(self, point: Settings, phase: str) -> Trial | None:
        return self._known.get(frozenset(point.items())) if phase == "search" else None

    def share_of_cores(self, device: Device) -> tuple[int, ...]:
        """Return this GPU's share of the cores, so that parallel trials do not disturb others.

        Empty where one GPU has all.
        """
        if len(self._devices) == 1 or not hasattr(os, "sched_getaffinity"):  # not Linux
            return ()
        cores = sorted(os.sched_getaffinity(0))
        share = max(1, len(cores) // len(self._devices))
        start = self._devices.index(device) * share
        return tuple(cores[start : start + share])

    # -- how it is done ----------------------------------------------------------------------

    def side(self, point: Settings, device: Device) -> Side:
        return Side(self._command, device, point, cores=self.share_of_cores(device))

    def _trial(
        self, point: Settings, phase: str, device: Device, slower_than: float | None
    ) -> Trial:
        known = self._known_trial(point, phase)
        if known is not None:
            self._tell(known)
            return known
        self._since[device.index] += 1
        side = self.side(point, device)
        turning = self.proof.turning if phase == "proof" else None
        trial, _ = self.runner.run(side, phase, slower_than, turning=turning)
        forks = self.runner.forks(side) and (phase != "proof" or self.runner.proofs_fork)
        if forks and not trial.is_forked:  # it has ended, as when memory ran out
            self.runner.template = None
        if turning is not None and trial.measurement is not None and trial.in_turns is None:
            self.proof.turn_nothing("a process ended, or failed, before both were timed")
        if phase == "search" and self._is_exception(trial) and self._is_worth_again(trial):
            trial, _ = self.runner.run(side, phase, slower_than)
        return trial

    def _is_worth_again(self, trial: Trial) -> bool:
        """Say whether there is time to run settings again that something disturbed, and to decide
        on them then."""
        if self._budget.left_s is None:  # the user's number of trials is kept
            return False
        has_room = self._budget.has_room_for_more(trial.settings)
        return has_room and self._budget.affordable([trial.settings], self.parallel)

    def _number_on(self) -> None:
        """Give the next run the number after those of the trials that are kept."""
        self.runner.start_numbers_at(max((each.number for each in self.trials), default=-1) + 1)

    def _tell(self, known: Trial) -> None:
        """Count and show a run of an earlier session where this one needs it first."""
        with self._lock:
            is_told = known.number in self._told
            self._told.add(known.number)
            if not is_told:
                self._budget.record(known)
        if not is_told:
            self._progress.on_trial_end(known)

    def _is_exception(self, trial: Trial) -> bool:
        """Say whether something disturbed a run, as it does not disturb most of them."""
        with self._lock:
            disturbed = sum(bool(each.disturbance) for each in self.trials)
            return bool(trial.disturbance) and 2 * disturbed < len(self.trials)

    def _delay_s(self) -> float:
        with self._lock:
            return self.proof.delay_s()

    def _record(self, trial: Trial) -> None:
        """Keep a trial, count its cost, store it and show it."""
        with self._lock:
            self.trials.append(trial)
            self._know([trial])
            self._told.add(trial.number)
            self._budget.record(trial)
            self.proof.expect_delay()
            self._store(trial)
        self._progress.on_trial_end(trial)
        self._progress.on_time_left(self._budget.left_s)

    def _refresh_references(
        self, devices: Sequence[Device], phase: str, points: Sequence[Settings]
    ) -> None:
        """Measure the unchanged script where it was not yet, or too long ago for the search.

        Several GPUs do that side by side, as they do with what is compared with it. A budget that
        has room for these points, but not for this run, too, is left to them.
        """
        references: list[Settings] = [{} for _ in devices]
        if all(self._known_trial(point, phase) for point in points):
            return
        fresh = phase != "search" or not self.affordable([*references, *points])
        stale = [
            device
            for device in devices
            if not self.validator.has_reference(device)
            or (not fresh and self._since[device.index] >= STALE_AFTER)
        ]
        if len(stale) < 2:
            for device in stale:
                self.measure_baseline(device)
            return
        with ThreadPoolExecutor(len(stale)) as pool:
            list(pool.map(self.measure_baseline, stale))

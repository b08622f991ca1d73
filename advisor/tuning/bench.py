"""Runs trials: settings in, a compared and recorded trial out."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from statistics import fmean

from gpuadvisor.collectors.energy import EnergyMeter
from gpuadvisor.collectors.script.request import RunOutcome, RunRequest
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.collectors.script.specification import Schedule, Specification
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.errors import Interrupted
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.equivalence import Comparison
from gpuadvisor.tuning.arguments import applied, with_arguments
from gpuadvisor.tuning.judging import Judge
from gpuadvisor.tuning.limits import limits_for, slowest_ms
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.progress import Progress
from gpuadvisor.tuning.spending import Spending

REFERENCES = 3
"""Newest baseline runs on a GPU that make its reference; older ones have drifted."""
STALE_AFTER = 8
"""Runs of the search on a GPU after which its reference is measured anew: at 12 % of the search's
time, a machine that gets slower by 5 % over 40 runs misleads it by no more than 1 %, which is what
a setting must be better by."""


class ScriptBench:
    """`tuners.space.Evaluator` on a real script and real devices."""

    def __init__(
        self,
        options: TuneOptions,
        devices: Sequence[Device],
        knobs: Mapping[str, Knob],
        spending: Spending,
        progress: Progress,
        record: Callable[[Trial], None],
        cancelled: Callable[[], bool],
        schedule: Schedule,
    ) -> None:
        self._options = options
        self._devices = list(devices)
        self._knobs = knobs
        self._spending = spending
        self._progress = progress
        self._record = record
        self._cancelled = cancelled
        self._schedule = schedule
        self._judge = Judge(options, knobs)
        self._lock = threading.Lock()
        self._number = 0
        self._references: dict[int, list[Measurement]] = {}
        """Runs of the unchanged script on each GPU that tell its cost."""
        self._since: Counter[int] = Counter()
        self._known: dict[frozenset[tuple[str, object]], Trial] = {}
        self.trials: list[Trial] = []

    @property
    def comparison(self) -> Comparison:
        return self._judge.comparison

    @property
    def baseline(self) -> Measurement | None:
        """The first run of the unchanged script; None until it was measured."""
        return self._judge.baseline

    # -- what the search asks ----------------------------------------------------------------

    @property
    def parallel(self) -> int:
        return len(self._devices)

    def affordable(self, batch: Sequence[Settings]) -> bool:
        return self._spending.affordable(batch, self.parallel)

    def measure(
        self, settings: Sequence[Settings], phase: str, slower_than: float | None = None
    ) -> list[Trial]:
        """Run the settings, one a GPU at a time; Interrupted if the user ended the study."""
        devices = self._devices[: len(settings)]
        self._refer(devices, phase)
        if len(devices) < 2:
            return [self._trial(item, phase, devices[0], slower_than) for item in settings]
        with ThreadPoolExecutor(len(devices)) as pool:

            def work(item: Settings) -> Trial:
                with self._free(devices) as device:
                    return self._trial(item, phase, device, slower_than)

            return list(pool.map(work, settings))

    def _refer(self, devices: Sequence[Device], phase: str) -> None:
        """Measure the unchanged script where it was not yet, or too long ago for the search.

        Several GPUs do that side by side, as they do with what is compared with it.
        """
        fresh = phase != "search" or not self._spending.affordable([{}])
        stale = [
            device
            for device in devices
            if device.index not in self._references
            or (not fresh and self._since[device.index] >= STALE_AFTER)
        ]
        if len(stale) < 2:
            for device in stale:
                self.measure_baseline(device)
            return
        with ThreadPoolExecutor(len(stale)) as pool:
            list(pool.map(self.measure_baseline, stale))

    @contextmanager
    def _free(self, devices: list[Device]) -> Iterator[Device]:
        """Take one of the devices; there are as many as threads that ask."""
        with self._lock:
            device = devices.pop(0)
        try:
            yield device
        finally:
            with self._lock:
                devices.append(device)

    # -- baseline ----------------------------------------------------------------------------

    def remember(self, trials: Sequence[Trial]) -> None:
        """Take over the trials of an earlier, interrupted session of this study."""
        for trial in trials:
            self._number = max(self._number, trial.number + 1)
            if trial.phase == "search" and trial.state is not TrialState.PRUNED:
                self._known[frozenset(trial.settings.items())] = trial
            self.trials.append(trial)

    def measure_baseline(self, device: Device | None = None, seed: int | None = None) -> RunOutcome:
        """Run the unchanged script; its cost becomes part of the reference of its GPU."""
        device = device or self._devices[0]
        number = self._next_number()
        self._since[device.index] = 0
        self._progress.started(number, {}, "baseline")
        outcome = self._run(number, {}, device, seed=seed)
        if outcome.measurement is not None:
            self._judge.baseline = self._judge.baseline or outcome.measurement
            if self._options.objective.cost(outcome.measurement) is not None:
                self._references.setdefault(device.index, []).append(outcome.measurement)
        self._finish(number, {}, "baseline", device, outcome)
        return outcome

    # -- one trial ---------------------------------------------------------------------------

    def _trial(
        self, settings: Settings, phase: str, device: Device, slower_than: float | None
    ) -> Trial:
        known = self._known.get(frozenset(settings.items())) if phase == "search" else None
        if known is not None:
            with self._lock:
                self._spending.spent(known)
            self._progress.ended(known)
            return known
        number = self._next_number()
        self._progress.started(number, settings, phase)
        self._since[device.index] += 1
        needed = self._judge.untried(settings) if phase == "search" else frozenset()
        outcome = self._run(number, settings, device, slower_than, needed)
        return self._finish(number, settings, phase, device, outcome)

    def _next_number(self) -> int:
        with self._lock:
            self._number += 1
            return self._number - 1

    def _run(
        self,
        number: int,
        settings: Settings,
        device: Device,
        slower_than: float | None = None,
        needed: frozenset[str] = frozenset(),
        seed: int | None = None,
    ) -> RunOutcome:
        options = self._options
        applications, environment = applied(settings, self._knobs)
        specification = Specification(
            applications=applications,
            seed=options.seed if seed is None else seed,
            reseed=seed,
            cores=self.share_of_cores(device),
            samples_per_step=options.samples_per_step,
            schedule=self._schedule,
        )
        hopeless_ms = slowest_ms(options.objective, self._newest(device), slower_than)
        request = RunRequest(
            replace(options.command, args=with_arguments(options.command.args, settings)),
            specification,
            device,
            limits_for(
                settings,
                self._knobs,
                self.baseline,
                options.timeout_s,
                self._spending.room_s(settings) if settings else None,
            ),
            environment,
            slower_than_ms=None if self._judge.resizes(settings) else hopeless_ms,
            needed=needed,
            on_event=lambda event: self._progress.event(number, event),
            cancelled=self._cancelled,
        )
        outcome = run_script(request, EnergyMeter(device).read_j)
        if self._cancelled():
            raise Interrupted("interrupted")
        if outcome.measurement is None:
            return outcome
        return replace(outcome, measurement=self._judge.counted(settings, outcome.measurement))

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

    def _finish(
        self, number: int, settings: Settings, phase: str, device: Device, outcome: RunOutcome
    ) -> Trial:
        """Judge a run, store it and tell of it."""
        measurement = outcome.measurement
        equivalence = None
        if measurement is not None and settings:
            equivalence = self._judge.compare(settings, measurement)
        with self._lock:
            state, reason = self._judge.state(settings, phase, device, outcome, equivalence)
            trial = Trial(
                number=number,
                settings=dict(settings),
                phase=phase,
                state=state,
                reason=reason,
                measurement=measurement,
                equivalence=equivalence,
                gain=None if measurement is None else self._gain(device, measurement),
                gpu=device.index,
                wall_s=outcome.wall_s,
            )
            self.trials.append(trial)
            self._spending.spent(trial)
            self._record(trial)
        self._progress.ended(trial)
        self._progress.time_left(self._spending.left_s)
        return trial

    def _gain(self, device: Device, measurement: Measurement) -> float | None:
        cost_of = self._options.objective.cost
        costs = [cost for each in self._newest(device) if (cost := cost_of(each)) is not None]
        cost = cost_of(measurement)
        return fmean(costs) / cost if cost and costs else None

    def _newest(self, device: Device) -> list[Measurement]:
        """Return what the reference of a GPU consists of."""
        return self._references.get(device.index, [])[-REFERENCES:]

"""Runs trials: settings in, a compared and recorded trial out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import fmean

from gpuadvisor.collectors.energy import EnergyMeter
from gpuadvisor.collectors.script.request import Limits, RunOutcome, RunRequest
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.collectors.script.specification import Schedule, Specification
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import ARGUMENT_PREFIX, Effect, ScriptFacts, Settings
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Equivalence, Objective, Trial, TrialState
from gpuadvisor.errors import Interrupted
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.equivalence import Comparison
from gpuadvisor.tuning.arguments import applied, with_arguments
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.progress import Progress
from gpuadvisor.tuning.spending import Spending

MEMORY_HEADROOM = 0.9
"""Share of the GPU's memory that a setting may hold: a run that is longer than the trial needs
more (evaluation, another batch shape), and an out-of-memory later undoes every gain."""
PRUNE_BELOW = 0.8
"""A trial is ended early when it would reach less than this share of the best so far."""
REFERENCES = 3
"""Newest baseline runs on a GPU that make its reference; older ones have drifted."""


class ScriptBench:
    """`tuners.bench.Bench` on a real script and real devices."""

    def __init__(
        self,
        options: TuneOptions,
        devices: Sequence[Device],
        knobs: Mapping[str, Knob],
        spending: Spending,
        progress: Progress,
        record: Callable[[Trial], None],
        cancelled: Callable[[], bool],
    ) -> None:
        self._options = options
        self._devices = list(devices)
        self._knobs = knobs
        self._spending = spending
        self._progress = progress
        self._record = record
        self._cancelled = cancelled
        self._lock = threading.Lock()
        self._number = 0
        self._costs: dict[int, list[float]] = {}
        self._effective: set[str] = set()
        self._known: dict[frozenset[tuple[str, object]], Trial] = {}
        self.comparison = Comparison(options.level, options.tolerance)
        self.baseline: Measurement | None = None
        self.schedule = Schedule()
        self.trials: list[Trial] = []

    # -- what the search asks ----------------------------------------------------------------

    @property
    def parallel(self) -> int:
        return len(self._devices)

    def affordable(self, settings: Settings) -> bool:
        return self._spending.affordable(settings)

    def measure(
        self, settings: Sequence[Settings], phase: str, slower_than: float | None = None
    ) -> list[Trial]:
        """Run the settings, one a GPU at a time; Interrupted if the user ended the study."""
        for device in self._devices[: len(settings)]:
            if device.index not in self._costs:
                self.measure_baseline(device)
        if len(self._devices) == 1 or len(settings) == 1:
            return [self._trial(item, phase, self._devices[0], slower_than) for item in settings]
        free = list(self._devices)
        with ThreadPoolExecutor(len(self._devices)) as pool:

            def work(item: Settings) -> Trial:
                with self._lock:
                    device = free.pop()
                try:
                    return self._trial(item, phase, device, slower_than)
                finally:
                    free.append(device)

            return list(pool.map(work, settings))

    # -- baseline ----------------------------------------------------------------------------

    def remember(self, trials: Sequence[Trial]) -> None:
        """Take over the search's trials of an earlier, interrupted study of the same name."""
        for trial in trials:
            self._number = max(self._number, trial.number + 1)
            if trial.phase == "search" and trial.state is not TrialState.PRUNED:
                self._known[frozenset(trial.settings.items())] = trial
            self.trials.append(trial)

    def measure_baseline(self, device: Device | None = None, seed: int | None = None) -> RunOutcome:
        """Run the unchanged script; its cost becomes the reference of its GPU."""
        device = device or self._devices[0]
        number = self._next_number()
        self._progress.started(number, {}, "baseline")
        outcome = self._run(number, {}, device, seed=seed)
        if outcome.measurement is not None:
            self._refer(device, outcome.measurement)
            self.baseline = self.baseline or outcome.measurement
        self._finish(number, {}, "baseline", device, outcome, None)
        return outcome

    def _refer(self, device: Device, measurement: Measurement) -> None:
        cost = self._options.objective.cost(measurement)
        if cost is not None:
            self._costs.setdefault(device.index, []).append(cost)

    # -- one trial ---------------------------------------------------------------------------

    def _trial(
        self, settings: Settings, phase: str, device: Device, slower_than: float | None
    ) -> Trial:
        known = self._known.get(frozenset(settings.items())) if phase == "search" else None
        if known is not None:
            self._progress.ended(known)
            return known
        number = self._next_number()
        self._progress.started(number, settings, phase)
        outcome = self._run(number, settings, device, slower_than)
        if not settings and outcome.measurement is not None:
            self._refer(device, outcome.measurement)
        equivalence = None
        if outcome.measurement is not None and settings:
            equivalence = self._compare(settings, outcome.measurement)
        return self._finish(number, settings, phase, device, outcome, equivalence)

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
        seed: int | None = None,
    ) -> RunOutcome:
        options = self._options
        applications, environment = applied(settings, self._knobs)
        specification = Specification(
            applications=applications,
            seed=options.seed if seed is None else seed,
            cores=self._share_of_cores(device),
            samples_per_step=options.samples_per_step,
            schedule=self.schedule,
        )
        command = replace(options.command, args=with_arguments(options.command.args, settings))
        request = RunRequest(
            command,
            specification,
            device,
            self._limits(settings),
            environment,
            self._slowest_ms(settings, slower_than),
            lambda event: self._progress.event(number, event),
            self._cancelled,
        )
        outcome = run_script(request, EnergyMeter(device).read_j)
        if self._cancelled():
            raise Interrupted("interrupted")
        return outcome

    def _share_of_cores(self, device: Device) -> tuple[int, ...]:
        """Return this GPU's share of the cores, so that parallel trials do not disturb others."""
        import os

        if len(self._devices) == 1:
            return ()
        cores = sorted(os.sched_getaffinity(0))
        share = max(1, len(cores) // len(self._devices))
        start = self._devices.index(device) * share
        return tuple(cores[start : start + share])

    def _limits(self, settings: Settings) -> Limits:
        """Return time limits: generous for the baseline, drawn from it for the others."""
        options, baseline = self._options, self.baseline
        if baseline is None:
            return Limits(startup_s=options.timeout_s, total_s=3 * options.timeout_s)
        slow_s = sum(self._knobs[name].extra_startup_s for name in settings)
        startup_s = min(options.timeout_s, 60 + 3 * baseline.startup_s) + slow_s
        idle_s = max(120.0, 20 * baseline.mean_step_ms / 1e3) + slow_s
        return Limits(startup_s, idle_s, startup_s + slow_s + 60 + 5 * baseline.wall_s)

    def _slowest_ms(self, settings: Settings, slower_than: float | None) -> float | None:
        """Return the step time at which a trial is hopeless, where step times can be compared."""
        comparable = self._options.objective in (Objective.THROUGHPUT, Objective.LATENCY)
        resized = any(self._resizes(name) for name in settings)
        if slower_than is None or self.baseline is None or not comparable or resized:
            return None
        return self.baseline.mean_step_ms / (slower_than * PRUNE_BELOW)

    def _resizes(self, name: str) -> bool:
        return name.startswith(ARGUMENT_PREFIX) or self._knobs[name].progressive

    # -- judging -----------------------------------------------------------------------------

    def _compare(self, settings: Settings, measurement: Measurement) -> Equivalence:
        knobs = [self._knobs[name] for name in settings]
        facts = self.baseline.facts if self.baseline else ScriptFacts()
        if any(name.startswith(ARGUMENT_PREFIX) for name in settings):
            return Equivalence("not_checked", "", reason="the script's own arguments were changed")
        resized = any(knob.progressive for knob in knobs)
        if resized and facts.training:
            return Equivalence(
                "not_checked", "", reason="another batch size changes how the model trains"
            )
        return self.comparison.check(
            measurement.trace,
            other_random_numbers=any(k.effect_for(facts) is Effect.RANDOM_STREAM for k in knobs),
            first_call_only=resized,
        )

    def _finish(
        self,
        number: int,
        settings: Settings,
        phase: str,
        device: Device,
        outcome: RunOutcome,
        equivalence: Equivalence | None,
    ) -> Trial:
        state, reason = self._state(settings, phase, device, outcome, equivalence)
        trial = Trial(
            number=number,
            settings=dict(settings),
            phase=phase,
            state=state,
            reason=reason,
            measurement=outcome.measurement,
            equivalence=equivalence,
            gain=self._gain(device, outcome.measurement),
            gpu=device.index,
            wall_s=outcome.wall_s,
        )
        with self._lock:
            self.trials.append(trial)
            self._spending.spent(trial)
            self._record(trial)
        self._progress.ended(trial)
        self._progress.time_left(self._spending.left_s)
        return trial

    def _gain(self, device: Device, measurement: Measurement | None) -> float | None:
        if measurement is None or not self._costs.get(device.index):
            return None
        cost = self._options.objective.cost(measurement)
        return None if cost is None else fmean(self._costs[device.index][-REFERENCES:]) / cost

    def _state(
        self,
        settings: Settings,
        phase: str,
        device: Device,
        outcome: RunOutcome,
        equivalence: Equivalence | None,
    ) -> tuple[TrialState, str]:
        measurement = outcome.measurement
        if measurement is None:
            where = f" ({outcome.place})" if outcome.place else ""
            return outcome.state, outcome.reason + where
        if equivalence is not None and equivalence.status == "wrong":
            value = "NaN" if equivalence.value is None else f"{equivalence.value:.2%}"
            return TrialState.WRONG, f"{equivalence.metric}: {value}, above {equivalence.limit:.2%}"
        held = measurement.reserved_memory_bytes / (device.memory_bytes or float("inf"))
        if device.is_gpu and settings and held > MEMORY_HEADROOM:
            return (
                TrialState.OUT_OF_MEMORY,
                f"held {held:.0%} of the GPU's memory; 10 % stay free for longer runs",
            )
        return self._effects(settings, phase, measurement) or (TrialState.COMPLETE, "")

    def _effects(
        self, settings: Settings, phase: str, measurement: Measurement
    ) -> tuple[TrialState, str] | None:
        """Return the state of a trial whose new knob did nothing, or could not work."""
        applied = {report.knob: report for report in measurement.applied}
        self._effective |= {k for k, report in applied.items() if report.state == "effective"}
        if phase != "search":
            return None
        for name in settings:
            if name in self._effective or name.startswith(ARGUMENT_PREFIX):
                continue
            report = applied.get(name)
            if report is not None and report.state == "refused":
                return TrialState.UNSUPPORTED, f"{name}: {report.detail}"
            return TrialState.NO_EFFECT, f"{name} found nothing to change in this script"
        return None

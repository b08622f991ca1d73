"""Validation of a run: its state with a reason, its gain, and whether its results agree."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from statistics import median

from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import ARGUMENT_PREFIX, Effect, Level, ScriptFacts, Settings
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Aspect, Equivalence, Objective, Trial, TrialState
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.equivalence import Comparison

MEMORY_HEADROOM = 0.9
"""Share of the GPU's memory that a setting may hold: a run that is longer than the trial needs
more (evaluation, another batch shape), and an out-of-memory later undoes every gain."""
REFERENCES = 3
"""Newest baseline runs on a GPU that make its reference; older ones have drifted."""
PRUNE_BELOW = 0.6
"""Share of the best so far below which a trial is ended early."""
BY_SAMPLE = (Objective.THROUGHPUT, Objective.ENERGY)
"""Objectives whose cost is that of a sample, or of a step where samples are not known."""

Judgement = tuple[TrialState, str]
"""A state and its reason, in one sentence."""


class TrialValidator:
    """Turns runs into trials, compared with the baseline once that is known."""

    def __init__(
        self, objective: Objective, level: Level, tolerance: float | None, knobs: Mapping[str, Knob]
    ) -> None:
        self._objective = objective
        self._knobs = knobs
        self._lock = threading.Lock()
        self._effective: set[str] = set()
        """Knobs that have had an effect in some run."""
        self._references: dict[int, list[Measurement]] = {}
        """Baseline runs on each GPU, by its index: what gains are relative to."""
        self._disturbed: dict[int, list[Measurement]] = {}
        """Baseline runs on each GPU, by its index, beside which something else used the machine;
        they count where there are no quiet ones."""
        self.comparison = Comparison(level, tolerance)
        self.baseline: Measurement | None = None
        """First run of the unchanged script; None until it was measured."""

    def validate(
        self, number: int, phase: str, settings: Settings, device: Device, outcome: RunOutcome
    ) -> Trial:
        """Return what a run amounts to; one of phase `baseline` becomes part of the reference."""
        measurement, equivalence = outcome.measurement, None
        if measurement is not None:
            measurement = self._with_counted_samples(settings, measurement)
            if settings:
                equivalence = self._compare(settings, measurement)
        with self._lock:
            if phase == "baseline" and measurement is not None:
                self.baseline = self.baseline or measurement
                if self._objective.cost(measurement) is not None:
                    kept = self._disturbed if outcome.disturbance else self._references
                    kept.setdefault(device.index, []).append(measurement)
            outcome = replace(outcome, measurement=measurement)
            state, reason = self._state(settings, phase, device, outcome, equivalence)
            return Trial(
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
                disturbance=outcome.disturbance,
            )

    def forget(self, measurement: Measurement) -> None:
        """Take a baseline run out of the reference again."""
        with self._lock:
            for kept in (*self._references.values(), *self._disturbed.values()):
                kept[:] = [each for each in kept if each is not measurement]

    def has_reference(self, device: Device) -> bool:
        """Say whether gains of runs on this device are known."""
        return bool(self._newest(device))

    def slowest_ms(
        self, settings: Settings, device: Device, slower_than: float | None
    ) -> float | None:
        """Return the step time at which a trial is hopeless; None where step times do not decide.

        The slowest of the references counts: where runs of the unchanged script differ much, a
        trial that began in a bad moment is not hopeless.
        """
        references = self._newest(device)
        decides = self._objective in (Objective.THROUGHPUT, Objective.LATENCY)
        if slower_than is None or not references or not decides or self.resizes(settings):
            return None
        slowest = max(reference.mean_step_ms for reference in references)
        return slowest / (slower_than * PRUNE_BELOW)

    def untried(self, settings: Settings) -> frozenset[str]:
        """Return the knobs among these settings that have had no effect in any run yet."""
        knobs = {name for name in settings if not name.startswith(ARGUMENT_PREFIX)}
        return frozenset(knobs - self._effective)

    def _newest(self, device: Device) -> list[Measurement]:
        """Return what the reference of a GPU consists of."""
        known = self._references.get(device.index) or self._disturbed.get(device.index, [])
        return known[-REFERENCES:]

    def _gain(self, device: Device, measurement: Measurement) -> float | None:
        cost_of = self._objective.cost
        costs = [cost for each in self._newest(device) if (cost := cost_of(each)) is not None]
        cost = cost_of(measurement)
        return median(costs) / cost if cost and costs else None

    def resizes(self, settings: Settings) -> bool:
        """Say whether a step under these settings may be more or less work than the baseline's."""
        return any(n.startswith(ARGUMENT_PREFIX) or self._knobs[n].progressive for n in settings)

    def _with_counted_samples(self, settings: Settings, measurement: Measurement) -> Measurement:
        """Return the measurement with samples counted as the baseline's are, where that is sure.

        A knob may hide the loader or the input from which they are read; costs a sample and
        costs a step cannot be compared.
        """
        known = self.baseline
        if known is None or self.resizes(settings):
            return measurement
        if measurement.samples_source == known.samples_source:
            return measurement
        each = known.samples_per_step or 0.0
        windows = tuple(replace(w, samples=each * w.steps) for w in measurement.windows)
        return replace(measurement, samples_source=known.samples_source, windows=windows)

    def _compare(self, settings: Settings, measurement: Measurement) -> Equivalence:
        """Return whether a run computed what the baseline computes, as far as that can be said."""
        facts = self.baseline.facts if self.baseline else ScriptFacts()
        if any(name.startswith(ARGUMENT_PREFIX) for name in settings):
            return Equivalence("not_checked", "", reason="the script's own arguments were changed")
        knobs = [self._knobs[name] for name in settings]
        resized = any(knob.progressive for knob in knobs)
        if resized and facts.training:
            return Equivalence(
                "not_checked", "", reason="another batch size changes how the model trains"
            )
        return self.comparison.check(
            measurement.trace,
            other_random_numbers=facts.draws_random
            or any(k.effect_for(facts) is Effect.RANDOM_STREAM for k in knobs),
            first_call_only=resized,
            may_round=any(Aspect.BATCHES not in knob.reaches for knob in knobs),
        )

    def _state(
        self,
        settings: Settings,
        phase: str,
        device: Device,
        outcome: RunOutcome,
        equivalence: Equivalence | None,
    ) -> Judgement:
        """Return how a run ended, as the study sees it."""
        measurement = outcome.measurement
        if measurement is None:
            where = f" ({outcome.place})" if outcome.place else ""
            return outcome.state, outcome.reason + where
        if equivalence is not None and equivalence.status == "wrong":
            return TrialState.WRONG, _format_difference(equivalence)
        return (
            self._memory(settings, device, measurement)
            or self._samples(settings, measurement)
            or self._effects(settings, phase, measurement)
            or (TrialState.COMPLETE, "")
        )

    def _memory(
        self, settings: Settings, device: Device, measurement: Measurement
    ) -> Judgement | None:
        """Return the state of a run that holds more of the GPU's memory than it should."""
        if not (device.is_gpu and device.memory_bytes and settings):
            return None
        own = self.baseline.reserved_memory_bytes / device.memory_bytes if self.baseline else 0.0
        held = measurement.reserved_memory_bytes / device.memory_bytes
        if held <= max(MEMORY_HEADROOM, own):  # the script may use more than that by itself
            return None
        free = f"{1 - MEMORY_HEADROOM:.0%}"
        reason = f"held {held:.0%} of the GPU's memory; {free} stay free for longer runs"
        return TrialState.OUT_OF_MEMORY, reason

    def _samples(self, settings: Settings, measurement: Measurement) -> Judgement | None:
        """Return the state of a run whose steps are of another size than the baseline's."""
        known = self.baseline
        if self._objective not in BY_SAMPLE or known is None or not self.resizes(settings):
            return None
        source = measurement.samples_source
        # What the user gives with --samples-per-step is the unchanged script's.
        if source is not None and source == known.samples_source and source != "user":
            return None
        return TrialState.UNSUPPORTED, (
            "it may change the work of a step, and the samples of a step are not known: "
            "let the script read its batches from a DataLoader, or choose --objective latency"
        )

    def _effects(self, settings: Settings, phase: str, run: Measurement) -> Judgement | None:
        """Return the state of a trial whose new knob did nothing, or could not work."""
        reports = {report.knob: report for report in run.applied}
        self._effective |= {k for k, report in reports.items() if report.state == "effective"}
        if phase != "search":
            return None
        for name in (name for name in settings if name in self.untried(settings)):
            report = reports.get(name)
            if report is not None and report.state == "refused":
                return TrialState.UNSUPPORTED, f"{name}: {report.detail}"
            return TrialState.NO_EFFECT, f"{name} found nothing to change in this script"
        return None


def _format_difference(equivalence: Equivalence) -> str:
    if equivalence.value is None or equivalence.limit is None:
        return f"{equivalence.metric}, which the unchanged script has not"
    return f"{equivalence.metric}: {equivalence.value:.2%}, above {equivalence.limit:.2%}"

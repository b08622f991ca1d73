"""What steps of a gate's runs do, counted by torch's profiler after the steps that are measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from gpuadvisor.collectors.script.child.torch_profiler import SETTLING_STEPS
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.gate import GateRun
from gpuadvisor.domain.knobs import Application, AppliedKnob
from gpuadvisor.domain.measurement import Counts, Measurement
from gpuadvisor.errors import AdvisorError
from gpuadvisor.tuners.gate.comparing import COUNTED
from gpuadvisor.tuners.gate.metric import PROFILER, Metric, Traced
from gpuadvisor.tuning.trials.trial_runner import Recording

TRACE = "counted.json"
"""Name of the trace in the folder of a run."""
STEPS = 5
"""Steps that are counted: what every second one does is seen twice, what one in ten does once."""
FEWEST_STEPS = 3
"""Steps below which the usual one is not known."""
BEFORE_PAIRS = ("first", "known", COUNTED)
"""Places of the runs that are counted."""


class Counting:
    """Has runs counted where a metric asks for that, and reads what was counted."""

    def __init__(self, device: Device, metrics: Iterable[Metric]) -> None:
        self._metrics = [
            metric
            for metric in metrics
            if isinstance(metric, Traced) and (device.is_gpu or not metric.needs_gpu)
        ]
        self._stopped = ""
        """Why no further run is counted."""

    def stop(self, why: str) -> None:
        """Count no further run."""
        self._stopped = why

    def wants(self, place: str, runs: Sequence[GateRun]) -> bool:
        """Say whether the next run is to be counted, after these."""
        if not self._metrics or self._stopped:
            return False
        return place in BEFORE_PAIRS or not all(metric.agrees(runs) for metric in self._metrics)

    def application(self, folder: Path) -> Application:
        """Return what has a run record steps into this folder after those that are measured."""
        return Recording(folder / TRACE, STEPS).application

    def counted(self, measurement: Measurement, folder: Path) -> Measurement:
        """Return what was measured with what was counted, or with the reason why nothing was."""
        told = _told(measurement)
        if self._stopped or (told is not None and told.state == "refused"):
            return _refused(measurement, self._stopped or (told.detail if told else ""))
        trace = folder / TRACE
        if told is None or not trace.is_file():
            return _refused(measurement, "no steps of torch followed those that were measured")
        if json.loads(told.detail)["steps"] < FEWEST_STEPS:
            return _refused(measurement, f"fewer than {FEWEST_STEPS} steps could be counted")
        try:
            found = _counts(trace)
        except AdvisorError as error:
            return _refused(measurement, f"the profiler's trace cannot be read: {error}")
        return replace(measurement, counts={**measurement.counts, **found})

    def steps(self, measurement: Measurement, measured: int) -> tuple[int, int] | None:
        """Return the first and the last step that was counted, where the script had made so many
        steps when all was `measured`; None where none was."""
        told = _told(measurement)
        if told is None or told.state == "refused":
            return None
        first = measured + SETTLING_STEPS + 1
        return first, first + int(json.loads(told.detail)["steps"]) - 1


def _told(measurement: Measurement) -> AppliedKnob | None:
    return next((each for each in measurement.applied if each.knob == PROFILER), None)


def _counts(trace: Path) -> dict[str, Counts]:
    # numpy takes longer to import than the rest of a command that counts nothing.
    from gpuadvisor.collectors.kineto import reader
    from gpuadvisor.columns import MemoryProfile
    from gpuadvisor.rules.facts.counts import counts
    from gpuadvisor.rules.facts.summary import Facts

    profile = MemoryProfile()
    profile.finish(reader.read(trace, profile))
    return counts(Facts(profile))


def _refused(measurement: Measurement, why: str) -> Measurement:
    others = tuple(each for each in measurement.applied if each.knob != PROFILER)
    return replace(measurement, applied=(*others, AppliedKnob(PROFILER, "refused", why)))

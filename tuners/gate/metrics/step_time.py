"""Time of a step, or of a sample where samples are known: the inverse throughput."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from gpuadvisor.domain.gate import MetricRole
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.tuners.gate.metric import Read, Statistical

WAITS = 0.02
"""Share of a run's time in which it waits for its loaders, from which the mean of all steps counts:
a loader with n workers delivers in bursts of n batches, and only the mean counts the wait for the
next burst. Else it is the median of windows of half a second, which a stall does not move."""


class StepTime(Statistical):
    """What most regressions show in."""

    name = "step_time"
    title = "Step time"
    unit = "ms"
    role = MetricRole.DECIDES
    primary = True
    follows_clock = True

    def reader(self, runs: Sequence[Measurement]) -> Read:
        by_mean = median(run.data_wait_share for run in runs) > WAITS
        by_step = len({run.samples_source for run in runs}) > 1
        # In ms of a step of usual size, as people know it.
        samples = 1.0 if by_step else median(run.samples_per_step or 1.0 for run in runs)
        return lambda run: time_of(run, by_mean, by_step) * samples


def time_of(measurement: Measurement, by_mean: bool, by_step: bool) -> float:
    """Return a run's time of a sample in ms, or of a step (`by_step`, or if not known).

    It is that of the median window, or the mean of all where `by_mean`.
    """
    windows = measurement.window_step_ms
    step_ms = measurement.mean_step_ms if by_mean or not windows else median(windows)
    return step_ms / (1.0 if by_step else measurement.samples_per_step or 1.0)


METRIC = StepTime()

"""Mean time of a step: with the stalls that the step time leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from gpuadvisor.domain.gate import MetricRole
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.tuners.gate.metrics.step_time import StepTime


class MeanStepTime(StepTime):
    """Shown beside the step time, which it exceeds where a script stands still now and then.

    What else uses a machine stalls runs, too, so nothing rests on it unless somebody asks for it.
    """

    name = "mean_step_time"
    title = "Mean step time, with stalls"
    role = MetricRole.REPORTED
    primary = False

    def is_mean(self, runs: Sequence[Measurement]) -> bool:
        return True

    def of_blocks(self, base: Sequence[float], head: Sequence[float]) -> float:
        return fmean(head) / fmean(base)


METRIC = MeanStepTime()

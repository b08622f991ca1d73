"""How long steps take, and how long it takes until the first."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from gpuadvisor.domain.gate import GateRun, MetricRole
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import InTurns
from gpuadvisor.tuners.gate.metric import Read, Statistical, measured
from gpuadvisor.tuners.turns import ratio_of_blocks

WAITS = 0.02
"""Share of a run's time in which it waits for its loaders, from which the mean of all steps counts:
a loader with n workers delivers in bursts of n batches, and only the mean counts the wait for the
next burst. Else it is the median of windows of half a second, which a stall does not move."""
LEAST_STEPS = 200
"""Steps of a run below which their 95th percentile says little: of a version 3 % slower, 75 % were
found with 40 steps a run in typical simulated noise, and 96 % with 200."""


class StepTime(Statistical):
    """Time of a step, or of a sample where samples are known: what most regressions show in."""

    name = "step_time"
    title = "Step time"
    unit = "ms"
    role = MetricRole.DECIDES
    primary = True
    follows_clock = True

    def reader(self, runs: Sequence[Measurement]) -> Read:
        by_mean = self.is_mean(runs)
        by_step = len({run.samples_source for run in runs}) > 1
        # In ms of a step of usual size, as people know it.
        samples = 1.0 if by_step else median(run.samples_per_step or 1.0 for run in runs)
        return lambda run: time_of(run, by_mean, by_step) * samples

    def is_mean(self, runs: Sequence[Measurement]) -> bool:
        """Say whether it is the mean of all steps in these runs, not the median of windows."""
        return median(run.data_wait_share for run in runs) > WAITS

    def ratio(self, base: GateRun, head: GateRun) -> float | None:
        if not (base.blocks_ms and head.blocks_ms):
            return None
        ratio = self.of_blocks(base.blocks_ms, head.blocks_ms)
        old, new = measured(base), measured(head)
        if old is None or new is None or old.samples_source != new.samples_source:
            return ratio
        return ratio * (old.samples_per_step or 1.0) / (new.samples_per_step or 1.0)

    def within(self, base: GateRun, head: GateRun) -> tuple[InTurns, InTurns] | None:
        old, new = base.trial.in_turns, head.trial.in_turns
        return (old, new) if old is not None and new is not None else None

    def of_blocks(self, base: Sequence[float], head: Sequence[float]) -> float:
        """Return the head's time over the base's from times of blocks beside each other."""
        return ratio_of_blocks(base, head)


def time_of(measurement: Measurement, by_mean: bool, by_step: bool) -> float:
    """Return a run's time of a sample in ms, or of a step (`by_step`, or if not known).

    It is that of the median window, or the mean of all where `by_mean`.
    """
    windows = measurement.window_step_ms
    step_ms = measurement.mean_step_ms if by_mean or not windows else median(windows)
    return step_ms / (1.0 if by_step else measurement.samples_per_step or 1.0)


class MeanStepTime(StepTime):
    """Mean time of a step, which the step time is below where a script stands still now and then.

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


class P95(Statistical):
    """Step time that one step in twenty exceeds: stalls, which the step time does not count.

    Compared where runs have enough steps.
    """

    name = "p95"
    title = "95th percentile of step times"
    unit = "ms"
    tolerances = 2.0  # ten steps of 200 make it, so runs differ twice as much by it
    why_not = f"it takes {LEAST_STEPS} steps a run: measure longer with --measure"

    def reader(self, runs: Sequence[Measurement]) -> Read:
        return lambda run: run.percentile_ms(95) if len(run.step_ms) >= LEAST_STEPS else None


class Startup(Statistical):
    """Time from the start of the process to its first step.

    It waits for imports, building and first compilations, and so for files and the CPU.
    """

    name = "startup"
    title = "Start-up time"
    unit = "s"
    role = MetricRole.REPORTED
    floor = 0.5  # what imports from a network's file system vary by
    tolerances = 5.0  # compilation and imports wait for the CPU's other users

    def reader(self, runs: Sequence[Measurement]) -> Read:
        return lambda run: run.startup_s


STEP_TIME = StepTime()
METRICS = (STEP_TIME, MeanStepTime(), P95(), Startup())

"""Time from the start of the process to its first step: imports, building, first compilation."""

from __future__ import annotations

from collections.abc import Sequence

from gpuadvisor.domain.gate import MetricRole
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.tuners.gate.metric import Read, Statistical


class Startup(Statistical):
    """Waits for imports, building and first compilations, and so for files and the CPU."""

    name = "startup"
    title = "Start-up time"
    unit = "s"
    role = MetricRole.REPORTED
    floor = 0.5  # what imports from a network's file system vary by
    tolerances = 5.0  # compilation and imports wait for the CPU's other users

    def reader(self, runs: Sequence[Measurement]) -> Read:
        return lambda run: run.startup_s


METRIC = Startup()

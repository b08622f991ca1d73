"""Most memory that torch's allocator had in use on the GPU; the resident set on a CPU."""

from __future__ import annotations

from collections.abc import Sequence

from gpuadvisor.domain.gate import MetricRole
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.tuners.gate.metric import Read, Statistical


class PeakMemory(Statistical):
    """More than a few workspaces of libraries is a regression, whatever share it is."""

    name = "peak_memory"
    title = "Peak memory"
    unit = "bytes"
    role = MetricRole.DECIDES
    floor = 64 * 2**20  # two cuBLAS workspaces of a Hopper GPU

    def reader(self, runs: Sequence[Measurement]) -> Read:
        return lambda run: float(run.peak_memory_bytes)


METRIC = PeakMemory()

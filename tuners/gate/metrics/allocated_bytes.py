"""Bytes that the tensors of a step allocate, whether they are freed in it or not."""

from __future__ import annotations

from gpuadvisor.domain.gate import MetricRole
from gpuadvisor.tuners.gate.metric import Traced


class AllocatedBytes(Traced):
    """Exact on a CPU, and no cost by itself, so on request only; one percent more is none."""

    name = kind = "allocated_bytes"
    title = "Memory that a step allocates"
    unit = "bytes"
    role = MetricRole.REPORTED
    on_request = True
    allowed = 0.01
    why_not = "torch's profiler saw no allocation"


METRIC = AllocatedBytes()

"""Torch's operators that a step calls, but for those that another one calls."""

from __future__ import annotations

from gpuadvisor.domain.gate import MetricRole
from gpuadvisor.tuners.gate.metric import Traced


class Operators(Traced):
    """Exact without a GPU and beside other jobs, and no cost by itself, so on request only."""

    name = kind = "operators"
    title = "Operators a step"
    role = MetricRole.REPORTED
    on_request = True
    why_not = "torch's profiler saw no operator"


METRIC = Operators()

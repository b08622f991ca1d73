"""The calls that fill the metrics: one file for each group, found by looking into this folder.

A file has `CALLS`. A call names its metrics and the ways to ask for them, newest first.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from gpuadvisor.collectors.nvml.answers import Answer
from gpuadvisor.collectors.nvml.device import Device
from gpuadvisor.domain.metrics import BY_NAME, Pace

Way = Callable[[Any, Device], Sequence[Answer]]
"""`way(pynvml, device)` returns an answer for each metric, in their order, in NVML's units. It
raises NVMLError, or AttributeError where nvidia-ml-py is too old."""


@dataclass(frozen=True)
class Call:
    """A question to the driver."""

    metrics: tuple[str, ...]
    """Names; the fast ones first."""
    ways: tuple[Way | Callable[[], Way], ...]
    """Newest first. A class is made an instance of for each GPU, and keeps what it must."""
    divisors: tuple[int, ...] = ()
    """From NVML's unit to the metric's, for each metric; 1 for all unless given."""
    for_instances: bool = False
    """Whether the driver also offers it for MIG instances."""

    @property
    def pace(self) -> Pace:
        """The pace of the fastest of the metrics."""
        return min((BY_NAME[name].pace for name in self.metrics), key=lambda pace: pace.period_s)

    @property
    def fast_metrics(self) -> int:
        """How many metrics are read with every frame, whole or not."""
        return sum(BY_NAME[name].pace is Pace.FAST for name in self.metrics)


@cache
def all_calls() -> tuple[Call, ...]:
    """Return the calls of all files here."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found: list[Call] = []
    for name in names:
        found.extend(import_module(f"{__name__}.{name}").CALLS)
    return tuple(found)

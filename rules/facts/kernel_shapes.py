"""How the kernels of a trace are launched: those of one name together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from gpuadvisor.rules.facts.kernel_families import Family, kind_of
from gpuadvisor.rules.facts.kernels import KernelTime

LIBRARY = (Family.GEMM, Family.CONVOLUTION, Family.ATTENTION)
"""Families whose kernels need few warps and blocks by design: they keep tiles in registers."""


@dataclass(frozen=True)
class KernelShape:
    """Of all launches of one kernel."""

    name: str
    time_ns: int
    count: int
    blocks: float
    """In the mean by time."""
    threads: int
    """A block; of the launches with most time, as the rest."""
    registers: int
    shared_bytes: int

    @property
    def mean_ns(self) -> float:
        return self.time_ns / self.count

    @property
    def is_library(self) -> bool:
        return kind_of(self.name).family in LIBRARY


def kernel_shapes(kernels: Sequence[KernelTime], device: int | None) -> tuple[KernelShape, ...]:
    """Return the kernels of a device, those with most time first; without communication."""
    by_name: dict[str, list[KernelTime]] = {}
    for each in kernels:
        if each.device == device and min(*each.grid, *each.block) > 0:
            by_name.setdefault(each.name, []).append(each)
    found = [
        _shape(name, launches)
        for name, launches in by_name.items()
        if kind_of(name).family is not Family.COMMUNICATION
    ]
    return tuple(sorted(found, key=lambda each: -each.time_ns))


def _shape(name: str, launches: Sequence[KernelTime]) -> KernelShape:
    time = sum(each.time_ns for each in launches)
    weighed = sum(prod(each.grid) * each.time_ns for each in launches)
    longest = launches[0]
    return KernelShape(
        name,
        time,
        sum(each.count for each in launches),
        weighed / time if time else float(prod(longest.grid)),
        prod(longest.block),
        longest.registers,
        longest.shared_bytes,
    )

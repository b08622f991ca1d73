"""The GPU that a profile is about: how fast it is at what, and the peak of its memory.

Rates are measured ones where there are some, else theoretical ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from gpuadvisor.domain.finding import Figure
from gpuadvisor.rules.evidence import Evidence

if TYPE_CHECKING:
    from gpuadvisor.domain.profile import DeviceLimits
    from gpuadvisor.rules.facts.ceilings import Ceilings


@dataclass(frozen=True)
class KnownRate:
    """Operations or bytes a second."""

    value: float
    measured: bool


def device(evidence: Evidence) -> DeviceLimits | None:
    """Return the GPU that the kernels ran on."""
    from gpuadvisor.rules.facts.kernels import limits_of

    if evidence.facts is None:
        return None
    return limits_of(evidence.facts.profile, evidence.facts.kernel_uses.device)


def sm_count(evidence: Evidence) -> int:
    """Return how many the GPU has; 0 where it is not known."""
    limits = device(evidence)
    return (limits.sm_count if limits is not None else None) or 0


def rate(evidence: Evidence, quantity: str) -> KnownRate | None:
    """Return what is known best of a quantity, in the words of `Ceilings`."""
    told = evidence.ceilings.get(quantity) if evidence.ceilings is not None else None
    if told is not None:
        return KnownRate(told.value, told.is_measured)
    if evidence.facts is not None and quantity in evidence.facts.ceilings:
        return KnownRate(evidence.facts.ceilings[quantity], False)
    limits = device(evidence)
    peak = _theoretical(limits).get(quantity) if limits is not None else None
    return None if peak is None else KnownRate(peak.value, False)


def per_clock(evidence: Evidence) -> dict[str, int]:
    """Return the operations of an SM in a clock, by type; empty where they are not known."""
    limits = device(evidence)
    return {} if limits is None else _per_clock(limits.name, limits.compute_capability)


@cache
def _theoretical(limits: DeviceLimits) -> Ceilings:
    from gpuadvisor.rules.facts.ceilings import theoretical

    return theoretical(limits)


@cache
def _per_clock(name: str, capability: tuple[int, int] | None) -> dict[str, int]:
    from gpuadvisor.rules.facts.ceilings import operations_per_clock

    return operations_per_clock(name, capability)


SLOW = 16
"""FP32 operations for each FP64 one, from which on a GPU is slow: 32 or 64 where FP64 is there for
the sake of completeness (T4, A10, L4, RTX), 2 on V100, A100 and H100. There programs of physics
compute in them on purpose; PyTorch's do so where an input was made of doubles."""

NEARLY_FULL = 0.9
"""Share of the GPU's memory from which on it is nearly full, as in PyTorch's TensorBoard plugin."""
MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class MemoryPeak:
    """The peak of a GPU's memory, in bytes."""

    allocated: int
    reserved: int
    """Most memory reserved; where it was not recorded, as much as allocated."""
    total: int
    """Memory of the GPU."""

    @property
    def allocated_share(self) -> float:
        return self.allocated / self.total

    @property
    def reserved_share(self) -> float:
        return self.reserved / self.total


def peak_of(evidence: Evidence) -> MemoryPeak | None:
    """Return the peak; None where it, or the memory that the GPU has, is not known."""
    facts, limits = evidence.facts, device(evidence)
    if facts is None or limits is None or not limits.memory_bytes:
        return None
    used = next((each for each in facts.memory if each.device == facts.kernel_uses.device), None)
    if used is None or used.peak_allocated_bytes <= 0:
        return None
    reserved = max(used.peak_reserved_bytes or 0, used.peak_allocated_bytes)
    return MemoryPeak(used.peak_allocated_bytes, reserved, limits.memory_bytes)


def held_figures(evidence: Evidence) -> tuple[Figure, ...]:
    """Return what the memory at the peak is held for, in percent of it, as far as that is known."""
    facts = evidence.known_facts
    device = facts.kernel_uses.device
    found = () if device is None else facts.memory_held_for.get(device, ())
    total = sum(each.bytes for each in found) or 1
    return tuple(
        Figure(each.name, round(100 * each.bytes / total, 1), "% of the peak") for each in found
    )

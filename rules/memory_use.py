"""The peak of the memory of the GPU that a profile is about."""

from __future__ import annotations

from dataclasses import dataclass

from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.rates import device

MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Peak:
    """In bytes."""

    allocated: int
    reserved: int
    """As allocated where it was not recorded."""
    total: int
    """Of the GPU."""

    @property
    def allocated_share(self) -> float:
        return self.allocated / self.total

    @property
    def reserved_share(self) -> float:
        return self.reserved / self.total


def peak_of(evidence: Evidence) -> Peak | None:
    """Return the peak; None where it, or the memory that the GPU has, is not known."""
    facts, limits = evidence.facts, device(evidence)
    if facts is None or limits is None or not limits.memory_bytes:
        return None
    used = next((each for each in facts.memory if each.device == facts.kernel_uses.device), None)
    if used is None or used.peak_allocated_bytes <= 0:
        return None
    reserved = max(used.peak_reserved_bytes or 0, used.peak_allocated_bytes)
    return Peak(used.peak_allocated_bytes, reserved, limits.memory_bytes)

"""How fast a GPU is at what: measured where it was, else theoretical."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from gpuadvisor.rules.evidence import Evidence

if TYPE_CHECKING:
    from gpuadvisor.domain.profile import DeviceLimits
    from gpuadvisor.rules.facts.ceilings import Ceilings


@dataclass(frozen=True)
class Rate:
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


def rate(evidence: Evidence, quantity: str) -> Rate | None:
    """Return what is known best of a quantity, in the words of `analysis.peaks`."""
    told = evidence.ceilings.get(quantity) if evidence.ceilings is not None else None
    if told is not None:
        return Rate(told.value, told.is_measured)
    if evidence.facts is not None and quantity in evidence.facts.ceilings:
        return Rate(evidence.facts.ceilings[quantity], False)
    limits = device(evidence)
    peak = _theoretical(limits).get(quantity) if limits is not None else None
    return None if peak is None else Rate(peak.value, False)


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

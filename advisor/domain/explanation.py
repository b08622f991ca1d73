"""Why a version of a script is slower: what profiles of both versions show."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gpuadvisor.domain.finding import Finding

EXPLAINED = ("step_time", "p95", "energy")
"""Metrics whose failure is explained: profiles show what steps consist of."""


class CauseKind(str, Enum):
    """What kind of thing takes more time."""

    KERNEL = "kernel"
    """A kernel on the GPU."""
    COPY = "copy"
    """Copies of a direction, or memsets, on the GPU."""
    FUNCTION = "function"
    """A function of the project, with all that it calls which is not the project's own."""
    CALL = "call"
    """What a function calls: an operator of torch, or a function of Python or of a package."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Cause:
    """One thing that takes another time in the head than in the base, of a mean step."""

    kind: CauseKind
    name: str
    base_ms: float
    """Its time in a mean step of the base; 0 where only the head has it."""
    head_ms: float
    """Its time in a mean step of the head; 0 where only the base has it."""
    base_count: float
    """How often it runs in a step of the base; 0 where only the head has it."""
    head_count: float
    """How often it runs in a step of the head; 0 where only the base has it."""
    source: str | None = None
    """`file:line` in the head, else in the base, from the top of its folder or repository: where
    the function begins, or what launches the kernel; without a line where that is not known."""
    inside: tuple[Cause, ...] = ()
    """What a function calls of which most of the difference is, the largest first."""

    @property
    def more_ms(self) -> float:
        """Time of a step that the head needs more; negative where it needs less."""
        return self.head_ms - self.base_ms


@dataclass(frozen=True)
class Explanation:
    """What profiles of both versions show of a slow-down that a gate has found."""

    slower_ms: float | None = None
    """Time by which a step of the head takes longer than one of the base in the gate's own runs,
    without a profiler; None where that is unknown."""
    base_ms: float | None = None
    """Mean step in the base's profile; None without one. A profiler lengthens steps."""
    head_ms: float | None = None
    """Mean step in the head's profile; None without one."""
    causes: tuple[Cause, ...] = ()
    """What changed, the largest first; kernels and copies before functions."""
    explained_ms: float = 0.0
    """Time of a step that the causes come to together, those that save time included."""
    of_ms: float = 0.0
    """Slow-down of which the causes are parts, in ms a step: the gate's where kernels and copies
    explain it, as a profiler leaves these as they are; else the larger one of the gate's and the
    profiles'."""
    findings: tuple[Finding, ...] = ()
    """What rules say of the head's profiles and not of the base's."""
    steps: int = 0
    """Steps that were recorded of the version of which fewer were, over all of its profiles."""
    note: str = ""
    """Why there is no explanation, or what limits it, as a clause; empty where nothing does."""

    @property
    def unexplained_ms(self) -> float:
        """Part of the slow-down that no cause is named for."""
        return max(0.0, self.of_ms - self.explained_ms)

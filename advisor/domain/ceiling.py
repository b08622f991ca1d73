"""What a GPU was measured to reach, beside what its datasheet says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Ceiling:
    """One measured rate of one GPU."""

    what: str
    """Such as `copy_sequential` or `matmul_bf16`."""
    value: float
    unit: str
    """Such as `bytes/s` or `flop/s`."""
    measured: str
    """UTC, ISO 8601."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """What the value depends on: sizes, clocks, versions."""

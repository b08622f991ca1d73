"""Blocks of steps of one running script, between which knobs are turned: asked for, and told."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from gpuadvisor.domain.knobs import Settings

Concluded = TypeVar("Concluded")


@dataclass(frozen=True)
class Block:
    """Steps in a row under the same settings, timed after a few that are not."""

    settings: Settings = field(default_factory=dict)
    """Knobs that are turned on for it; all others are off."""
    seconds: float = 1.0
    """Least time that is timed. It has four steps at least."""


@dataclass(frozen=True)
class BlockTime:
    """How long the steps of a block took."""

    step_ms: float
    """Mean time of a step, in milliseconds; NaN where it failed."""
    steps: int = 0
    """Steps that were timed."""
    cost_s: float = 0.0
    """Time from the order to the first timed step: turning, compiling, settling."""
    failed: str = ""
    """Why there is no time, as a sentence; empty if there is one."""


Screening: TypeAlias = Generator[Sequence[Block], Sequence[BlockTime], Concluded]
"""Yields blocks to run in this order, is sent what they took, and returns what follows from it."""

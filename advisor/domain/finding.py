"""What a rule found in the evidence of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing that costs time, how much, and the knobs that may cure it."""

    rule: str
    share: float
    """Part of the run's time that it costs at most, 0 to 1: findings are ranked by it."""
    sentence: str
    """What was measured, for the user."""
    knobs: tuple[str, ...] = ()
    """Names of knobs that the search should try first, in order."""

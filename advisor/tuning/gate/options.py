"""What a gate is asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.tuners.gate.decision import LIMIT, TOLERANCE

MEASURE_S = 4.0
"""Time for which a run is measured: 80 steps of 50 ms. Runs differ by more than steps do, so longer
ones tell little more."""


@dataclass(frozen=True)
class GateOptions:
    """What to compare, and how closely."""

    command: Command
    """As in the user's folder; its script and folder are looked for in both versions."""
    base: str | None = None
    """A commit; None where folders are compared."""
    head: str | None = None
    """A commit; None for the work tree as it is."""
    folders: tuple[Path, Path] | None = None
    """Folders of the base and of the head, instead of commits."""
    links: tuple[str, ...] = ()
    """Files and folders that git does not hold, relative to the user's folder, which both versions
    get as symbolic links."""
    tolerance: float = TOLERANCE
    limit: float = LIMIT
    seed: int = 0
    samples_per_step: float | None = None
    timeout_s: float = 600.0
    """Longest wait for the first step of the base."""
    measure_s: float = MEASURE_S

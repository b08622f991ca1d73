"""What the user asked of a study."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.study import Objective
from gpuadvisor.errors import UsageError

DEFAULT_BUDGET = "10m"
SECONDS = {"s": 1, "m": 60, "h": 3600}
LONGEST_S = 30 * 24 * 3600
"""Most that a budget may say: beyond a month it is a slip of the finger."""
MOST_TRIALS = 100_000
LONGEST_TEXT = 20


@dataclass(frozen=True)
class Budget:
    """How much a study may use: time, or trials of the search. The other is None."""

    seconds: float | None = None
    trials: int | None = None
    """Settings that the search may try; ablation and proof come on top."""

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read `90s`, `10m`, `1h`, `1h30m` or `30 trials`; UsageError for anything else."""
        cleaned = text.strip().lower() if len(text) <= LONGEST_TEXT else ""
        trials = re.fullmatch(r"(\d+)\s*(?:trials?)?", cleaned)
        if trials and 0 < int(trials[1]) <= MOST_TRIALS:
            return cls(trials=int(trials[1]))
        parts = re.findall(r"(\d+(?:\.\d+)?)\s*([smh])", cleaned)
        whole = "".join(number + unit for number, unit in parts)
        seconds = sum(float(number) * SECONDS[unit] for number, unit in parts)
        if whole == cleaned.replace(" ", "") and 0 < seconds <= LONGEST_S:
            return cls(seconds=seconds)
        raise UsageError(
            f"--budget {text[:LONGEST_TEXT]!r} is neither a time nor a number of trials: "
            "write 90s, 10m, 1h30m, or '30 trials'"
        )

    def __str__(self) -> str:
        if self.trials is not None:
            return f"{self.trials} trials"
        seconds = self.seconds or 0.0
        return f"{seconds / 60:.0f}m" if seconds % 60 == 0 else f"{seconds:g}s"


@dataclass(frozen=True)
class TuneOptions:
    """One study: what to run, what may be turned, and for how long."""

    command: Command
    level: Level = Level.BALANCED
    objective: Objective = Objective.THROUGHPUT
    budget: Budget = field(default_factory=lambda: Budget.parse(DEFAULT_BUDGET))
    only: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The script's own arguments to search: name (as in `--arg`) to values."""
    jobs: int = 1
    """GPUs to use side by side."""
    seed: int = 0
    tolerance: float | None = None
    """Relative difference of results that is allowed; None for the level's own."""
    samples_per_step: float | None = None
    timeout_s: float = 600.0
    """Longest wait for the first step of the unchanged script."""
    resume: bool = False
    study: str | None = None
    """Name of the study; None for a new one."""
    plan: Path | None = None
    """Where the plan is written; None for `<script>.plan.toml` in the current folder."""


def check_knob_names(names: frozenset[str], known: Mapping[str, object], option: str) -> None:
    """UsageError if a name given to an option is no knob; it names the nearest ones."""
    from difflib import get_close_matches

    for name in sorted(names - known.keys()):
        near = [other for other in known if name in other] or get_close_matches(name, known, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(known)}"
        raise UsageError(f"{option} {name}: there is no such knob; {hint}")

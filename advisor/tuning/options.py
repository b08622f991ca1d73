"""What the user asked of a study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.study import Objective
from gpuadvisor.errors import UsageError
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuning.arguments import ArgumentKnob
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit

DEFAULT_BUDGET = "10m"


@dataclass(frozen=True)
class TuneOptions:
    """Options of one study: what to run, what may be turned, and for how long."""

    command: Command
    level: Level = Level.BALANCED
    objective: Objective = Objective.THROUGHPUT
    budget: BudgetLimit = field(default_factory=lambda: BudgetLimit.parse(DEFAULT_BUDGET))
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
    scratch: bool = False
    """Run the script in private views of the file system: no run leaves anything behind."""
    resume: bool = False
    study: str | None = None
    """Name of the study; None for a new one."""
    plan: Path | None = None
    """Where the plan is written; None for `<script>.plan.toml` in the current folder."""


def check_knob_names(names: frozenset[str], known: Mapping[str, object], option: str) -> None:
    """Raise UsageError if a name given to an option is no knob; it names the nearest ones."""
    from difflib import get_close_matches

    for name in sorted(names - known.keys()):
        near = [other for other in known if name in other] or get_close_matches(name, known, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(known)}"
        raise UsageError(f"{option} {name}: there is no such knob; {hint}")


def knobs_for(options: TuneOptions) -> dict[str, Knob]:
    """Return all knobs by name, the script's own arguments first; UsageError for unknown names."""
    asked = [ArgumentKnob(n, v, options.command.args) for n, v in options.arguments.items()]
    knobs = {**{knob.name: knob for knob in asked}, **load_knobs()}
    check_knob_names(options.only, knobs, "--only")
    check_knob_names(options.without, knobs, "--without")
    return knobs

"""What to verify: the options, the plan that they name, and the run with which that begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.study import Plan, Verdict
from gpuadvisor.errors import UsageError
from gpuadvisor.storage.home import database
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
from gpuadvisor.tuning.options import DEFAULT_BUDGET, TuneOptions
from gpuadvisor.tuning.plans.application import check_settings
from gpuadvisor.tuning.plans.file import read_plan
from gpuadvisor.tuning.preparation import check_scratch, check_script
from gpuadvisor.tuning.trials.first_run import Begun, Kind, begun_as

FIRST_LOOK = BudgetLimit(seconds=60)
"""Budget whose runs measure for as long as those of a verification: its first look is to come
within a minute where a start takes a few seconds. Longer runs differ hardly less."""


@dataclass(frozen=True)
class VerifyOptions:
    """What to verify, and for how long."""

    command: Command
    plan: Path
    budget: BudgetLimit = field(default_factory=lambda: BudgetLimit.parse(DEFAULT_BUDGET))
    seed: int = 0
    tolerance: float | None = None
    """Relative difference of results that is allowed; None for that of the plan's level."""
    samples_per_step: float | None = None
    timeout_s: float = 600.0
    """Longest wait for the first step of the unchanged script."""
    scratch: bool = False
    """Run the script in private views of the file system: no run leaves anything behind."""
    study: str | None = None
    """Name under which it is stored; None for a new one."""
    rehearse: bool = False
    """Rehearse anew, whatever earlier rehearsals showed."""


def plan_for(options: VerifyOptions, knobs: Mapping[str, Knob]) -> Plan:
    """Return the plan; UsageError that names what is wrong with it, the script, or both."""
    check_scratch(options.scratch)
    plan, problems = None, []
    try:
        plan = read_plan(options.plan, knobs)
    except UsageError as error:
        problems.append(str(error))
    try:
        check_script(options.command)
    except UsageError as error:
        problems.append(str(error))
    if plan is None or problems:
        raise UsageError("; ".join([*(each.rstrip(".") for each in problems[:-1]), problems[-1]]))
    check_settings(options.plan, plan.settings, knobs)
    if not plan.settings:
        raise UsageError(f"{options.plan} sets nothing under [knobs]: there is nothing to verify")
    return plan


def as_study(options: VerifyOptions, plan: Plan) -> TuneOptions:
    """Return the options of a study that measures as the one did which made the plan."""
    return TuneOptions(
        command=options.command,
        level=plan.level,
        objective=plan.objective,
        budget=options.budget,
        seed=options.seed,
        tolerance=options.tolerance,
        samples_per_step=options.samples_per_step,
        timeout_s=options.timeout_s,
        scratch=options.scratch,
        study=options.study,
    )


@contextmanager
def begun(options: VerifyOptions, cancelled: Callable[[], bool]) -> Iterator[Begun]:
    """Begin a verification with what takes longest. When the block ends, nothing of it is left.

    UsageError as of `tuning.verification.verify`, for all that is known without the interpreter's
    answer.
    """
    plan = plan_for(options, load_knobs())
    # Where the plan's study is stored here, its rehearsal may hold, and then no run is watched.
    may_hold = not options.rehearse and plan.verdict is Verdict.FASTER and database().exists()
    kind = Kind(FIRST_LOOK, watches=not may_hold)
    with begun_as(as_study(options, plan), cancelled, kind) as found:
        yield found

"""Verify that a plan still holds: its gain is there, and results are the same.

Exit status: 0 when the plan holds; 1 when its gain is gone, results differ, or the script fails
under it; 2 for a wrong command line or plan; 3 when the script cannot be measured without the plan;
5 when the store cannot be used; 6 when neither was shown; 7 when another gpuadvisor measures on the
device; 129, 130, 131 or 143 when interrupted.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.commands._arguments import (
    add_json,
    add_markdown,
    add_measuring_arguments,
    add_script_arguments,
    add_tolerance,
    check_positive,
    command_of,
    tolerance_of,
)
from gpuadvisor.errors import BrokenPlanError, InconclusiveError

if TYPE_CHECKING:
    from gpuadvisor.domain.verification import Verification
    from gpuadvisor.tuning.verifying.options import VerifyOptions

EPILOG = """examples:
  gpuadvisor verify --plan train.plan.toml train.py -- --epochs 1
  gpuadvisor verify --plan train.plan.toml train.py --budget 5m --json > verified.json
  gpuadvisor verify --plan train.plan.toml train.py --markdown >> "$GITHUB_STEP_SUMMARY"

A shortened life of the script, to its end, is compared with one under the plan where the budget has
room for that; nothing that these lives write remains. Where `tune`, or `verify` before, compared
them already, that still holds as long as the source and configuration files in the script's folder
or repository, its arguments, Python, the installed packages and the device are the same, and the
unchanged script computes what it did then; else it is done anew, as with --rehearse. Changes of
data are seen where they change the first losses or outputs, those of environment variables are not.

Then the script runs with and without the plan, in processes that take turns, as in the proof of
`gpuadvisor tune`: six starts in all where an earlier comparison still holds and the answer is
plain. On a GPU those after the first two are forked from a process that has imported what the
script imports, where that is seen to be no matter. Where runs are known to differ more than that
takes, both take turns, within each process or in two that live at the same time. The gain is there
when its ratio is at least what the plan promised, less what two proofs of the same gain may differ
by, and its whole interval lies above half of that gain. It is gone when its whole interval lies
below. What was measured is kept: `gpuadvisor studies` lists it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--plan", metavar="FILE", type=Path, required=True, help="as written by `gpuadvisor tune`"
    )
    add_script_arguments(parser)
    parser.add_argument(
        "--budget", metavar="TIME", default="10m", help="most that it may take (default: 10m)"
    )
    group = parser.add_argument_group("how to measure")
    add_tolerance(group, "that of the plan's level")
    group.add_argument(
        "--rehearse",
        action="store_true",
        help="rehearse anew, also where an earlier rehearsal of the plan still holds",
    )
    add_measuring_arguments(group)
    group = parser.add_argument_group("what is kept")
    group.add_argument("--study", metavar="NAME", help="name under which it is stored")
    add_markdown(parser)
    add_json(parser, "print the result as JSON on stdout")


def run(args: argparse.Namespace) -> int:
    options = _options(args)
    from gpuadvisor.interruption import stoppable
    from gpuadvisor.tuning.verifying.options import begun

    with stoppable() as stop, begun(options, stop.requested) as first:
        from gpuadvisor.commands._output import messages, note
        from gpuadvisor.domain.study import Objective
        from gpuadvisor.tui.progress import ConsoleProgress

        with ConsoleProgress(messages(), Objective.THROUGHPUT) as progress:
            first.tell(progress)
            # The script starts meanwhile: to import this takes a second.
            from gpuadvisor.tuning.verifying.verification import verify

            found = verify(options, progress, stop.requested, first)
    _write(args, found)
    if found.result.interrupted:
        note(found.result.interrupted)
        return stop.exit_status
    _fail(found)
    return 0


def _write(args: argparse.Namespace, found: Verification) -> None:
    from gpuadvisor.commands._output import output, write_formats
    from gpuadvisor.reports.json_studies import verification_json
    from gpuadvisor.reports.study import verification as report

    if not write_formats(
        args, lambda: verification_json(found), lambda: report.verification_markdown(found)
    ):
        report.print_verification(found, output())


def _fail(found: Verification) -> None:
    """Tell by the exit status what became of the plan, where it does not hold."""
    from gpuadvisor.domain.verification import Outcome

    if found.outcome is Outcome.INCONCLUSIVE:
        raise InconclusiveError(f"whether the plan holds is not known: {found.reason}")
    if found.outcome is not Outcome.HOLDS:
        raise BrokenPlanError(
            f"the plan does not hold: {found.reason}; make a new one with `gpuadvisor tune`"
        )


def _options(args: argparse.Namespace) -> VerifyOptions:
    from gpuadvisor.errors import UsageError
    from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
    from gpuadvisor.tuning.verifying.options import VerifyOptions

    check_positive(args, "--timeout", "--tolerance", "--samples-per-step")
    budget = BudgetLimit.parse(args.budget)
    if budget.seconds is None:
        raise UsageError(f"--budget {args.budget}: there is no search, so give a time, as 10m")
    return VerifyOptions(
        command_of(args),
        args.plan,
        budget,
        args.seed,
        tolerance_of(args),
        args.samples_per_step,
        args.timeout,
        args.scratch,
        args.study,
        args.rehearse,
    )

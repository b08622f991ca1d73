"""Find out what makes a script faster, prove it, and write it down as a plan.

Exit status: 0 when the study ended, with or without a gain; 2 for a wrong command line; 3 when the
script cannot be measured; 5 when the store cannot be used; 7 when another gpuadvisor measures on
the device; 129, 130, 131 or 143 when interrupted.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.commands._arguments import (
    add_json,
    add_measuring_arguments,
    add_script_arguments,
    add_tolerance,
    check_positive,
    command_of,
    tolerance_of,
)

if TYPE_CHECKING:
    from gpuadvisor.tuning.options import TuneOptions

EPILOG = """examples:
  gpuadvisor tune train.py -- --epochs 1
  gpuadvisor tune train.py --budget 30m --level conservative
  gpuadvisor tune train.py --arg batch-size=64,128,256 -- --data /data
  gpuadvisor tune -m package.train --python ~/venvs/train/bin/python --json > result.json

The script runs many times, unchanged, for some seconds each, in the current folder; what it writes
at its start (logs, folders) it writes each time, unless --scratch keeps it away. What follows -- is
the script's own.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_script_arguments(parser)
    parser.add_argument(
        "--level",
        choices=("conservative", "balanced", "aggressive"),
        default="balanced",
        help="how far results may move: rounding, mixed precision (default), training dynamics",
    )
    parser.add_argument(
        "--budget",
        metavar="TIME|N",
        default="10m",
        help="most that the study may take: 10m (default), 1h30m, '30 trials'",
    )
    parser.add_argument(
        "--objective",
        choices=("throughput", "latency", "memory", "energy"),
        default="throughput",
        help="what to improve (default: throughput)",
    )
    parser.add_argument(
        "--arg",
        metavar="NAME=A,B",
        action="append",
        type=_argument,  # at once: without `=` its values would be taken for the script's
        default=[],
        help="also search an argument of the script: batch-size=64,128 sets --batch-size",
    )
    _add_choice_arguments(parser)
    _add_measuring_arguments(parser)
    _add_output_arguments(parser)


def _add_choice_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to turn")
    for option, help_ in (("--only", "only these knobs"), ("--without", "never these knobs")):
        group.add_argument(
            option, metavar="KNOB,...", action="extend", type=_names, default=[], help=help_
        )
    add_tolerance(group, "the level's")


def _add_measuring_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how to measure")
    group.add_argument(
        "--jobs", metavar="N", type=int, default=1, help="GPUs to use side by side (default: 1)"
    )
    group.add_argument(
        "--no-profile",
        action="store_true",
        help="do not profile the unchanged script first (on a GPU; takes some seconds)",
    )
    add_measuring_arguments(group)


def _add_output_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is kept")
    group.add_argument("--study", metavar="NAME", help="name of the study in the store")
    group.add_argument("--resume", action="store_true", help="go on with an unfinished study")
    group.add_argument(
        "--plan",
        metavar="FILE",
        type=Path,
        help="where to write the plan (SCRIPT.plan.toml); where it is named, also that of a gain"
        " that could not be rehearsed",
    )
    add_json(group, "print the result as JSON on stdout")


def run(args: argparse.Namespace) -> int:
    options = _options(args)
    from gpuadvisor.tuning.preparation import check_script

    check_script(options.command)  # a wrong name is told before what takes a second to import
    from gpuadvisor.interruption import stoppable
    from gpuadvisor.tuning.trials.first_run import begun

    with stoppable() as stop, begun(options, stop.requested) as first:
        from gpuadvisor.commands._output import messages, output
        from gpuadvisor.tui.progress import ConsoleProgress

        with ConsoleProgress(messages(), options.objective) as progress:
            first.tell(progress)
            # The script starts meanwhile: to import this takes a second.
            from gpuadvisor.profiling.diagnosing import profile_baseline
            from gpuadvisor.tuning.study import tune

            profile = partial(profile_baseline, cancelled=stop.requested, scratch=options.scratch)
            kept = None if args.no_profile else profile
            result = tune(options, progress, stop.requested, kept, first)
    if args.json:
        from gpuadvisor.reports import strict_json
        from gpuadvisor.reports.json_studies import study_json

        print(strict_json.text(study_json(result)))
    else:
        from gpuadvisor.reports.study.document import print_summary
        from gpuadvisor.tuners.knobs import load_knobs
        from gpuadvisor.tuning.arguments import permanent_snippets

        snippets = permanent_snippets(result.settings, load_knobs())
        print_summary(result, snippets, output())
    if result.interrupted:
        print(f"gpuadvisor: {result.interrupted}; go on with --resume", file=sys.stderr)
        return stop.exit_status
    return 0


def _argument(text: str) -> str:
    from gpuadvisor.tuning.arguments import parse_argument

    parse_argument(text)
    return text


def _names(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _options(args: argparse.Namespace) -> TuneOptions:
    from gpuadvisor.domain.knobs import Level
    from gpuadvisor.domain.study import Objective
    from gpuadvisor.tuning.arguments import parse_arguments
    from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
    from gpuadvisor.tuning.options import TuneOptions

    check_positive(args, "--jobs", "--timeout", "--tolerance", "--samples-per-step")
    return TuneOptions(
        command=command_of(args),
        level=Level.parse(args.level),
        objective=Objective(args.objective),
        budget=BudgetLimit.parse(args.budget),
        only=frozenset(args.only),
        without=frozenset(args.without),
        arguments=parse_arguments(args.arg),
        jobs=args.jobs,
        seed=args.seed,
        tolerance=tolerance_of(args),
        samples_per_step=args.samples_per_step,
        timeout_s=args.timeout,
        scratch=args.scratch,
        resume=args.resume,
        study=args.study,
        plan=args.plan,
    )

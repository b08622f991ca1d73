"""Find the commit that made a script slower or made it need more memory.

Exit status: 0 when it was found; 6 when the newer commit is not shown to be worse, or some commits
cannot be told apart; 2 for a wrong command line or missing commits; 3 when the script fails in
both; 7 when the GPU is busy or held down; 129, 130, 131 or 143 when interrupted.
"""

from __future__ import annotations

import argparse

from gpuadvisor.commands._arguments import add_json, add_script_arguments, command_of
from gpuadvisor.commands.gate._arguments import (
    add_bounds,
    add_folders,
    add_measuring,
    add_only,
    options_of,
)
from gpuadvisor.commands.gate._outputs import at_work
from gpuadvisor.errors import InconclusiveError, UsageError

EPILOG = """examples:
  gpuadvisor gate bisect v1.2..HEAD train.py -- --epochs 1
  gpuadvisor gate bisect v1.2.. train.py

Each step compares a commit with the good one, as `gpuadvisor gate --base` does; of merges only the
first parent is followed. Of 100 commits it takes 8 gates of a minute or more each.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "range",
        metavar="GOOD..BAD",
        help="a commit before the regression, and one with it (default: HEAD)",
    )
    add_script_arguments(parser)
    add_folders(parser)
    add_only(add_bounds(parser))
    add_measuring(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from gpuadvisor.commands._output import output
    from gpuadvisor.reports import strict_json
    from gpuadvisor.reports.gate import bisection as report
    from gpuadvisor.tuning.gate.bisection import bisect

    good, dots, bad = args.range.partition("..")
    if not good or not dots or bad.startswith("."):
        raise UsageError(f"{args.range}: give two commits as GOOD..BAD, such as v1.2..HEAD")
    options = options_of(args, command_of(args), setup=args.setup_cmd)
    with at_work() as (progress, cancelled):
        found = bisect(good, bad or "HEAD", options, progress, cancelled)
    if args.json:
        print(strict_json.text(report.bisection_json(found)), flush=True)
    else:
        report.print_bisection(found, output())
    if len(found.first_bad) > 1:
        raise InconclusiveError(
            f"{len(found.first_bad)} commits cannot be told apart: the first bad one is among them"
        )
    return 0

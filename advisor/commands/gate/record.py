"""Record how fast a script is, for `gpuadvisor gate check` on other days.

Exit status: 0 when it was recorded; 2 for a wrong command line; 3 when the script fails; 5 when the
file cannot be read or written; 7 when the GPU is busy or held down; 129, 130, 131 or 143 when
interrupted.
"""

from __future__ import annotations

import argparse

from gpuadvisor.commands._arguments import add_script_arguments, command_of
from gpuadvisor.commands.gate._arguments import (
    add_baseline,
    add_measuring,
    baseline_of,
    options_of,
)
from gpuadvisor.commands.gate._outputs import at_work
from gpuadvisor.errors import UsageError

EPILOG = """examples:
  gpuadvisor gate record --name train train.py -- --epochs 1
  gpuadvisor gate record --name train --store perf/gate.jsonl train.py

Record the branch that others start from, each night: five days are needed before a check can tell.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_script_arguments(parser)
    add_baseline(parser.add_argument_group("the baseline"))
    group = add_measuring(parser)
    group.add_argument(
        "--runs", metavar="N", type=int, default=5, help="runs of the script (default: 5)"
    )


def run(args: argparse.Namespace) -> int:
    from gpuadvisor.commands._output import output
    from gpuadvisor.reports.gate.history import print_recorded
    from gpuadvisor.tuning.gate.stored import record

    if args.runs < 2:
        raise UsageError(f"--runs {args.runs}: a single run says little of a day: give 2 or more")
    baseline, options = baseline_of(args), options_of(args, command_of(args))
    with at_work("Looking at the recordings ...") as (progress, cancelled):
        found = record(baseline, options, progress, cancelled, args.runs)
    print_recorded(found.recording, found.days, baseline.file, output())
    return 0

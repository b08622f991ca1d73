"""Compare a script with recordings of it on other days, and fail where it got worse.

Exit status: 0 when it got no worse; 4 when it did, or does not run any more; 6 when neither was
shown, or fewer than five days are recorded; 7 when the recordings are of another machine or of
other software, or the GPU is busy or held down; 2 for a wrong command line; 5 when the file of
recordings cannot be read; 129, 130, 131 or 143 when interrupted.
"""

from __future__ import annotations

import argparse

from gpuadvisor.commands._arguments import add_script_arguments
from gpuadvisor.commands.gate._arguments import (
    add_baseline,
    add_bounds,
    add_measuring,
    baseline_of,
    bounds_of,
    failure_of,
    measuring_options,
)
from gpuadvisor.commands.gate._outputs import add_outputs, outputs, place_in_repository

EPILOG = """examples:
  gpuadvisor gate check --name train train.py -- --epochs 1
  gpuadvisor gate check --name train --store perf/gate.jsonl --json train.py > gate.json

For machines that cannot run both versions: `gpuadvisor gate --base` finds smaller regressions, and
needs no recordings. A level that is meant to be new: `gpuadvisor gate accept`.
"""
STATUS = "Looking at the recordings ..."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_script_arguments(parser)
    add_baseline(parser.add_argument_group("the baseline"))
    add_bounds(parser)
    add_measuring(parser)
    add_outputs(parser.add_argument_group("what to write"))


def run(args: argparse.Namespace) -> int:
    from gpuadvisor.commands._output import messages
    from gpuadvisor.interruption import stoppable
    from gpuadvisor.tui.gate import ConsoleGateProgress
    from gpuadvisor.tuning.gate.stored import check

    with outputs(args) as written:
        written.begin(args.name, place_in_repository(args.script, args.is_module))
        baseline, options = baseline_of(args), measuring_options(args, **bounds_of(args))
        with stoppable() as stop, ConsoleGateProgress(messages(), STATUS) as progress:
            found = check(baseline, options, progress, stop.requested)
        written.add(found)
    if failure := failure_of(found):
        raise failure
    return 0

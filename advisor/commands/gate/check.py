"""Compare a script with recordings of it on other days, and fail where it got worse.

Exit status: 0 when it got no worse; 4 when it did, or does not run any more; 6 when neither was
shown, or fewer than five days are recorded; 7 when the recordings are of another machine or of
other software, or the GPU is busy or held down; 2 for a wrong command line, or a name that
was never recorded while another one is likely meant; 5 when the file of recordings cannot be read;
129, 130, 131 or 143 when interrupted.
"""

from __future__ import annotations

import argparse

from gpuadvisor.commands._arguments import add_script_arguments, command_of
from gpuadvisor.commands.gate._arguments import (
    add_baseline,
    add_bounds,
    add_measuring,
    baseline_of,
    options_of,
)
from gpuadvisor.commands.gate._outputs import add_outputs, at_work, outputs, place_in_repository

EPILOG = """examples:
  gpuadvisor gate check --name train train.py -- --epochs 1
  gpuadvisor gate check --name train --store perf/gate.jsonl --json train.py > gate.json

For machines that cannot run both versions: `gpuadvisor gate --base` finds smaller regressions, and
needs no recordings. A level that is meant to be new: `gpuadvisor gate accept`.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_script_arguments(parser)
    add_baseline(parser.add_argument_group("the baseline"))
    add_bounds(parser)
    add_measuring(parser)
    add_outputs(parser.add_argument_group("what to write"))


def run(args: argparse.Namespace) -> int:
    from gpuadvisor.tuning.gate.stored import check

    with outputs(args) as written:
        written.begin(args.name, place_in_repository(args.script, args.is_module))
        baseline, options = baseline_of(args), options_of(args, command_of(args))
        with at_work("Looking at the recordings ...") as (progress, cancelled):
            failure = written.add(check(baseline, options, progress, cancelled))
    if failure is not None:
        raise failure
    return 0

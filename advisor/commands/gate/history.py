"""Show the recordings of a script, day by day, and where their level changed.

Exit status: 0; 2 where there is no such baseline; 5 when the file cannot be read.
"""

from __future__ import annotations

import argparse

from gpuadvisor.commands._arguments import add_json
from gpuadvisor.commands.gate._arguments import add_baseline
from gpuadvisor.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_baseline(parser, required=False)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from gpuadvisor.commands._output import output
    from gpuadvisor.reports import strict_json
    from gpuadvisor.reports.gate import history as report
    from gpuadvisor.storage.gate import baselines_file, read_baselines

    file = baselines_file(args.store)
    known = read_baselines(file)
    names = known.names if args.name is None else [args.name]
    if not set(names) <= set(known.names):
        raise UsageError(f"{known.lacks(args.name, file)}: `gpuadvisor gate record` makes one")
    found = [each for name in names for each in report.histories(known, name)]
    if args.json:
        print(strict_json.text(report.history_json(found)), flush=True)
    else:
        report.print_histories(found, file, output())
    return 0

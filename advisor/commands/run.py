"""Run a script with a plan's settings applied, without changing the script.

The script takes gpuadvisor's place: its output, signals and exit status are its own.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpuadvisor.commands._arguments import add_script_arguments, command_of

EPILOG = """example:
  gpuadvisor run --plan train.plan.toml train.py -- --epochs 90
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--plan", metavar="FILE", type=Path, required=True, help="as written by `gpuadvisor tune`"
    )
    add_script_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from gpuadvisor.printable import printable
    from gpuadvisor.tuning.plans.application import start_with_plan

    def warn(sentence: str) -> None:
        print(f"gpuadvisor: {printable(sentence)}", file=sys.stderr)

    return start_with_plan(args.plan, command_of(args), warn)

"""Check that this machine and this Python are fit for tuning, and say how to fix what is not.

Exit status: 0 where tuning works (warnings included), 1 where a problem keeps it from working.
"""

from __future__ import annotations

import argparse
import sys

from gpuadvisor.commands._arguments import add_json, add_python

EXAMPLE = "example: gpuadvisor doctor --python ~/venvs/train/bin/python"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLE
    add_python(parser, "the Python that runs your scripts")
    add_json(parser, "print the results as JSON")


def run(args: argparse.Namespace) -> int:
    from rich.text import Text

    from gpuadvisor.commands._output import messages, output
    from gpuadvisor.doctor import render
    from gpuadvisor.doctor.check import examine, gather

    # Importing torch takes seconds; on a pipe the status shows nothing.
    with messages().status(Text(f"Asking {args.python} what it has ...")):
        checks = examine(gather(args.python))
    if args.json:
        from gpuadvisor.version import __version__

        print(render.as_json(checks, __version__))
    elif sys.stdout.isatty():
        console = output()
        console.print(render.as_table(checks))
        console.print(f"\n{render.summary(checks)}")
    else:
        print(render.as_text(checks))
    return int(render.has_problem(checks))

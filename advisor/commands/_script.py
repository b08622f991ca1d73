"""What commands that run a script share: naming it, its interpreter and its arguments."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuadvisor.collectors.script.request import Command


SCRIPT_HELP = "the Python script, as you would give it to python"


def add_script_arguments(
    parser: argparse.ArgumentParser, script: str = SCRIPT_HELP, name: str | None = None
) -> None:
    """Declare the script; what follows `--` on the command line is the script's own.

    With another help than the usual for it, it may be left out; `name` is how the help calls it.
    """
    if script == SCRIPT_HELP:
        parser.add_argument("script", help=script)
    else:
        parser.add_argument("script", nargs="?", metavar=name, help=script)
    parser.add_argument(
        "-m",
        dest="is_module",
        action="store_true",
        help=f"{name or 'SCRIPT'} is a module, as for python -m",
    )
    parser.add_argument(
        "--python",
        metavar="PATH",
        default=sys.executable,
        help="the Python that runs the script (default: the one that runs gpuadvisor)",
    )
    parser.set_defaults(takes_rest=True)


def command_of(args: argparse.Namespace) -> Command:
    """Return the script as its user would start it; UsageError if there is no such Python."""
    from gpuadvisor.collectors.interpreter import locate
    from gpuadvisor.collectors.script.request import Command

    return Command(locate(args.python), args.script, tuple(args.rest), args.is_module)

"""The command line: one module per subcommand, imported without their heavy dependencies."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from gpuadvisor.commands import load_commands
from gpuadvisor.errors import AdvisorError, ScriptError, UsageError

DESCRIPTION = "Find out why a GPU job is slow, prove what makes it faster, and keep it fast."
SHOWN_LINES = 15
"""Lines of a failed script's output that are shown below the error."""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; declaring a command must not import what running it needs."""
    parser = argparse.ArgumentParser(prog="gpuadvisor", description=DESCRIPTION)
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    subparsers = parser.add_subparsers(metavar="COMMAND")
    for name, command in load_commands().items():
        summary, _, details = (command.__doc__ or "").partition("\n")
        subparser = subparsers.add_parser(
            name, help=summary, description=f"{summary}\n{details}".strip()
        )
        subparser.add_argument("--debug", action="store_true", help="show tracebacks of errors")
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the process's exit status."""
    own, dashes, rest = _split(sys.argv[1:] if argv is None else list(argv))
    parser = build_parser()
    args = parser.parse_args(own)
    if args.version:
        import gpuadvisor

        print(gpuadvisor.__version__)
        return 0
    if not hasattr(args, "run"):
        parser.print_help()
        return 2
    args.rest = rest
    try:
        if dashes and not getattr(args, "takes_rest", False):
            raise UsageError("this command takes nothing after --")
        status: int = args.run(args)
        sys.stdout.flush()
    except AdvisorError as error:
        if args.debug:
            raise
        return _explain(error)
    except KeyboardInterrupt:
        print("gpuadvisor: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, `head` for example, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


def _split(argv: list[str]) -> tuple[list[str], bool, list[str]]:
    """Return what is ours, whether there was a `--`, and what follows it."""
    if "--" not in argv:
        return argv, False, []
    place = argv.index("--")
    return argv[:place], True, argv[place + 1 :]


def _explain(error: AdvisorError) -> int:
    if isinstance(error, ScriptError) and error.output.strip():
        lines = error.output.strip().splitlines()[-SHOWN_LINES:]
        print("\n".join(f"  | {line}" for line in lines), file=sys.stderr)
    print(f"gpuadvisor: {error}", file=sys.stderr)
    return error.exit_code

"""Arguments that several commands share, and what they mean."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from gpuadvisor.errors import UsageError

if TYPE_CHECKING:
    from gpuadvisor.collectors.script.request import Command


Arguments: TypeAlias = "argparse.ArgumentParser | argparse._ArgumentGroup"
"""A parser, or a group of it, to which arguments are added."""
Action = Callable[[argparse.Namespace], int]
"""An action of a command, such as `start` of `gpuadvisor daemon start`; returns the exit status."""
_UNITS = {"": 1, "b": 1, "k": 1024, "kb": 1024, "kib": 1024, "m": 1 << 20, "mib": 1 << 20}
"""Bytes by unit; in CUDA's own words a KB of shared memory has 1,024."""
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
    add_python(parser, "the Python that runs the script")
    parser.set_defaults(takes_rest=True)


def command_of(args: argparse.Namespace) -> Command:
    """Return the script as its user would start it; UsageError if there is no such Python."""
    from gpuadvisor.collectors.interpreter import locate
    from gpuadvisor.collectors.script.request import Command

    return Command(locate(args.python), args.script, tuple(args.rest), args.is_module)


def checked_command(args: argparse.Namespace) -> Command:
    """Return the script as its user would start it; UsageError if it or its Python is not there."""
    from gpuadvisor.tuning.preparation import check_script

    command = command_of(args)
    check_script(command)
    return command


def is_script(args: argparse.Namespace) -> bool:
    """Return whether what is named is a Python script or a module, which can be run."""
    return bool(args.is_module or (args.script or "").endswith(".py"))


def check_positive(args: argparse.Namespace, *options: str) -> None:
    """UsageError if one of these options, as `--steps`, has a number that is not above zero."""
    for option in options:
        value = getattr(args, option.lstrip("-").replace("-", "_"))
        if value is not None and not value > 0:
            raise UsageError(f"{option} {value:g}: give a number above zero")


def add_kernel_on_gpu(arguments: Arguments) -> None:
    """Declare what a kernel takes, and a GPU that need not be there; either form is `args.gpu`."""
    gpu = arguments.add_mutually_exclusive_group()
    gpu.add_argument(
        "--gpu",
        metavar="NAME",
        help="a product such as H100, or a compute capability, as 9.0 (default: this machine's)",
    )
    gpu.add_argument("--cc", metavar="X.Y", dest="gpu", help="the same, for 7.0 to 12.1")
    arguments.add_argument(
        "--regs",
        metavar="N",
        type=int,
        default=0,
        help="registers of a thread (default: not known)",
    )
    arguments.add_argument(
        "--smem",
        metavar="SIZE",
        default="0",
        help="shared memory of a block, static and dynamic, as 100k, 48KiB or bytes (default: 0)",
    )


def parse_size(text: str, option: str) -> int:
    """Return the bytes of a size such as `100k`, `48KiB` or `1024`; UsageError for none."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?) ?([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise UsageError(f"{option} takes a size such as 100k, 48KiB or 1024, not {text!r}")
    return round(float(match[1]) * _UNITS[match[2]])


def add_python(arguments: Arguments, help_: str) -> None:
    """Declare `--python`: an interpreter, that of gpuadvisor by default."""
    arguments.add_argument(
        "--python",
        metavar="PATH",
        default=sys.executable,
        help=f"{help_} (default: the one that runs gpuadvisor)",
    )


def add_json(arguments: Arguments, help_: str = "print it as JSON") -> None:
    """Declare `--json`."""
    arguments.add_argument("--json", action="store_true", help=help_)


def add_whole(arguments: Arguments) -> None:
    """Declare `--whole`."""
    arguments.add_argument(
        "--whole",
        action="store_true",
        help="judge all of a large recording, and not a part of it: takes more memory",
    )


def add_markdown(arguments: Arguments) -> None:
    """Declare `--markdown`: a file, or `-` for the standard output."""
    arguments.add_argument(
        "--markdown",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write Markdown to a file, or to the standard output with `-` or without FILE",
    )


def add_steps(arguments: Arguments) -> None:
    """Declare `--steps`: how many steps of a script are recorded."""
    arguments.add_argument(
        "--steps", metavar="N", type=int, default=5, help="steps to record (default: 5)"
    )


def add_timeout(arguments: Arguments, help_: str, default: float | None = None) -> None:
    """Declare `--timeout`, in seconds."""
    arguments.add_argument("--timeout", metavar="SECONDS", type=float, default=default, help=help_)


def add_tolerance(arguments: Arguments, default: str) -> None:
    """Declare `--tolerance`, in percent; `default` says in words which one holds without it."""
    arguments.add_argument(
        "--tolerance",
        metavar="PERCENT",
        type=float,
        help=f"how far losses or outputs may differ (default: {default})",
    )


def tolerance_of(args: argparse.Namespace) -> float | None:
    """Return `--tolerance` as a relative difference of results; None where it was not given."""
    return None if args.tolerance is None else args.tolerance / 100


def add_measuring_arguments(arguments: Arguments) -> None:
    """Declare how runs of a script are measured: `--scratch`, `--seed`, `--samples-per-step` and
    `--timeout`."""
    arguments.add_argument(
        "--scratch",
        action="store_true",
        help="run in a private view of the file system: no run leaves files, or has a network",
    )
    arguments.add_argument("--seed", type=int, default=0, help="for random, numpy and torch")
    arguments.add_argument(
        "--samples-per-step", metavar="N", type=float, help="where the script does not show it"
    )
    help_ = "longest wait for the unchanged script's first step (default: 600)"
    add_timeout(arguments, help_, 600.0)


def add_profile_name(arguments: Arguments) -> None:
    """Declare `--name`: how a recorded profile is called in the store."""
    arguments.add_argument(
        "--name", metavar="NAME", help="name of the profile in the store (default: the script's)"
    )


def add_actions(
    parser: argparse.ArgumentParser,
) -> Callable[[str, str, Action], argparse.ArgumentParser]:
    """Return what declares an action of a command, by its name, help and function; one is needed.

    `run_action` calls the function of the action that was chosen.
    """
    actions = parser.add_subparsers(
        metavar="ACTION", dest="action", required=True, help="what to do, one of the following"
    )

    def add(name: str, text: str, action: Action) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=text, description=text, allow_abbrev=False)
        made.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )
        made.set_defaults(do=action)
        return made

    return add


def run_action(args: argparse.Namespace) -> int:
    """Do the action that was chosen and return its exit status."""
    action: Action = args.do
    return action(args)

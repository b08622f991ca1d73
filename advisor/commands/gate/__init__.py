"""Compare two versions of a script, and fail where the new one is slower or needs more memory.

Exit status: 0 when it got no worse; 4 when it did, or does not run any more; 6 when neither was
shown, or the old version does not run; 7 when the GPU is busy or held down; 2 for a wrong command
line or a missing commit; 3 when the script fails in both; 129, 130, 131 or 143 when interrupted.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.commands._arguments import (
    add_script_arguments,
    add_timeout,
    check_positive,
    command_of,
)
from gpuadvisor.commands.gate._outputs import add_outputs, outputs, place_in_repository
from gpuadvisor.errors import InconclusiveError, RegressionError, UsageError

if TYPE_CHECKING:
    from gpuadvisor.collectors.script.request import Command
    from gpuadvisor.domain.gate import GateResult
    from gpuadvisor.tuning.gate.options import GateOptions

SCRIPT = "the Python script; not with --base-cmd and --head-cmd"
EPILOG = """examples:
  gpuadvisor gate --base origin/main train.py -- --epochs 1
  gpuadvisor gate --base v1.2 --head HEAD --json train.py > gate.json
  gpuadvisor gate --base main --output junit --output markdown=gate.md train.py
  gpuadvisor gate --base main --setup-cmd "python setup.py build_ext --inplace" train.py
  gpuadvisor gate --base-folder ../before --head-folder . train.py
  gpuadvisor gate --head-python new/bin/python train.py
  gpuadvisor gate --head-plan train.plan.toml train.py -- --epochs 1
  gpuadvisor gate --base-cmd "python train.py" --head-cmd "TF32=1 python train.py --compile"

Both versions run in turns, in fresh processes of random order on the same device, from work trees
of their own that are removed afterwards. With --base, the commit where --head left it is compared,
so that what the base got since does not count. The head is the work tree as it is, new files too,
unless --head names a commit.

A metric fails when it is shown to be worse by more than --tolerance, and passes when being worse
by --limit is ruled out. Four pairs of runs tell that on a quiet machine; after 24 it is
inconclusive. Use a script of some hundred steps. What fails, and how sure that is: docs/gate.md.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_script_arguments(parser, SCRIPT, "SCRIPT")
    group = parser.add_argument_group("what to compare")
    group.add_argument("--base", metavar="REV", help="commit, branch or tag to compare with")
    group.add_argument(
        "--head", metavar="REV", help="the new one (default: the work tree as it is)"
    )
    group.add_argument(
        "--base-folder", metavar="DIR", type=Path, help="a folder instead, with or without git"
    )
    group.add_argument("--head-folder", metavar="DIR", type=Path, help="the folder of the new one")
    for side, of in (("base", "the old side's"), ("head", "the new side's")):
        group.add_argument(
            f"--{side}-python", metavar="PATH", help=f"{of} own interpreter, instead of --python"
        )
        group.add_argument(
            f"--{side}-plan", metavar="FILE", type=Path, help=f"{of} plan, as of `gpuadvisor tune`"
        )
        group.add_argument(
            f"--{side}-cmd",
            metavar="COMMAND",
            help=f"{of} command, as 'A=1 python train.py --flag', instead of the script",
        )
    group.add_argument(
        "--link",
        metavar="PATH",
        action="append",
        default=[],
        help="file or folder that git ignores, such as data, for both versions; may be repeated",
    )
    group.add_argument(
        "--setup-cmd",
        metavar="COMMAND",
        help="shell command for each version's folder before its first run, such as 'pip install "
        "--no-build-isolation -e .'; what it installs is gone afterwards",
    )
    group = parser.add_argument_group("how closely")
    group.add_argument(
        "--tolerance",
        metavar="PERCENT",
        type=float,
        default=1.0,
        help="worse by so much is no regression (default: 1)",
    )
    group.add_argument(
        "--limit",
        metavar="PERCENT",
        type=float,
        default=3.0,
        help="worse by so much must be ruled out to pass (default: 3)",
    )
    group.add_argument(
        "--metric",
        metavar="NAME",
        action="append",
        default=[],
        dest="metrics",
        help="let the verdict rest on this, too: startup, losses, p95, ... "
        "(docs/gate.md); may be repeated",
    )
    group = parser.add_argument_group("how to measure")
    group.add_argument(
        "--measure",
        metavar="SECONDS",
        type=float,
        default=4.0,
        help="time for which each run is measured (default: 4)",
    )
    group.add_argument(
        "--seed", type=int, default=0, help="for random, numpy, torch and the order of runs"
    )
    group.add_argument(
        "--samples-per-step", metavar="N", type=float, help="where the script does not show it"
    )
    add_timeout(group, "longest wait for the base's first step (default: 600)", 600.0)
    add_outputs(parser.add_argument_group("what to write"))


def run(args: argparse.Namespace) -> int:
    from gpuadvisor.commands._output import messages
    from gpuadvisor.interruption import stoppable
    from gpuadvisor.tui.gate import ConsoleGateProgress
    from gpuadvisor.tuning.gate.comparison import gate

    with outputs(args) as written:
        name = args.script or args.head_cmd or "gate"
        written.begin(name, place_in_repository(args.script, args.is_module))
        options = _options(args)
        with stoppable() as stop, ConsoleGateProgress(messages()) as progress:
            found = gate(options, progress, stop.requested)
        written.add(found)
    _fail(found)
    return 0


def _fail(found: GateResult) -> None:
    """Tell the verdict by the exit status, where it is not a pass."""
    from gpuadvisor.domain.gate import GateVerdict
    from gpuadvisor.reports.gate.document import why

    if found.verdict is GateVerdict.FAIL:
        raise RegressionError(f"regression: {why(found)}")
    if found.verdict is GateVerdict.INCONCLUSIVE:
        raise InconclusiveError(f"inconclusive: {why(found)}")


def _options(args: argparse.Namespace) -> GateOptions:
    from gpuadvisor.tuning.gate.options import GateOptions, owned

    check_positive(args, "--tolerance", "--limit", "--measure", "--timeout", "--samples-per-step")
    folders = (args.base_folder, args.head_folder)
    if any(folders) and (args.base or args.head or args.link or not all(folders)):
        raise UsageError(
            "give --base-folder and --head-folder together, and neither --base nor --head nor "
            "--link with them"
        )
    pythons = (args.base_python, args.head_python)
    plans = (args.base_plan, args.head_plan)
    lines = (args.base_cmd, args.head_cmd)
    if not any((args.base, *folders, *pythons, *plans, *lines)):
        raise UsageError(
            "say what to compare with: --base origin/main, or --base-folder, --base-python, "
            "--base-plan or --base-cmd"
        )
    if args.head and not args.base:
        raise UsageError("--head is compared with --base: give that, too")
    if args.link and not args.base:
        raise UsageError("--link is for work trees, which there are with --base only")
    if args.setup_cmd and not (args.base or any(folders)):
        raise UsageError(
            "--setup-cmd is run in a folder of each version: give --base, or two folders"
        )
    command = _command(args)
    return GateOptions(
        command,
        args.base,
        args.head,
        folders if all(folders) else None,
        tuple(args.link),
        args.tolerance / 100,
        args.limit / 100,
        args.seed,
        args.samples_per_step,
        args.timeout,
        args.measure,
        args.setup_cmd,
        owned(command, pythons, plans, lines),
        tuple(dict.fromkeys(args.metrics)),
    )


def _command(args: argparse.Namespace) -> Command:
    """Return the script as its user would start it, or what is given instead of it."""
    from gpuadvisor.tuning.gate.options import parse_line

    if args.script is not None:
        if args.base_cmd and args.head_cmd:
            raise UsageError("give the script or both --base-cmd and --head-cmd, not all of them")
        return command_of(args)
    if args.rest:
        raise UsageError("the arguments after -- need a script: name it before them")
    if not (args.base_cmd and args.head_cmd):
        raise UsageError("name the script, or both commands with --base-cmd and --head-cmd")
    return parse_line("--base-cmd", args.base_cmd)[0]

"""Record where a program's time goes, without changing it, and keep that as a profile.

A few steady steps of a Python script with the torch profiler; with --nsys or --ncu what NVIDIA's
tools see of a script or any other program; with --attach the next steps of a running process.

Exit status: 0 when a profile was stored; 1 when one of NVIDIA's tools or the attached process could
not record; 2 for a wrong command line; 3 when the script cannot be profiled, or failed by itself;
5 when the store fails; 130 or 143 when it was interrupted.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from gpuadvisor.commands._script import add_script_arguments

EPILOG = """examples:
  gpuadvisor profile train.py -- --epochs 1
  gpuadvisor profile train.py --steps 10 --stacks --name before --output train.json.gz
  gpuadvisor profile --ncu train.py
  gpuadvisor profile --nsys -- ./solver --grid 512
  gpuadvisor profile --attach 4242

A script runs unchanged in the current folder until it is warm and its steps are recorded, and is
stopped then. What follows -- is the script's own, or a program with its arguments. A process can be
attached to when its script calls `gpuadvisor.profile_on_demand()`.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    add_script_arguments(
        parser, "the Python script, as you would give it to python; or any program for NVIDIA's"
    )
    tools = parser.add_mutually_exclusive_group()
    tools.add_argument("--nsys", action="store_true", help="record with NVIDIA Nsight Systems")
    tools.add_argument(
        "--ncu",
        action="store_true",
        help="read the hardware counters of the dominant kernels with NVIDIA Nsight Compute",
    )
    tools.add_argument(
        "--attach", metavar="PID", type=int, help="record the next steps of a running process"
    )
    _add_recording_arguments(parser)
    _add_output_arguments(parser)


def _add_recording_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to record")
    group.add_argument(
        "--steps", metavar="N", type=int, default=5, help="steps to record (default: 5)"
    )
    group.add_argument(
        "--stacks", action="store_true", help="also the Python stacks, which slows the steps down"
    )
    group.add_argument(
        "--seconds",
        metavar="S",
        type=float,
        help="with --attach, how long to record a process without steps (default: 5); with --nsys, "
        "how long to record a program that is no Python script (default: to its end)",
    )
    group.add_argument(
        "--keep-running", action="store_true", help="let the script go on to its own end"
    )
    group.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        help="longest wait for the first step, or for another program's end (default: 600)",
    )


def _add_output_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is kept")
    group.add_argument(
        "--name", metavar="NAME", help="name of the profile in the store (default: the script's)"
    )
    group.add_argument(
        "--output", metavar="FILE", type=Path, help="also keep the trace; .gz compresses it"
    )
    group.add_argument("--json", action="store_true", help="print the result as JSON on stdout")


def run(args: argparse.Namespace) -> int:
    from gpuadvisor.commands import _profiling
    from gpuadvisor.errors import Interrupted
    from gpuadvisor.interruption import stoppable
    from gpuadvisor.profiling.keeping import check_name, check_output

    _check(args)
    if args.output is not None:
        check_output(args.output)
    if args.name is not None:
        check_name(args.name)
    with stoppable() as stop:
        try:
            status = _profiling.profile(args, stop.requested)
        except Interrupted as interruption:
            interruption.exit_code = stop.exit_status
            raise
    return stop.exit_status if stop.requested() else status


def _check(args: argparse.Namespace) -> None:
    """UsageError if options do not go together."""
    from gpuadvisor.errors import UsageError

    for name, value in (
        ("--steps", args.steps),
        ("--timeout", args.timeout),
        ("--seconds", args.seconds),
    ):
        if value is not None and not value > 0:
            raise UsageError(f"{name} {value:g}: give a number above zero")
    if args.attach is not None and (args.script or args.rest):
        raise UsageError("--attach profiles a process that runs: name no script or program")
    if args.attach is None and not args.script and not args.rest:
        raise UsageError("name the script to profile, or a process with --attach PID")
    nvidia = args.nsys or args.ncu
    if not nvidia and args.attach is None and not args.script:
        raise UsageError(
            "name the script before --, and its arguments after; any other program needs --nsys or "
            "--ncu"
        )
    if args.keep_running and (nvidia or args.attach is not None):
        raise UsageError("--keep-running is for scripts under the torch profiler")
    if args.stacks and nvidia:
        raise UsageError("--stacks is for the torch profiler: leave out --nsys or --ncu")
    if args.seconds is not None and args.attach is None and not args.nsys:
        raise UsageError("--seconds is for --attach and --nsys; scripts have --steps")

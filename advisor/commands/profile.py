"""Record where a program's time goes, without changing it, and keep that as a profile.

A few steady steps of a Python script with the torch profiler; with --nsys or --ncu what NVIDIA's
tools see of a script or any other program; with --attach the next steps of a running process.

Exit status: 0 when a profile was stored; 1 when one of NVIDIA's tools or the attached process could
not record; 2 for a wrong command line, or a tool or torch that is not installed; 3 when the script
cannot be profiled, or failed by itself; 5 when the store fails; 130 or 143 when it was interrupted.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.commands._arguments import (
    add_json,
    add_profile_name,
    add_script_arguments,
    add_steps,
    add_timeout,
    check_positive,
    checked_command,
    is_script,
)
from gpuadvisor.errors import ScriptError, UsageError

if TYPE_CHECKING:
    from gpuadvisor.profiling.nsight import Program
    from gpuadvisor.profiling.profiler import ProfileOptions, ProfileResult

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
    add_steps(group)
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
    add_timeout(
        group, "longest wait for the first step, or for another program's end (default: 600)"
    )


def _add_output_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is kept")
    add_profile_name(group)
    group.add_argument(
        "--output", metavar="FILE", type=Path, help="also keep the trace; .gz compresses it"
    )
    add_json(group, "print the result as JSON on stdout")


def run(args: argparse.Namespace) -> int:
    _check(args)
    program = None if args.attach is not None else _program(args)
    from gpuadvisor.commands._output import messages, note
    from gpuadvisor.interruption import stoppable
    from gpuadvisor.profiling.profiler import profile
    from gpuadvisor.profiling.progress import Stages

    show = _print_json if args.json else _print
    with stoppable() as stop:
        options = _options(args, program)
        with Stages(messages()) as stages:
            failed = profile(options, stages, show, note, stop.requested)
    if stop.requested():
        return stop.exit_status
    return ScriptError.exit_code if failed else 0


def _check(args: argparse.Namespace) -> None:
    """UsageError if options do not go together, or the trace cannot be kept where it is to be."""
    check_positive(args, "--steps", "--timeout", "--seconds")
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
    path = args.output
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        why = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise UsageError(f"--output {path}: {why}; name a file in a folder that is there")


def _options(args: argparse.Namespace, program: Program | None) -> ProfileOptions:
    """Return what to profile and how; UsageError if the profile's name is taken."""
    from gpuadvisor.profiling.importing import check_name
    from gpuadvisor.profiling.profiler import ProfileOptions, Tool

    check_name(args.name)
    # The standard output belongs to JSON, where it goes there.
    script_output = sys.stderr if args.json else sys.stdout
    return ProfileOptions(
        program=program,
        pid=args.attach,
        tool=Tool.NSYS if args.nsys else Tool.NCU if args.ncu else Tool.TORCH,
        steps=args.steps,
        stacks=args.stacks,
        seconds=args.seconds,
        keep_running=args.keep_running,
        timeout_s=args.timeout,
        name=args.name,
        output=args.output,
        on_script_output=script_output.buffer.write if args.keep_running else None,
    )


def _program(args: argparse.Namespace) -> Program:
    """Return what to run; UsageError if there is no such script or program."""
    is_python = is_script(args) or not (args.nsys or args.ncu)
    command = checked_command(args) if is_python else None
    from gpuadvisor.profiling.nsight import Program, check_program

    if command is not None:
        return Program(command)
    words = [args.script] if args.script else []
    return Program(None, check_program([*words, *args.rest]))


def _print(result: ProfileResult) -> None:
    from gpuadvisor.profiling import summary
    from gpuadvisor.reports.diagnosis import wording as diagnosis_wording

    for line in summary.lines(result.imported.profile, is_new=result.imported.is_new):
        print(line)
    for line in summary.look_lines(summary.where_time_went(result.facts)):
        print(f"  {line}")
    print(f"  {diagnosis_wording.first(result.report)}")
    print(f"\nNext: gpuadvisor diagnose {result.imported.profile.record.name}", flush=True)


def _print_json(result: ProfileResult) -> None:
    from gpuadvisor.reports import strict_json

    print(strict_json.line(result.document()), flush=True)

"""Say what to fix first in a run, what that is worth, and which knob would try it.

TARGET is a script, which is profiled first; a stored profile; a trace file of the torch profiler,
Nsight Systems or Nsight Compute, which is read without storing it; or a recording of telemetry.

Exit status: 0 whatever was found; 4 where --fail-on is given and something of that severity was
found; 2 for a wrong command line or a file that cannot be read; 3 when the script cannot be
profiled, or failed by itself; 5 when the store fails; 129, 130, 131 or 143 when interrupted.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from gpuadvisor.commands._script import add_script_arguments

EPILOG = """examples:
  gpuadvisor diagnose train.py -- --epochs 1    profile a script, and say what to fix
  gpuadvisor diagnose                           the profile that was stored last
  gpuadvisor diagnose train --all
  gpuadvisor diagnose trace.json.gz --json | jq '.findings[0]'
  gpuadvisor diagnose kernels.ncu-rep --rule bank_conflict
  gpuadvisor diagnose train.py --stacks --sarif train.sarif --fail-on critical

What follows -- is the script's own. `gpuadvisor explain RULE` says what a rule looks at.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    add_script_arguments(
        parser,
        "a Python script, a stored profile, a trace file, or a recording (.gpr) of telemetry; the"
        " newest profile by default",
        "TARGET",
    )
    _add_choice_arguments(parser)
    _add_recording_arguments(parser)
    _add_output_arguments(parser)


def _add_choice_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is shown")
    group.add_argument(
        "--all", action="store_true", help="all findings, symptoms, and what was not measured"
    )
    group.add_argument(
        "--rule", metavar="RULE", action="append", default=[],
        help="ask only this rule; may be given again",
    )  # fmt: skip
    group.add_argument("--limit", metavar="N", type=int, help="at most so many findings")


def _add_recording_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how a script is profiled")
    group.add_argument(
        "--steps", metavar="N", type=int, default=5, help="steps to record (default: 5)"
    )
    group.add_argument(
        "--stacks",
        action="store_true",
        help="also source lines, which slows the host down in the recorded steps",
    )
    group.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        help="longest wait for the first step (default: 600)",
    )
    group.add_argument(
        "--name", metavar="NAME", help="name of the profile in the store (default: the script's)"
    )


def _add_output_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("for others")
    group.add_argument(
        "--markdown",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write Markdown to a file, or to the standard output with `-` or without FILE",
    )
    group.add_argument("--json", action="store_true", help="print it as JSON")
    group.add_argument(
        "--sarif",
        type=Path,
        metavar="FILE",
        help="write findings with a source line as SARIF 2.1.0, for code hosts",
    )
    group.add_argument(
        "--fail-on",
        choices=("notice", "warning", "critical"),
        help="exit with 4 where something of this severity or above was found",
    )


def run(args: argparse.Namespace) -> int:
    from gpuadvisor.commands import _diagnosing
    from gpuadvisor.errors import Interrupted, ScriptError
    from gpuadvisor.interruption import stoppable

    _diagnosing.check(args)
    if not _diagnosing.is_script(args):
        _diagnosing.show(args, _diagnosing.of_what_is_there(args))
        return 0
    with stoppable() as stop:
        try:
            report, failed = _diagnosing.of_script(args, stop.requested)
        except Interrupted as interruption:
            interruption.exit_code = stop.exit_status
            raise
    _diagnosing.show(args, report)
    return ScriptError.exit_code if failed else 0

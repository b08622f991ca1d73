"""Say what to fix first in a run, what that is worth, and which knob would try it.

TARGET is a script, which is profiled first; a stored profile; a trace file of the torch profiler,
Nsight Systems or Nsight Compute, which is read without storing it; a folder with a trace of each
rank of a run, which are stored; or a recording of telemetry.

Exit status: 0 whatever was found; 4 where --fail-on is given and something of that severity was
found; 1 where no TARGET is named and no profile stored; 2 for a wrong command line or a file that
cannot be read; 3 when the script cannot be profiled, or failed by itself; 5 when the store fails;
129, 130, 131 or 143 when interrupted.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.commands._arguments import (
    add_json,
    add_markdown,
    add_profile_name,
    add_script_arguments,
    add_steps,
    add_timeout,
    add_whole,
    check_positive,
    checked_command,
    is_script,
)
from gpuadvisor.errors import FindingsError, ScriptError, UsageError

if TYPE_CHECKING:
    from gpuadvisor.reports.diagnosis.report import DiagnosisReport

EPILOG = """examples:
  gpuadvisor diagnose train.py -- --epochs 1    profile a script, and say what to fix
  gpuadvisor diagnose                           the profile that was stored last
  gpuadvisor diagnose train --all
  gpuadvisor diagnose train.py --tree           also the time of each nn.Module
  gpuadvisor diagnose traces/                   all ranks of a run, a trace of each
  gpuadvisor diagnose trace.json.gz --json | jq '.findings[0]'
  gpuadvisor diagnose kernels.ncu-rep --rule bank_conflict
  gpuadvisor diagnose train.py --stacks --sarif train.sarif --fail-on critical

What follows -- is the script's own. `gpuadvisor explain RULE` says what a rule looks at.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_script_arguments(
        parser,
        "a Python script, a stored profile, a trace file, a folder with one of each rank, or a"
        " recording (.gpr) of telemetry; the newest profile by default",
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
        "--tree",
        action="store_true",
        help="also time, GPU time (forward and backward) and GPU idle time by nn.Module",
    )
    group.add_argument(
        "--rule", metavar="RULE", action="append", default=[],
        help="ask only this rule; may be given again",
    )  # fmt: skip
    add_whole(group)
    group.add_argument("--limit", metavar="N", type=int, help="at most so many findings")


def _add_recording_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how a script is profiled")
    add_steps(group)
    group.add_argument(
        "--stacks",
        action="store_true",
        help="keep Python stacks of all steps in the profile, which slows the host down in them;"
        " without, one more step tells the source lines",
    )
    add_timeout(group, "longest wait for the first step (default: 600)")
    add_profile_name(group)


def _add_output_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("for others")
    add_markdown(group)
    add_json(group)
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
    _check(args)
    if not is_script(args):
        from gpuadvisor.profiling.diagnosing import diagnose_target

        if args.script is not None and Path(args.script).is_dir():
            _show(args, _of_folder(args))
        else:
            _show(args, diagnose_target(args.script, args.rule, whole=args.whole))
        return 0
    command = checked_command(args)
    from gpuadvisor.commands._output import messages
    from gpuadvisor.interruption import stoppable
    from gpuadvisor.profiling.diagnosing import diagnose_script
    from gpuadvisor.profiling.importing import check_name
    from gpuadvisor.profiling.progress import Stages
    from gpuadvisor.profiling.recording import TIMEOUT_S, RecordOptions

    with stoppable() as stop:
        check_name(args.name)
        record = RecordOptions(
            command,
            args.steps,
            args.stacks,
            lines=not args.stacks,
            timeout_s=args.timeout or TIMEOUT_S,
            cancelled=stop.requested,
        )
        with Stages(messages()) as stages:
            report, failed = diagnose_script(record, stages, args.name, args.rule, whole=args.whole)
    _show(args, report)
    return ScriptError.exit_code if failed else 0


def _of_folder(args: argparse.Namespace) -> DiagnosisReport:
    from gpuadvisor.commands._output import messages
    from gpuadvisor.interruption import stoppable
    from gpuadvisor.profiling.diagnosing import diagnose_folder
    from gpuadvisor.profiling.progress import ImportProgress

    with stoppable() as stop:

        def progress() -> ImportProgress:
            return ImportProgress(messages(), stop.requested)

        return diagnose_folder(Path(args.script), args.rule, progress, whole=args.whole)


def _check(args: argparse.Namespace) -> None:
    """UsageError if options do not go together, before a script runs for nothing."""
    check_positive(args, "--steps", "--timeout", "--limit")
    if args.rule:
        from gpuadvisor.profiling.rules import select_rules

        select_rules(args.rule)
    if args.tree and (args.json or args.markdown is not None):
        raise UsageError("--tree is a table for the terminal: leave out --json and --markdown")
    if args.is_module and not args.script:
        raise UsageError("-m needs the name of a module")
    if is_script(args):
        return
    target = args.script or "the newest profile"
    for given, option in ((args.stacks, "--stacks"), (args.name, "--name")):
        if given:
            raise UsageError(f"{option} is for scripts, and {target} was recorded already")
    if args.rest:
        raise UsageError(
            f"what follows -- is a script's own, and {target} is none: name a script that ends in "
            ".py, or a module with -m"
        )


def _show(args: argparse.Namespace, report: DiagnosisReport) -> None:
    """Write what was asked for; FindingsError where that is to be told by the exit status."""
    from gpuadvisor.commands._output import note

    _write(args, report if args.limit is None else report.limited(args.limit))
    for sentence in report.notes:
        note(sentence)
    if args.fail_on is not None:
        _fail(report, args.fail_on)


def _write(args: argparse.Namespace, report: DiagnosisReport) -> None:
    from gpuadvisor.commands._output import messages_stream, write, write_or_print

    said_on = messages_stream(json=args.json, markdown=args.markdown)
    if args.json:
        from gpuadvisor.reports import strict_json
        from gpuadvisor.reports.json_documents import diagnosis_json

        print(strict_json.text(diagnosis_json(report)), flush=True)
    if args.markdown is not None:
        from gpuadvisor.reports.diagnosis.document import diagnosis_markdown

        write_or_print(args.markdown, diagnosis_markdown(report), said_on)
    if not args.json and args.markdown is None:
        _print(report, everything=args.all, tree=args.tree)
    if args.sarif is not None:
        from gpuadvisor.profiling.project_files import project_files
        from gpuadvisor.reports.diagnosis.sarif import diagnosis_sarif, place_of

        script = args.script if is_script(args) and not args.is_module else None
        write(args.sarif, diagnosis_sarif(report, project_files(script=script)), said_on)
        if not any(map(place_of, report.diagnosis.shown)):
            print("it has no result: no finding has a source line", file=said_on)


def _print(report: DiagnosisReport, *, everything: bool, tree: bool) -> None:
    from gpuadvisor.commands._output import output
    from gpuadvisor.reports.diagnosis.document import print_diagnosis

    print_diagnosis(output(), report, everything)
    if tree:
        from gpuadvisor.reports.profile.modules import module_tree

        print("", *module_tree(report), sep="\n")
    if report.script and report.stored is not None:
        print(f"\nKept as {report.stored}: `gpuadvisor report {report.stored}` has all figures.")
    sys.stdout.flush()


def _fail(report: DiagnosisReport, least: str) -> None:
    """FindingsError if something of this severity or above was found."""
    from gpuadvisor.domain.severity import Severity

    rank = Severity(least).rank
    found = [each for each in report.diagnosis.shown if each.severity.rank >= rank]
    if found:
        number = f"{len(found)} finding{'s' * (len(found) != 1)}"
        names = ", ".join(dict.fromkeys(each.rule for each in found))
        raise FindingsError(f"{number} at {least} or above: {names}")

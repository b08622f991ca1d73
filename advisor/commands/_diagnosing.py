"""What `diagnose` does once its command line is understood; imported only then."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gpuadvisor.collectors.telemetry.recording import KIND
from gpuadvisor.commands._script import command_of
from gpuadvisor.commands._written import write, write_or_print
from gpuadvisor.daemon.sources import window_of_recording
from gpuadvisor.domain.severity import Severity
from gpuadvisor.errors import FindingsError, UsageError
from gpuadvisor.profiling.diagnosis import diagnosed, diagnosed_telemetry
from gpuadvisor.profiling.naming import Named, newest_profile, profile_named
from gpuadvisor.profiling.reading import head_of
from gpuadvisor.profiling.rules import chosen
from gpuadvisor.reports.diagnosis_report import DiagnosisReport


def is_script(args: argparse.Namespace) -> bool:
    """Return whether the target is a script, which has to be run."""
    return bool(args.is_module or (args.script or "").endswith(".py"))


def check(args: argparse.Namespace) -> None:
    """UsageError if options do not go together, before a script runs for nothing."""
    for name, value in (
        ("--steps", args.steps),
        ("--timeout", args.timeout),
        ("--limit", args.limit),
    ):
        if value is not None and not value > 0:
            raise UsageError(f"{name} {value:g}: give a number above zero")
    chosen(args.rule)
    if args.is_module and not args.script:
        raise UsageError("-m needs the name of a module")
    if not is_script(args):
        _check_no_script(args)


def _check_no_script(args: argparse.Namespace) -> None:
    target = args.script or "the newest profile"
    for given, option in ((args.stacks, "--stacks"), (args.name, "--name")):
        if given:
            raise UsageError(f"{option} is for scripts, and {target} was recorded already")
    if args.rest:
        raise UsageError(
            f"what follows -- is a script's own, and {target} is none: name a script that ends in "
            ".py, or a module with -m"
        )


def of_what_is_there(args: argparse.Namespace) -> DiagnosisReport:
    """Return what the rules say of a profile or a recording."""
    if args.script is not None and _is_recording(Path(args.script)):
        path = Path(args.script)
        window = window_of_recording(path)
        return diagnosed_telemetry(path.name, window, args.rule, str(path.absolute()))
    named = _named(args.script)
    return replace(diagnosed(named, args.rule), notes=tuple(named.profile.header.warnings))


def _is_recording(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        return path.suffix == ".gpr" or f'"kind": "{KIND}"'.encode() in head_of(path)[0]
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"{path} cannot be read ({reason}): check its permissions.") from error


def _named(wanted: str | None) -> Named:
    if wanted is not None and Path(wanted).is_dir():
        raise UsageError(
            f"{wanted} is a folder: `gpuadvisor import {wanted}` stores the traces in it, of which "
            "each can be diagnosed by its name, and with all ranks of the run"
        )
    if wanted is not None:
        return profile_named(wanted)
    newest = newest_profile()
    if newest is None:
        raise UsageError(
            "no profile is stored yet: name a script or a trace file, as in "
            "`gpuadvisor diagnose train.py`"
        )
    return newest


def of_script(
    args: argparse.Namespace, cancelled: Callable[[], bool]
) -> tuple[DiagnosisReport, bool]:
    """Profile a script and keep the profile; return what the rules say, and if the script failed.

    Imported here is what only running a script needs.
    """
    from gpuadvisor.collectors.script.run_folder import run_folder
    from gpuadvisor.commands._profiling import Stages, diagnosed_run, doubts, record_steps
    from gpuadvisor.profiling import keeping
    from gpuadvisor.tuning.preparation import check_script

    command = command_of(args)
    check_script(command)
    if args.name is not None:
        keeping.check_name(args.name)
    args.keep_running = False
    with run_folder() as folder, Stages() as stages:
        stages.say(f"Running {command.script} until it is warm")
        recorded = record_steps(args, command, folder, stages, cancelled, lambda _: None)
        stages.say("Reading the trace")
        stem = Path(command.script).stem
        stored = keeping.keep(recorded.file, stem, args.name, is_temporary=True).profile
        stages.say("Looking for what to fix")
        report = diagnosed_run(stored, stages.seen, args.rule)
    words = ("-m", command.script) if command.is_module else (command.script,)
    notes = (*recorded.notes, *doubts(recorded, stored))
    return replace(report, script=(*words, *command.args), notes=notes), recorded.failed


def show(args: argparse.Namespace, report: DiagnosisReport) -> None:
    """Write what was asked for; FindingsError where that is to be told by the exit status."""
    _write(args, report if args.limit is None else report.limited(args.limit))
    for note in report.notes:
        print(f"gpuadvisor: {note}", file=sys.stderr)
    if args.fail_on is not None:
        _fail(report, Severity(args.fail_on))


def _write(args: argparse.Namespace, report: DiagnosisReport) -> None:
    # The standard output belongs to JSON and Markdown, where they go there.
    said_on = sys.stderr if args.json or args.markdown == "-" else sys.stdout
    if args.json:
        from gpuadvisor.reports.diagnosis_json import diagnosis_json_text

        print(diagnosis_json_text(report), flush=True)
    if args.markdown is not None:
        from gpuadvisor.reports.diagnosis_document import diagnosis_markdown

        write_or_print(args.markdown, diagnosis_markdown(report), said_on)
    if not args.json and args.markdown is None:
        _print(report, everything=args.all)
    if args.sarif is not None:
        from gpuadvisor.reports.diagnosis_sarif import diagnosis_sarif

        write(args.sarif, diagnosis_sarif(report), said_on)


def _print(report: DiagnosisReport, *, everything: bool) -> None:
    from gpuadvisor.commands._console import output
    from gpuadvisor.reports.diagnosis_document import print_diagnosis

    print_diagnosis(output(), report, everything)
    if report.script and report.stored is not None:
        print(f"\nKept as {report.stored}: `gpuadvisor report {report.stored}` has all figures.")
    sys.stdout.flush()


def _fail(report: DiagnosisReport, least: Severity) -> None:
    found = [each for each in report.diagnosis.shown if each.severity.rank >= least.rank]
    if found:
        number = f"{len(found)} finding{'s' * (len(found) != 1)}"
        names = ", ".join(dict.fromkeys(each.rule for each in found))
        raise FindingsError(f"{number} at {least} or above: {names}")

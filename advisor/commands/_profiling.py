"""What `profile` does once its command line is understood; imported only then."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.status import Status
from rich.text import Text

from gpuadvisor.collectors.script.request import Command, Event
from gpuadvisor.collectors.script.run_folder import run_folder
from gpuadvisor.commands._console import messages
from gpuadvisor.commands._script import command_of
from gpuadvisor.domain.profile import Profile
from gpuadvisor.errors import ScriptError
from gpuadvisor.profiling import keeping, summary
from gpuadvisor.profiling.attaching import attach
from gpuadvisor.profiling.diagnosis import of_evidence
from gpuadvisor.profiling.evidence import Seen, evidence_of
from gpuadvisor.profiling.importing import Imported
from gpuadvisor.profiling.naming import Named
from gpuadvisor.profiling.nsight import keep_report, record_counters, record_systems, systems_pass
from gpuadvisor.profiling.nvidia_tools import Conditions, Program, check_program, locate_tool
from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.profiling.recording import Recorded, RecordOptions, record
from gpuadvisor.reports import diagnosis_json, diagnosis_wording, strict_json
from gpuadvisor.reports.diagnosis_report import DiagnosisReport
from gpuadvisor.storage.profiles.stored import StoredProfile
from gpuadvisor.tuning.preparation import check_script, target_python

VERSION = 1
"""Of the JSON."""
TIMEOUT_S = 600.0
TOOL_TIMEOUT_S = 1800.0
"""For another program's end: it is profiled as a whole, and counters take many passes."""
ATTACHED_S = 5.0
STAGES = {"step": "warming up", "compiled": "compiling", "warm": "recording", "done": "saving"}
SCRIPT_FAILED = 3

Cancelled = Callable[[], bool]


def profile(args: argparse.Namespace, cancelled: Cancelled) -> int:
    """Record, keep and show one profile; return the exit status."""
    with run_folder() as folder, Stages() as stages:
        if args.attach is not None:
            return _attached(args, folder, stages, cancelled)
        program = _program(args)
        if args.nsys or args.ncu:
            return _with_nvidia(args, program, folder, stages, cancelled)
        assert program.command is not None  # `_program` made sure
        return _steps(args, program.command, folder, stages, cancelled)


def _program(args: argparse.Namespace) -> Program:
    """Return what to profile; UsageError if there is no such script or program."""
    is_script = args.is_module or (args.script or "").endswith(".py")
    if is_script or not (args.nsys or args.ncu):
        command = command_of(args)
        check_script(command)
        return Program(command)
    words = [args.script] if args.script else []
    return Program(None, check_program([*words, *args.rest]))


def _steps(
    args: argparse.Namespace, command: Command, folder: Path, stages: Stages, cancelled: Cancelled
) -> int:
    """Profile a script with the torch profiler."""
    kept = _Kept(args, "torch", Path(command.script).stem, stages)
    stages.say(f"Running {command.script} until it is warm")
    recorded = record_steps(args, command, folder, stages, cancelled, kept.take)
    kept.show_notes(recorded)
    return SCRIPT_FAILED if recorded.failed else 0


def record_steps(
    args: argparse.Namespace,
    command: Command,
    folder: Path,
    stages: Stages,
    cancelled: Cancelled,
    ready: Callable[[Recorded], None],
) -> Recorded:
    stream = sys.stderr if args.json else sys.stdout
    options = RecordOptions(
        command,
        args.steps,
        args.stacks,
        args.keep_running,
        args.timeout or TIMEOUT_S,
        stages.event,
        stream.buffer.write if args.keep_running else None,
        cancelled,
    )
    try:
        recorded = record(options, folder, ready if args.keep_running else lambda _: None)
    except ScriptError:
        if not stages.saw_torch:
            target_python(command)  # it says better why, if the interpreter is the reason
        raise
    if not args.keep_running:
        ready(recorded)
    return recorded


def _with_nvidia(
    args: argparse.Namespace, program: Program, folder: Path, stages: Stages, cancelled: Cancelled
) -> int:
    """Profile a script or another program with nsys or ncu."""
    tool = "nsys" if args.nsys else "ncu"
    locate_tool(tool)
    kept = _Kept(args, tool, program.stem, stages)
    usual_s = TIMEOUT_S if program.command is not None else TOOL_TIMEOUT_S
    conditions = Conditions(args.steps, args.timeout or usual_s, cancelled, on_event=stages.event)
    stages.say(f"Running {program.name} under {tool}")
    if args.nsys:
        trace = record_systems(program, folder, conditions, args.seconds)
    else:

        def short_pass() -> Profile | None:
            return _short_pass(args, program, folder, stages, conditions)

        trace = record_counters(program, folder, conditions, short_pass, stages.note)
    kept.take(Recorded(trace, 0, 0, True))
    return 0


def _short_pass(
    args: argparse.Namespace,
    program: Program,
    folder: Path,
    stages: Stages,
    conditions: Conditions,
) -> Profile | None:
    """Return a profile that tells a program's dominant kernels, None where none can be had."""
    stages.say(f"Finding the dominant kernels of {program.name}")
    if program.command is None:
        return systems_pass(program, folder, conditions)
    recorded = record_steps(
        args, program.command, folder, stages, conditions.cancelled, lambda _: None
    )
    found = read_profile(recorded.file)
    recorded.file.unlink()
    if not found.rows("kernels"):
        raise ScriptError(
            f"{program.name} ran no kernel in the steps that were recorded, so there is nothing "
            "for ncu to look at"
        )
    return found


def _attached(args: argparse.Namespace, folder: Path, stages: Stages, cancelled: Cancelled) -> int:
    """Profile the next steps of a running process."""
    stages.say(f"Waiting for the next steps of process {args.attach}")
    recorded, program = attach(
        args.attach,
        folder,
        args.steps,
        args.seconds or ATTACHED_S,
        args.stacks,
        args.timeout,
        cancelled,
    )
    kept = _Kept(args, "torch", Path(program).stem or str(args.attach), stages)
    kept.take(recorded)
    kept.show_notes(recorded)
    return 0


class _Kept:
    """Takes what was recorded into the store, and shows it once."""

    def __init__(self, args: argparse.Namespace, tool: str, stem: str, stages: Stages) -> None:
        self._args = args
        self._tool = tool
        self._stem = stem
        self._stages = stages
        self._noted: tuple[str, ...] = ()

    def take(self, recorded: Recorded) -> None:
        kept = self._keep_file(recorded.file)
        self._stages.say("Reading the trace")
        imported = keeping.keep(
            kept or recorded.file, self._stem, self._args.name, is_temporary=kept is None
        )
        report = diagnosed_run(imported.profile, self._stages.seen)
        assert report.profile is not None  # what is diagnosed is a profile
        look = keeping.where_time_went(report.profile.facts)
        notes = (*recorded.notes, *doubts(recorded, imported.profile))
        self._stages.close()
        if self._args.json:
            document = self._json(imported, recorded, look, notes)
            found = report.worth_fixing[:1]
            document["finding"] = diagnosis_json.finding(found[0]) if found else None
            print(strict_json.line(document), flush=True)
        else:
            self._print(imported, look, diagnosis_wording.first(report))
        self._note(notes)

    def _keep_file(self, trace: Path) -> Path | None:
        """Keep the trace where the user wants it; return it unless it cannot be read there."""
        output: Path | None = self._args.output
        if output is None:
            return None
        if self._tool == "nsys":
            keep_report(trace, output)
        else:
            keeping.copy_trace(trace, output)
        packed = self._tool != "torch" and output.suffix in (".gz", ".nsys-rep")
        return output if output.is_file() and not packed else None

    def show_notes(self, recorded: Recorded) -> None:
        """Show what has become known since."""
        self._note(tuple(note for note in recorded.notes if note not in self._noted))

    def _note(self, notes: tuple[str, ...]) -> None:
        self._noted += notes
        for note in notes:
            print(f"gpuadvisor: {note}", file=sys.stderr)

    def _json(
        self, imported: Imported, recorded: Recorded, look: dict[str, Any], notes: tuple[str, ...]
    ) -> dict[str, Any]:
        output: Path | None = self._args.output
        return {
            "version": VERSION,
            "tool": self._tool,
            "steps": recorded.steps or look.get("steps", {}).get("count", 0),
            "warmup_steps": recorded.warmup_steps,
            "profile": summary.as_json(imported.profile, is_new=imported.is_new),
            "time": look,
            "notes": list(notes),
            "output": None if output is None else str(output.absolute()),
        }

    def _print(self, imported: Imported, look: dict[str, Any], first: str) -> None:
        for line in summary.lines(imported.profile, is_new=imported.is_new):
            print(line)
        for line in keeping.look_lines(look):
            print(f"  {line}")
        print(f"  {first}")
        name = imported.profile.record.name
        print(f"\nNext: gpuadvisor diagnose {name}", flush=True)


def diagnosed_run(
    profile: StoredProfile, seen: Seen, only: Collection[str] = ()
) -> DiagnosisReport:
    """Return what the rules say of what was recorded, with what the harness saw meanwhile."""
    named = Named(profile.record.name, profile.record.path, profile)
    evidence = evidence_of(named)
    if evidence.facts is not None:
        evidence = replace(evidence, measured=seen.measurement(evidence.facts))
    return of_evidence(named, evidence, only)


def doubts(recorded: Recorded, profile: Profile) -> tuple[str, ...]:
    """Return why a profile may not show what it should, in sentences."""
    if recorded.with_gpu and not profile.rows("kernels") and profile.rows("operators"):
        return (
            "the script uses the GPU, but no kernel was recorded: another profiler may hold it "
            "(CUPTI serves one at a time)",
        )
    return ()


class Stages:
    """Says on a terminal what goes on now; nothing on a pipe."""

    def __init__(self) -> None:
        self.saw_torch = False
        self.seen = Seen()
        self._console = messages()
        self._status: Status | None = None
        self._what = ""

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def say(self, what: str) -> None:
        self._what = what
        self._show(f"{what} ...")

    def note(self, sentence: str) -> None:
        """Say something that stays."""
        self._console.print(Text(f"gpuadvisor: {sentence}"), soft_wrap=True)

    def event(self, event: Event) -> None:
        self.seen.take(event)
        if event["event"] == "torch":
            self.saw_torch = True
        stage = STAGES.get(event["event"])
        if stage is not None:
            self._show(f"{self._what}: {stage} ...")

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _show(self, text: str) -> None:
        if not self._console.is_terminal:
            return
        if self._status is None:
            self._status = self._console.status(Text(text))
            self._status.start()
        self._status.update(Text(text))

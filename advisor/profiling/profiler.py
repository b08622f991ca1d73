"""One profile from its start to the store: what to run, which tool records it, what is kept."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.script.run_folder import run_folder
from gpuadvisor.domain.profile import Profile
from gpuadvisor.errors import ScriptError, UsageError
from gpuadvisor.profiling import summary
from gpuadvisor.profiling.attaching import attach
from gpuadvisor.profiling.diagnosing import diagnose_run
from gpuadvisor.profiling.importing import Imported, import_recorded
from gpuadvisor.profiling.nsight import (
    Conditions,
    Program,
    is_installed,
    keep_report,
    locate_tool,
    record_counters,
    record_systems,
)
from gpuadvisor.profiling.progress import Stages
from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.profiling.recording import (
    DEFAULT_STEPS,
    TIMEOUT_S,
    Recorded,
    RecordOptions,
    record_steps,
)
from gpuadvisor.reports.diagnosis.report import DiagnosisReport
from gpuadvisor.reports.json_documents import finding_json
from gpuadvisor.rules.facts.summary import Facts

VERSION = 1
"""The version of the JSON document."""
TOOL_TIMEOUT_S = 1800.0
"""Longest wait for another program's end: it is profiled whole, and counters take many passes."""
ATTACHED_S = 5.0
"""How long a running process without steps is recorded."""


class Tool(StrEnum):
    """A program that records profiles."""

    TORCH = "torch"
    NSYS = "nsys"
    NCU = "ncu"


@dataclass(frozen=True)
class ProfileOptions:
    """What to profile, how, and what to keep of it."""

    program: Program | None
    """What to run; None where `pid` runs already."""
    pid: int | None = None
    tool: Tool = Tool.TORCH
    steps: int = DEFAULT_STEPS
    stacks: bool = False
    seconds: float | None = None
    """How long to record a process without steps, or another program under nsys."""
    keep_running: bool = False
    """Whether a script goes on to its own end."""
    timeout_s: float | None = None
    """Longest wait for the first step, or for another program's end."""
    name: str | None = None
    """The profile's name in the store; that of the program by default."""
    output: Path | None = None
    """Where the trace is kept too."""
    on_script_output: Callable[[bytes], object] | None = None
    """Takes what a script prints that is kept running."""


@dataclass(frozen=True)
class ProfileResult:
    """A profile that was recorded and stored, and what the rules say of it."""

    options: ProfileOptions
    recorded: Recorded
    imported: Imported
    report: DiagnosisReport

    @property
    def facts(self) -> Facts:
        """The facts of the profile."""
        assert self.report.profile is not None  # what is diagnosed is a profile
        return self.report.profile.facts

    def document(self) -> dict[str, Any]:
        """Return all of it for machines."""
        recorded, output = self.recorded, self.options.output
        look = summary.where_time_went(self.facts)
        found = self.report.worth_fixing[:1]
        return {
            "version": VERSION,
            "tool": str(self.options.tool),
            "steps": recorded.steps or look.get("steps", {}).get("count", 0),
            "warmup_steps": recorded.warmup_steps,
            "profile": summary.as_json(self.imported.profile, is_new=self.imported.is_new),
            "time": look,
            "notes": list(self.report.notes),
            "output": None if output is None else str(output.absolute()),
            "finding": finding_json(found[0]) if found else None,
        }


def profile(
    options: ProfileOptions,
    stages: Stages,
    on_profile: Callable[[ProfileResult], None],
    on_note: Callable[[str], None],
    cancelled: Callable[[], bool],
) -> bool:
    """Record and store one profile; return whether the script failed by itself.

    `on_profile` takes it as soon as it is stored, when a script that is kept running goes on yet;
    `on_note` takes sentences about it, those included that become known later.
    """
    run = _Run(options, stages, on_profile, on_note, cancelled)
    with run_folder() as folder:
        if options.program is None:
            return run.attached(folder)
        if options.program.command is not None and options.tool is Tool.TORCH:
            return run.steps(options.program.command, folder)
        return run.under_tool(options.program, folder)


@dataclass
class _Run:
    """The making of one profile, and the notes that were passed on by now."""

    options: ProfileOptions
    stages: Stages
    on_profile: Callable[[ProfileResult], None]
    on_note: Callable[[str], None]
    cancelled: Callable[[], bool]
    noted: set[str] = field(default_factory=set)

    def steps(self, command: Command, folder: Path) -> bool:
        """Profile the steps of a script with the torch profiler."""
        keep = partial(self._keep, stem=command.stem)
        self.stages.say(f"Running {command.script} until it is warm")
        recorded = record_steps(self._record_options(command), folder, self.stages, keep)
        self._note(recorded.notes)
        return recorded.failed

    def attached(self, folder: Path) -> bool:
        """Profile the next steps of a running process."""
        options = self.options
        assert options.pid is not None  # else there is a program
        self.stages.say(f"Waiting for the next steps of process {options.pid}")
        recorded, program = attach(
            options.pid,
            folder,
            options.steps,
            options.seconds or ATTACHED_S,
            options.stacks,
            options.timeout_s,
            self.cancelled,
        )
        self._keep(recorded, Path(program).stem or str(options.pid))
        return recorded.failed

    def under_tool(self, program: Program, folder: Path) -> bool:
        """Profile a script or another program with nsys or ncu."""
        options = self.options
        locate_tool(options.tool)
        usual_s = TIMEOUT_S if program.command is not None else TOOL_TIMEOUT_S
        conditions = Conditions(
            options.steps,
            options.timeout_s or usual_s,
            self.cancelled,
            self.stages.event,
        )
        self.stages.say(f"Running {program.name} under {options.tool}")
        if options.tool is Tool.NSYS:
            trace = record_systems(program, folder, conditions, options.seconds)
        else:
            short_pass = partial(self._short_pass, program, folder, conditions)
            trace = record_counters(program, folder, conditions, short_pass, self.stages.note)
        self._keep(Recorded(trace, 0, 0, True), program.stem)
        return False

    def _short_pass(self, program: Program, folder: Path, conditions: Conditions) -> Profile | None:
        """Return a profile that tells a program's dominant kernels, None where none can be had."""
        self.stages.say(f"Finding the dominant kernels of {program.name}")
        if program.command is None:
            if not is_installed("nsys"):
                return None
            return read_profile(record_systems(program, folder, conditions))
        recorded = record_steps(self._record_options(program.command), folder, self.stages)
        found = read_profile(recorded.file)
        recorded.file.unlink()
        if not found.rows("kernels"):
            raise ScriptError(
                f"{program.name} ran no kernel in the steps that were recorded, so there is "
                "nothing for ncu to look at"
            )
        return found

    def _record_options(self, command: Command) -> RecordOptions:
        options = self.options
        return RecordOptions(
            command,
            options.steps,
            options.stacks,
            options.keep_running,
            options.timeout_s or TIMEOUT_S,
            on_output=options.on_script_output if options.keep_running else None,
            cancelled=self.cancelled,
        )

    def _keep(self, recorded: Recorded, stem: str) -> None:
        """Store what was recorded, and hand it on."""
        options = self.options
        file = self._keep_file(recorded.file)
        self.stages.say("Reading the trace")
        imported = import_recorded(
            file or recorded.file, stem, options.name, is_temporary=file is None
        )
        report = diagnose_run(imported.profile, recorded, self.stages.harness)
        self.stages.close()
        self.on_profile(ProfileResult(options, recorded, imported, report))
        self._note(report.notes)

    def _keep_file(self, trace: Path) -> Path | None:
        """Keep the trace where the user wants it; return it unless it cannot be read there."""
        output, tool = self.options.output, self.options.tool
        if output is None:
            return None
        if tool is Tool.NSYS:
            keep_report(trace, output)
        else:
            _copy_trace(trace, output)
        packed = tool is not Tool.TORCH and output.suffix in (".gz", ".nsys-rep")
        return output if output.is_file() and not packed else None

    def _note(self, notes: tuple[str, ...]) -> None:
        for note in notes:
            if note not in self.noted:
                self.on_note(note)
        self.noted.update(notes)


def _copy_trace(trace: Path, output: Path) -> None:
    """Keep a trace as a file, compressed if the file's name ends in `.gz`."""
    try:
        if output.suffix == ".gz":
            with trace.open("rb") as source, gzip.open(output, "wb", compresslevel=4) as target:
                shutil.copyfileobj(source, target)
        else:
            shutil.copyfile(trace, output)
    except OSError as error:
        raise UsageError(f"--output {output}: {error.strerror}; name another file") from error

"""What runs under NVIDIA's tools: a Python script whose steps are known, or any program."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.devices import cpu_device
from gpuadvisor.collectors.script.child.cuda_range import NAME
from gpuadvisor.collectors.script.request import Command, Event, Limits, RunRequest
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.collectors.script.specification import Specification
from gpuadvisor.domain.knobs import Application
from gpuadvisor.errors import Interrupted, ScriptError, UsageError
from gpuadvisor.profiling.nvidia_tools import FORBIDDEN, ToolRun, run_tool

APPLIER = "gpuadvisor.collectors.script.child.cuda_range:RANGE"
REPLAY_S = 900.0
"""How long a step may take whose kernels are run again for each group of counters."""
WRITING_S = 300.0
"""How long a tool may take to write its report when the script has ended."""


@dataclass(frozen=True)
class Program:
    """What to profile, as its user would start it."""

    command: Command | None
    """The Python script; None for another program."""
    words: tuple[str, ...] = ()
    """The other program, with its arguments."""

    @property
    def name(self) -> str:
        return self.command.script if self.command is not None else self.words[0]

    @property
    def stem(self) -> str:
        """What its profile is called where the user does not say."""
        return Path(self.name).stem or "program"


@dataclass(frozen=True)
class Conditions:
    """How programs run under a tool."""

    steps: int
    """Of a Python script that are profiled; another program is profiled as a whole."""
    timeout_s: float
    cancelled: Callable[[], bool]
    on_output: Callable[[bytes], object] | None = None
    on_event: Callable[[Event], None] | None = None


def check_program(words: Sequence[str]) -> tuple[str, ...]:
    """Return the program with its full path; UsageError if there is none."""
    if not words:
        raise UsageError("name what to profile: a script, or a program with its arguments after --")
    name = words[0]
    found = shutil.which(name) or shutil.which(os.path.join(".", name))  # noqa: PTH118 - keeps ./
    if found is None:
        why = "is not an executable file" if Path(name).exists() else "does not exist"
        raise UsageError(f"the program {name} {why}: give its path, and its arguments after --")
    return (str(Path(found).absolute()), *words[1:])


@dataclass
class _Heard:
    refusal: str = ""
    report: dict[str, Any] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        if event["event"] == "knob" and event["knob"] == NAME:
            if event["state"] == "effective":
                self.report = json.loads(event["detail"])
            else:
                self.refusal = event["detail"]


def run_under(tool: Sequence[str], program: Program, conditions: Conditions) -> ToolRun:
    """Run a program under a tool, which records nothing of a script but its steps when warm."""
    if program.command is None:
        argv = [*tool, *program.words]
        return run_tool(argv, {}, conditions.timeout_s, conditions.cancelled, conditions.on_output)
    return _run_script(tool, program.command, conditions)


def _run_script(tool: Sequence[str], command: Command, conditions: Conditions) -> ToolRun:
    heard = _Heard()

    def take(event: Event) -> None:
        heard.take(event)
        if conditions.on_event is not None:
            conditions.on_event(event)

    request = RunRequest(
        replace(command, wrapper=tuple(tool)),
        Specification((Application(NAME, APPLIER, conditions.steps),)),
        cpu_device(),
        Limits(startup_s=conditions.timeout_s, idle_s=REPLAY_S),
        all_gpus=True,
        exit_s=WRITING_S,
        on_event=take,
        on_output=conditions.on_output,
        cancelled=lambda: bool(heard.refusal) or conditions.cancelled(),
    )
    outcome = run_script(request)
    if conditions.cancelled():
        raise Interrupted("interrupted: nothing was kept")
    if heard.refusal:
        raise ScriptError(f"{command.script} cannot be profiled: {heard.refusal}", outcome.output)
    if not heard.report and FORBIDDEN.search(outcome.output):
        return ToolRun(1, outcome.output)
    if not heard.report:
        place = f" ({outcome.place})" if outcome.place else ""
        reason = outcome.reason or "it ended before it was warm: let it make more steps"
        raise ScriptError(f"{command.script} cannot be profiled: {reason}{place}", outcome.output)
    return ToolRun(0, outcome.output)

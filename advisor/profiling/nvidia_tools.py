"""NVIDIA's own profilers: where they are, how programs run under them, what they say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.devices import cpu_device
from gpuadvisor.collectors.script.child.cuda_range import NAME
from gpuadvisor.collectors.script.processes import RunProcesses, reap
from gpuadvisor.collectors.script.request import Command, Event, Limits, RunRequest
from gpuadvisor.collectors.script.runner import Tail, run_script
from gpuadvisor.collectors.script.specification import Specification
from gpuadvisor.domain.knobs import Application
from gpuadvisor.errors import AdvisorError, Interrupted, ScriptError, UsageError
from gpuadvisor.interruption import to_its_end

PACKAGES = {"nsys": "Nsight Systems", "ncu": "Nsight Compute"}
PLACES = {
    "nsys": (
        "/usr/local/cuda/bin",
        "/usr/local/cuda-*/bin",
        "/opt/nvidia/nsight-systems/*/bin",
        "/opt/nvidia/nsight-systems-cli/*/bin",
        "/opt/nvidia/nsight-systems*/*/target-linux-*",
    ),
    "ncu": ("/usr/local/cuda/bin", "/usr/local/cuda-*/bin", "/opt/nvidia/nsight-compute/*"),
}
"""Folders in which NVIDIA's packages install each tool, the newest version last by name."""
FORBIDDEN = re.compile(r"ERR_NVGPUCTRPERM|permission to access NVIDIA GPU Performance Counters")
WAY_OUT = (
    "the driver gives hardware counters to administrators only (ERR_NVGPUCTRPERM): put `options "
    "nvidia NVreg_RestrictProfilingToAdminUsers=0` into /etc/modprobe.d/nvidia-profiling.conf and "
    "reboot, start the container with `--cap-add=SYS_ADMIN`, or profile without --ncu, which "
    "needs no counters"
)
COMPLAINT = re.compile(r"==ERROR==|\b(?:fatal|error|unrecogni[sz]ed|cannot|failed)\b", re.I)
"""Lines of a tool's output that are quoted where it fails."""
QUOTED = 300
"""Characters of a tool's output that are quoted."""
POLL_S = 0.1


@dataclass(frozen=True)
class ToolRun:
    """How a tool's run ended."""

    status: int | None
    """None where it was ended for its time."""
    output: str
    """The end of what the tool and the program under it printed."""


def locate_tool(name: str) -> Path:
    """Return the newest of NVIDIA's `nsys` or `ncu`; UsageError if it is not installed."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    for path in _usual_places(name):
        if os.access(path, os.X_OK) and path.is_file():
            return path
    raise UsageError(
        f"--{name} needs NVIDIA {PACKAGES[name]}, and there is no `{name}` on PATH, in "
        "/usr/local/cuda or in /opt/nvidia: install it from developer.nvidia.com, or profile "
        "without it"
    )


def is_installed(name: str) -> bool:
    """Say whether `nsys` or `ncu` is there."""
    try:
        locate_tool(name)
    except UsageError:
        return False
    return True


def _usual_places(name: str) -> Iterator[Path]:
    for pattern in PLACES[name]:
        folders = Path("/").glob(pattern.lstrip("/"))
        yield from (folder / name for folder in sorted(folders, key=_version, reverse=True))


def _version(folder: Path) -> list[int]:
    """Return the numbers in a path: 2024.10 is newer than 2024.9."""
    return [int(number) for number in re.findall(r"\d+", str(folder))]


def run_tool(
    argv: Sequence[str],
    environment: Mapping[str, str],
    timeout_s: float,
    cancelled: Callable[[], bool],
    on_output: Callable[[bytes], object] | None = None,
) -> ToolRun:
    """Run a tool with all its processes to their end; Interrupted, and none is left of them."""
    processes = RunProcesses(argv, {**os.environ, **environment})
    process = processes.first
    assert process.stdout is not None  # it was asked for
    try:
        tail = Tail(process.stdout, on_output)
        status = _wait(process, timeout_s, cancelled)
    finally:
        with to_its_end():
            processes.end()
    if cancelled():
        raise Interrupted("interrupted: nothing was kept")
    return ToolRun(status, tail.text())


def _wait(
    process: subprocess.Popen[bytes], timeout_s: float, cancelled: Callable[[], bool]
) -> int | None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and not cancelled():
        try:
            return process.wait(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            reap()
    return None


def failure(name: str, output: str, otherwise: str) -> AdvisorError:
    """Return why a tool left no result: in its own words, where it has any."""
    if FORBIDDEN.search(output):
        return AdvisorError(f"{name} may not read the counters: {WAY_OUT}")
    quoted = quote(output)
    return AdvisorError(
        f"{name} left no result: " + (f"it said {quoted!r}" if quoted else otherwise)
    )


def quote(output: str) -> str:
    """Return the line in which a tool complains, the last one where none does."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    complaints = [line for line in lines if COMPLAINT.search(line)]
    return (complaints[-1:] or lines[-1:] or [""])[0][:QUOTED]


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
    """Steps of a Python script that are profiled; another program is profiled as a whole."""
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
class _RangeEvents:
    """The harness's events about the range of steps that a tool records."""

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
    events = _RangeEvents()

    def take(event: Event) -> None:
        events.take(event)
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
        cancelled=lambda: bool(events.refusal) or conditions.cancelled(),
    )
    outcome = run_script(request)
    if conditions.cancelled():
        raise Interrupted("interrupted: nothing was kept")
    if events.refusal:
        raise ScriptError(f"{command.script} cannot be profiled: {events.refusal}", outcome.output)
    if not events.report and FORBIDDEN.search(outcome.output):
        return ToolRun(1, outcome.output)
    if not events.report:
        place = f" ({outcome.place})" if outcome.place else ""
        reason = outcome.reason or "it ended before it was warm: let it make more steps"
        raise ScriptError(f"{command.script} cannot be profiled: {reason}{place}", outcome.output)
    return ToolRun(0, outcome.output)

"""Record with NVIDIA Nsight Systems (a timeline) and Nsight Compute (hardware counters).

Nsight Compute runs each kernel again for every group of counters, so only few launches of the few
kernels that take most of the time are looked at.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuadvisor.collectors.devices import cpu_device
from gpuadvisor.collectors.programs import Ended
from gpuadvisor.collectors.script.child.cuda_range import NAME
from gpuadvisor.collectors.script.request import Command, Event, Limits, RunRequest
from gpuadvisor.collectors.script.run_processes import RunProcesses, reap
from gpuadvisor.collectors.script.runner import Tail, run_script
from gpuadvisor.collectors.script.specification import Specification
from gpuadvisor.collectors.script.templates import Forked
from gpuadvisor.domain.knobs import Application
from gpuadvisor.domain.profile import Profile
from gpuadvisor.errors import AdvisorError, Interrupted, UsageError
from gpuadvisor.interruption import to_its_end
from gpuadvisor.profiling.recording import HarnessReport, script_error
from gpuadvisor.rules.facts.kernel_families import bare_name
from gpuadvisor.rules.facts.kernels import kernel_times

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
NSYS = "nsys"
NSYS_OPTIONS = (
    "--trace=cuda,nvtx,osrt",
    "--sample=none",  # of the CPU: it needs rights, and says nothing of the GPU
    "--cpuctxsw=none",
    "--export=sqlite",
    "--force-overwrite=true",
)
RANGED = ("--capture-range=cudaProfilerApi", "--capture-range-end=stop")
"""Record from `cudaProfilerStart` to `cudaProfilerStop` only, and write the report then."""
NCU = "ncu"
SET = "full"
"""The set of Nsight Compute's sections: the rules about coalescing, atomics, local memory and
precision need tables that the smaller ones leave out."""
MOST_KERNELS = 5
"""Kernels by name that are looked at."""
ENOUGH = 0.9
"""Share of the time of all kernels after which no more are looked at."""
LAUNCHES = 3
"""Launches of each kernel on average; the one whose time is in the middle is looked at."""
BLIND_LAUNCHES = 20
"""Launches of all kernels, where nothing tells which take most of the time."""
EXPORT_S = 300.0
NONE_FOUND = "No kernels were profiled"
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
        own = self.command.stem if self.command is not None else Path(self.name).stem
        return own or "program"


@dataclass(frozen=True)
class Conditions:
    """How programs run under a tool."""

    steps: int
    """Steps of a Python script that are profiled; another program is profiled as a whole."""
    timeout_s: float
    cancelled: Callable[[], bool]
    on_event: Callable[[Event], None]


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


def locate_tool(name: str) -> Path:
    """Return the newest of NVIDIA's `nsys` or `ncu`; UsageError if it is not installed."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    for pattern in PLACES[name]:
        folders = Path("/").glob(pattern.lstrip("/"))
        for folder in sorted(folders, key=_version, reverse=True):
            if os.access(path := folder / name, os.X_OK) and path.is_file():
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


def _version(folder: Path) -> list[int]:
    """Return the numbers in a path: 2024.10 is newer than 2024.9."""
    return [int(number) for number in re.findall(r"\d+", str(folder))]


def record_systems(
    program: Program, folder: Path, conditions: Conditions, seconds: float | None = None
) -> Path:
    """Run the program under nsys and return its SQLite export, in `folder`.

    With `seconds` the program is profiled for so long and ended then. AdvisorError where nsys
    leaves no export, in its own words.
    """
    nsys = locate_tool(NSYS)
    report = folder / "timeline"
    options = [*NSYS_OPTIONS, f"--output={report}"]
    if program.command is not None:
        options += RANGED
    elif seconds is not None:
        options.append(f"--duration={max(1, round(seconds))}")
    ran = run_under((str(nsys), "profile", *options), program, conditions)
    exported = report.with_suffix(".sqlite")
    if not exported.is_file():
        raise _failure(NSYS, ran)
    return exported


def keep_report(exported: Path, output: Path) -> None:
    """Keep what nsys wrote: the export, or its report where that is what `output` is called."""
    report = exported.with_suffix(".nsys-rep")
    source = report if output.suffix == ".nsys-rep" and report.is_file() else exported
    shutil.copyfile(source, output)


def record_counters(
    program: Program,
    folder: Path,
    conditions: Conditions,
    short_pass: Callable[[], Profile | None],
    on_note: Callable[[str], None],
) -> Path:
    """Run the program under ncu and return its counters as CSV, in `folder`.

    `short_pass` returns a profile that tells the dominant kernels, or None; without one the first
    launches are taken. AdvisorError where ncu leaves no result, in its own words.
    """
    ncu = locate_tool(NCU)
    profile = short_pass()
    names = dominant_kernels(profile) if profile is not None else ()
    if names:
        on_note(f"the counters of {len(names)} kernels are read: {', '.join(names)}")
    report = folder / "counters.ncu-rep"
    # The clocks stay as they are: they are not ours, and the program runs with them.
    options = [f"--export={report}", "--force-overwrite", "--target-processes=all"]
    options += ["--clock-control", "none", "--set", SET]
    options += _chosen(names)
    if program.command is not None:
        options += ["--profile-from-start", "off"]
    else:
        options += ["--kill", "yes"]  # when enough launches were seen
    ran = run_under((str(ncu), *options), program, conditions)
    if not report.is_file():
        if NONE_FOUND in ran.said and not FORBIDDEN.search(ran.said):
            raise AdvisorError(f"ncu saw no kernel in {program.name}: does it use the GPU?")
        raise _failure(NCU, ran)
    return _as_csv(ncu, report)


def dominant_kernels(profile: Profile) -> tuple[str, ...]:
    """Return the names, as ncu has them, of the kernels that take most of the time."""
    times: Counter[str] = Counter()
    for kernel in kernel_times(profile):
        times[bare_name(kernel.name)] += kernel.time_ns
    total, covered, chosen = times.total(), 0, []
    for name, time_ns in times.most_common(MOST_KERNELS):
        if covered >= ENOUGH * total:
            break
        chosen.append(name)
        covered += time_ns
    return tuple(chosen)


def _chosen(names: tuple[str, ...]) -> list[str]:
    if not names:
        return ["--launch-count", str(BLIND_LAUNCHES)]
    pattern = "|".join(re.escape(name) for name in names)
    return [
        "--kernel-name-base",
        "function",
        "--kernel-name",
        f"regex:^({pattern})$",
        "--launch-count",
        str(LAUNCHES * len(names)),
    ]


def _as_csv(ncu: Path, report: Path) -> Path:
    """Return a report as CSV, with base units and a row a kernel."""
    argv = [str(ncu), "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]
    csv = report.with_name("counters.csv")
    try:
        with csv.open("wb") as target:
            ended = subprocess.run(
                argv, stdout=target, stderr=subprocess.PIPE, timeout=EXPORT_S, check=False
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AdvisorError(f"ncu cannot print its report: {error}") from error
    if ended.returncode:
        said = quote(ended.stderr.decode("utf-8", "replace"))
        raise AdvisorError(f"ncu cannot print its report: it said {said!r}")
    return csv


def run_under(tool: Sequence[str], program: Program, conditions: Conditions) -> Ended:
    """Run a program under a tool, which records nothing of a script but its steps when warm.

    Interrupted if it was cancelled; none of its processes is left then.
    """
    if program.command is not None:
        return _run_script(tool, program.command, conditions)
    processes = RunProcesses([*tool, *program.words], dict(os.environ))
    process = processes.first
    assert process.stdout is not None  # it was asked for
    try:
        tail = Tail(process.stdout)
        status = _wait(process, conditions)
    finally:
        with to_its_end():
            processes.end()
    if conditions.cancelled():
        raise Interrupted("interrupted: nothing was kept")
    return Ended(status, tail.text())


def _wait(process: subprocess.Popen[bytes] | Forked, conditions: Conditions) -> int | None:
    deadline = time.monotonic() + conditions.timeout_s
    while time.monotonic() < deadline and not conditions.cancelled():
        try:
            return process.wait(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            reap()
    return None


def _run_script(tool: Sequence[str], command: Command, conditions: Conditions) -> Ended:
    events = HarnessReport(NAME, conditions.on_event)
    request = RunRequest(
        replace(command, wrapper=tuple(tool)),
        Specification((Application(NAME, APPLIER, conditions.steps),), leaves=True),
        cpu_device(),
        Limits(startup_s=conditions.timeout_s, idle_s=REPLAY_S),
        all_gpus=True,
        exit_s=WRITING_S,
        on_event=events.take,
        cancelled=lambda: bool(events.refusal) or conditions.cancelled(),
    )
    outcome = run_script(request)
    if conditions.cancelled():
        raise Interrupted("interrupted: nothing was kept")
    if events.report and not events.refusal:
        return Ended(0, outcome.output)
    if not events.refusal and FORBIDDEN.search(outcome.output):
        return Ended(1, outcome.output)
    reason = outcome.reason or "it ended before it was warm: let it make more steps"
    raise script_error(command, events, outcome, reason)


def _failure(name: str, ran: Ended) -> AdvisorError:
    """Return why a tool left no result: in its own words, where it has any."""
    if FORBIDDEN.search(ran.said):
        return AdvisorError(f"{name} may not read the counters: {WAY_OUT}")
    why = "its time was over" if ran.status is None else f"its exit status was {ran.status}"
    if quoted := quote(ran.said):
        why = f"it said {quoted!r}"
    return AdvisorError(f"{name} left no result: {why}")


def quote(output: str) -> str:
    """Return the line in which a tool complains, the last one where none does."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    complaints = [line for line in lines if COMPLAINT.search(line)]
    return (complaints[-1:] or lines[-1:] or [""])[0][:QUOTED]

"""Record with NVIDIA Nsight Systems (a timeline) and Nsight Compute (hardware counters).

Nsight Compute runs each kernel again for every group of counters, so only few launches of the few
kernels that take most of the time are looked at.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from gpuadvisor.domain.profile import Profile
from gpuadvisor.errors import AdvisorError
from gpuadvisor.profiling.nvidia_tools import (
    FORBIDDEN,
    Conditions,
    Program,
    failure,
    is_installed,
    locate_tool,
    quote,
    run_under,
)
from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.rules.facts.kernels import kernel_times

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
        ended = "its time was over" if ran.status is None else f"its exit status was {ran.status}"
        raise failure(NSYS, ran.output, ended)
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
    on_note: Callable[[str], None] = lambda _: None,
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
        if NONE_FOUND in ran.output and not FORBIDDEN.search(ran.output):
            raise AdvisorError(f"ncu saw no kernel in {program.name}: does it use the GPU?")
        ended = "its time was over" if ran.status is None else f"its exit status was {ran.status}"
        raise failure(NCU, ran.output, ended)
    return _as_csv(ncu, report)


def systems_pass(program: Program, folder: Path, conditions: Conditions) -> Profile | None:
    """Return a timeline that tells a program's dominant kernels; None where nsys is missing."""
    if not is_installed("nsys"):
        return None
    return read_profile(record_systems(program, folder, conditions))


def dominant_kernels(profile: Profile) -> tuple[str, ...]:
    """Return the names, as ncu has them, of the kernels that take most of the time."""
    times: dict[str, int] = {}
    for kernel in kernel_times(profile):
        name = function_name(kernel.name)
        times[name] = times.get(name, 0) + kernel.time_ns
    total, covered, chosen = sum(times.values()), 0, []
    for name, time_ns in sorted(times.items(), key=lambda each: -each[1])[:MOST_KERNELS]:
        if covered >= ENOUGH * total:
            break
        chosen.append(name)
        covered += time_ns
    return tuple(chosen)


def function_name(name: str) -> str:
    """Return a kernel's bare name, which is what ncu filters by: of
    `void at::native::reduce<4, float>(int)` it is `reduce`.

    The full names do not do: tools write the arguments of templates differently.
    """
    bare = name.replace("(anonymous namespace)", "").replace("<unnamed>", "").strip()
    for number, character in enumerate(bare):
        if character in "<(":
            bare = bare[:number]
            break
    return bare.rpartition("::")[2].split(" ")[-1] or name


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

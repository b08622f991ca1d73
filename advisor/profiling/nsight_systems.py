"""Record a timeline with NVIDIA Nsight Systems, of a script's steps or of any program."""

from __future__ import annotations

import shutil
from pathlib import Path

from gpuadvisor.profiling.nvidia_tools import failure, locate_tool
from gpuadvisor.profiling.programs import Conditions, Program, run_under

TOOL = "nsys"
OPTIONS = (
    "--trace=cuda,nvtx,osrt",
    "--sample=none",  # of the CPU: it needs rights, and says nothing of the GPU
    "--cpuctxsw=none",
    "--export=sqlite",
    "--force-overwrite=true",
)
RANGED = ("--capture-range=cudaProfilerApi", "--capture-range-end=stop")
"""Record from `cudaProfilerStart` to `cudaProfilerStop` only, and write the report then."""


def record_systems(
    program: Program, folder: Path, conditions: Conditions, seconds: float | None = None
) -> Path:
    """Run the program under nsys and return its SQLite export, in `folder`.

    With `seconds` the program is profiled for so long and ended then. AdvisorError where nsys
    leaves no export, in its own words.
    """
    nsys = locate_tool(TOOL)
    report = folder / "timeline"
    options = [*OPTIONS, f"--output={report}"]
    if program.command is not None:
        options += RANGED
    elif seconds is not None:
        options.append(f"--duration={max(1, round(seconds))}")
    ran = run_under((str(nsys), "profile", *options), program, conditions)
    exported = report.with_suffix(".sqlite")
    if not exported.is_file():
        ended = "its time was over" if ran.status is None else f"its exit status was {ran.status}"
        raise failure(TOOL, ran.output, ended)
    return exported


def keep_report(exported: Path, output: Path) -> None:
    """Keep what nsys wrote: the export, or its report where that is what `output` is called."""
    report = exported.with_suffix(".nsys-rep")
    source = report if output.suffix == ".nsys-rep" and report.is_file() else exported
    shutil.copyfile(source, output)

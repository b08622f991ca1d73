"""What was recorded: into the store, with a first look at where its time went."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuadvisor.errors import UsageError
from gpuadvisor.profiling.importing import Imported, import_trace
from gpuadvisor.profiling.reading import TraceFile
from gpuadvisor.profiling.summary import duration
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.storage.profiles.library import open_profiles

SHOWN = 5
"""Kernels or operators that a first look names."""
NAME_WIDTH = 60


def check_output(path: Path) -> None:
    """UsageError if no file can be written there, before a script runs for nothing."""
    if path.is_dir() or not path.parent.is_dir():
        why = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise UsageError(f"--output {path}: {why}; name a file in a folder that is there")


def check_name(name: str) -> None:
    """UsageError if no profile can get this name."""
    open_profiles().check_free(name)


def copy_trace(trace: Path, output: Path) -> None:
    """Keep a trace as a file, compressed if the file's name ends in `.gz`."""
    try:
        if output.suffix == ".gz":
            with trace.open("rb") as source, gzip.open(output, "wb", compresslevel=4) as target:
                shutil.copyfileobj(source, target)
        else:
            shutil.copyfile(trace, output)
    except OSError as error:
        raise UsageError(f"--output {output}: {error.strerror}; name another file") from error


def keep(trace: Path, stem: str, name: str | None, *, is_temporary: bool) -> Imported:
    """Put a trace into the store; without a name it is called `stem`."""
    file = TraceFile(trace.absolute(), stem, is_temporary=is_temporary)
    return import_trace(open_profiles(), file, name)


def where_time_went(facts: Facts) -> dict[str, Any]:
    """Return a first look at a profile, as plain values. What is not known is not there."""
    profile = facts.profile
    look: dict[str, Any] = {}
    times: dict[str, int]
    if facts.steps is not None:
        look["steps"] = {
            "count": len(facts.steps.steps),
            "median_ms": facts.steps.median_ns / 1e6,
            "data_wait_share": facts.steps.data_wait_share,
        }
    if profile.rows("kernels"):
        causes = {idle.device: idle.causes_ns for idle in facts.idle}
        look["devices"] = [
            {
                "device": busy.device,
                "busy_share": busy.busy_share,
                "idle_ms": {str(c): ns / 1e6 for c, ns in causes.get(busy.device, {}).items()},
            }
            for busy in facts.busy
        ]
        times = {}
        for kernel in facts.kernels:
            times[kernel.name] = times.get(kernel.name, 0) + kernel.time_ns
        look["kernels"] = _largest(times, sum(times.values()))
    elif profile.rows("operators"):
        # With the operators that they call, so their shares do not add up to one.
        times = {operator.name: operator.host_ns for operator in facts.operators.by_name}
        look["operators"] = _largest(times, profile.header.duration_ns)
    return look


def _largest(times_ns: dict[str, int], total_ns: int) -> list[dict[str, Any]]:
    ordered = sorted(times_ns.items(), key=lambda each: -each[1])[:SHOWN]
    return [
        {"name": name, "time_ms": time_ns / 1e6, "share": time_ns / max(total_ns, 1)}
        for name, time_ns in ordered
        if time_ns
    ]


def look_lines(look: dict[str, Any]) -> Iterator[str]:
    """Yield a first look as lines of text."""
    if steps := look.get("steps"):
        wait = f", {steps['data_wait_share']:.0%} of it waiting for data"
        median = duration(round(1e6 * steps["median_ms"]))
        yield f"{steps['count']} steps, {median} each (median){wait}"
    for device in look.get("devices", ()):
        idle = {cause: ms for cause, ms in device["idle_ms"].items() if ms}
        total = sum(idle.values()) or 1.0
        parts = [f"{c.replace('_', ' ')} {ms / total:.0%}" for c, ms in _by_size(idle)]
        because = f"; without a kernel because of: {', '.join(parts)}" if parts else ""
        yield f"GPU {device['device']} busy {device['busy_share']:.0%} of the time{because}"
    titles = {
        "kernels": "kernels that take most of the GPU's time:",
        "operators": "operators that take most of the host's time, with what they call:",
    }
    for what, title in titles.items():
        if look.get(what):
            yield title
        for each in look.get(what, ()):
            share, name = each["share"], each["name"][:NAME_WIDTH]
            yield f"  {share:>6.1%}  {each['time_ms']:>10,.3f} ms  {name}"


def _by_size(parts: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(parts.items(), key=lambda each: -each[1])

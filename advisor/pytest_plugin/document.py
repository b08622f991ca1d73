"""Results as JSON with the schema of pytest-benchmark 4 and 5, whose tools can read it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median, quantiles, stdev
from typing import TYPE_CHECKING, Any

from gpuadvisor.pytest_plugin.session import Benchmark
from gpuadvisor.pytest_plugin.timing import WARMUP_S, Timing
from gpuadvisor.version import __version__

if TYPE_CHECKING:
    from gpuadvisor.pytest_plugin.comparing import Compared


def document(
    results: Sequence[tuple[Benchmark, Timing]], compared: Compared | None, folder: Path
) -> str:
    """Return all that was measured; times in seconds."""
    written = {
        "machine_info": machine_info(),
        "commit_info": commit_info(folder),
        "benchmarks": [_entry(benchmark, timing, compared) for benchmark, timing in results],
        "datetime": datetime.now(UTC).isoformat(),
        "version": __version__,
    }
    return json.dumps(written, indent=4, default=repr) + "\n"


def statistics_of(timing: Timing) -> dict[str, Any]:
    """Return the figures of the rounds; `iterations` are the calls of each."""
    data = sorted(timing.rounds_s)
    first, _, third = quantiles(data, n=4, method="inclusive") if len(data) > 1 else data * 3
    low, high = first - 1.5 * (third - first), third + 1.5 * (third - first)
    inside = [value for value in data if low <= value <= high]
    average, deviation = mean(data), stdev(data) if len(data) > 1 else 0.0
    far = sum(abs(value - average) > deviation for value in data)
    outside = len(data) - len(inside)
    return {
        "min": data[0],
        "max": data[-1],
        "mean": average,
        "stddev": deviation,
        "rounds": len(data),
        "median": median(data),
        "iqr": third - first,
        "q1": first,
        "q3": third,
        "iqr_outliers": outside,
        "stddev_outliers": far,
        "outliers": f"{far};{outside}",
        "ld15iqr": inside[0],
        "hd15iqr": inside[-1],
        "ops": 1 / average if average else 0.0,
        "total": sum(data),
        "data": timing.rounds_s,
        "iterations": timing.calls,
    }


def _entry(benchmark: Benchmark, timing: Timing, compared: Compared | None) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "group": benchmark.group,
        "name": benchmark.name,
        "fullname": benchmark.fullname,
        "params": benchmark.params,
        "param": benchmark.param,
        "extra_info": benchmark.extra_info,
        "options": {
            "disable_gc": True,
            "timer": "cuda_event" if timing.on_gpu else "perf_counter",
            "min_rounds": benchmark.wanted.min_rounds,
            "max_time": benchmark.wanted.max_time_s,
            "warmup": WARMUP_S,
            "flush_l2": benchmark.wanted.flush_l2 and timing.on_gpu,
            "steady": timing.is_steady,
        },
        "stats": statistics_of(timing),
    }
    if compared is not None:
        entry["gpuadvisor"] = compared.document(benchmark.fullname)
    return entry


def machine_info() -> dict[str, Any]:
    """Return what pytest-benchmark says of a machine, and the GPU where torch uses one."""
    found: dict[str, Any] = {
        "node": platform.node(),
        "processor": platform.processor(),
        "machine": platform.machine(),
        "python_compiler": platform.python_compiler(),
        "python_implementation": platform.python_implementation(),
        "python_implementation_version": platform.python_version(),
        "python_version": platform.python_version(),
        "python_build": platform.python_build(),
        "release": platform.release(),
        "system": platform.system(),
        "cpu": {"count": os.cpu_count(), "arch_string_raw": platform.machine()},
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        found["torch"] = str(torch.__version__)
        if torch.cuda.is_initialized():
            found["cuda"] = torch.version.cuda
            found["gpu"] = torch.cuda.get_device_name()
    return found


def commit_info(folder: Path) -> dict[str, Any]:
    """Return the commit of a folder; `unversioned` where it is in none."""

    def git(*words: str) -> str:
        line = ["git", "-C", str(folder), *words]
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )
        return done.stdout.strip() if not done.returncode else ""

    info = {"id": "unversioned", "time": None, "author_time": None, "dirty": False}
    info |= {"project": folder.name, "branch": "(unknown)"}
    try:
        shown = git("show", "-s", "--format=%H%n%cI%n%aI").splitlines()
        if len(shown) == 3:
            branch = git("rev-parse", "--abbrev-ref", "HEAD")
            info["id"], info["time"], info["author_time"] = shown
            info["dirty"] = bool(git("status", "--porcelain", "--untracked-files=no"))
            info["branch"] = "(detached head)" if branch == "HEAD" else branch
    except (OSError, subprocess.SubprocessError):  # no git, or one that hangs
        pass
    return info

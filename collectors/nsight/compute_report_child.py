"""Prints what an .ncu-rep file holds, a line of JSON a kernel: `python report_child.py FILE`.

NVIDIA's `ncu_report` is a library in C++ that trusts its files, so it runs in a process of its own,
which may crash or be ended. This file imports nothing of gpuadvisor.
"""

from __future__ import annotations

import json
import resource
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

NO_PACKAGE = 3
"""Exit status where `ncu_report` cannot be imported."""
STALLED, NOT_ISSUED = "smsp__pcsamp_warps_issue_stalled_", "_not_issued"
"""Metrics of samples by instruction: a reason follows. Those that end so are a part of others."""
MOST_STALLS = 5000
"""Places and reasons of a kernel that are printed, those with most samples."""
_FREE_BYTES = 4 * 2**30
_BYTES_PER_BYTE = 32
"""Bytes of memory, or of what is printed, for a byte of the file; real ones take far less."""


def main(path: str) -> int:
    """Print a line a kernel; return the exit status."""
    _limit(Path(path).stat().st_size)
    try:
        ncu_report = import_module("ncu_report")  # which not every environment has
    except ImportError as error:
        print(error, file=sys.stderr)
        return NO_PACKAGE
    report = ncu_report.load_report(path)
    for part in range(len(report)):
        launches = report[part]
        for number in range(len(launches)):
            print(json.dumps(_launch(launches[number])), flush=True)
    return 0


def _limit(size_bytes: int) -> None:
    """Let a file that is not what it seems take neither all memory nor all of the disk."""
    most = _FREE_BYTES + _BYTES_PER_BYTE * size_bytes
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE):
        _, hard = resource.getrlimit(kind)
        lower = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (lower, hard))


def _launch(action: Any) -> dict[str, Any]:
    """Return a kernel: its name, and value and unit of each metric."""
    metrics = {}
    for name in action.metric_names():
        metric = action[name]
        value = metric.value()
        if isinstance(value, (int, float, str)):
            metrics[name] = [value, metric.unit()]
    name = action.name(action.NameBase_DEMANGLED)
    return {"name": name, "metrics": metrics, "stalls": _stalls(action)}


def _stalls(action: Any) -> list[list[Any]]:
    """Return line, instruction, reason and number of the samples of a kernel: of each line, or of
    each instruction where there are no lines, those with most samples first."""
    samples: dict[tuple[str, int, str], int] = {}
    addresses: dict[int, str] = {}
    for name in action.metric_names():
        if not name.startswith(STALLED) or name.endswith(NOT_ISSUED):
            continue
        metric, reason = action[name], name.removeprefix(STALLED)
        where = metric.correlation_ids() if metric.num_instances() else None
        if where is None or where.num_instances() != metric.num_instances():
            continue
        for number in range(metric.num_instances()):
            address, count = where.as_uint64(number), metric.as_uint64(number)
            if address not in addresses:
                addresses[address] = _line(action, address)
            if count:
                line = addresses[address]
                key = (line, 0 if line else address, reason)
                samples[key] = samples.get(key, 0) + count
    first = min(addresses, default=0)
    most = sorted(samples.items(), key=lambda each: -each[1])[:MOST_STALLS]
    return [
        [line, "" if line else _instruction(action, address, first), reason, count]
        for (line, address, reason), count in most
    ]


def _line(action: Any, address: int) -> str:
    """Return `file:line` of an instruction; empty where the kernel has no lines."""
    told = action.source_info(address)
    return f"{told.file_name()}:{told.line()}" if told is not None and told.line() else ""


def _instruction(action: Any, address: int, first: int) -> str:
    """Return an instruction's place in the kernel and what it does, if that is in the report."""
    words = " ".join(str(action.sass_by_pc(address) or "").split()).strip("?")
    return f"+{address - first:#x} {words}".rstrip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

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
    return {"name": action.name(action.NameBase_DEMANGLED), "metrics": metrics}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

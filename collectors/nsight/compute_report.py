"""Nsight Compute: .ncu-rep files, through NVIDIA's own package `ncu-report` where it is there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from gpuadvisor.collectors import programs
from gpuadvisor.collectors.nsight import compute_report_child
from gpuadvisor.collectors.nsight.bounded import Warnings
from gpuadvisor.collectors.nsight.compute_csv import EXPORT
from gpuadvisor.collectors.nsight.compute_launches import (
    MOST_METRICS,
    ProfiledKernel,
    ProfiledKernels,
)
from gpuadvisor.collectors.nsight.compute_metrics import base_unit
from gpuadvisor.domain.profile import Header, Sink
from gpuadvisor.errors import UsageError

MAGIC = b"NVR\x00"
TIMEOUT_S = 600.0
"""A report of 1 GB takes about a minute."""
_LONGEST_LINE = 64 * 2**20
"""Bytes of a kernel; one with 2,200 metrics has some 150,000."""
_LARGEST = 2.0**900
"""Largest value, as it is multiplied by a unit; NaN is not below it either."""


def recognises(head: bytes) -> bool:
    """Say whether a file that begins so is a report of Nsight Compute."""
    return head.startswith(MAGIC)


def read(path: Path, sink: Sink, python: str = sys.executable) -> Header:
    """Read a report into a sink, with the `ncu-report` of that Python.

    Raises UsageError where the package is missing or does not understand the file.
    """
    if not path.is_file():
        raise UsageError(f"{path} cannot be read: there is no such file")
    launches = ProfiledKernels(sink, Warnings())
    with TemporaryFile() as lines:
        argv = [python, "-I", "-X", "utf8", compute_report_child.__file__, programs.absolute(path)]
        ended = programs.run(argv, TIMEOUT_S, lines)
        if ended.status == compute_report_child.NO_PACKAGE:
            raise UsageError(
                f"{path} needs NVIDIA's package to be read: `pip install ncu-report` into "
                f"gpuadvisor's environment, or import what {EXPORT} prints"
            )
        lines.seek(0)
        for launch in _launches(lines):
            launches.add(launch)
    if not launches.count:
        reason = "it finds no kernel in it" if ended.status == 0 else programs.why(ended, TIMEOUT_S)
        raise UsageError(
            f"ncu-report cannot read {path} ({reason}): import what {EXPORT} prints instead"
        )
    if ended.status != 0:
        reason = programs.why(ended, TIMEOUT_S)
        launches.warnings.add(f"ncu-report could not read all of the file: {reason}")
    return launches.finish()


def _launches(lines: IO[bytes]) -> Iterator[ProfiledKernel]:
    """Yield kernels; what is none was said by NVIDIA's library, or cut off when it was ended."""
    while line := lines.readline(_LONGEST_LINE):
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            continue
        match told:
            case {"name": str(name), "metrics": dict(metrics)}:
                yield _launch(name, metrics, told.get("stalls"))


def _launch(name: str, metrics: dict[str, Any], stalls: Any) -> ProfiledKernel:
    launch = ProfiledKernel(name=_text(name))
    for metric, told in islice(metrics.items(), MOST_METRICS):
        match told:
            case [str(value), _]:
                launch.texts[_text(metric)] = _text(value)
            case [int(value) | float(value), str(unit)] if abs(value) < _LARGEST:
                factor, base = base_unit(_text(unit))
                launch.metrics[_text(metric)] = value * factor, base
    for told in stalls if isinstance(stalls, list) else ():
        match told:
            case [str(line), str(instruction), str(reason), int(samples)] if 0 < samples < 2**63:
                launch.stalls.append((_text(line), _text(instruction), _text(reason), samples))
    return launch


def _text(text: str) -> str:
    """Return a text that can be written as UTF-8, in which names in reports need not be."""
    return text.encode("utf-8", "replace").decode()

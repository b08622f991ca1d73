"""Nsight Systems: .nsys-rep files, which only a `nsys` as new as the one that wrote them reads."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from gpuadvisor.collectors import programs
from gpuadvisor.collectors.nsight import systems
from gpuadvisor.domain.profile import Header, Sink
from gpuadvisor.errors import UsageError

VARIABLE = "NSYS"
"""Environment variable with the path of the program, where it is not the first on PATH."""
TIMEOUT_S = 1800.0
"""A report of 1 GB takes some minutes."""
ENDINGS = (".nsys-rep", ".qdrep")
"""The second is what versions before 2021.4 call it."""
NEWER = re.compile(r"created in Nsight Systems version \(([0-9.]+)")
"""What nsys says of a report that is newer than itself, and of which version that is."""
DAMAGED = "Failed to read section table"
"""What nsys says of a report that was cut off, or in which bytes were changed (2024.2)."""


def recognises(name: str) -> bool:
    """Say by its name whether a file is a report; its content has no mark to go by."""
    return name.endswith(ENDINGS)


def read(path: Path, sink: Sink, timeout_s: float = TIMEOUT_S) -> Header:
    """Export a report with the user's own nsys and read that; nothing is left behind.

    Raises UsageError where there is no nsys, or it refuses the file.
    """
    if not path.is_file():
        raise UsageError(f"{path} cannot be read: there is no such file")
    nsys = _program(path)
    with TemporaryDirectory(prefix="gpuadvisor-nsys-") as folder:
        exported = Path(folder, "export.sqlite")
        _export(nsys, path, exported, timeout_s)
        return systems.read(exported, sink)


def _program(path: Path) -> str:
    wanted = os.environ.get(VARIABLE) or "nsys"
    found = shutil.which(wanted)
    if found is None:
        raise UsageError(
            f"{path} can only be read by NVIDIA's nsys, and there is no {wanted}: set {VARIABLE} "
            "to its path, or import what `nsys export --type sqlite` makes where it is installed"
        )
    return found


def _export(nsys: str, path: Path, exported: Path, timeout_s: float) -> None:
    argv = [nsys, "export", "--type", "sqlite", "--output", str(exported)]
    argv += ["--force-overwrite", "true", programs.absolute(path)]
    try:
        ended = programs.run(argv, timeout_s)
    except OSError as error:
        raise UsageError(f"{nsys} cannot be run: {error.strerror}") from error
    if ended.status != 0 or not exported.is_file():
        reason = programs.why(ended, timeout_s)
        if DAMAGED in reason:
            raise UsageError(
                f"{path} is damaged or incomplete ({nsys}: {reason}): copy or record it again"
            )
        newer = NEWER.search(ended.said)
        version = f"Nsight Systems {newer[1]}, which" if newer else "the version of it that"
        raise UsageError(
            f"{nsys} cannot export {path} ({reason}): use {version} recorded it, or a newer one, by"
            f" setting {VARIABLE} to its path"
        )

"""DataLoader workers hand their batches over in shared memory; containers give 64 MiB of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from gpuadvisor.doctor.check import Check, CheckState, MachineState

ORDER = 100
NAME = "shared memory"
FOLDER = Path("/dev/shm")
WANTED_BYTES = 2**30
"""8 workers with 2 batches each of 256 images of 224 x 224 x 3 in uint8 need 0.6 GiB."""


def check(machine: MachineState) -> Iterator[Check]:
    """Look at what is free in it."""
    if FOLDER.is_dir():
        yield judge(shutil.disk_usage(FOLDER).free)


def judge(free_bytes: int) -> Check:
    """Say whether DataLoader workers have room."""
    found = f"{free_bytes / 2**30:.1f} GiB free in {FOLDER}"
    if free_bytes >= WANTED_BYTES:
        return Check(NAME, CheckState.OK, found)
    detail = f"{found}: DataLoader workers may die of a bus error"
    return Check(
        NAME, CheckState.WARNING, detail, "start the container with `--shm-size=8g` or `--ipc=host`"
    )

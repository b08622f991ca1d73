"""CUDA processes of this container, where the driver does not tell which they are.

In a container with process numbers of its own, NVML lists the host's, or none at all. A process
that computes on a GPU has the GPU's device file open, and that of unified memory, which NVML does
not open.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

UNIFIED_MEMORY = "/dev/nvidia-uvm"
_GPU = re.compile(r"/dev/nvidia(\d+)")


def cuda_processes(proc: Path = Path("/proc")) -> dict[int, frozenset[int]]:
    """Return the minor numbers of the GPUs that each CUDA process has open, by its number.

    Processes of other users are left out, unless this one may look into them.
    """
    found: dict[int, frozenset[int]] = {}
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            opened = _opened(folder / "fd")
            minors = frozenset(int(match[1]) for each in opened if (match := _GPU.fullmatch(each)))
            if UNIFIED_MEMORY in opened and minors:
                found[int(folder.name)] = minors
    return found


def _opened(folder: Path) -> set[str]:
    found: set[str] = set()
    with suppress(OSError):  # another user's, or it has ended
        for link in folder.iterdir():
            with suppress(OSError):
                found.add(str(link.readlink()))
    return found


def in_their_place(listed: list[int], unknown: list[int], here: list[int]) -> dict[int, int | None]:
    """Return which number of the driver's list each process of this container has on one GPU.

    `listed` are the driver's, `unknown` those of them of whom nothing is known, `here` the CUDA
    processes that have this GPU alone open. Where the driver lists none they have no number (None);
    where it lists one that is not known and there is one, they are the same; else nothing is said.
    """
    if not listed:
        return dict.fromkeys(here)
    if len(unknown) == len(here) == 1:
        return {here[0]: unknown[0]}
    return {}

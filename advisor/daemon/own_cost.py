"""What the daemon and its sampler cost the machine, as the kernel counts it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Cost:
    """Of one process since it began."""

    process: str
    """`daemon` or `sampler`."""
    cpu_s: float
    resident_bytes: int


def costs() -> list[Cost]:
    """Return the cost of this process and of its children, which are the sampler alone."""
    return [cost for process, pid in _processes() if (cost := _cost(process, pid))]


def _processes() -> Iterator[tuple[str, int]]:
    yield "daemon", os.getpid()
    # A child belongs to the thread that began it.
    for children in PROC.glob(f"{os.getpid()}/task/*/children"):
        try:
            yield from (("sampler", int(pid)) for pid in children.read_text().split())
        except OSError:  # the thread ended
            continue


def _cost(process: str, pid: int) -> Cost | None:
    try:
        # The name, in parentheses, may have spaces and parentheses in it (proc_pid_stat(5)).
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        pages = int((PROC / str(pid) / "statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    ticks = int(fields[11]) + int(fields[12])
    return Cost(process, ticks / TICKS_PER_S, pages * PAGE_BYTES)

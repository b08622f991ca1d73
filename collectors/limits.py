"""How much of the machine's CPU and memory this process may use.

A container or a batch job often gets a fraction of the machine through control groups, of which
`os.cpu_count` and the total memory know nothing. Sources: sched_setaffinity(2), and cpu.max,
memory.max (Documentation/admin-guide/cgroup-v2.rst) or their ancestors of cgroup version 1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def cores(root: Path = ROOT) -> int:
    """Return the cores for this process: those it may run on, or the control group's share."""
    affinity = getattr(os, "sched_getaffinity", None)
    usable = len(affinity(0)) if affinity else os.cpu_count() or 1
    quotas = [quota for group in _groups(root, "cpu") if (quota := _cpu_quota(group)) is not None]
    return max(1, int(min([usable, *quotas])))


def memory_bytes(root: Path = ROOT) -> int | None:
    """Return the memory for this process: the machine's, or the control group's limit."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    names = ("memory.max", "memory.limit_in_bytes")
    words = [_words(group / name) for group in _groups(root, "memory") for name in names]
    return min([total, *(int(word[0]) for word in words if word and word[0].isdigit())])


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folder of this process's control group and of all above it.

    In a container the path is often the host's, and only its root is visible.
    """
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        top = root / "sys/fs/cgroup"
        if controllers:
            if controller not in controllers.split(","):
                continue
            top = top / controller
        group = Path(path.strip("/"))
        yield from (top / part for part in (group, *group.parents))


def _cpu_quota(group: Path) -> float | None:
    """Return the cores that one group allows, or None where it sets no limit."""
    words = _words(group / "cpu.max")
    if not words:
        words = _words(group / "cpu.cfs_quota_us") + _words(group / "cpu.cfs_period_us")
    if len(words) == 2 and words[0].isdigit():  # else `max`, or -1 in version 1
        return int(words[0]) / int(words[1])
    return None


def _words(file: Path) -> list[str]:
    return " ".join(_lines(file)).split()


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8").splitlines()
    except OSError:
        return []

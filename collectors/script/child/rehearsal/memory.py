"""How much memory a worker shares with the script, and how much is left for its copies."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_LIMITS = (
    # docs.kernel.org/admin-guide/cgroup-v2.html and .../cgroup-v1/memory.html
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)
"""Files with the most memory that this process's group may have, and what it has."""


def shared_bytes() -> int | None:
    """Return how much of this process's own memory is still one with that of other processes.

    That is what a fork has not copied yet; files and shared memory do not count. None where the
    system does not say.
    """
    total, anonymous = 0, False
    try:
        with Path("/proc/self/smaps").open(encoding="ascii", errors="replace") as lines:
            for line in lines:
                name, _, rest = line.partition(":")
                if name in ("Shared_Clean", "Shared_Dirty"):
                    total += 1024 * int(rest.split()[0]) * anonymous
                elif (
                    "-" in name.split(" ", 1)[0]
                ):  # a mapping: address, rights, offset, disk, inode
                    anonymous = line.split(None, 5)[4] == "0"
    except (OSError, ValueError, IndexError):
        return None
    return total


def available_bytes() -> int | None:
    """Return how much memory this process may still get; None where the system does not say."""
    found: list[int] = []
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        line = next(each for each in lines if each.startswith("MemAvailable:"))
        found.append(1024 * int(line.split()[1]))
    for most, used in _LIMITS:
        with suppress(OSError, ValueError):  # "max" is no number
            found.append(int(Path(most).read_text("ascii")) - int(Path(used).read_text("ascii")))
    return max(0, min(found)) if found else None

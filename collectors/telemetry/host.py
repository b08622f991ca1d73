"""The machine beside its GPUs: CPU, memory, disks, network, and what processes wait for.

The kernel's files are kept open and read again: 0.1 ms a second for all of them, where opening and
reading each with psutil takes 0.5 ms.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from gpuadvisor.domain.telemetry import Number, Sample, State, Unavailable

PROC = Path("/proc")
STALLS = {"cpu_stall_pct": "cpu", "io_stall_pct": "io", "memory_stall_pct": "memory"}
LOOPBACK = b"lo"
VIRTUAL_DISKS = (b"loop", b"ram", b"dm-", b"md", b"zram")
"""Beginnings of names of disks whose bytes are counted by those below them, or are memory."""
_SECTOR_BYTES = 512
"""A sector of /proc/diskstats, whatever the disk's (Documentation/admin-guide/iostats.rst)."""
_BLOCK = 1 << 16
_SHORT = 2048
"""Bytes read at once up to which they were the last: the kernel gives as many whole lines as fit
into a page of 4 KiB (its seq_file), and none of these is longer than the other half of it."""
_MEMORY = (b"MemTotal:", b"MemAvailable:", b"SwapTotal:", b"SwapFree:")
"""Lines of /proc/meminfo that are used; parsing all 55 took twice as long as reading them."""


class HostCollector:
    """A reader of HOST_METRICS; rates need an earlier reading, so they come from the second on."""

    def __init__(self, clock: Callable[[], float] = time.time, proc: Path = PROC) -> None:
        self._clock = clock
        self._proc = proc
        self._files: dict[str, int] = {}
        """File descriptors by the path below `proc`."""
        weakref.finalize(self, _close, self._files)
        self._last: tuple[float, dict[str, float]] | None = None
        self._since_s = clock()

    def sample(self) -> Sample:
        """Return what is known of the machine now; never raises."""
        now_s = self._clock()
        values = self._levels()
        totals = {**self._cpu(), **self._disks(), **self._network(), **self._stalls()}
        last, self._last = self._last, (now_s, totals)
        if last is not None and now_s > last[0]:
            values |= _rates(last[1], totals, now_s - last[0])
        missing = (name for name in STALLS if name not in totals)
        reason = "this kernel does not count pressure (/proc/pressure)"
        unavailable = {n: Unavailable(State.NOT_SUPPORTED, self._since_s, reason) for n in missing}
        return Sample(values, unavailable)

    def _lines(self, name: str) -> list[bytes]:
        """Return the lines of a file of the kernel's, none where it cannot be read."""
        content = self._content(name)
        return content.split(b"\n") if content else []

    def _content(self, name: str) -> bytes:
        try:
            file = self._files.get(name)
            if file is None:
                file = self._files[name] = os.open(self._proc / name, os.O_RDONLY | os.O_CLOEXEC)
            content = part = os.pread(file, _BLOCK, 0)
            while len(part) > _SHORT:
                part = os.pread(file, _BLOCK, len(content))
                content += part
            return content
        except OSError:
            return b""

    def _levels(self) -> dict[str, Number]:
        found: dict[str, Number] = {"load_1m": os.getloadavg()[0]}
        content = self._content("meminfo")
        with suppress(ValueError):
            total, free, swap, swap_free = (_bytes(content, name) for name in _MEMORY)
            found["host_memory_used_bytes"] = max(total - free, 0)
            found["host_memory_total_bytes"] = total
            found["swap_used_bytes"] = swap - swap_free
        return found

    def _cpu(self) -> dict[str, float]:
        """Return the time that all cores spent, in all and in parts, in the kernel's ticks."""
        times = [int(each) for each in self._content("stat").partition(b"\n")[0].split()[1:]]
        if len(times) < 5:
            return {}
        # user, nice, system, idle, iowait, irq, softirq, steal, and then what user and nice have
        # of guests already (proc_stat(5)).
        total, idle, waiting = sum(times[:8]), times[3], times[4]
        return {"cpu_total": total, "iowait_pct": waiting, "cpu_pct": total - idle - waiting}

    def _disks(self) -> dict[str, float]:
        lines = self._lines("diskstats")
        if not lines:
            return {}
        disks = {
            fields[2]: fields
            for line in lines
            if len(fields := line.split(None, 14)) > 12 and not fields[2].startswith(VIRTUAL_DISKS)
        }
        whole = [
            fields
            for name, fields in disks.items()
            if not any(name != other and name.startswith(other) for other in disks)
        ]
        found = {f"busy {fields[2].decode()}": float(fields[12]) for fields in whole}
        found["disk_read_bytes_per_s"] = sum(int(each[5]) for each in whole) * _SECTOR_BYTES
        found["disk_write_bytes_per_s"] = sum(int(each[9]) for each in whole) * _SECTOR_BYTES
        return found

    def _network(self) -> dict[str, float]:
        lines = self._lines("net/dev")
        if not lines:
            return {}
        named = (line.partition(b":") for line in lines[2:])
        cards = [said.split() for name, _, said in named if said and name.strip() != LOOPBACK]
        return {
            "network_receive_bytes_per_s": sum(int(card[0]) for card in cards),
            "network_transmit_bytes_per_s": sum(int(card[8]) for card in cards),
        }

    def _stalls(self) -> dict[str, float]:
        """Return the microseconds that some process waited (Documentation/accounting/psi)."""
        return dict(self._stalled())

    def _stalled(self) -> Iterator[tuple[str, float]]:
        for name, kind in STALLS.items():
            for some in self._lines(f"pressure/{kind}")[:1]:
                with suppress(ValueError):
                    yield name, float(some.rpartition(b"total=")[2])


def _bytes(content: bytes, name: bytes) -> int:
    """Return the bytes of a line of /proc/meminfo; ValueError where there is none."""
    begin = content.index(name) + len(name)
    return int(content[begin : content.index(b"kB", begin)]) << 10


def _close(files: dict[str, int]) -> None:
    for file in files.values():
        os.close(file)


def _rates(before: dict[str, float], now: dict[str, float], passed_s: float) -> dict[str, Number]:
    grown = {name: max(0.0, now[name] - before[name]) for name in now if name in before}
    found: dict[str, Number] = {n: g / passed_s for n, g in grown.items() if n.endswith("per_s")}
    # Microseconds, and milliseconds below, in seconds that passed.
    found |= {n: min(100.0, g / passed_s / 1e4) for n, g in grown.items() if n in STALLS}
    busy = [g / passed_s / 10 for n, g in grown.items() if n.startswith("busy ")]
    if busy:
        found["disk_busy_pct"] = min(100.0, max(busy))
    if grown.get("cpu_total"):
        for name in ("cpu_pct", "iowait_pct"):
            found[name] = min(100.0, 100 * grown[name] / grown["cpu_total"])
    return found

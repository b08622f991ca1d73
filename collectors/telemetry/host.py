"""The machine beside its GPUs: CPU, memory, disks, network, and what processes wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuadvisor.domain.telemetry import Number, Sample, State, Unavailable

PRESSURE = Path("/proc/pressure")
STALLS = {"cpu_stall_pct": "cpu", "io_stall_pct": "io", "memory_stall_pct": "memory"}
LOOPBACK = "lo"
VIRTUAL_DISKS = ("loop", "ram", "dm-", "md", "zram")
"""Beginnings of names of disks whose bytes are counted by those below them, or are memory."""


class HostCollector:
    """A reader of HOST_METRICS; rates need an earlier reading, so they come from the second on."""

    def __init__(self, clock: Callable[[], float] = time.time, pressure: Path = PRESSURE) -> None:
        self._clock = clock
        self._pressure = pressure
        self._last: tuple[float, dict[str, float]] | None = None
        self._since_s = clock()

    def sample(self) -> Sample:
        """Return what is known of the machine now; never raises."""
        now_s = self._clock()
        values: dict[str, Number] = dict(_levels())
        totals = {**_cpu(), **_disks(), **_network(), **self._stalls()}
        last, self._last = self._last, (now_s, totals)
        if last is not None and now_s > last[0]:
            values |= _rates(last[1], totals, now_s - last[0])
        missing = (name for name in STALLS if name not in totals)
        reason = "this kernel does not count pressure (/proc/pressure)"
        unavailable = {n: Unavailable(State.NOT_SUPPORTED, self._since_s, reason) for n in missing}
        return Sample(values, unavailable)

    def _stalls(self) -> dict[str, float]:
        """Return the microseconds that some process waited (Documentation/accounting/psi)."""
        found = {}
        for name, kind in STALLS.items():
            try:
                some = (self._pressure / kind).read_text("ascii").partition("\n")[0]
                found[name] = float(some.rpartition("total=")[2])
            except (OSError, ValueError):
                continue
        return found


def _levels() -> dict[str, Number]:
    import psutil

    memory = psutil.virtual_memory()
    return {
        "host_memory_used_bytes": memory.total - memory.available,
        "host_memory_total_bytes": memory.total,
        "swap_used_bytes": psutil.swap_memory().used,
        "load_1m": psutil.getloadavg()[0],
    }


def _cpu() -> dict[str, float]:
    """Return the seconds that all cores spent, in all and in parts."""
    import psutil

    times: Any = psutil.cpu_times()
    # The kernel counts guests' time in that of user and nice already.
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    waiting = getattr(times, "iowait", 0.0)
    return {"cpu_total": total, "iowait_pct": waiting, "cpu_pct": total - times.idle - waiting}


def _disks() -> dict[str, float]:
    import psutil

    disks: dict[str, Any] = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
    parts = {name for name in disks for other in disks if name != other and name.startswith(other)}
    whole = {n: d for n, d in disks.items() if n not in parts and not n.startswith(VIRTUAL_DISKS)}
    found = {f"busy {name}": float(getattr(disk, "busy_time", 0)) for name, disk in whole.items()}
    found["disk_read_bytes_per_s"] = sum(disk.read_bytes for disk in whole.values())
    found["disk_write_bytes_per_s"] = sum(disk.write_bytes for disk in whole.values())
    return found


def _network() -> dict[str, float]:
    import psutil

    cards = psutil.net_io_counters(pernic=True, nowrap=False)
    real = [card for name, card in cards.items() if name != LOOPBACK]
    return {
        "network_receive_bytes_per_s": sum(card.bytes_recv for card in real),
        "network_transmit_bytes_per_s": sum(card.bytes_sent for card in real),
    }


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

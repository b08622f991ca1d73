"""What else used the machine while a run was measured: other programs, a hypervisor, clocks."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.devices import cpu_limit, handle, periods_of_quota
from gpuadvisor.collectors.energy import other_processes
from gpuadvisor.collectors.nvml import library as nvml
from gpuadvisor.domain import clock_reasons
from gpuadvisor.domain.device import Device

FOREIGN_CORES = 0.25
"""CPU cores that others kept busy, below which nothing is said: a desktop and its daemons take a
tenth, and this much is about what a run's own time may be off by."""
FULL = 0.9
"""Part of the cores that has to be busy for others to cost anything: with idle cores left, they
and the script do not wait for one another."""
STEAL = 0.02
"""Part of the cores' time that a hypervisor gave to other machines, above which a run is disturbed:
runs on a quiet machine differ by less than 1 %."""
USED_UP = 0.02
"""Part of the periods of a container's CPU limit in which it has to be used up: its processes are
held back for less than all of such a period, so below this for less than 2 % of the time."""
SHORTEST_S = 0.5
"""Shortest stretch that says anything: the kernel counts in hundredths of a second a core."""
HELD_DOWN = (
    clock_reasons.HW_SLOWDOWN,
    clock_reasons.SW_THERMAL_SLOWDOWN,
    clock_reasons.HW_THERMAL_SLOWDOWN,
    clock_reasons.HW_POWER_BRAKE_SLOWDOWN,
)
"""Reasons for low clocks that come and go by themselves. A power limit holds for every run."""
CLOCK_REASONS = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
)


@dataclass(frozen=True)
class CpuTimes:
    """Seconds of the cores that this process may use, since the machine started."""

    cores: int
    busy_s: float
    steal_s: float
    """Time that a hypervisor gave to other machines while a core had something to do."""


@dataclass(frozen=True)
class LoadReading:
    """What is known at one moment. None stands for what cannot be known."""

    at_s: float
    cpu: CpuTimes | None
    own_s: float | None
    """CPU time of gpuadvisor and of the run's processes."""
    clocks: tuple[str, ...] = ()
    """Reasons by which the GPU is held down just now."""
    periods: tuple[int, int] | None = None
    """Periods that a container's CPU limit has counted, and in how many of them it was used up."""


class LoadMeter:
    """Says what disturbed one run, from readings at both ends of what was measured of it."""

    def __init__(self, device: Device, ours: Collection[int] = ()) -> None:
        """To be made before the run's first process: who uses the GPU then is somebody else.

        But for `ours`, by process ids as the driver has them.
        """
        self._device = device
        self._others = _gpu_processes(device).difference(ours)
        self._begin: LoadReading | None = None
        self._end: LoadReading | None = None

    def begin(self) -> None:
        """Note that what is measured begins now."""
        self._begin, self._end = self._read(), None

    def end(self) -> None:
        """Note that it ends now, before the run's processes are killed."""
        if self._begin is not None:
            self._end = self._read()

    def disturbance(self) -> str:
        """Return what else used the machine, as a clause; empty where nothing was seen.

        To be asked when the run's processes are gone.
        """
        if self._begin is None or self._end is None:
            return ""
        stayed = self._others & _gpu_processes(self._device)
        found = [describe_cpu(self._begin, self._end), *self._held_down()]
        if stayed:
            found.append(f"another process used the GPU ({', '.join(map(str, sorted(stayed)))})")
        return "; ".join(filter(None, found))

    def limit(self) -> str:
        """Return by what limit of its own the run was held back, as a clause; empty for none.

        That is no disturbance: the next run has it, too.
        """
        if self._begin is None or self._end is None:
            return ""
        return describe_limit(self._begin, self._end)

    def _held_down(self) -> list[str]:
        both = (*self._begin.clocks, *self._end.clocks) if self._begin and self._end else ()
        return [f"the GPU was held down by {cause}" for cause in dict.fromkeys(both)]

    def _read(self) -> LoadReading:
        causes = _clock_causes(self._device)
        return LoadReading(time.monotonic(), cpu_times(), _own_s(), causes, periods_of_quota())


def describe_cpu(begin: LoadReading, end: LoadReading) -> str:
    """Return how the CPU was used by others between two readings; empty where that is no matter."""
    passed_s = end.at_s - begin.at_s
    if begin.cpu is None or end.cpu is None or passed_s < SHORTEST_S:
        return ""
    cores = end.cpu.cores
    steal = (end.cpu.steal_s - begin.cpu.steal_s) / passed_s / cores
    if steal > STEAL:
        return f"a hypervisor took {steal:.0%} of the cores' time"
    if begin.own_s is None or end.own_s is None:
        return ""
    busy = (end.cpu.busy_s - begin.cpu.busy_s) / passed_s
    foreign = busy - (end.own_s - begin.own_s) / passed_s
    if foreign > FOREIGN_CORES and busy > FULL * cores:
        return f"others used {foreign:.1f} of {cores} CPU cores, and none was idle"
    return ""


def describe_limit(begin: LoadReading, end: LoadReading) -> str:
    """Return how often a container's CPU limit was used up between two readings; empty if hardly
    ever."""
    if begin.periods is None or end.periods is None or end.at_s - begin.at_s < SHORTEST_S:
        return ""
    passed, used_up = (
        after - before for before, after in zip(begin.periods, end.periods, strict=True)
    )
    if used_up <= USED_UP * passed:
        return ""
    return (
        f"the container's CPU limit of {cpu_limit() or 0:g} cores was used up in {used_up} of "
        f"{passed} periods, for the rest of which its processes were held back"
    )


def cpu_times(stat: Path = Path("/proc/stat")) -> CpuTimes | None:
    """Return the times of the cores that this process may use; None where nobody counts them.

    In a container the file is the whole host's. What others do on cores that this process may not
    use is no matter to it; what they do on those that it shares is.
    """
    try:
        lines = stat.read_text("ascii").splitlines()
        mine = os.sched_getaffinity(0)
    except (OSError, ValueError, AttributeError):
        return None
    tick = os.sysconf("SC_CLK_TCK")
    busy = steal = cores = 0
    for name, *values in (line.split() for line in lines if line.startswith("cpu")):
        if name[3:].isdigit() and int(name[3:]) in mine and len(values) >= 8:
            user, nice, system, _idle, _waiting, irq, softirq, stolen = map(int, values[:8])
            busy += user + nice + system + irq + softirq
            steal += stolen
            cores += 1
    return CpuTimes(cores, busy / tick, steal / tick) if cores == len(mine) else None


def _own_s() -> float | None:
    """Return the CPU time of this process and of all that descends from it; None if unknown."""
    import psutil

    try:
        first = psutil.Process()
        times = [p.cpu_times() for p in (first, *first.children(recursive=True))]
    except psutil.Error:  # one ended just now
        return None
    # Those of children that ended are in their parents' times of children.
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)


def _gpu_processes(device: Device) -> frozenset[int]:
    return frozenset(process.pid for process in other_processes(device) or ())


def _clock_causes(device: Device) -> tuple[str, ...]:
    """Return by what a GPU is held down now; empty where nothing does, or nobody can say."""
    if not device.is_gpu:
        return ()
    try:
        mask = nvml.query(lambda library: _clock_mask(library, device))
    except nvml.QueryError:
        return ()
    reasons = clock_reasons.slowing(mask or 0)
    return tuple(reason.cause for reason in reasons if reason.name in HELD_DOWN)


def _clock_mask(library: Any, device: Device) -> int | None:
    gpu = handle(library, device)
    answers = (nvml.read(library, name, gpu) for name in CLOCK_REASONS)
    return next((int(answer) for answer in answers if answer is not None), None)

"""The SM clock of a GPU while a run is measured, and at a moment."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from gpuadvisor.collectors.devices import handle
from gpuadvisor.collectors.load import CLOCK_REASONS
from gpuadvisor.collectors.nvml import library as nvml
from gpuadvisor.domain.clock_reasons import slowing
from gpuadvisor.domain.device import Device

PERIOD_S = 0.05
"""Time between two readings: a power cap moves clocks in steps of some tens of milliseconds."""


class ClockSampler:
    """Reads the SM clock of a GPU on a thread of its own, from `begin` to `end`.

    On a CPU, and where the driver does not say, it reads nothing.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._read: list[tuple[float, float]] = []
        """When, by `time.monotonic`, and what."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Begin to read; what was read before is forgotten."""
        if not self._device.is_gpu:
            return
        self.end()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, args=(self._stop,), daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """Read no more; what was read so far counts."""
        self._stop.set()

    def end(self) -> float | None:
        """Stop to read and return the mean in MHz since `begin`; None where nothing was read."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(nvml.CALL_TIMEOUT_S + PERIOD_S)
            self._thread = None
        read, self._read = self._read, []
        return fmean(clock for _, clock in read) if read else None

    def between(self, began_s: float, ended_s: float) -> float | None:
        """Return the mean in MHz of what was read between two times of `time.monotonic`.

        None where nothing was, or it is forgotten: from `end` on.
        """
        read = [clock for at, clock in self._read if began_s <= at <= ended_s]
        return fmean(read) if read else None

    def _sample(self, stop: threading.Event) -> None:
        while not stop.wait(PERIOD_S):
            try:
                clock_mhz = nvml.query(self._clock_mhz)
            except nvml.QueryError:
                return
            if clock_mhz and not stop.is_set():
                self._read.append((time.monotonic(), clock_mhz))

    def _clock_mhz(self, library: Any) -> float | None:
        gpu = handle(library, self._device)
        clock: float | None = nvml.read(
            library, "nvmlDeviceGetClockInfo", gpu, library.NVML_CLOCK_SM
        )
        return clock


@dataclass(frozen=True)
class ClockReading:
    """The SM clock of a GPU at one moment."""

    clock_mhz: int
    slowed_by: tuple[str, ...] = ()
    """What holds it down: names of `gpuadvisor.domain.clock_reasons.SLOWING`."""


def read_clock(device: Device) -> ClockReading | None:
    """Return the SM clock now and what holds it down; None where the driver does not say."""

    def ask(library: Any) -> ClockReading:
        gpu = handle(library, device)
        clock = nvml.read(library, "nvmlDeviceGetClockInfo", gpu, library.NVML_CLOCK_SM)
        mask = next(
            (bits for name in CLOCK_REASONS if (bits := nvml.read(library, name, gpu)) is not None),
            0,
        )
        return ClockReading(int(clock or 0), tuple(each.name for each in slowing(int(mask))))

    if not device.is_gpu:
        return None
    try:
        found = nvml.query(ask)
    except nvml.QueryError:
        return None
    return found if found.clock_mhz else None

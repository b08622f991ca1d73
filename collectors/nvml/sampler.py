"""The sampler: polls all GPUs, each metric at its own interval, and survives what drivers do.

It runs in a process of its own: a call into a driver may never return, and only somebody outside
can see that. Two threads take what waits: for Xid errors, and for the counter of PCIe bytes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from gpuadvisor.collectors.nvml import codes
from gpuadvisor.collectors.nvml.calls import CALLS, DeviceHandle
from gpuadvisor.collectors.nvml.enumerate_gpus import enumerate_gpus
from gpuadvisor.collectors.nvml.gpm import Gpm
from gpuadvisor.collectors.nvml.gpu_processes import GpuProcesses
from gpuadvisor.collectors.nvml.library import BackOff, NvmlLibrary
from gpuadvisor.collectors.nvml.pcie_throughput import PcieThroughput
from gpuadvisor.collectors.nvml.watched_gpu import WatchedGpu
from gpuadvisor.collectors.nvml.xid import XidWatch
from gpuadvisor.domain.telemetry import PROCESSES, Event, Frame, Gpu, Sample, Unavailable

LOG = logging.getLogger(__name__)

COUNT_S = 10.0
"""How often the GPUs are counted: a call of a few microseconds."""
LIST_S = 60.0
"""How often they are listed anew, as MIG instances come and go without changing the count."""
PROCESSES_S = 5.0
NOT_LISTED = "the driver does not list the processes"
NO_GPU = "The GPUs cannot be read: the NVIDIA driver is loaded but sees none."


class Sampler:
    """Reads all GPUs of the machine."""

    def __init__(
        self,
        *,
        hurried: Sequence[str] = (),
        known: Sequence[Gpu] = (),
        on_step: Callable[[], object] = lambda: None,
        on_error: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`hurried`: metrics that are read with every full frame, whatever their interval.
        `known` are the GPUs as another sampler listed them last: one that was lost meanwhile cannot
        say who it is. `on_step` is called before each step of a start of the library, which
        may take seconds; `on_error` after each Xid error, on a thread that waits for them.
        `clock` returns Unix time.
        """
        self._hurried = tuple(hurried)
        self._on_step = on_step
        self._on_error = on_error
        self._clock = clock
        self._driver = NvmlLibrary(on_step)
        self._gpus: list[WatchedGpu] = []
        self._known = {gpu.index: gpu for gpu in known if not gpu.is_instance}
        """Who had a number last, for those that are lost."""
        self._announced: tuple[Gpu, ...] | None = None
        self._processes = GpuProcesses()
        self._unlisted: dict[str, Unavailable] = {}
        """GPUs (UUID) whose processes the driver does not list, and since when."""
        self._pcie = PcieThroughput()
        self._xid: XidWatch | None = None
        self._events: list[Event] = []
        self._revive = BackOff()
        self._is_new = True
        """Whether the library was initialised since the GPUs were listed."""
        self._count = 0
        self._counted_s = self._listed_s = self._processes_s = self._last_s = 0.0
        self._listings = 0
        """How often processes were listed: the second list, which is the first to tell their CPU
        time, comes with the second full frame."""

    def poll(self, *, full: bool) -> Frame:
        """Return a frame: a full one with all that is due, or one with the fast metrics only.

        It never raises, but may never return: only another process can see to that.
        """
        now_s = self._clock()
        if now_s < self._last_s:
            # The clock went back: nothing must wait for it to catch up.
            for watched in self._gpus:
                watched.hurry()
            self._counted_s = self._listed_s = self._processes_s = 0.0
        self._last_s = now_s
        try:
            nvml = self._driver.ready(now_s)
            if nvml is None:
                return self._frame_of_problem(now_s, full)
            return self._read_full(nvml, now_s) if full else self._read_fast(nvml, now_s)
        except codes.LibraryGoneError as error:
            self._lose_library(now_s, error)
        except Exception as error:
            if not hasattr(error, "value"):  # no NVMLError
                LOG.exception("reading the GPUs failed: report this as a bug")
            self._lose_library(now_s, error)
        return self._frame_of_problem(now_s, full)

    def take_errors(self) -> tuple[Event, ...]:
        """Return the Xid errors that no frame has told, also while a poll does not come back."""
        watch = self._xid
        return () if watch is None else tuple(watch.take())

    def close(self) -> None:
        """End the threads and let go of the driver."""
        self._driver.close(unload=self._stop_threads())
        self._gpus = []

    def _read_fast(self, nvml: Any, now_s: float) -> Frame:
        samples: dict[str, Sample] = {}
        for watched in self._gpus:
            sample = watched.read_fast(nvml, now_s)
            if sample is not None:
                samples[watched.gpu.uuid] = sample
        return Frame(now_s, samples, full=False)

    def _read_full(self, nvml: Any, now_s: float) -> Frame:
        self._keep_roster(nvml, now_s)
        moved = self._xid.take_ecc() if self._xid is not None else ()
        for watched in self._gpus:
            if watched.gpu.uuid in moved:
                watched.hurry(("ecc_corrected_volatile", "ecc_uncorrected_volatile"))
            if self._hurried:
                watched.hurry(self._hurried)
        samples = {watched.gpu.uuid: watched.read(nvml, now_s) for watched in self._gpus}
        lost = [watched for watched in self._gpus if watched.is_lost]
        if not lost:
            self._revive.worked()
        elif self._revive.is_due(now_s):
            self._revive.failed(now_s)
            self._listed_s = 0.0  # look for them with the next frame
        processes = None
        if now_s - self._processes_s >= PROCESSES_S or self._listings == 1:
            self._processes_s = now_s
            self._listings += 1
            alive = [(w.gpu, w.device.handle) for w in self._gpus if not w.is_lost]
            processes = self._processes.read(nvml, alive)
            self._unlisted = {
                uuid: self._unlisted.get(uuid) or Unavailable(state, now_s, NOT_LISTED)
                for uuid, state in self._processes.unlisted.items()
            }
        for uuid in self._unlisted.keys() & samples.keys():
            unavailable = {**samples[uuid].unavailable, PROCESSES: self._unlisted[uuid]}
            samples[uuid] = Sample(samples[uuid].values, unavailable)
        self._driver.works()
        return Frame(
            now_s,
            samples,
            gpus=self._news(),
            processes=processes,
            events=self._take_events(),
            problem=None if self._gpus else NO_GPU,
        )

    def _keep_roster(self, nvml: Any, now_s: float) -> None:
        """List the GPUs where they may have changed."""
        if self._is_new or not self._listed_s or now_s - self._listed_s >= LIST_S:
            self._list(nvml, now_s)
        elif now_s - self._counted_s >= COUNT_S:
            self._counted_s = now_s
            if nvml.nvmlDeviceGetCount() != self._count:
                self._list(nvml, now_s)

    def _list(self, nvml: Any, now_s: float) -> None:
        before = {watched.gpu.uuid: watched for watched in self._gpus}
        self._known |= {w.gpu.index: w.gpu for w in self._gpus if not w.gpu.is_instance}
        listed = enumerate_gpus(nvml, self._known, self._on_step if self._is_new else lambda: None)
        self._count = nvml.nvmlDeviceGetCount()
        self._listed_s = self._counted_s = now_s
        self._gpus = [
            self._watch(nvml, before.pop(gpu.uuid, None), gpu, handle, now_s)
            for gpu, handle in listed
        ]
        for gone in before.values():
            self._let_go(nvml, gone)
        if self._is_new or self._announced != tuple(gpu for gpu, _ in listed):
            if self._xid is not None:
                self._xid.close()
                self._events.extend(self._xid.take())
            self._xid = XidWatch(nvml, listed, self._clock, self._on_error)
        self._is_new = False

    def _watch(
        self, nvml: Any, before: WatchedGpu | None, gpu: Gpu, handle: Any, now_s: float
    ) -> WatchedGpu:
        if before is None:
            device = DeviceHandle(handle, gpu.uuid, Gpm(), self._pcie)
            watched = WatchedGpu(gpu, device, CALLS, now_s)
            if handle is None:
                watched.lose(now_s)
            return watched
        if handle is None:
            if not before.is_lost:
                before.lose(now_s)
        elif self._is_new or before.is_lost:
            self._let_go(nvml, before)
            before.renew(gpu, DeviceHandle(handle, gpu.uuid, Gpm(), self._pcie))
        else:
            before.gpu, before.device.handle = gpu, handle
        return before

    def _let_go(self, nvml: Any, watched: WatchedGpu) -> None:
        watched.device.pcie.forget(watched.gpu.uuid)
        if not self._is_new:  # else the samples went with the library
            watched.device.gpm.close(nvml)

    def _news(self) -> tuple[Gpu, ...] | None:
        """Return the GPUs if they are not those that were told last."""
        now = tuple(watched.gpu for watched in self._gpus)
        if now == self._announced:
            return None
        self._announced = now
        return now

    def _take_events(self) -> tuple[Event, ...]:
        events, self._events = self._events, []
        return (*events, *(self._xid.take() if self._xid is not None else ()))

    def _frame_of_problem(self, now_s: float, full: bool) -> Frame:
        """Return a frame without values; in a full one all that was known is stale."""
        problem = self._driver.problem or NO_GPU
        if not full:
            return Frame(now_s, full=False, problem=problem)
        samples = {w.gpu.uuid: w.silence(now_s, problem) for w in self._gpus}
        return Frame(now_s, samples, events=self._take_events(), problem=problem)

    def _lose_library(self, now_s: float, error: Exception) -> None:
        """Let go of the library, to initialise it again later."""
        cause = error.__cause__ if isinstance(error, codes.LibraryGoneError) else error
        self._driver.lost(now_s, cause, unload=self._stop_threads())

    def _stop_threads(self) -> bool:
        """End them; return whether both did, so that the library may be unloaded."""
        ended = self._pcie.close()
        if self._xid is not None:
            ended = self._xid.close() and ended
            self._events.extend(self._xid.take())
        if self._driver.nvml is not None:
            for watched in self._gpus:
                watched.device.gpm.close(self._driver.nvml)
        self._pcie, self._xid, self._is_new = PcieThroughput(), None, True
        self._processes.forget_versions()
        return ended

"""Xid errors: the driver tells of them as they happen, on a thread that waits for them.

Each is an event of its own: a second one of the same kind is seen, and none lasts for ever.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections import deque
from collections.abc import Callable, Sequence
from threading import Event as Flag
from threading import Thread
from typing import Any

from gpuadvisor.collectors.nvml import codes
from gpuadvisor.collectors.nvml.roster import Listed
from gpuadvisor.collectors.nvml.xid_catalogue import explain
from gpuadvisor.domain.telemetry import Event, Gpu

LOG = logging.getLogger(__name__)

WAIT_MS = 500
"""A wait for events ends after so long, as nothing else can end it."""
_CLOSE_S = 0.8
_INSTANT_S = 0.001
_TIE_S = 1e-6
"""What keeps two errors at one instant apart, as an event is named by its time."""
_NO_INSTANCE = 0xFFFFFFFF


class XidWatch:
    """Waits for the errors of the GPUs that were listed when it began."""

    def __init__(self, nvml: Any, listed: Sequence[Listed], clock: Callable[[], float]) -> None:
        self._nvml = nvml
        self._clock = clock
        self._events: deque[Event] = deque()
        self._ecc: set[str] = set()
        self._last_s = 0.0
        self._gpus: dict[int | None, Gpu] = {}
        self._stop = Flag()
        self._set: Any = None
        self._thread: Thread | None = None
        with contextlib.suppress(nvml.NVMLError, AttributeError):  # then there are none to tell
            self._start([(gpu, handle) for gpu, handle in listed if not gpu.is_instance])

    def take(self) -> list[Event]:
        """Return what happened since the last time."""
        taken = []
        while self._events:
            taken.append(self._events.popleft())
        return taken

    def take_ecc(self) -> set[str]:
        """Return the UUIDs of GPUs whose error counters have moved since the last time."""
        taken, self._ecc = self._ecc, set()
        return taken

    def close(self) -> bool:
        """End the thread; return whether it ended, which one stuck in the driver does not."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)
            if self._thread.is_alive():
                return False
        if self._set is not None:
            with contextlib.suppress(self._nvml.NVMLError, AttributeError):
                self._nvml.nvmlEventSetFree(self._set)
            self._set = None
        return True

    def _start(self, listed: Sequence[Listed]) -> None:
        nvml = self._nvml
        self._set = nvml.nvmlEventSetCreate()
        wanted = nvml.nvmlEventTypeXidCriticalError | nvml.nvmlEventTypeDoubleBitEccError
        for gpu, handle in listed:
            if handle is None:
                continue
            with contextlib.suppress(nvml.NVMLError):
                types = nvml.nvmlDeviceGetSupportedEventTypes(handle) & wanted
                if types:
                    nvml.nvmlDeviceRegisterEvents(handle, types, self._set)
                    self._gpus[_address(handle)] = gpu
        if self._gpus:
            self._thread = Thread(target=self._run, name="nvml-xid", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        nvml = self._nvml
        while not self._stop.is_set():
            try:
                self._note(nvml.nvmlEventSetWait_v2(self._set, WAIT_MS))
            except nvml.NVMLError as error:
                if error.value in codes.OLDER_WAY | codes.LIBRARY_GONE:
                    return
                if error.value != codes.TIMEOUT:
                    self._stop.wait(1.0)  # such as for a lost GPU; the others go on
            except Exception:
                LOG.exception("Xid errors are not watched any more: report this as a bug")
                return

    def _note(self, found: Any) -> None:
        gpu = self._gpus.get(_address(found.device))
        if gpu is None:
            return
        if found.eventType & self._nvml.nvmlEventTypeXidCriticalError:
            time_s = self._clock()
            if 0 <= self._last_s - time_s < _INSTANT_S:
                time_s = self._last_s + _TIE_S
            self._last_s = time_s
            self._events.append(_event(gpu, found, time_s))
        else:
            self._ecc.add(gpu.uuid)


def _event(gpu: Gpu, found: Any, time_s: float) -> Event:
    number = int(found.eventData)
    severity, message = explain(number, f"GPU {gpu.index}")
    data: dict[str, int | float | str] = {"xid": number}
    if found.gpuInstanceId != _NO_INSTANCE:
        data["gpu_instance"] = int(found.gpuInstanceId)
    return Event("xid", time_s, message, severity, gpu.uuid, time_s, str(number), data)


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value

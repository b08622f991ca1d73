"""Xid errors: the driver tells of them as they happen, on a thread that waits for them.

Each is an event of its own: a second one of the same kind is seen, and none lasts for ever. What an
error means, how much it matters and what to do is NVIDIA's Xid catalogue in our words.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections import deque
from collections.abc import Callable, Sequence
from threading import Event as Flag
from threading import Thread
from typing import Any, NamedTuple

from gpuadvisor.collectors.nvml import codes
from gpuadvisor.collectors.nvml.enumerate_gpus import Listed
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, Gpu

CATALOGUE_URL = "https://docs.nvidia.com/deploy/xid-errors/"

_SCRIPT = "look for a bug in what ran on it (`compute-sanitizer`)"
_RESTART = "start what ran on it again, and call NVIDIA if it comes back"
_RESET = "stop what runs on it and reset the GPU"
_SERVICE = "reset the GPU or reboot, and have it replaced if it comes back"
LOG = logging.getLogger(__name__)
WAIT_MS = 1000
"""A wait for events ends after so long, as nothing else can end it."""
_CLOSE_S = 1.3
_INSTANT_S = 0.001
_TIE_S = 1e-6
"""Time that keeps two errors at one instant apart, as an event is named by its time."""
_NO_INSTANCE = 0xFFFFFFFF


class Xid(NamedTuple):
    """One kind of error."""

    severity: Severity
    meaning: str
    remedy: str


CATALOGUE: dict[int, Xid] = {
    8: Xid(Severity.ERROR, "the GPU stopped processing", _RESTART),
    11: Xid(Severity.ERROR, "an invalid or corrupted command stream", _RESTART),
    13: Xid(Severity.ERROR, "a kernel failed, such as by an access out of bounds", _SCRIPT),
    31: Xid(Severity.ERROR, "a kernel or a copy used an illegal address", _SCRIPT),
    32: Xid(Severity.ERROR, "an invalid or corrupted command stream", _RESTART),
    38: Xid(Severity.ERROR, "the driver's firmware failed", "upgrade the driver"),
    43: Xid(Severity.ERROR, "a process's work was stopped after an error of its own", _SCRIPT),
    45: Xid(
        Severity.INFO,
        "the work of a process that ended or was killed was removed",
        "nothing, unless another error came before it",
    ),
    48: Xid(Severity.ERROR, "a memory error that could not be corrected", _RESET),
    61: Xid(Severity.ERROR, "an internal controller halted", _RESET),
    62: Xid(Severity.ERROR, "an internal controller halted", _RESET),
    63: Xid(
        Severity.WARNING,
        "a failing row of memory will be replaced",
        "reset the GPU when it can be spared",
    ),
    64: Xid(Severity.ERROR, "replacing a failing row of memory failed", _SERVICE),
    69: Xid(Severity.ERROR, "a kernel or command was invalid", _SCRIPT),
    74: Xid(Severity.ERROR, "an NVLink link failed", f"check the links, then {_SERVICE}"),
    79: Xid(
        Severity.ERROR,
        "the GPU fell off the bus",
        "reboot, then check its power, cooling and seat if it comes back",
    ),
    92: Xid(
        Severity.WARNING,
        "many memory errors were corrected",
        "watch it, and have it replaced if they go on",
    ),
    94: Xid(
        Severity.ERROR,
        "a memory error that could not be corrected, and ended one process only",
        "start that process again, and reset the GPU when it can be spared",
    ),
    95: Xid(
        Severity.ERROR,
        "a memory error that could not be corrected, and may have touched all processes",
        _RESET,
    ),
    109: Xid(Severity.ERROR, "switching between processes took too long", _RESET),
    119: Xid(Severity.ERROR, "the GPU's system processor (GSP) does not answer", _RESET),
    120: Xid(Severity.ERROR, "the GPU's system processor (GSP) failed", _RESET),
    121: Xid(Severity.WARNING, "an error on the chip-to-chip link was corrected", _RESET),
    123: Xid(Severity.ERROR, "an internal request to power management failed", _RESET),
    140: Xid(Severity.ERROR, "a memory error that was not recovered from", _RESET),
    143: Xid(Severity.ERROR, "the GPU's start failed", _SERVICE),
    145: Xid(Severity.ERROR, "an NVLink link failed", _SERVICE),
    149: Xid(Severity.ERROR, "an NVLink link failed", _SERVICE),
    154: Xid(
        Severity.WARNING,
        "what the GPU needs to recover has changed",
        "see `nvidia-smi -q` under GPU Recovery Action",
    ),
}


def explain(number: int, gpu: str) -> tuple[Severity, str]:
    """Return how much a Xid error matters, and a sentence about it; `gpu` is as in `GPU 0`."""
    known = CATALOGUE.get(number)
    if known is None:
        where = f"look it up at {CATALOGUE_URL}, with its line in the kernel log (`dmesg`)"
        return Severity.WARNING, f"{gpu} reported Xid {number}: {where}."
    return known.severity, f"{gpu} reported Xid {number}, {known.meaning}: {known.remedy}."


def is_of_script(number: int) -> bool:
    """Say whether a Xid error comes from what ran on the GPU, and not from the GPU itself."""
    known = CATALOGUE.get(number)
    return known is not None and (known.remedy == _SCRIPT or known.severity is Severity.INFO)


class XidWatch:
    """Waits for the errors of the GPUs that were listed when it began."""

    def __init__(
        self,
        nvml: Any,
        listed: Sequence[Listed],
        clock: Callable[[], float],
        on_error: Callable[[], object] = lambda: None,
    ) -> None:
        """`on_error` is called on the thread after each error."""
        self._nvml = nvml
        self._clock = clock
        self._on_error = on_error
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
        return [self._events.popleft() for _ in range(len(self._events))]

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
        # Past nvidia-ml-py's own way, which makes an exception of each second without an error.
        self._wait = nvml.nvmlLib.nvmlEventSetWait_v2
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
        found = self._nvml.c_nvmlEventData_t()
        try:
            while not self._stop.is_set():
                code = self._wait(self._set, ctypes.byref(found), WAIT_MS)
                if code == codes.TIMEOUT:
                    continue
                if not code:
                    self._note(found)
                elif code in codes.OLDER_WAY | codes.LIBRARY_GONE:
                    return
                else:
                    self._stop.wait(1.0)  # such as for a lost GPU; the others go on
        except Exception:
            LOG.exception("Xid errors are not watched any more: report this as a bug")

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
            self._on_error()
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

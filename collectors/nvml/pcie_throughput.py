"""The counter of PCIe bytes, on a thread of its own: a call waits out a window of 20 ms.

Measured on an H100: 21 ms for each direction. Used where GPM does not say the same.
"""

from __future__ import annotations

import time
from threading import Event, Thread
from typing import Any

from gpuadvisor.collectors.nvml import codes

PERIOD_S = 1.0
"""Time between two readings of one GPU."""
_REST_S = 0.2
"""The least pause between two rounds over all GPUs, however many there are."""
PATIENCE_S = 5.0
"""A thread that tells nothing for so long is stuck in the driver."""
_BYTES_PER_UNIT = 1024
"""Bytes of a KB/s in nvml.h; all of NVML's sizes are powers of two."""
_CLOSE_S = 0.5


class PcieThroughput:
    """The newest rates of the GPUs that were asked for."""

    def __init__(self) -> None:
        self._wanted: dict[str, Any] = {}
        self._results: dict[str, tuple[float, tuple[int, int] | Exception | None]] = {}
        self._stop = Event()
        self._thread: Thread | None = None

    def read(self, nvml: Any, uuid: str, handle: Any) -> tuple[int, int] | None:
        """Return bytes/s sent and received; None until there are some. Raises NVMLError."""
        self._wanted[uuid] = handle
        time_s, result = self._results.setdefault(uuid, (time.monotonic(), None))
        if self._thread is None:
            name = "nvml-pcie"
            self._thread = Thread(target=self._run, args=(nvml,), name=name, daemon=True)
            self._thread.start()
        if isinstance(result, Exception):
            if codes.code_of(result) in codes.OLDER_WAY:
                self.forget(uuid)
            raise result
        if time.monotonic() - time_s > PATIENCE_S:
            raise nvml.NVMLError(codes.TIMEOUT)
        return result

    def forget(self, uuid: str) -> None:
        """Ask for this GPU no more."""
        self._wanted.pop(uuid, None)
        self._results.pop(uuid, None)

    def close(self) -> bool:
        """End the thread; return whether it ended, which one stuck in the driver does not."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)
        return self._thread is None or not self._thread.is_alive()

    def _run(self, nvml: Any) -> None:
        while not self._stop.is_set():
            began_s = time.monotonic()
            for uuid, handle in list(self._wanted.items()):
                result = _rates(nvml, handle)
                if self._stop.is_set():
                    return
                if self._wanted.get(uuid) is handle:
                    self._results[uuid] = (time.monotonic(), result)
            self._stop.wait(max(PERIOD_S - (time.monotonic() - began_s), _REST_S))


def _rates(nvml: Any, handle: Any) -> tuple[int, int] | Exception:
    try:
        sent = nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES)
        received = nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES)
    except (nvml.NVMLError, AttributeError) as error:
        return error
    if 0xFFFFFFFF in (sent, received):  # NVML_VALUE_NOT_AVAILABLE
        not_supported: Exception = nvml.NVMLError(codes.NOT_SUPPORTED)
        return not_supported
    return sent * _BYTES_PER_UNIT, received * _BYTES_PER_UNIT

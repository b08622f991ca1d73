"""Errors that a GPU's driver reports while scripts are measured on it."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from gpuadvisor.collectors.devices import handle
from gpuadvisor.collectors.nvml import library as nvml
from gpuadvisor.collectors.nvml.enumerate_gpus import Listed
from gpuadvisor.collectors.nvml.xid import XidWatch, is_of_script
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.telemetry import Gpu


class GpuErrors:
    """Hears of a GPU's Xid errors from when it is made until `close`.

    On a CPU, and where the driver does not tell, there are none.
    """

    def __init__(self, device: Device) -> None:
        self._watch: XidWatch | None = None
        if device.is_gpu:
            with suppress(nvml.QueryError):
                self._watch = nvml.query(
                    lambda library: XidWatch(library, [_whole(library, device)], time.time)
                )

    def take(self) -> list[str]:
        """Return a sentence on each error since the last time, but not on those of scripts.

        A bug in a kernel, or a process that was killed, says nothing of the GPU.
        """
        events = self._watch.take() if self._watch is not None else []
        return [event.message for event in events if not is_of_script(int(event.data["xid"]))]

    def close(self) -> None:
        """Stop to listen."""
        if self._watch is not None:
            self._watch.close()


def _whole(library: Any, device: Device) -> Listed:
    """Return the GPU of a device, which may be one of its MIG instances: only GPUs have errors."""
    part = handle(library, device)
    whole = nvml.read(library, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", part) or part
    return Gpu(device.uuid or "", device.index, device.name), whole

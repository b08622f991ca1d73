"""NVML's life in a process that outlives drivers: initialised, lost, initialised again.

The library stays mapped while a process has it open, and an old library does not talk to a new
kernel module. So it is not only shut down but unloaded, and the next start takes the new file.
"""

from __future__ import annotations

import contextlib
import logging
from importlib import import_module
from typing import Any

from gpuadvisor.collectors.nvml.library import reason

LOG = logging.getLogger(__name__)

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
"""Between two attempts to start, doubling from the first to the longest."""


class BackOff:
    """When to try again: after 1, 2, 4 ... 60 s."""

    def __init__(self) -> None:
        self._wait_s = FIRST_WAIT_S
        self._due_s = 0.0

    def is_due(self, now_s: float) -> bool:
        """Whether it is time; also where the clock went back."""
        return not now_s < self._due_s <= now_s + LONGEST_WAIT_S

    def failed(self, now_s: float) -> None:
        self._due_s = now_s + self._wait_s
        self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)

    def worked(self) -> None:
        self._wait_s, self._due_s = FIRST_WAIT_S, 0.0


class Driver:
    """The library, or the reason why there is none."""

    def __init__(self) -> None:
        self.problem: str | None = None
        """One sentence for people; None while all is well."""
        self.nvml: Any = None
        """pynvml while it is initialised."""
        self._back_off = BackOff()

    def ready(self, now_s: float) -> Any | None:
        """Return pynvml, initialised, or None: then `problem` says why. It never raises."""
        if self.nvml is None and self._back_off.is_due(now_s):
            try:
                nvml = import_module("pynvml")
                nvml.nvmlInit()
            except Exception as error:
                self._failed(now_s, error)
            else:
                self.nvml = nvml
                self.problem = None
        return self.nvml

    def works(self) -> None:
        """Note that a sweep came to its end."""
        self._back_off.worked()

    def lost(self, now_s: float, error: BaseException | None, *, unload: bool) -> None:
        """Shut down after an error that no call survives.

        `unload` only while no other thread is inside the library.
        """
        self.close(unload=unload)
        self._failed(now_s, error if isinstance(error, Exception) else RuntimeError("unknown"))

    def close(self, *, unload: bool = False) -> None:
        """Shut the library down, if it is up."""
        nvml, self.nvml = self.nvml, None
        if nvml is None:
            return
        with contextlib.suppress(Exception):  # it is gone already
            nvml.nvmlShutdown()
        if unload:
            with contextlib.suppress(Exception):  # these are nvidia-ml-py's private names
                _unload(nvml)

    def _failed(self, now_s: float, error: Exception) -> None:
        self.problem = f"The GPUs cannot be read: {reason(error)}."
        self._back_off.failed(now_s)


def _unload(nvml: Any) -> None:
    from _ctypes import dlclose

    library = nvml.nvmlLib
    nvml._nvmlGetFunctionPointer_cache.clear()
    nvml.nvmlLib = None
    dlclose(library._handle)

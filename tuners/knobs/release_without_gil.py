"""Give a batch's shared memory back to the system without stopping Python meanwhile.

A worker's batch arrives in shared memory. The thread that pins it frees that memory while it holds
Python's global lock: 0.2 ms for each MiB, so 35 ms for 256 pictures of 224 x 224. For so long the
script's own thread launches no kernel. What takes the time is done here before and after, by
system calls that leave the lock alone; the memory itself is freed as before.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Settings, Value
from gpuadvisor.domain.target import Target
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knobs._loaders import NO_LOADER, main_loader, workers_missing
from gpuadvisor.tuners.knobs._script import not_on_gpu

LEAST_BYTES = 1 << 20
"""Of a tensor: freeing a smaller one takes no longer than what is done here (0.2 ms)."""
PINNED = "pin_memory"
"""Name of the knob without which the script's own thread frees the batch."""


class ReleaseWithoutGil(Knob):
    """Wraps what the DataLoader's pinning thread does with each tensor."""

    name = "release_without_gil"
    title = "Batches freed without Python's lock"
    level = Level.CONSERVATIVE
    effect = Effect.NONE
    order = 50
    plausible = (True,)

    def choices(self, device: Device, facts: ScriptFacts) -> Sequence[Value]:
        return [True]

    def unavailable(self, device: Device, facts: ScriptFacts) -> str | None:
        if reason := not_on_gpu(device, facts):
            return reason
        if not sys.platform.startswith("linux"):
            return "elsewhere than on Linux batches are shared in another way"
        return None if facts.loaders else NO_LOADER

    def missing(self, settings: Settings, facts: ScriptFacts) -> str | None:
        loader = main_loader(facts)
        if not settings.get(PINNED, loader is not None and loader.pin_memory):
            return "it needs pinned batches: set pin_memory too"
        return workers_missing(settings, facts)

    def apply(self, value: Value, target: Target) -> None:
        install(target.effective)

    def snippet(self, value: Value) -> str:
        return f"from {__name__} import install  # before the first DataLoader\ninstall()"


def install(told: Callable[[], None] = lambda: None) -> None:
    """Wrap torch's pinning of a tensor, in this process; `told` is called for each one released."""
    from torch.utils.data._utils import pin_memory as module

    pin = module.pin_memory
    released: list[tuple[Any, int]] = []

    @functools.wraps(pin)
    def pin_memory(data: Any, *args: Any, **kwargs: Any) -> Any:
        # Of the batch before, which is gone by now: with the last descriptor its pages go.
        for entry in [entry for entry in released if entry[0].expired()]:
            released.remove(entry)
            os.close(entry[1])
        pinned = pin(data, *args, **kwargs)
        if pinned is not data and (unmapped := _unmapped(data)):
            released.append(unmapped)
            told()
        return pinned

    module.pin_memory = pin_memory


def _unmapped(data: Any) -> tuple[Any, int] | None:
    """Take a shared tensor's pages out of this process; return its storage and a descriptor.

    Whoever reads the tensor after all gets the pages back: they belong to the shared file, which
    is there for as long as its descriptor is open.
    """
    import torch
    from torch.multiprocessing import get_sharing_strategy, reductions

    if type(data) is not torch.Tensor or data.device.type != "cpu" or data.layout != torch.strided:
        return None
    storage = data.untyped_storage()
    address, size = storage.data_ptr(), storage.nbytes()
    if size < LEAST_BYTES or address % mmap.PAGESIZE or not storage.is_shared():
        return None
    if get_sharing_strategy() != "file_descriptor":
        return None
    try:
        descriptor = os.dup(storage._share_fd_cpu_()[0])
    except (RuntimeError, OSError):  # shared by other means, or too many files are open
        return None
    # Through ctypes.CDLL, which leaves the lock while the call lasts.
    ctypes.CDLL(None).madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), mmap.MADV_DONTNEED)
    return reductions.StorageWeakRef(storage), descriptor


KNOB = ReleaseWithoutGil()

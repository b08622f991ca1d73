"""The GPUs and MIG instances of this machine, in the order of nvidia-smi.

`CUDA_VISIBLE_DEVICES` is not respected: telemetry is about the machine, not about one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

from gpuadvisor.collectors.nvml import codes
from gpuadvisor.collectors.nvml.library import read
from gpuadvisor.domain.telemetry import UNNAMED, Gpu

Listed = tuple[Gpu, Any]
"""A GPU and its handle; None for the handle of one that is lost."""


def enumerate_gpus(
    nvml: Any, known: Mapping[int, Gpu], on_gpu: Callable[[], object] = lambda: None
) -> list[Listed]:
    """Return them all; `known` says which GPU had an index, for those that do not tell any more.
    One that never told is listed as well, without a name.

    `on_gpu` is called before each: since version 2 of nvmlInit, it is here that it is woken.

    Raises NVMLError where the driver cannot even count them, and LibraryGoneError. A GPU that
    this user or container must not use is not there for us.
    """
    listed: list[Listed] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        on_gpu()
        try:
            listed.extend(_whole_and_instances(nvml, index))
        except nvml.NVMLError as error:
            if error.value in codes.LIBRARY_GONE:
                raise codes.LibraryGoneError from error
            if error.value in codes.GPU_GONE:
                listed.append((Gpu(f"{UNNAMED}{index}", index, "NVIDIA GPU"), None))
    answering = {gpu.uuid for gpu, handle in listed if handle is not None}
    return [(gpu if handle else _named(gpu, known, answering), handle) for gpu, handle in listed]


def _named(lost: Gpu, known: Mapping[int, Gpu], answering: Set[str]) -> Gpu:
    """Return who a lost GPU is, unless the one that had its number answers under another."""
    before = known.get(lost.index, lost)
    return lost if before.uuid in answering else before


def _whole_and_instances(nvml: Any, index: int) -> Iterator[Listed]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    whole = _describe(nvml, handle, index, None)
    yield whole, handle
    mode = read(nvml, "nvmlDeviceGetMigMode", handle)
    if not mode or mode[0] != getattr(nvml, "NVML_DEVICE_MIG_ENABLE", 1):
        return
    for number in range(read(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        instance = read(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
        if instance is not None:
            yield _describe(nvml, instance, index, whole), instance


def _describe(nvml: Any, handle: Any, index: int, parent: Gpu | None) -> Gpu:
    memory = read(nvml, "nvmlDeviceGetMemoryInfo", handle)  # none on boards that share it
    pci = None if parent else read(nvml, "nvmlDeviceGetPciInfo", handle)
    capability = read(nvml, "nvmlDeviceGetCudaComputeCapability", handle)
    return Gpu(
        uuid=nvml.nvmlDeviceGetUUID(handle),
        index=index,
        name=read(nvml, "nvmlDeviceGetName", handle) or "NVIDIA GPU",
        memory_total_bytes=None if memory is None else int(memory.total),
        pci_bus_id=_text(pci.busId) if pci else parent.pci_bus_id if parent else None,
        compute_capability=capability or (parent.compute_capability if parent else None),
        parent_uuid=parent.uuid if parent else None,
    )


def _text(value: bytes | str) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value

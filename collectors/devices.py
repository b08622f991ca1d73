"""What this machine can run on: the GPUs that a script would see, and the CPU."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuadvisor.collectors import visible_devices
from gpuadvisor.collectors.limits import ROOT, cores, memory_bytes
from gpuadvisor.collectors.nvml import library as nvml
from gpuadvisor.domain.device import Device

ORDER_NOTE = (
    "CUDA numbers the different GPUs of this machine fastest first, not as nvidia-smi does: "
    "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by their UUIDs"
)


@dataclass(frozen=True)
class Inventory:
    """What NVML says about the GPUs of this machine."""

    gpus: tuple[Device, ...] = ()
    """Those that a script would see, in its order."""
    reason: str | None = None
    """Why there are none, in words; None where there are some."""
    notes: tuple[str, ...] = ()
    """What the user should know about the GPUs that were found, or not."""
    driver: str | None = None
    """Version of the driver, such as `580.95.05`."""
    driver_cuda: tuple[int, int] | None = None
    """Newest CUDA that the driver knows, such as (13, 0)."""


def list_gpus() -> tuple[Device, ...]:
    """Return the GPUs that a script started now would see; empty where `unavailable()`."""
    return inventory().gpus


def unavailable() -> str | None:
    """Return why there is no GPU, in words, or None if there is one."""
    return inventory().reason


def inventory(environ: Mapping[str, str] = os.environ) -> Inventory:
    """Return all that NVML says about the GPUs; it never raises.

    `CUDA_VISIBLE_DEVICES` is respected. Where it gives numbers, they are taken as nvidia-smi's:
    only CUDA itself knows its own order of different models, so a note says when they may differ.
    """
    try:
        return nvml.query(lambda library: _inventory(library, environ))
    except nvml.Unavailable as error:
        return Inventory(reason=str(error))


def cpu_device(root: Path = ROOT) -> Device:
    """Return the CPU, with the cores and the memory that this process may use."""
    return Device("cpu", 0, _cpu_name(root), memory_bytes=memory_bytes(root), cores=cores(root))


def handle(library: Any, device: Device) -> Any:
    """Return NVML's handle of a GPU; raises NVMLError."""
    if device.uuid:
        return library.nvmlDeviceGetHandleByUUID(device.uuid)
    return library.nvmlDeviceGetHandleByIndex(device.index)


def _inventory(library: Any, environ: Mapping[str, str]) -> Inventory:
    present, notes = _present(library)
    value = environ.get("CUDA_VISIBLE_DEVICES")
    gpus = _visible(library, present, value)
    if value is not None and _order_matters(present, value, environ):
        notes.append(ORDER_NOTE)
    version = nvml.read(library, "nvmlSystemGetCudaDriverVersion_v2")
    return Inventory(
        gpus=gpus,
        reason=None if gpus else _why_none(present, value, notes),
        notes=tuple(notes),
        driver=nvml.read(library, "nvmlSystemGetDriverVersion"),
        driver_cuda=None if version is None else (version // 1000, version % 1000 // 10),
    )


def _present(library: Any) -> tuple[list[Device | None], list[str]]:
    """Return each GPU in the order of nvidia-smi, None for one that fails, and what failed."""
    present: list[Device | None] = []
    notes = []
    for index in range(library.nvmlDeviceGetCount()):
        try:
            gpu = library.nvmlDeviceGetHandleByIndex(index)
            present.append(_describe(library, gpu, index))
        except library.NVMLError as error:
            present.append(None)
            notes.append(f"GPU {index} cannot be used, because {nvml.reason(error)}")
    return present, notes


def _describe(library: Any, gpu: Any, index: int) -> Device:
    memory = nvml.read(library, "nvmlDeviceGetMemoryInfo", gpu)  # none on boards that share it
    return Device(
        kind="cuda",
        index=index,
        name=nvml.read(library, "nvmlDeviceGetName", gpu) or "NVIDIA GPU",
        uuid=nvml.read(library, "nvmlDeviceGetUUID", gpu),
        memory_bytes=None if memory is None else int(memory.total),
        compute_capability=nvml.read(library, "nvmlDeviceGetCudaComputeCapability", gpu),
        cores=cores(),
    )


def _visible(
    library: Any, present: Sequence[Device | None], value: str | None
) -> tuple[Device, ...]:
    if value is None:
        return tuple(gpu for gpu in present if gpu)
    chosen = visible_devices.select([gpu.uuid if gpu else None for gpu in present], value)
    found = [_mig(library, item) if isinstance(item, str) else present[item] for item in chosen]
    return tuple(gpu for gpu in found if gpu)


def _mig(library: Any, uuid: str) -> Device | None:
    """Return a MIG instance: a part of a GPU that acts as one of its own."""
    try:
        instance = library.nvmlDeviceGetHandleByUUID(uuid)
    except library.NVMLError:
        return None
    whole = nvml.read(library, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", instance)
    index = None if whole is None else nvml.read(library, "nvmlDeviceGetIndex", whole)
    part = _describe(library, instance, index or 0)
    capability = part.compute_capability
    if capability is None and whole is not None:
        capability = nvml.read(library, "nvmlDeviceGetCudaComputeCapability", whole)
    return Device(part.kind, part.index, part.name, uuid, part.memory_bytes, capability, part.cores)


def _order_matters(
    present: Sequence[Device | None], value: str, environ: Mapping[str, str]
) -> bool:
    models = {gpu.name for gpu in present if gpu}
    by_bus = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    return len(models) > 1 and visible_devices.counts_positions(value) and not by_bus


def _why_none(present: Sequence[Device | None], value: str | None, notes: Sequence[str]) -> str:
    if not present:
        return "the NVIDIA driver is loaded but sees no GPU"
    if not any(present):
        return "; ".join(notes)
    return f"CUDA_VISIBLE_DEVICES={value!r} hides every GPU: unset it, or name one of them"


def _cpu_name(root: Path) -> str:
    try:
        lines = (root / "proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()

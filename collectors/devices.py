"""What this machine can run on: the GPUs that a script would see, and its share of the CPU.

`CUDA_VISIBLE_DEVICES` is read by the rules of CUDA and torch. A container or a batch job often gets
a fraction of the machine through control groups, of which `os.cpu_count` and the total memory know
nothing. Sources: sched_setaffinity(2), and cpu.max, memory.max
(Documentation/admin-guide/cgroup-v2.rst) or their ancestors of cgroup version 1.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.nvml import library as nvml
from gpuadvisor.domain.device import Device

ROOT = Path("/")
_LEADING_NUMBER = re.compile(r"[+-]?\d+")
ORDER_NOTE = (
    "CUDA numbers the different GPUs of this machine fastest first, not as nvidia-smi does: "
    "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by their UUIDs"
)


@dataclass(frozen=True)
class Inventory:
    """What NVML says about the GPUs of this machine."""

    gpus: tuple[Device, ...] = ()
    """GPUs that a script would see, in its order."""
    reason: str | None = None
    """Why there are none, in words; None where there are some."""
    notes: tuple[str, ...] = ()
    """What the user should know about the GPUs that were found, or not."""
    driver: str | None = None
    """Version of the driver, such as `580.95.05`."""
    driver_cuda: tuple[int, int] | None = None
    """Newest CUDA that the driver knows, such as (13, 0)."""


def list_gpus() -> tuple[Device, ...]:
    """Return the GPUs that a script started now would see; empty where there are none."""
    return inventory().gpus


def inventory(environ: Mapping[str, str] = os.environ) -> Inventory:
    """Return all that NVML says about the GPUs; it never raises.

    `CUDA_VISIBLE_DEVICES` is respected. Where it gives numbers, they are taken as nvidia-smi's:
    only CUDA itself knows its own order of different models, so a note says when they may differ.
    """
    try:
        return nvml.query(lambda library: _inventory(library, environ))
    except nvml.QueryError as error:
        return Inventory(reason=str(error))


def cpu_device() -> Device:
    """Return the CPU, with the cores and the memory that this process may use."""
    return Device("cpu", 0, _cpu_name(), memory_bytes=memory_bytes(), cores=cores())


def handle(library: Any, device: Device) -> Any:
    """Return NVML's handle of a GPU; raises NVMLError."""
    if device.uuid:
        return library.nvmlDeviceGetHandleByUUID(device.uuid)
    return library.nvmlDeviceGetHandleByIndex(device.index)


def _inventory(library: Any, environ: Mapping[str, str]) -> Inventory:
    present, notes = _present(library)
    value = environ.get("CUDA_VISIBLE_DEVICES")
    gpus = _visible(library, present, value)
    models = {gpu.name for gpu in present if gpu}
    by_bus = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if value is not None and len(models) > 1 and counts_positions(value) and not by_bus:
        notes.append(ORDER_NOTE)
    version = nvml.read(library, "nvmlSystemGetCudaDriverVersion_v2")
    return Inventory(
        gpus=gpus,
        reason=None if gpus else _why_none(present, value, notes),
        notes=tuple(notes),
        driver=nvml.read(library, "nvmlSystemGetDriverVersion"),
        driver_cuda=None if version is None else (version // 1000, version % 1000 // 10),
    )


def free_memory_bytes(device: Device) -> int | None:
    """Return the memory of a GPU that nobody has now, or that of the machine for a CPU.

    None where the driver does not say.
    """
    if not device.is_gpu:
        import psutil

        return int(psutil.virtual_memory().available)

    def free(library: Any) -> int | None:
        memory = nvml.read(library, "nvmlDeviceGetMemoryInfo", handle(library, device))
        return None if memory is None else int(memory.free)

    try:
        return nvml.query(free)
    except nvml.QueryError:
        return None


def _present(library: Any) -> tuple[list[Device | None], list[str]]:
    """Return each GPU in the order of nvidia-smi, None for one that fails, and what failed."""
    present: list[Device | None] = []
    notes = []
    for index in range(library.nvmlDeviceGetCount()):
        nvml.step()
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
    chosen = select_visible([gpu.uuid if gpu else None for gpu in present], value)
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


def _why_none(present: Sequence[Device | None], value: str | None, notes: Sequence[str]) -> str:
    if not present:
        return "the NVIDIA driver is loaded but sees no GPU"
    if not any(present):
        return "; ".join(notes)
    return f"CUDA_VISIBLE_DEVICES={value!r} hides every GPU: unset it, or name one of them"


def _cpu_name() -> str:
    try:
        lines = (ROOT / "proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def select_visible(uuids: Sequence[str | None], value: str) -> tuple[int | str, ...]:
    """Return what a value of `CUDA_VISIBLE_DEVICES` selects among the GPUs with these UUIDs.

    Each item is a position in `uuids`, or the UUID of a MIG instance. As in CUDA, the first entry
    that names no GPU ends the list, and an entry that comes twice empties it
    (`_parse_visible_devices` in torch/cuda/__init__.py).
    """
    if value.startswith("MIG-"):
        return (value.split(",")[0].strip(),)  # CUDA gives a process one instance at most
    chosen: list[int] = []
    for entry in value.split(","):
        position = _by_uuid(uuids, entry) if value.startswith("GPU-") else _by_number(entry)
        if position in chosen:
            return ()
        if not 0 <= position < len(uuids):
            break
        chosen.append(position)
    return tuple(chosen)


def counts_positions(value: str) -> bool:
    """Say whether the value numbers GPUs, so that it depends on the order of the GPUs."""
    return _LEADING_NUMBER.match(value.strip()) is not None


def _by_uuid(uuids: Sequence[str | None], prefix: str) -> int:
    """Return the only GPU whose UUID starts so, or -1."""
    found = [position for position, uuid in enumerate(uuids) if (uuid or "").startswith(prefix)]
    return found[0] if prefix.startswith("GPU-") and len(found) == 1 else -1


def _by_number(entry: str) -> int:
    """Return the number that the entry starts with, as C's `strtoul` reads it, or -1."""
    number = _LEADING_NUMBER.match(entry.strip())
    return int(number.group()) if number else -1


def cores(root: Path = ROOT) -> int:
    """Return the cores for this process: those it may run on, or the control group's share."""
    limit = cpu_limit(root)
    return usable_cores() if limit is None else max(1, int(min(usable_cores(), limit)))


def usable_cores() -> int:
    """Return the cores that this process may run on, whatever its share of their time."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def cpu_limit(root: Path = ROOT) -> float | None:
    """Return the cores of whose time a control group leaves this process so much, as a container
    with a CPU limit; None without."""
    return min(filter(None, map(_cpu_quota, _groups(root, "cpu"))), default=None)


def periods_of_quota(root: Path = ROOT) -> tuple[int, int] | None:
    """Return the periods that a control group's limit of CPU time has counted since it is there,
    0.1 s each if nobody chose another length, and those in which it was used up, so that processes
    of the group were held back. None without a limit; of several, the one that was used up most.
    """
    found = []
    for group in _groups(root, "cpu"):
        if _cpu_quota(group) is not None:
            counts = dict(line.split(maxsplit=1) for line in _lines(group / "cpu.stat"))
            with suppress(KeyError, ValueError):
                found.append((int(counts["nr_periods"]), int(counts["nr_throttled"])))
    return max(found, key=lambda pair: pair[1], default=None)


def memory_bytes(root: Path = ROOT) -> int | None:
    """Return the memory for this process: the machine's, or the control group's limit."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    names = ("memory.max", "memory.limit_in_bytes")
    words = [_words(group / name) for group in _groups(root, "memory") for name in names]
    return min([total, *(int(word[0]) for word in words if word and word[0].isdigit())])


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folder of this process's control group and of all above it.

    In a container the path is often the host's, and only its root is visible.
    """
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        top = root / "sys/fs/cgroup"
        if controllers:
            if controller not in controllers.split(","):
                continue
            top = top / controller
        group = Path(path.strip("/"))
        yield from (top / part for part in (group, *group.parents))


def _cpu_quota(group: Path) -> float | None:
    """Return the cores that one group allows, or None where it sets no limit."""
    words = _words(group / "cpu.max")
    if not words:
        words = _words(group / "cpu.cfs_quota_us") + _words(group / "cpu.cfs_period_us")
    if len(words) == 2 and words[0].isdigit():  # else `max`, or -1 in version 1
        return int(words[0]) / int(words[1])
    return None


def _words(file: Path) -> list[str]:
    return " ".join(_lines(file)).split()


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8").splitlines()
    except OSError:
        return []

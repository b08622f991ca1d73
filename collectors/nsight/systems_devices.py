"""The GPUs and processes of an export, and how its events number them.

Events carry CUDA's ordinal in their process, which `CUDA_VISIBLE_DEVICES` may turn into another
GPU in each process. Where an ordinal means one GPU in all processes, it is the profile's number
too, as the program's own `cuda:0`; else the number that Nsight Systems gives the GPU is. Numbers
of launches and streams repeat between processes, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpuadvisor.collectors.nsight.cells import IntArray, mapped, whole, within
from gpuadvisor.collectors.nsight.sqlite_export import DamagedError, Export
from gpuadvisor.domain.profile import UNKNOWN, DeviceLimits

_MOST_GPUS = 1024
_MOST_ENTRIES = 65_536
"""Entries read of the table of processes and their GPUs."""
_WARP = 32  # threads, of every NVIDIA GPU so far
_COLUMNS = (
    "id", "name", "cuDevice", "uuid", "l2CacheSize", "totalMemory", "memoryBandwidth", "clockRate",
    "smCount", "maxShmemPerBlockOptin", "maxShmemPerSm", "maxRegistersPerSm", "threadsPerWarp",
    "maxWarpsPerSm", "computeMajor", "computeMinor",
)  # fmt: skip
_ID_BITS = 24
"""globalTid = host and virtual machine | process (24 bits) | thread (24 bits); in a globalPid the
thread is 0 (docs.nvidia.com/nsight-systems, "Common SQLite Examples")."""
_ID_MASK = 2**_ID_BITS - 1
_CUPTI_BITS = 32
"""Bits of CUPTI's numbers of launches and streams."""
_MOST_PROCESSES = 65_536
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


class ExportDevices:
    """Numbers of GPUs in the profile."""

    def __init__(self, export: Export) -> None:
        self._gpus = [
            dict(zip(_COLUMNS, row, strict=True))
            for row in export.first_rows("TARGET_INFO_GPU", _COLUMNS, _MOST_GPUS)
        ]
        self._of_process = _of_processes(export)
        self._ordinals = _unambiguous(self._of_process)
        self._number_of_gpu = self._numbers()

    def _numbers(self) -> dict[int, int]:
        """Return the profile's number of each GPU of `TARGET_INFO_GPU`."""
        ids = whole([gpu["id"] for gpu in self._gpus]).tolist()
        if self._of_process:
            if self._ordinals is None:
                return {gpu: gpu for gpu in ids}
            return {gpu: ordinal for ordinal, gpu in self._ordinals.items()}
        ordinals = whole([gpu["cuDevice"] for gpu in self._gpus]).tolist()
        usable = min(ordinals, default=UNKNOWN) >= 0 and len(set(ordinals)) == len(ordinals)
        return dict(zip(ids, ordinals if usable else ids, strict=True))

    def of_events(self, ordinals: IntArray, processes: IntArray) -> Any:
        """Return the profile's numbers for CUDA's ordinals in processes."""
        if self._ordinals is not None or not self._of_process:
            return within(ordinals, "int16")
        numbers = mapped(lambda *key: self._of_process.get(key, UNKNOWN), processes, ordinals)
        return within(numbers, "int16")

    def of_gpus(self, gpus: IntArray) -> Any:
        """Return the profile's numbers for Nsight Systems' own."""
        known = self._number_of_gpu
        return within(mapped(lambda gpu: known[gpu] if gpu in known else int(gpu), gpus), "int16")

    def limits(self) -> tuple[DeviceLimits, ...]:
        """Return the GPUs, by the profile's number."""
        found: dict[int, DeviceLimits] = {}
        for gpu in self._gpus:
            number = self._number_of_gpu.get(int(whole([gpu["id"]])[0]))
            if number is not None and 0 <= number < 2**15:
                found.setdefault(number, _limits(number, gpu))
        return tuple(found[number] for number in sorted(found))


def _of_processes(export: Export) -> dict[tuple[int, int], int]:
    """Return the GPU of each process and ordinal in it."""
    rows = export.first_rows("TARGET_INFO_CUDA_DEVICE", ("pid", "cudaId", "gpuId"), _MOST_ENTRIES)
    numbers = (whole(row).tolist() for row in rows)
    return {(pid, ordinal): gpu for pid, ordinal, gpu in numbers if gpu >= 0}


def _unambiguous(of_process: dict[tuple[int, int], int]) -> dict[int, int] | None:
    """Return the GPU of each ordinal, or None where it depends on the process."""
    gpus: dict[int, set[int]] = defaultdict(set)
    for (_, ordinal), gpu in of_process.items():
        gpus[ordinal].add(gpu)
    one_each = all(len(found) == 1 for found in gpus.values())
    ordinals = {ordinal: found.pop() for ordinal, found in gpus.items()} if one_each else {}
    return ordinals if ordinals and len(set(ordinals.values())) == len(ordinals) else None


def _limits(number: int, gpu: dict[str, Any]) -> DeviceLimits:
    def known(column: str) -> int | None:
        value = int(whole([gpu[column]])[0])
        return value if value > 0 else None

    def product(column: str, times: int) -> int | None:
        value = known(column)
        return value * times if value is not None and value * times < 2**63 else None

    major, minor = known("computeMajor"), int(whole([gpu["computeMinor"]])[0])
    bandwidth, clock = known("memoryBandwidth"), known("clockRate")
    return DeviceLimits(
        index=number,
        name=gpu["name"] if isinstance(gpu["name"], str) else "",
        compute_capability=None if major is None else (major, max(minor, 0)),
        sm_count=known("smCount"),
        memory_bytes=known("totalMemory"),
        memory_bandwidth_bytes_per_s=None if bandwidth is None else float(bandwidth),
        l2_bytes=known("l2CacheSize"),
        clock_hz=None if clock is None else float(clock),
        registers_per_multiprocessor=known("maxRegistersPerSm"),
        shared_bytes_per_multiprocessor=known("maxShmemPerSm"),
        shared_bytes_per_block=known("maxShmemPerBlockOptin"),
        threads_per_multiprocessor=product("maxWarpsPerSm", known("threadsPerWarp") or _WARP),
        uuid=_uuid(gpu["uuid"]),
    )


def _uuid(cell: Any) -> str | None:
    """Return `GPU-...` as NVML gives it."""
    if not isinstance(cell, str) or not cell:
        return None
    return cell if cell.startswith(("GPU-", "MIG-")) else f"GPU-{cell}"


class ExportProcesses:
    """Tells processes apart: what repeats between them gets the process's place in bits 32 up.

    The first process that is met keeps its numbers, so that most profiles show CUPTI's.
    """

    def __init__(self, export: Export) -> None:
        self._export = export
        self._places: dict[int, int] = {}
        self._shared = _shared_devices(export)

    def unique(self, numbers: IntArray, global_ids: IntArray) -> IntArray:
        """Return launches' numbers that no other process has; `UNKNOWN` stays."""
        usable = (numbers >= 0) & (numbers < 2**_CUPTI_BITS)
        places = mapped(self._place, global_ids >> _ID_BITS)
        return np.where(usable, numbers + (places << _CUPTI_BITS), UNKNOWN)

    def streams(self, numbers: IntArray, ordinals: IntArray, global_ids: IntArray) -> IntArray:
        """Return streams, told apart where several processes use the same device."""
        shared = np.isin(ordinals, self._shared)
        plain = np.where((numbers >= 0) & (numbers < 2**_CUPTI_BITS), numbers, UNKNOWN)
        return np.where(shared, self.unique(numbers, global_ids), plain)

    def _place(self, key: int) -> int:
        if key < 0 or len(self._places) >= _MOST_PROCESSES:
            return self._places.get(key, 0)
        return self._places.setdefault(key, len(self._places))

    def names(self) -> Mapping[int, str]:
        """Return the names of the processes that were met, by process number."""
        met = {key & _ID_MASK for key in self._places}
        rows = self._export.first_rows("PROCESSES", ("globalPid", "name"), 1_000_000)
        named = ((key >> _ID_BITS & _ID_MASK, name) for key, name in rows if isinstance(key, int))
        return {one: name for one, name in named if one in met and isinstance(name, str)}


def process_of(global_ids: IntArray) -> IntArray:
    """Return process numbers, as the operating system gives them."""
    return np.where(global_ids < 0, UNKNOWN, (global_ids >> _ID_BITS) & _ID_MASK)


def thread_of(global_ids: IntArray) -> IntArray:
    """Return thread numbers, as the operating system gives them."""
    return np.where(global_ids < 0, UNKNOWN, global_ids & _ID_MASK)


def _shared_devices(export: Export) -> list[int]:
    """Return CUDA's ordinals on which kernels of several processes ran."""
    if not {"deviceId", "globalPid"} <= export.columns(_KERNELS):
        return []
    query = f"SELECT DISTINCT deviceId, globalPid FROM {_KERNELS} NOT INDEXED"
    try:
        pairs = export.answers(query, _MOST_PROCESSES)
    except DamagedError:
        return []
    processes = Counter(device for device, _ in pairs if isinstance(device, int))
    return [device for device, number in processes.items() if number > 1]

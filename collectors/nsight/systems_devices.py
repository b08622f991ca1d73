"""The GPUs of an export, and how its events number them.

Events carry CUDA's ordinal in their process, which `CUDA_VISIBLE_DEVICES` may turn into another GPU
in each process. Where an ordinal means one GPU in all processes, it is the profile's number too, as
the program's own `cuda:0`; else the number that Nsight Systems gives the GPU is.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from gpuadvisor.collectors.nsight.cells import Whole, count, whole, within
from gpuadvisor.collectors.nsight.sqlite_export import Export
from gpuadvisor.domain.profile import UNKNOWN, DeviceLimits

_MOST_GPUS = 1024
_MOST_ENTRIES = 65_536
"""Of processes and their GPUs."""
_WARP = 32  # threads, of every NVIDIA GPU so far
_COLUMNS = (
    "id", "name", "cuDevice", "uuid", "l2CacheSize", "totalMemory", "memoryBandwidth", "clockRate",
    "smCount", "maxShmemPerBlockOptin", "maxShmemPerSm", "maxRegistersPerSm", "threadsPerWarp",
    "maxWarpsPerSm", "computeMajor", "computeMinor",
)  # fmt: skip


class Devices:
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

    def of_events(self, ordinals: Whole, processes: Whole) -> Any:
        """Return the profile's numbers for CUDA's ordinals in processes."""
        if self._ordinals is not None or not self._of_process:
            return within(ordinals, "int16")
        pairs, places = np.unique(np.stack((processes, ordinals)), axis=1, return_inverse=True)
        numbers = [self._of_process.get((one, other), UNKNOWN) for one, other in pairs.T.tolist()]
        return count(numbers, "int16")[places.reshape(-1)]

    def of_gpus(self, gpus: Whole) -> Any:
        """Return the profile's numbers for Nsight Systems' own."""
        distinct, places = np.unique(gpus, return_inverse=True)
        numbers = [self._number_of_gpu.get(gpu, gpu) for gpu in distinct.tolist()]
        return count(numbers, "int16")[places.reshape(-1)]

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
        multiprocessors=known("smCount"),
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

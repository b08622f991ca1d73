"""What the numbers of an export mean: kinds of copies, of memory, of waiting, of ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuadvisor.collectors.nsight.cells import Whole
from gpuadvisor.collectors.nsight.sqlite_export import Export
from gpuadvisor.domain.profile import Direction, Memory, Range, Synchronization

_MOST_KINDS = 1000

_DIRECTIONS = {  # ends of names in ENUM_CUDA_MEMCPY_OPER
    "KIND_HTOD": Direction.HOST_TO_DEVICE, "KIND_HTOA": Direction.HOST_TO_DEVICE,
    "KIND_DTOH": Direction.DEVICE_TO_HOST, "KIND_ATOH": Direction.DEVICE_TO_HOST,
    "KIND_DTOD": Direction.DEVICE_TO_DEVICE, "KIND_ATOA": Direction.DEVICE_TO_DEVICE,
    "KIND_ATOD": Direction.DEVICE_TO_DEVICE, "KIND_DTOA": Direction.DEVICE_TO_DEVICE,
    "KIND_HTOH": Direction.HOST_TO_HOST, "KIND_PTOP": Direction.PEER_TO_PEER,
    "KIND_UVM_HTOD": Direction.MIGRATION, "KIND_UVM_DTOH": Direction.MIGRATION,
    "KIND_UVM_DTOD": Direction.MIGRATION,
}  # fmt: skip
_MEMORIES = {  # ends of names in ENUM_CUDA_MEM_KIND
    "KIND_PAGEABLE": Memory.PAGEABLE, "KIND_PINNED": Memory.PINNED,
    "KIND_DEVICE": Memory.DEVICE, "KIND_DEVICE_STATIC": Memory.DEVICE,
    "KIND_ARRAY": Memory.ARRAY,
    "KIND_MANAGED": Memory.MANAGED, "KIND_MANAGED_STATIC": Memory.MANAGED,
}  # fmt: skip

# Of exports that do not carry their enumerations; the same in all of schemas 2.9 to 3.24.
_USUAL_DIRECTIONS = {
    1: Direction.HOST_TO_DEVICE, 2: Direction.DEVICE_TO_HOST, 3: Direction.HOST_TO_DEVICE,
    4: Direction.DEVICE_TO_HOST, 5: Direction.DEVICE_TO_DEVICE, 6: Direction.DEVICE_TO_DEVICE,
    7: Direction.DEVICE_TO_DEVICE, 8: Direction.DEVICE_TO_DEVICE, 9: Direction.HOST_TO_HOST,
    10: Direction.PEER_TO_PEER, 11: Direction.MIGRATION, 12: Direction.MIGRATION,
    13: Direction.MIGRATION,
}  # fmt: skip
_USUAL_MEMORIES = {
    0: Memory.PAGEABLE, 1: Memory.PINNED, 2: Memory.DEVICE, 3: Memory.ARRAY, 4: Memory.MANAGED,
    5: Memory.DEVICE, 6: Memory.MANAGED,
}  # fmt: skip
SYNCHRONIZATIONS = {
    1: Synchronization.EVENT, 2: Synchronization.STREAM_WAIT, 3: Synchronization.STREAM,
    4: Synchronization.CONTEXT,
}  # fmt: skip
NVTX_RANGES = (59, 60)
"""Of `eventType`: pushed and popped, started and ended. Others are marks, domains, categories."""

_STEP, _LOADER = "ProfilerStep#", "enumerate(DataLoader)#"


def directions(export: Export) -> Mapping[int, int]:
    """Return the direction of each `copyKind`."""
    return _enumeration(export, "ENUM_CUDA_MEMCPY_OPER", _DIRECTIONS) or _USUAL_DIRECTIONS


def memories(export: Export) -> Mapping[int, int]:
    """Return the memory of each `srcKind`, `dstKind` and `memKind`."""
    return _enumeration(export, "ENUM_CUDA_MEM_KIND", _MEMORIES) or _USUAL_MEMORIES


def _enumeration(export: Export, table: str, meanings: Mapping[str, int]) -> Mapping[int, int]:
    found: dict[int, int] = {}
    for number, name in export.first_rows(table, ("id", "name"), _MOST_KINDS):
        if isinstance(number, int) and isinstance(name, str):
            meaning = meanings.get(name[name.find("KIND_") :])
            if meaning is not None:
                found[number] = meaning
    return found


def translated(numbers: Whole, meanings: Mapping[int, int]) -> npt.NDArray[Any]:
    """Return a meaning for each number; 0, which is unknown everywhere, for others."""
    distinct, places = np.unique(numbers, return_inverse=True)
    known = [meanings.get(number, 0) for number in distinct.tolist()]
    return np.array(known, np.int8)[places.reshape(-1)]


def range_kind(name: str) -> Range:
    """Return who marked a range, as far as its name tells."""
    if name.startswith(_STEP):
        return Range.STEP
    return Range.LOADER if name.startswith(_LOADER) else Range.USER

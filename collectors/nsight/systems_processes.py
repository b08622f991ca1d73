"""The processes of an export, whose numbers of launches and streams repeat in each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from gpuadvisor.collectors.nsight.cells import Whole
from gpuadvisor.collectors.nsight.sqlite_export import DamagedError, Export
from gpuadvisor.domain.profile import UNKNOWN

_ID_BITS = 24
"""globalTid = host and virtual machine | process (24 bits) | thread (24 bits); in a globalPid the
thread is 0 (docs.nvidia.com/nsight-systems, "Common SQLite Examples")."""
_ID_MASK = 2**_ID_BITS - 1
_CUPTI_BITS = 32
"""Of CUPTI's numbers of launches and streams."""
_MOST_PROCESSES = 65_536
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


class Processes:
    """Tells processes apart: what repeats between them gets the process's place in bits 32 up.

    The first process that is met keeps its numbers, so that most profiles show CUPTI's.
    """

    def __init__(self, export: Export) -> None:
        self._export = export
        self._places: dict[int, int] = {}
        self._shared = _shared_devices(export)

    def unique(self, numbers: Whole, global_ids: Whole) -> Whole:
        """Return launches' numbers that no other process has; `UNKNOWN` stays."""
        usable = (numbers >= 0) & (numbers < 2**_CUPTI_BITS)
        places = self._places_of(global_ids) << _CUPTI_BITS
        return np.where(usable, numbers + places, UNKNOWN)

    def streams(self, numbers: Whole, ordinals: Whole, global_ids: Whole) -> Whole:
        """Return streams, told apart where several processes use the same device."""
        shared = np.isin(ordinals, self._shared)
        plain = np.where((numbers >= 0) & (numbers < 2**_CUPTI_BITS), numbers, UNKNOWN)
        return np.where(shared, self.unique(numbers, global_ids), plain)

    def _places_of(self, global_ids: Whole) -> Whole:
        distinct, rows = np.unique(global_ids >> _ID_BITS, return_inverse=True)
        places = np.array([self._place(key) for key in distinct.tolist()], np.int64)
        return np.asarray(places[rows.reshape(-1)], np.int64)

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


def process_of(global_ids: Whole) -> Whole:
    """Return process numbers, as the operating system gives them."""
    return np.where(global_ids < 0, UNKNOWN, (global_ids >> _ID_BITS) & _ID_MASK)


def thread_of(global_ids: Whole) -> Whole:
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

"""Kernels that are the same, found while a profile is read: batch by batch, in bounded memory.

`kernels.kernel_times` finds the same of a profile that is there as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuadvisor.analysis.batches import Array
from gpuadvisor.analysis.intervals import Whole, ends, exact_sum
from gpuadvisor.analysis.kernels import KEYS, KernelTime
from gpuadvisor.analysis.launches import percentile
from gpuadvisor.domain.profile import Columns

NEEDED = (*KEYS, "begin_ns", "duration_ns")
"""Columns of `kernels` that are looked at."""
MOST_GROUPS = 200_000
"""That are told apart, so that memory stays bounded whatever a file holds. Real traces have some
hundreds to some thousands."""

_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio (Knuth, TAOCP 3, 6.4)
_SHIFT = np.uint64(29)


class KernelGrouping:
    """Groups kernels batch by batch; it keeps 12 bytes a launch, for the percentiles."""

    def __init__(self, most_groups: int = MOST_GROUPS) -> None:
        self._most = most_groups
        self._numbers: dict[tuple[int, ...], int] = {}
        self._first: list[tuple[int, int]] = []  # begin and row
        self._groups: list[Array] = []
        self._durations: list[Whole] = []
        self._rows = 0

    def add(self, columns: Columns) -> None:
        """Take the next rows of `kernels`."""
        if not len(columns["begin_ns"]):
            return
        begin, end = ends(columns["begin_ns"], columns["duration_ns"])
        order = np.argsort(begin, kind="stable")
        keys = [columns[name][order] for name in KEYS]
        first, place = _alike(keys)
        groups = np.array([self._number(keys, row) for row in first.tolist()], np.int32)
        for group, row in zip(groups.tolist(), order[first].tolist(), strict=True):
            if group >= 0:
                earliest = (int(begin[row]), self._rows + row)
                self._first[group] = min(self._first[group], earliest)
        self._groups.append(groups[place])
        self._durations.append((end - begin)[order])
        self._rows += len(begin)

    def times(self, texts: Sequence[str]) -> list[KernelTime]:
        """Return the groups of all rows so far, the longest in sum first."""
        if not self._numbers:
            return []
        self._groups, self._durations = (
            [np.concatenate(self._groups)],  # nothing is kept twice
            [np.concatenate(self._durations)],
        )
        groups, durations = self._groups[0], self._durations[0]
        order = np.argsort(groups, kind="stable")
        counts = np.bincount(groups[groups >= 0], minlength=len(self._numbers))
        stops = np.cumsum(counts) + np.count_nonzero(groups < 0)
        parts = np.split(durations[order], stops - counts)[1:]
        found = [
            _time(key, texts, part, row)
            for key, part, (_, row) in zip(self._numbers, parts, self._first, strict=True)
        ]
        return sorted(found, key=lambda each: (-each.time_ns, each.first_row))

    def _number(self, keys: Sequence[Array], row: int) -> int:
        """Return the number of a row's group; -1 where there are too many to tell it apart."""
        key = tuple(int(column[row]) for column in keys)
        number = self._numbers.get(key, -1)
        if number < 0 and len(self._numbers) < self._most:
            number = self._numbers[key] = len(self._numbers)
            self._first.append((np.iinfo(np.int64).max, 0))
        return number


def _time(key: tuple[int, ...], texts: Sequence[str], durations_ns: Whole, row: int) -> KernelTime:
    name, *shape, registers, shared_bytes, device, stream = key
    return KernelTime(
        texts[name] if 0 <= name < len(texts) else "",
        (shape[0], shape[1], shape[2]),
        (shape[3], shape[4], shape[5]),
        registers,
        shared_bytes,
        device,
        stream,
        len(durations_ns),
        exact_sum(durations_ns),
        percentile(durations_ns, 50) or 0,
        percentile(durations_ns, 95) or 0,
        row,
    )


def _alike(keys: Sequence[Array]) -> tuple[Array, Array]:
    """Return the first row of each distinct combination, and each row's place among these."""
    mixed = np.zeros(len(keys[0]), np.uint64)
    for key in keys:
        mixed = (mixed ^ key.astype(np.int64).view(np.uint64)) * _MIX
        mixed ^= mixed >> _SHIFT
    _, first, place = np.unique(mixed, return_index=True, return_inverse=True)
    if all(np.array_equal(key, key[first][place]) for key in keys):
        return first, place
    # Two combinations got one number, by chance or by intent: slower, and certain.
    rows = np.stack([key.astype(np.int64) for key in keys], axis=1)
    _, first, place = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first, place.reshape(-1)

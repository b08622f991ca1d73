"""Kernels that are the same, found while a profile is read: batch by batch, in bounded memory.

`kernels.kernel_times` finds the same of a profile that is there as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpuadvisor.columns.batches import Array
from gpuadvisor.domain.profile import Columns
from gpuadvisor.rules.facts.intervals import Whole, ends
from gpuadvisor.rules.facts.kernels import KEYS, KernelTime

NEEDED = (*KEYS, "begin_ns", "duration_ns")
"""Columns of `kernels` that are looked at."""
MOST_GROUPS = 200_000
"""That are told apart, so that memory stays bounded whatever a file holds. Real traces have some
hundreds to some thousands."""
MERGED_ROWS = 1 << 18
"""Launches that wait, at least, until equal ones are counted: some MB."""

_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio (Knuth, TAOCP 3, 6.4)
_SHIFT = np.uint64(29)


@dataclass(frozen=True)
class _Counted:
    """Durations in rising order, and how often there was each."""

    duration_ns: Whole
    count: Whole

    @property
    def rows(self) -> int:
        return int(self.count.sum())

    @property
    def sum_ns(self) -> int:
        """The sum of all, which cannot wrap around whatever a file claims."""
        high, low = self.duration_ns >> 32, self.duration_ns & 0xFFFFFFFF
        return (int((high * self.count).sum()) << 32) + int((low * self.count).sum())

    def percentile(self, pct: int) -> int:
        """Return the nearest-rank percentile, as `launches.percentile` does."""
        place = max(-(-pct * self.rows // 100) - 1, 0)
        return int(self.duration_ns[np.searchsorted(np.cumsum(self.count), place, "right")])


class _Durations:
    """How long the launches of each group took, equal ones counted.

    So memory follows how many different times there are, of which a long trace has few new ones:
    GPUs count in steps of up to 32 ns.
    """

    def __init__(self) -> None:
        self._group = np.empty(0, np.int32)
        self._counted = _Counted(np.empty(0, np.int64), np.empty(0, np.int64))
        self._new: list[tuple[Array, Whole]] = []
        self._waiting = 0

    def add(self, groups: Array, durations_ns: Whole) -> None:
        """Take launches; those of negative groups are left out."""
        known = groups >= 0
        self._new.append((groups[known], durations_ns[known]))
        self._waiting += len(groups)
        if self._waiting >= max(MERGED_ROWS, len(self._group)):
            self._merge()

    def by_group(self, groups: int) -> Iterator[_Counted]:
        """Yield what there is of each group."""
        self._merge()
        stops = np.searchsorted(self._group, np.arange(groups), "right").tolist()
        for start, stop in zip([0, *stops], stops, strict=False):
            part = slice(start, stop)
            yield _Counted(self._counted.duration_ns[part], self._counted.count[part])

    def _merge(self) -> None:
        new = [durations for _, durations in self._new]
        group = np.concatenate((self._group, *(groups for groups, _ in self._new)))
        duration = np.concatenate((self._counted.duration_ns, *new))
        count = np.concatenate((self._counted.count, *(np.ones_like(each) for each in new)))
        self._new, self._waiting = [], 0
        if not len(group):
            return
        order = np.lexsort((duration, group))
        group, duration, count = group[order], duration[order], count[order]
        differs = np.ones(len(group), np.bool_)
        differs[1:] = (group[1:] != group[:-1]) | (duration[1:] != duration[:-1])
        starts = np.flatnonzero(differs)
        self._group = group[starts]
        self._counted = _Counted(duration[starts], np.add.reduceat(count, starts))


class KernelGrouping:
    """Groups kernels batch by batch."""

    def __init__(self, most_groups: int = MOST_GROUPS) -> None:
        self._most = most_groups
        self._numbers: dict[tuple[int, ...], int] = {}
        self._first: list[tuple[int, int]] = []  # begin and row
        self._durations = _Durations()
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
        self._durations.add(groups[place], (end - begin)[order])
        self._rows += len(begin)

    def times(self, texts: Sequence[str]) -> list[KernelTime]:
        """Return the groups of all rows so far, the longest in sum first."""
        found = [
            _time(key, texts, durations, row)
            for key, durations, (_, row) in zip(
                self._numbers,
                self._durations.by_group(len(self._numbers)),
                self._first,
                strict=True,
            )
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


def _time(key: tuple[int, ...], texts: Sequence[str], took: _Counted, row: int) -> KernelTime:
    name, *shape, registers, shared_bytes, device, stream = key
    return KernelTime(
        texts[name] if 0 <= name < len(texts) else "",
        (shape[0], shape[1], shape[2]),
        (shape[3], shape[4], shape[5]),
        registers,
        shared_bytes,
        device,
        stream,
        took.rows,
        took.sum_ns,
        took.percentile(50),
        took.percentile(95),
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

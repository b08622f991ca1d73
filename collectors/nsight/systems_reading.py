"""How the tables of one export are read: events in batches, and the texts kept apart from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuadvisor.collectors.nsight.bounded import ALL_TEXTS, Names, Warnings
from gpuadvisor.collectors.nsight.cells import IntArray, mapped, prepared, strange, whole
from gpuadvisor.collectors.nsight.sqlite_export import DamagedError, Export, quoted
from gpuadvisor.collectors.nsight.systems_devices import ExportDevices, ExportProcesses
from gpuadvisor.domain.profile import NO_TEXT, Sink

TABLE = "StringIds"
MPI = (
    "MPI_P2P_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_COLLECTIVES_EVENTS", "MPI_OTHER_EVENTS",
)  # fmt: skip
"""Tables of calls of MPI (`nsys profile --trace=mpi`), by what else they tell of them."""
_USED = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", "demangledName"),
    ("CUPTI_ACTIVITY_KIND_KERNEL", "shortName"),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId"),
    ("NVTX_EVENTS", "textId"),
    ("OSRT_API", "nameId"),
    *((table, "textId") for table in MPI),
)
"""Columns with numbers of texts. Most texts are symbols of call stacks, which are not needed."""
_NUMBERS_AT_ONCE = 5000
"""Numbers of texts in one query, which is far below SQLite's longest."""
Cells = Mapping[str, Any]
"""The cells of a batch by column: an array where all are whole numbers, else any sequence."""
Converted = dict[str, npt.NDArray[Any]]
BoolArray = npt.NDArray[np.bool_]
FARTHEST_NS = 2**62
"""Farthest time from 1970 or the session's start: two such times differ by less than 64 bits."""
_NEVER = -(2**63)
"""Stands for what is no time; -1 is one, shortly before the session's start."""
TIMES = {  # table: columns of an event's begin and end
    "CUPTI_ACTIVITY_KIND_KERNEL": ("start", "end"),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": ("start", "end"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("start", "end"),
    "CUPTI_ACTIVITY_KIND_MEMSET": ("start", "end"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "end"),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": ("start", "end"),
    "NVTX_EVENTS": ("start", "end"),
    "OSRT_API": ("start", "end"),
    **dict.fromkeys(MPI, ("start", "end")),
    "GPU_METRICS": ("timestamp", "timestamp"),
    "COMPOSITE_EVENTS": ("start", "start"),
}
"""The tables that are read."""


def text_numbers(
    ids: IntArray, texts: Mapping[int, str], number: Callable[[str], int]
) -> npt.NDArray[np.int32]:
    """Return a number of the profile for each number of the export; `NO_TEXT` where unknown."""
    numbers = mapped(lambda one: number(texts[one]) if one in texts else NO_TEXT, ids)
    return numbers.astype(np.int32)


def cell_numbers(cells: Sequence[Any], number: Callable[[str], int]) -> npt.NDArray[np.int32]:
    """Return numbers for cells that hold the text itself; `NO_TEXT` for what is no text."""
    found = [number(cell) if isinstance(cell, str) else NO_TEXT for cell in cells]
    return np.array(found, np.int32)


class ExportReader:
    """An open export, and where its rows go."""

    def __init__(self, export: Export, sink: Sink, warnings: Warnings) -> None:
        self.export = export
        self.warnings = warnings
        self.names = Names(warnings)
        self.devices = ExportDevices(export)
        self.processes = ExportProcesses(export)
        self.rows = 0
        self.calling: set[int] = set()
        """The threads that call CUDA, by the export's numbers."""
        self.failed: Counter[tuple[str, int]] = Counter()
        """Calls into CUDA that returned an error, by their names and the error's number."""
        self._sink = sink
        self._first_ns: int | None = None
        self._end_ns = 0

    @cached_property
    def strings(self) -> Mapping[int, str]:
        """The texts of kernels, calls and ranges, by the export's number."""
        users = [
            f"SELECT {quoted(column)} FROM {quoted(table)}"
            for table, column in _USED
            if column in self.export.columns(table)
        ]
        if not users or not {"id", "value"} <= self.export.columns(TABLE):
            return {}
        return self._texts([" UNION ".join(users)])

    def texts_of(self, numbers: IntArray) -> Mapping[int, str]:
        """Return the texts of some numbers; those that are no text are left out."""
        if not {"id", "value"} <= self.export.columns(TABLE):
            return {}
        parts = range(0, len(numbers), _NUMBERS_AT_ONCE)
        lists = (numbers[at : at + _NUMBERS_AT_ONCE].tolist() for at in parts)
        return self._texts([", ".join(map(str, each)) for each in lists])

    def _texts(self, wanted: Sequence[str]) -> Mapping[int, str]:
        """Return the texts of the numbers that lists or queries in SQL name."""
        found: dict[int, str] = {}
        room = ALL_TEXTS
        try:
            for numbers in wanted:
                query = (
                    f"SELECT id, substr(value, 1, 16384) FROM {TABLE} "
                    f"WHERE id IN ({numbers}) AND typeof(value) = 'text'"
                )
                for number, text in self.export.text_rows(query):
                    room -= len(text)
                    if room < 0:
                        raise DamagedError("the names are too long")
                    found[number] = text
        except DamagedError as error:
            why = f"because {TABLE} cannot be read further: {error}"
            self.warnings.add(f"some names are missing, {why}")
        return found

    @property
    def duration_ns(self) -> int:
        """Time from the first event's begin to the last one's end, as far as they were read."""
        return 0 if self._first_ns is None else self._end_ns - self._first_ns

    @property
    def first_ns(self) -> int:
        """When the first event began that was read, by the export's clock."""
        return self._first_ns or 0

    def events(
        self,
        source: str,
        target: str,
        columns: Sequence[str],
        convert: Callable[[Cells, IntArray], Converted],
        texts: bool = False,
        choose: Callable[[Cells], BoolArray] | None = None,
        window: tuple[int, int] | None = None,
    ) -> int:
        """Give the events of a table to the sink; return how many there were.

        `convert` gets the cells and which rows to use of them, and returns the columns but those of
        the time, only for the rows that are used. `choose` says which rows are events at all, and
        what lies outside of `window` is cut off.
        """
        begin_name, end_name = TIMES[source]
        if not {begin_name, end_name} <= self.export.columns(source):
            return 0
        wanted = dict.fromkeys((begin_name, end_name, *columns))
        before, useless, odd = self.rows, 0, 0
        try:
            for batch in self.export.batches(source, tuple(wanted), texts):
                cells = {name: prepared(column) for name, column in batch.items()}
                begin, end = (whole(cells[name], _NEVER) for name in (begin_name, end_name))
                chosen = np.ones(len(begin), np.bool_) if choose is None else choose(cells)
                usable = (begin > -FARTHEST_NS) & (end < FARTHEST_NS) & (end >= begin)
                used = np.flatnonzero(chosen & usable)
                useless += int(np.sum(chosen & ~usable & ~_open(source, cells[end_name])))
                odd += sum(strange(cells[name]) for name in wanted if name != "text")
                if window is not None:
                    begin, end = np.clip(begin, *window), np.clip(end, *window)
                if len(used):
                    self._give(target, begin[used], end[used], convert(cells, used))
        except DamagedError as error:
            self.warnings.add(f"{source} could be read only in part: {error}")
        if useless > 0:
            self.warnings.add(f"{source} has {useless} rows without a usable time: left out")
        if odd > 0:
            self.warnings.add(f"{source} has {odd} cells that are no numbers: taken as unknown")
        return self.rows - before

    def _give(self, target: str, begin: IntArray, end: IntArray, rest: Converted) -> None:
        if target in ("counters", "samples"):
            times: Converted = {"time_ns": begin}
        else:
            times = {"begin_ns": begin, "duration_ns": end - begin}
        self._sink.add(target, {**times, **rest})
        self.rows += len(begin)
        first, last = int(begin.min()), int(end.max())
        if self._first_ns is None:
            self._first_ns, self._end_ns = first, last
        self._first_ns, self._end_ns = min(first, self._first_ns), max(last, self._end_ns)


def _open(source: str, ends: Any) -> BoolArray:
    """Say which rows rightly have no end: NVTX ranges that were still open when it was recorded."""
    if source != "NVTX_EVENTS":
        return np.zeros(len(ends), np.bool_)
    return np.array([end is None for end in ends], np.bool_)

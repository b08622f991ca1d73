"""Small profiles made by hand: what a test says happened, as a reader would have read it.

    made = Made()
    made.launched("gemm", call=(0, 5), runs=(10, 20))  # microseconds: begin and duration
    profile = made.profile()

Times are in microseconds here and nanoseconds in the profile. What is not said is an ordinary
value: device 0, stream 7, process 1, thread 1, and a correlation of its own.
"""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np

from gpuadvisor.columns import MemoryProfile
from gpuadvisor.domain.profile import (
    NO_TEXT,
    TABLES,
    UNKNOWN,
    CallKind,
    Direction,
    Header,
    Memory,
    Range,
    Texts,
)

When = tuple[float, float]
"""Begin and duration in microseconds."""
TEXT_COLUMNS = {
    "name",
    "shapes",
    "types",
    "inputs",
    "stack",
    "type",
    "group",
    "metric",
    "unit",
    "line",
    "instruction",
    "reason",
    "function",
    "module",
}


class Made:
    """Takes rows one by one, and makes a profile of them."""

    def __init__(self) -> None:
        self.texts = Texts()
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._correlation = 0

    def row(self, table: str, **values: Any) -> None:
        """Add a row; texts may be given as such, and what is missing is UNKNOWN."""
        filled = {**_unknown(table), **values}
        assert len(filled) == len(TABLES[table]), f"{table} has not all of {', '.join(values)}"
        for column, value in values.items():
            if isinstance(value, str):
                filled[column] = self.texts.number(value)
        self.rows[table].append(filled)

    def kernel(self, name: str, runs: When, **values: Any) -> None:
        """Add a kernel without its call."""
        self.row("kernels", name=name, **_times(runs), **{"device": 0, "stream": 7, **values})

    def copy(self, runs: When, **values: Any) -> None:
        """Add a copy from pinned memory to the device without its call."""
        usual = {
            "device": 0,
            "stream": 7,
            "direction": Direction.HOST_TO_DEVICE,
            "source": Memory.PINNED,
            "destination": Memory.DEVICE,
        }
        self.row("copies", **_times(runs), **{**usual, **values})

    def call(self, name: str, when: When, kind: CallKind = CallKind.OTHER, **values: Any) -> None:
        """Add a call into CUDA."""
        usual = {"process": 1, "thread": 1}
        self.row("calls", name=name, kind=kind, **_times(when), **{**usual, **values})

    def launched(self, name: str, call: When, runs: When, thread: int = 1, **values: Any) -> None:
        """Add a kernel and the call that launched it."""
        correlation = values.pop("correlation", self.correlation())
        self.kernel(name, runs, correlation=correlation, **values)
        self.call("cudaLaunchKernel", call, CallKind.LAUNCH, correlation=correlation, thread=thread)

    def copied(self, call: When, runs: When, thread: int = 1, **values: Any) -> None:
        """Add a copy and its call."""
        correlation = values.pop("correlation", self.correlation())
        self.copy(runs, correlation=correlation, **values)
        self.call("cudaMemcpyAsync", call, CallKind.COPY, correlation=correlation, thread=thread)

    def operator(self, name: str, when: When, **values: Any) -> None:
        """Add an operator of the framework."""
        usual = {"process": 1, "thread": 1}
        self.row("operators", name=name, **_times(when), **{**usual, **values})

    def range(self, name: str, when: When, kind: Range = Range.USER, **values: Any) -> None:
        """Add a marked range."""
        usual = {"process": 1, "thread": 1}
        self.row("ranges", name=name, kind=kind, **_times(when), **{**usual, **values})

    def correlation(self) -> int:
        """Return one that no row has yet."""
        self._correlation += 1
        return self._correlation

    def profile(self, **header: Any) -> MemoryProfile:
        """Return the profile, in one batch a table."""
        made = MemoryProfile()
        for table, rows in self.rows.items():
            types = TABLES[table]
            made.add(
                table,
                {name: np.array([row[name] for row in rows], types[name]) for name in types},
            )
        made.finish(Header(**{"source": "kineto", "texts": self.texts.all(), **header}))
        return made


@cache
def _unknown(table: str) -> dict[str, float]:
    """Return a row of which nothing is known."""
    texts = {column: NO_TEXT for column in TABLES[table] if column in TEXT_COLUMNS}
    kinds = TABLES[table].items()
    absent = {name: math.nan if kind.startswith("float") else UNKNOWN for name, kind in kinds}
    return {**absent, **texts}


def _times(when: When) -> dict[str, int]:
    return {"begin_ns": round(when[0] * 1000), "duration_ns": round(when[1] * 1000)}


def permuted(profile: MemoryProfile, seed: int) -> MemoryProfile:
    """Return the same profile with the rows of each table in another order."""
    generator = np.random.default_rng(seed)
    other = MemoryProfile()
    for table in TABLES:
        if rows := profile.rows(table):
            order = generator.permutation(rows)
            columns = profile.columns(table)
            other.add(table, {name: column[order] for name, column in columns.items()})
    other.finish(profile.header)
    return other

"""Profiles that lack something they had, as if it had never been recorded."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gpuadvisor.collectors.kineto import reader as kineto
from gpuadvisor.columns import MemoryProfile, empty
from gpuadvisor.domain.profile import NO_TEXT, TABLES, UNKNOWN, Columns, Header, Profile
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.kernel_metrics import LAUNCH_TIMES
from gpuadvisor.rules.facts.ncu_kernels import KernelCounters

WHY = "it was taken out for this test"
OPTIONAL = (
    "kernels.registers",
    "kernels.shared_bytes",
    "kernels.grid_x",
    "copies.bytes",
    "collectives.in_elements",
    "collectives.type",
    "operators.external_id",
    "operators.shapes",
    "operators.types",
    "operators.stack",
    "operators.flops",
    "memory.allocated_bytes",
    "memory.reserved_bytes",
    "memory.address",
)
"""Columns that readers may find empty, and name as not measured."""
TEXTS = {"shapes", "types", "inputs", "stack", "type"}


class Lacking:
    """A `Profile` without some of its tables and columns."""

    def __init__(self, profile: Profile, *names: str, **header: object) -> None:
        self._profile = profile
        self._names = frozenset(names)
        told = {**profile.header.not_measured, **dict.fromkeys(names, WHY)}
        self._header = replace(profile.header, not_measured=told, **header)  # type: ignore[arg-type]

    @property
    def header(self) -> Header:
        return self._header

    def rows(self, table: str) -> int:
        return 0 if table in self._names else self._profile.rows(table)

    def columns(self, table: str, names: Iterable[str] | None = None) -> Columns:
        wanted = list(TABLES[table] if names is None else names)
        if table in self._names:
            return {name: empty(table, name) for name in wanted}
        columns = self._profile.columns(table, wanted)
        return {name: self._column(table, name, column) for name, column in columns.items()}

    def _column(self, table: str, name: str, column: np.ndarray) -> np.ndarray:
        if f"{table}.{name}" not in self._names:
            return column
        absent = math.nan if column.dtype.kind == "f" else UNKNOWN
        return np.full_like(column, NO_TEXT if name in TEXTS else absent)


def lacking_each(profile: Profile) -> Iterator[tuple[str, Lacking]]:
    """Yield the profile without each thing that it has, with what that was."""
    for table in TABLES:
        if profile.rows(table):
            yield table, Lacking(profile, table)
    for column in OPTIONAL:
        if profile.rows(column.partition(".")[0]):
            yield column, Lacking(profile, column)
    yield "devices", Lacking(profile, devices=())
    yield "facts", Lacking(profile, facts={})


class Noting(dict[str, float]):
    """Metrics that note which of them are read."""

    def __init__(self, told: Mapping[str, float]) -> None:
        super().__init__(told)
        self.read: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


class NotingEvidence(Evidence):
    """Evidence whose kernels note which of their metrics rules read."""

    @cached_property
    def kernel_counters(self) -> tuple[KernelCounters, ...]:
        found = super().kernel_counters
        return tuple(replace(each, metrics=Noting(each.metrics)) for each in found)

    @property
    def read(self) -> set[str]:
        """Metrics that were read of any kernel, a launch's time among them."""
        noted = (each.metrics for each in self.kernel_counters)
        return {*LAUNCH_TIMES}.union(*(each.read for each in noted if isinstance(each, Noting)))


def lacking_each_metric(profile: Profile, names: Set[str]) -> Iterator[tuple[str, Profile]]:
    """Yield the profile without each of some metrics of Nsight Compute that it has."""
    texts, rows = profile.header.texts, profile.columns("metrics")
    for metric in np.unique(rows["metric"]).tolist():
        if texts[metric] not in names:
            continue
        kept = rows["metric"] != metric
        made = MemoryProfile()
        for table in TABLES:
            if table != "metrics" and profile.rows(table):
                made.add(table, profile.columns(table))
        made.add("metrics", {name: column[kept] for name, column in rows.items()})
        made.finish(profile.header)
        yield texts[metric], made


def lacking_each_category(path: Path, folder: Path) -> Iterator[tuple[str, MemoryProfile]]:
    """Yield a trace of Kineto as read without the events of each category."""
    trace = json.loads(gzip.decompress(path.read_bytes()))
    events = trace["traceEvents"]
    categories = {event.get("cat", "") for event in events if event.get("ph") == "X"}
    for category in sorted(categories):
        kept = [event for event in events if event.get("cat", "") != category]
        file = folder / "trace.json"
        file.write_text(json.dumps({**trace, "traceEvents": kept}))
        profile = MemoryProfile()
        profile.finish(kineto.read(file, profile))
        yield category, profile

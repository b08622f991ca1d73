"""Parts of a profile: what the host did between two times, and what it launched then or in steps.

What a device does late still belongs to the part that launched it. Where a launch was not recorded,
the time on the device tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np

from gpuadvisor.domain.profile import ON_DEVICE, ON_HOST, Columns, Header, Profile, Range
from gpuadvisor.rules.facts.device_work import device_work
from gpuadvisor.rules.facts.intervals import BoolArray, covered_ns, ends, union
from gpuadvisor.rules.facts.launches import calls, launches
from gpuadvisor.rules.facts.steps import Steps


class _SomeRows:
    """A `Profile` with some rows of some of its tables, and all of the others."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    @property
    def header(self) -> Header:
        return self._profile.header

    def rows(self, table: str) -> int:
        """Return how many rows a table has."""
        kept = self.kept(table)
        return self._profile.rows(table) if kept is None else int(kept.sum())

    def columns(self, table: str, names: Iterable[str] | None = None) -> Columns:
        """Return columns of the rows that belong to the part."""
        columns = self._profile.columns(table, names)
        kept = self.kept(table)
        if kept is None:
            return columns
        return {name: column[kept] for name, column in columns.items()}

    def kept(self, table: str) -> BoolArray | None:
        """Return which rows of a table belong to the part; None where all do."""
        raise NotImplementedError


class InSteps(_SomeRows):
    """A `Profile` with those kernels and copies that were launched in a step.

    Tables of the host are those of the whole profile.
    """

    def __init__(self, profile: Profile, steps: Steps) -> None:
        super().__init__(profile)
        self._steps = steps

    def kept(self, table: str) -> BoolArray | None:
        return self._kept[table] if table in ON_DEVICE else None

    @cached_property
    def _kept(self) -> dict[str, BoolArray]:
        work = device_work(self._profile)
        at = launches(work, calls(self._profile)).begin_or(work.begin_ns)
        times = union(self._steps.begin_ns, self._steps.end_ns)
        inside: BoolArray = covered_ns(times, at, at + 1) > 0
        return {"kernels": inside[: work.kernels], "copies": inside[work.kernels :]}


class Part(_SomeRows):
    """A `Profile` between two times of the host: what was launched then, and what the host did.

    Ranges that mark something belong to it if they begin in it, others if a part of them lies in
    it. Memory is that of all.
    """

    def __init__(self, profile: Profile, begin_ns: int, end_ns: int) -> None:
        super().__init__(profile)
        self._span = begin_ns, end_ns

    @property
    def not_before_ns(self) -> int:
        """When the part begins: with its first step, or when all launched before is done."""
        begin, done = self._span[0], self._work[2]
        return max(begin, done)

    def kept(self, table: str) -> BoolArray | None:
        if table in ON_DEVICE:
            kernels, copies, _ = self._work
            return kernels if table == "kernels" else copies
        return self._host.get(table)

    @cached_property
    def _work(self) -> tuple[BoolArray, BoolArray, int]:
        """Which kernels and copies belong to it, and when what was launched before was done."""
        work = device_work(self._profile)
        at = launches(work, calls(self._profile)).begin_or(work.begin_ns)
        inside = (at >= self._span[0]) & (at < self._span[1])
        before = at < self._span[0]
        done = int(work.end_ns[before].max(initial=self._span[0]))
        first = int(work.begin_ns[inside].min(initial=self._span[1]))
        return inside[: work.kernels], inside[work.kernels :], min(done, first)

    @cached_property
    def _host(self) -> Mapping[str, BoolArray]:
        first, last = self._span
        found: dict[str, BoolArray] = {}
        for table in ON_HOST:
            columns = self._profile.columns(table, ("begin_ns", "duration_ns"))
            begin, end = ends(columns["begin_ns"], columns["duration_ns"])
            found[table] = (begin >= first) & (begin < last)
            if table == "ranges":
                kind = self._profile.columns(table, ("kind",))["kind"]
                across = ~np.isin(kind, (Range.USER, Range.STEP))
                found[table] |= across & (begin < last) & (end > first)
                found[table] |= (kind == Range.USER) & (end == first)  # an optimizer's, before
        return found

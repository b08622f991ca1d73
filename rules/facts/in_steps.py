"""The part of a profile that its steps launched, so that profiles of other lengths compare."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from gpuadvisor.domain.profile import Columns, Header, Profile
from gpuadvisor.rules.facts.calls import calls, launches
from gpuadvisor.rules.facts.device_work import device_work
from gpuadvisor.rules.facts.intervals import Mask, Whole, covered_ns, union
from gpuadvisor.rules.facts.steps import Steps

ON_DEVICE = ("kernels", "copies")


class InSteps:
    """A `Profile` with those kernels and copies that were launched in a step.

    What the device does late still belongs to the step that launched it. Where a launch was not
    recorded, the time on the device tells. Tables of the host are those of the whole profile.
    """

    def __init__(self, profile: Profile, steps: Steps) -> None:
        self._profile = profile
        self._steps = steps

    @property
    def header(self) -> Header:
        return self._profile.header

    def rows(self, table: str) -> int:
        """Return how many rows a table has."""
        return int(self._kept[table].sum()) if table in ON_DEVICE else self._profile.rows(table)

    def columns(self, table: str, names: Iterable[str] | None = None) -> Columns:
        """Return columns, of kernels and copies without what no step launched."""
        columns = self._profile.columns(table, names)
        if table not in ON_DEVICE:
            return columns
        kept = self._kept[table]
        return {name: column[kept] for name, column in columns.items()}

    @cached_property
    def _kept(self) -> dict[str, Mask]:
        work = device_work(self._profile)
        launched = launches(work, calls(self._profile))
        at: Whole = np.where(launched.known, launched.begin_ns, work.begin_ns)
        begin = np.array([step.begin_ns for step in self._steps.steps], np.int64)
        duration = np.array([step.duration_ns for step in self._steps.steps], np.int64)
        inside: Mask = covered_ns(union(begin, begin + duration), at, at + 1) > 0
        return {"kernels": inside[: work.kernels], "copies": inside[work.kernels :]}

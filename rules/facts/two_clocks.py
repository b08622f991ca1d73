"""Recordings in which the clock of the devices is not that of the host.

Nothing can run before the call that launches it has begun, and no call that waits for work returns
before that work ends: the first tells by how much the devices' clock is behind at least, the second
at most. Where both agree, or as good as for the gaps between the work, the devices' times are put
on the host's clock; where they do not, as that clock runs at another pace or nothing waited, what
the host did is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpuadvisor.domain.profile import CallKind, Columns, Direction, Header, Profile
from gpuadvisor.rules.facts.intervals import IntArray, gaps
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.window import FILLED

ON_DEVICE = ("kernels", "copies")
ON_HOST = ("calls", "operators", "synchronizations", "ranges")
_TIMED_BY_DEVICE = {"kernels": "begin_ns", "copies": "begin_ns", "collectives": "begin_ns",
                    "counters": "time_ns"}  # fmt: skip
PARTS = 10
"""Parts of the launches in each of which the clocks have to differ alike."""
DRIFTS = 10
"""Times as long as the clock drifted gaps have to be, where launches and waits contradict each
other: one that was set anew makes gaps as long as that. [own]"""
_WAIT_FOR_ALL = {"cudaDeviceSynchronize", "cuCtxSynchronize"}
_DIFFER = "the clocks of the CPU and the GPU differ in this recording"


@dataclass(frozen=True)
class TwoClocks:
    """That a recording's clocks differ, and what can be used of it."""

    told: str
    """In a sentence without a full stop."""
    profile: Profile
    """The recording on one clock, or without the host where by how much they differ is not
    known."""
    on_one_clock: bool


def two_clocks(whole: Facts) -> TwoClocks | None:
    """Return that the clocks of the host and of the devices are not the same; None where nothing
    shows that.

    In 17 recordings of six kinds of GPUs with 100,000 launches nothing begins before its launch.
    What is between the least and the most by which the clocks may differ, in the tenth of the
    launches in which the least is lowest, is the doubt of every time, also where launches and
    waits contradict each other by some microseconds, as clocks drift: one that runs at another
    pace, or is set anew, makes it large. Gaps that are longer have to be most of the idle time:
    only of these it is known what the host did meanwhile. Where several devices or processes were
    recorded, each may have a clock of its own.
    """
    known = np.flatnonzero(whole.launched.known & (whole.work.end_ns > whole.work.begin_ns))
    early_ns = whole.launched.begin_ns[known] - whole.work.begin_ns[known]
    early = early_ns > 0
    if not len(known) or early.mean() <= 1 - FILLED:
        return None
    least = int(early_ns.max())
    told = (
        f"{100 * early.mean():.0f} % of the GPU's work begins before the call that launched it, by"
        f" up to {least / 1e6:,.3g} ms: {_DIFFER}"
    )
    tenths = np.array_split(early_ns[np.argsort(whole.launched.begin_ns[known])], PARTS)
    lower = min(int(each.max()) for each in tenths if len(each))
    waited_ns = _returned_after_ns(whole, known)
    most = int(waited_ns.min(initial=np.iinfo(np.int64).max))
    doubt = most - lower if most >= least else DRIFTS * (least - min(most, lower))
    if not (len(waited_ns) and _is_of_one(whole) and _is_small(whole, doubt)):
        unknown = f"{told}, so that what the CPU did while the GPU worked or was idle is not known"
        return TwoClocks(unknown, _WithoutHost(whole.profile), False)
    moved = f"{told}. What ran on the GPU is taken as that much later, as then it fits the launches"
    return TwoClocks(f"{moved} and waits", _OnOneClock(whole.profile, least), True)


def _is_of_one(whole: Facts) -> bool:
    """Return whether one device, and one process, did all that was recorded."""
    return all(len(np.unique(each)) == 1 for each in (whole.work.device, whole.host.process))


def _returned_after_ns(whole: Facts, known: IntArray) -> IntArray:
    """Return how long after what it waited for each call returned, by the recorded times: copies to
    the host that block, and waits for all that was launched."""
    work, host, launched = whole.work, whole.host, whole.launched
    names = whole.profile.header.texts
    last = np.argsort(launched.begin_ns[known], kind="stable")
    begins = launched.begin_ns[known][last]
    done = np.maximum.accumulate(work.end_ns[known][last])
    waits = [number for number, name in enumerate(names) if name in _WAIT_FOR_ALL]
    rows = np.flatnonzero(np.isin(host.name, waits) & (host.kind == CallKind.SYNCHRONIZE))
    before = np.searchsorted(begins, host.begin_ns[rows])
    rows, before = rows[before > 0], before[before > 0]
    blocking = [number for number, name in enumerate(names) if "Async" not in name]
    copies = known[known >= work.kernels]
    to_host = work.copies["direction"][copies - work.kernels] == Direction.DEVICE_TO_HOST
    copies = copies[to_host & np.isin(host.name[launched.call[copies]], blocking)]
    return np.concatenate(
        (host.end_ns[rows] - done[before - 1], launched.end_ns[copies] - work.end_ns[copies])
    )


def _is_small(whole: Facts, doubt_ns: int) -> bool:
    """Return whether most of the time in which all devices are idle is in gaps longer than this."""
    work = whole.work
    busy = work.intervals(np.flatnonzero(work.end_ns > work.begin_ns))
    idle = gaps(busy, int(work.begin_ns.min()), int(work.end_ns.max()))
    took = idle.end_ns - idle.begin_ns
    return bool(2 * took[took > doubt_ns].sum() >= took.sum())


class _OnOneClock:
    """A `Profile` in which what the devices did is so much later than was recorded."""

    def __init__(self, profile: Profile, later_ns: int) -> None:
        self._profile = profile
        self._later_ns = later_ns

    @property
    def header(self) -> Header:
        return self._profile.header

    def rows(self, table: str) -> int:
        """Return how many rows a table has."""
        return self._profile.rows(table)

    def columns(self, table: str, names: Iterable[str] | None = None) -> Columns:
        """Return columns, times of the devices moved."""
        columns: dict[str, Any] = dict(self._profile.columns(table, names))
        time = _TIMED_BY_DEVICE.get(table)
        if time in columns:
            columns[time] = columns[time] + self._later_ns
        return columns


class _WithoutHost:
    """A `Profile` of which only what ran on the devices can be used, as its clocks differ."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    @property
    def header(self) -> Header:
        header = self._profile.header
        return replace(
            header, not_measured={**dict.fromkeys(ON_HOST, _DIFFER), **header.not_measured}
        )

    def rows(self, table: str) -> int:
        """Return how many rows a table has; of those of the host none."""
        return 0 if table in ON_HOST else self._profile.rows(table)

    def columns(self, table: str, names: Iterable[str] | None = None) -> Columns:
        """Return columns, of the host's tables without rows."""
        columns = self._profile.columns(table, names)
        if table not in ON_HOST:
            return columns
        return {name: column[:0] for name, column in columns.items()}

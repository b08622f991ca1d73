"""Recordings in which the clock of the devices is not that of the host.

Nothing can run before the call that launches it has begun, and no call that waits for work returns
before that work ends: the first tells by how much the devices' clock is behind at least, the second
at most, and a clock that is ahead is one that is behind by less than nothing. Where both agree, or
as good as for the gaps between the work, the devices' times are put on the host's clock; where they
do not, as that clock runs at another pace or nothing waited, what the host did is left out. Several
devices are put right one by one where each has a process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpuadvisor.domain.profile import ON_HOST, CallKind, Columns, Direction, Header, Profile
from gpuadvisor.rules.facts.host_waits import pageable
from gpuadvisor.rules.facts.intervals import IntArray, gaps
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.window import FILLED

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

    In 17 recordings of six kinds of GPUs with 100,000 launches nothing begins before its launch,
    and in 66 of 15 kinds with 17,000 copies to pageable memory none returns before it is done.
    Where several devices were recorded, each may have a clock of its own: they are put right one by
    one where each has a process of its own, as ranks have, so that it is known who waited for it.
    """
    work, launched = whole.work, whole.launched
    known = np.flatnonzero(launched.known & (work.end_ns > work.begin_ns))
    if not len(known):
        return None
    told = _told(whole, known)
    if told is None:
        return None
    owners = np.unique(
        np.stack((work.device[known], whole.host.process[launched.call[known]])), axis=1
    )
    alone = all(len(np.unique(each)) == owners.shape[1] for each in owners)
    later = {
        device: _later_ns(whole, known[work.device[known] == device], process)
        for device, process in (owners.T.tolist() if alone else ())
    }
    moved = {device: ns for device, ns in later.items() if ns is not None}
    # Collectives do not say on which device they ran.
    as_much = len(set(moved.values())) == 1 or not whole.profile.rows("collectives")
    if not moved or len(moved) < len(later) or not as_much:
        unknown = f"{told}, so that what the CPU did while the GPU worked or was idle is not known"
        return TwoClocks(unknown, _WithoutHost(whole.profile), False)
    which = " or ".join(
        word
        for word, is_so in (
            ("later", any(ns > 0 for ns in moved.values())),
            ("earlier", any(ns < 0 for ns in moved.values())),
        )
        if is_so
    )
    how = (
        f"that much {which}, as then it"
        if len(moved) == 1
        else f"so much {which} that it each time"
    )
    fits = f"{told}. What ran on the GPU is taken as {how} fits the launches and waits"
    return TwoClocks(fits, _OnOneClock(whole.profile, moved), True)


def _told(whole: Facts, known: IntArray) -> str | None:
    """Return what shows that the clocks differ, in a sentence without a full stop; None where
    nothing does."""
    early_ns = whole.launched.begin_ns[known] - whole.work.begin_ns[known]
    if not _fits(early_ns):
        share = 100 * (early_ns > 0).mean()
        return (
            f"{share:.0f} % of the GPU's work begins before the call that launched it, by up to"
            f" {int(early_ns.max()) / 1e6:,.3g} ms: {_DIFFER}"
        )
    process = whole.host.process[whole.launched.call[known]]
    of_each = [(each, known[process == each]) for each in np.unique(process).tolist()]
    # On one of several devices a wait does not wait for the others.
    returned_ns = [
        _returned_after_ns(whole, rows, each)
        for each, rows in of_each
        if len(np.unique(whole.work.device[rows])) == 1
    ]
    early_ns = -np.concatenate([np.empty(0, np.int64), *returned_ns])
    if _fits(early_ns):
        return None
    share = 100 * (early_ns > 0).mean()
    return (
        f"{share:.0f} % of the calls that wait for the GPU return before what they wait for has"
        f" ended, by up to {int(early_ns.max()) / 1e6:,.3g} ms: {_DIFFER}"
    )


def _fits(early_ns: IntArray) -> bool:
    """Say whether nothing, but for what may be an error, happens before it can."""
    return not len(early_ns) or float((early_ns > 0).mean()) <= 1 - FILLED


def _later_ns(whole: Facts, known: IntArray, process: int) -> int | None:
    """Return by how much the clock of the device of some work is behind that of the process which
    launched it, less than nothing where it is ahead; None where that is not known well enough.

    What is between the least and the most by which the clocks may differ, in the tenth of the
    launches in which the least is lowest, is the doubt of every time, also where launches and
    waits contradict each other by some microseconds, as clocks drift: one that runs at another
    pace, or is set anew, makes it large. Gaps that are longer have to be most of the idle time:
    only of these it is known what the host did meanwhile.
    """
    early_ns = whole.launched.begin_ns[known] - whole.work.begin_ns[known]
    waited_ns = _returned_after_ns(whole, known, process)
    if _fits(early_ns) and _fits(-waited_ns):
        return 0
    least = int(early_ns.max())
    tenths = np.array_split(early_ns[np.argsort(whole.launched.begin_ns[known])], PARTS)
    lower = min(int(each.max()) for each in tenths if len(each))
    most = int(waited_ns.min(initial=np.iinfo(np.int64).max))
    doubt = most - lower if most >= least else DRIFTS * (least - min(most, lower))
    return least if len(waited_ns) and _is_small(whole, known, doubt) else None


def _returned_after_ns(whole: Facts, known: IntArray, process: int) -> IntArray:
    """Return how long after what it waited for each call of a process returned, by the recorded
    times: copies to the host that block, and waits for all that was launched.

    To pageable memory a copy blocks whatever its call is named ("the function will return only once
    the copy has completed", CUDA Runtime API, API synchronization behavior).
    """
    work, host, launched = whole.work, whole.host, whole.launched
    names = whole.profile.header.texts
    last = np.argsort(launched.end_ns[known], kind="stable")
    called = launched.end_ns[known][last]
    done = np.maximum.accumulate(work.end_ns[known][last])
    waits = [number for number, name in enumerate(names) if name in _WAIT_FOR_ALL]
    waiting = np.isin(host.name, waits) & (host.kind == CallKind.SYNCHRONIZE)
    rows = np.flatnonzero(waiting & (host.process == process))
    before = np.searchsorted(called, host.begin_ns[rows], side="right")
    rows, before = rows[before > 0], before[before > 0]
    blocking = [number for number, name in enumerate(names) if "Async" not in name]
    copies = known[known >= work.kernels]
    to_host = work.copies["direction"][copies - work.kernels] == Direction.DEVICE_TO_HOST
    blocks = np.isin(host.name[launched.call[copies]], blocking) | pageable(work, copies)
    copies = copies[to_host & blocks & (host.process[launched.call[copies]] == process)]
    return np.concatenate(
        (host.end_ns[rows] - done[before - 1], launched.end_ns[copies] - work.end_ns[copies])
    )


def _is_small(whole: Facts, rows: IntArray, doubt_ns: int) -> bool:
    """Return whether most of the time between some work is in gaps longer than this."""
    busy = whole.work.intervals(rows)
    idle = gaps(busy, int(busy.begin_ns.min()), int(busy.end_ns.max()))
    took = idle.end_ns - idle.begin_ns
    return bool(2 * took[took > doubt_ns].sum() >= took.sum())


class _OnOneClock:
    """A `Profile` in which what each device did is so much later than was recorded."""

    def __init__(self, profile: Profile, later_ns: Mapping[int, int]) -> None:
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
            columns[time] = columns[time] + self._later(table)
        return columns

    def _later(self, table: str) -> IntArray | int:
        if table == "collectives":
            return max(self._later_ns.values())
        device = self._profile.columns(table, ("device",))["device"]
        later = np.zeros(len(device), np.int64)
        for each, later_ns in self._later_ns.items():
            later[device == each] = later_ns
        return later


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

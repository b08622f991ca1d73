"""When each stream and thread had something to do, in so few stretches that a plot can show them.

A trace of millions of events becomes some hundred numbers a lane: the share of each stretch in
which at least one event of the lane ran.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import Range
from gpuadvisor.rules.facts.device_work import Work
from gpuadvisor.rules.facts.intervals import IntArray, Intervals, by_key, covered_ns, union
from gpuadvisor.rules.facts.summary import Facts

MOST_STREAMS = 12
MOST_THREADS = 8
"""Lanes that are drawn, those with most to do; how many there are besides is said."""


@dataclass(frozen=True)
class Band:
    """One kind of events in a lane."""

    kind: str
    """`compute`, `communication`, `memory`, `operator`, `call` or `loader`."""
    shares: npt.NDArray[np.float64]
    """Share of each stretch in which the lane ran something of this kind, 0 to 1."""
    active_ns: int


@dataclass(frozen=True)
class Lane:
    """A stream of a device, or a thread of the host."""

    is_device: bool
    owner: int
    """Number of the device, or of the process."""
    number: int
    """Number of the stream, or of the thread."""
    events: int
    bands: tuple[Band, ...]

    @property
    def active_ns(self) -> int:
        return sum(band.active_ns for band in self.bands)


@dataclass(frozen=True)
class Activity:
    """What the lanes of a profile did over time."""

    begin_ns: int
    span_ns: int
    stretches: int
    lanes: tuple[Lane, ...]
    """Streams first; those of a device together."""
    omitted: int
    """Lanes with less to do."""


def activity(facts: Facts, stretches: int) -> Activity | None:
    """Return what each lane did in so many stretches of equal length; None of an empty profile."""
    work = facts.work
    begins, stops = [work.begin_ns, facts.host.begin_ns], [work.end_ns, facts.host.end_ns]
    begins.append(facts.launching.begin_ns)
    stops.append(facts.launching.end_ns)
    begin = min((int(each.min()) for each in begins if len(each)), default=0)
    end = max((int(each.max()) for each in stops if len(each)), default=0)
    if end <= begin:
        return None
    edges = np.linspace(begin, end, stretches + 1).astype(np.int64)
    streams, threads = _streams(facts, edges), _threads(facts, edges)
    lanes = (*_busiest(streams, MOST_STREAMS), *_busiest(threads, MOST_THREADS))
    omitted = len(streams) + len(threads) - len(lanes)
    return Activity(begin, end - begin, stretches, lanes, omitted)


def halved(found: Activity) -> Activity:
    """Return the same in half as many stretches, of which there must be an even number."""
    lanes = tuple(
        replace(
            lane,
            bands=tuple(
                replace(band, shares=band.shares.reshape(-1, 2).mean(axis=1)) for band in lane.bands
            ),
        )
        for lane in found.lanes
    )
    return replace(found, stretches=found.stretches // 2, lanes=lanes)


def _busiest(lanes: list[Lane], most: int) -> list[Lane]:
    chosen = sorted(lanes, key=lambda lane: -lane.active_ns)[:most]
    return sorted(chosen, key=lambda lane: (lane.owner, -lane.active_ns, lane.number))


def _streams(facts: Facts, edges: IntArray) -> list[Lane]:
    work = facts.work
    found = []
    for device, rows in work.by_device():
        for stream, at in by_key(work.stream[rows]):
            mine = rows[at]
            kinds = [(kind.name.lower(), mine[work.kind[mine] == kind]) for kind in Work]
            bands = [(name, work.intervals(of_kind)) for name, of_kind in kinds if len(of_kind)]
            found.append(_lane(True, device, stream, len(mine), bands, edges))
    return found


def _threads(facts: Facts, edges: IntArray) -> list[Lane]:
    columns = facts.profile.columns("operators", ("process", "thread"))
    launching, host = facts.launching, facts.host
    operators = _by_thread(launching.thread_key, columns["process"], columns["thread"])
    calls = _by_thread(host.thread_key, host.process, host.thread)
    found = []
    for of in sorted(operators.keys() | calls.keys()):
        bands, events = [], 0
        for name, ran, rows in (("operator", launching, operators), ("call", host, calls)):
            if (mine := rows.get(of)) is not None:
                bands.append((name, union(ran.begin_ns[mine], ran.end_ns[mine])))
                events += len(mine)
        if (waits := facts.loader_waits.get(of)) is not None:
            bands.append((Range.LOADER.name.lower(), waits))
        found.append(_lane(False, *of, events, bands, edges))
    return found


def _by_thread(
    key: IntArray, process: IntArray, thread: IntArray
) -> dict[tuple[int, int], IntArray]:
    """Return the rows of each process and thread."""
    return {(int(process[rows[0]]), int(thread[rows[0]])): rows for _, rows in by_key(key)}


def _lane(
    is_device: bool,
    owner: int,
    number: int,
    events: int,
    bands: list[tuple[str, Intervals]],
    edges: IntArray,
) -> Lane:
    length = np.maximum(np.diff(edges), 1)
    return Lane(
        is_device,
        owner,
        number,
        events,
        tuple(
            Band(name, covered_ns(times, edges[:-1], edges[1:]) / length, times.total_ns)
            for name, times in bands
        ),
    )

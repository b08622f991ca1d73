"""The ranks of a run beside each other: how busy each was, and which of them the others wait for.

A rank is a device of a profile: each trace of a folder has one, and one trace may have several. In
a collective in which all wait for all, a rank waits from its own arrival until the last one's;
what is left is the transfer. Both are told apart only where collectives could be matched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np

from gpuadvisor.domain.profile import Header
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.communication import collective_calls
from gpuadvisor.rules.facts.device_work import Work
from gpuadvisor.rules.facts.intervals import (
    IntArray,
    Intervals,
    covered_ns,
    either,
    gaps,
    none,
    uncovered_ns,
    union,
    without,
)
from gpuadvisor.rules.facts.lanes import Lane, Tokens, lanes
from gpuadvisor.rules.facts.matching import Matched, Matching, match
from gpuadvisor.rules.facts.summary import Facts


@dataclass(frozen=True)
class Rank:
    """How one rank spent its time."""

    name: str
    """`rank 3`, or `GPU 3` where one profile has several devices."""
    place: int
    """Place of its profile among those that were given."""
    device: int
    run_ns: int
    busy_ns: int
    computing_ns: int
    communicating_ns: int
    """Time in which a communication kernel ran."""
    exposed_ns: int
    """Time in which a communication kernel but no compute kernel ran."""
    waiting_ns: int | None
    """Part of the exposed time in which a rank that came later was waited for; None where no
    collective of this rank could be matched."""
    transferring_ns: int | None
    """Part of the exposed time after the last rank had come; None likewise. What is left of the
    exposed time are collectives that could not be matched."""
    clock_apart_ns: int | None
    """Time by which the clock of this rank is behind the first rank's, in nanoseconds; None where
    no collective connects them or a trace does not tell the time of day."""

    @property
    def idle_ns(self) -> int:
        return max(self.run_ns - self.busy_ns, 0)

    def share(self, time_ns: float) -> float:
        """Return which share of the rank's run a time is."""
        return time_ns / self.run_ns if self.run_ns > 0 else 0.0


@dataclass(frozen=True)
class Lateness:
    """How late one rank came to the collectives in which all ranks of a group are known."""

    place: int
    """Place among `Ranks.ranks`."""
    collectives: int
    """Number of its collectives."""
    last: int
    """In how many of them it came last."""
    waited_ns: int
    """The first one to come waited for it so long, in these collectives together."""
    longest_ns: int
    """And in one of them at most."""
    behind_next_ns: int
    """How much later than the last but one it came, added up."""
    chance: float
    """How probable it is that some rank comes last so often where all come last equally often."""


@dataclass(frozen=True)
class OwnWork:
    """What the ranks of one process group did besides waiting and sending.

    It is counted from when the first of them came to the first of their common collectives to the
    end of the last one, which all reach together: the same time on every rank.
    """

    places: tuple[int, ...]
    """Places among `Ranks.ranks`; what follows has a value for each."""
    span_ns: int
    own_ns: tuple[int, ...]
    """Time without exposed communication: computing, copying, or idle."""
    idle_ns: tuple[int, ...]
    exposed_ns: tuple[int, ...]
    beyond_mean_ns: int
    """How much more of the time from one collective's end to the next one's than the mean of the
    ranks the one took that had most to do, added up: it is saved if work is spread evenly."""
    beyond_next_ns: int
    """How much more than the next one, added up."""
    idle_beyond_mean_ns: int
    """How much longer than the mean of the ranks the GPU of the one with most to do was idle, added
    up."""


@dataclass(frozen=True)
class Straggler:
    """The rank that the others wait for."""

    late: Lateness
    group: OwnWork
    surplus_ns: int
    """Its own work beyond that of every other rank, within `group.span_ns`."""
    idle_ns: int
    """Part of the surplus in which its GPU is idle."""
    most_ns: int
    """What at least every other rank only communicates: no more can be saved, whatever is sent."""

    @property
    def share(self) -> float:
        """Share that its surplus is of the time that collectives tell of (`group.span_ns`), 0 to
        1."""
        return self.surplus_ns / self.group.span_ns


@dataclass(frozen=True)
class Ranks:
    """All ranks of a run."""

    ranks: tuple[Rank, ...]
    world_size: int | None
    collectives: int
    """Number of collectives in which all ranks of a group are known."""
    waited_ns: int
    """The first one to come waited so long for the last, in all of them together."""
    own_work: tuple[OwnWork, ...]
    """What each rank worked between collectives, a process group each; the one whose ranks waited
    longest first."""
    late: tuple[Lateness, ...]
    """The ranks that came last at least once, the one that others waited for longest first."""
    unmatched: str | None
    """Why nothing can be said of who comes late; None where it can."""

    @property
    def absent(self) -> int:
        """Number of the run's ranks of which there is no profile."""
        return max((self.world_size or 0) - len(self.ranks), 0)

    @cached_property
    def straggler(self) -> Straggler | None:
        """The rank for which most of the waiting is; None where they may take turns, or where its
        work is not longer than that of the others."""
        late = next(iter(self.late), None)
        if late is None or late.chance > MOST_CHANCE:
            return None
        group = next((each for each in self.own_work if late.place in each.places), None)
        if group is None or late.waited_ns < LEAST_PART * max(self.waited_ns, 1):
            return None
        at = group.places.index(late.place)
        others = [row for row in range(len(group.places)) if row != at]
        after = max(others, key=lambda row: group.own_ns[row])
        surplus = group.own_ns[at] - group.own_ns[after]
        most = min(min(group.exposed_ns[row] for row in others), late.behind_next_ns)
        surplus = min(surplus, most)
        if surplus < LEAST_SURPLUS * group.span_ns:
            return None
        idle = min(max(group.idle_ns[at] - group.idle_ns[after], 0), surplus)
        return Straggler(late, group, surplus, idle, most)


LEAST_PART = 0.6
"""Least share of all the waiting that is for one rank: gpuprof names a rank that is late in 60 % of
steps. With less, the ranks take turns, which is the nature of the data."""
MOST_CHANCE = 0.05
"""Largest chance that some rank is last so often where none is slower than the others."""
LEAST_SURPLUS = 0.02
"""Least share of the run that a rank is at its own work beyond all others: below, steps differ by
as much anyway. Four H200s with equal work differ by 0.4 % (`benchmarks/ranks_on_gpus.py`)."""


def _unmatched(evidence: Evidence) -> str | None:
    return None if evidence.together is None else evidence.together.unmatched


MATCHED = (_unmatched, "gpuadvisor import FOLDER (with a trace of each rank, of the same steps)")
"""What a rule asks for that needs to know who came late, as arguments of a `Requirement`."""


@dataclass(frozen=True, eq=False)
class _Member:
    """One rank's facts."""

    facts: Facts
    place: int
    device: int
    name: str

    @cached_property
    def compute(self) -> Intervals:
        return self._of(Work.COMPUTE)

    @cached_property
    def talking(self) -> Intervals:
        return self._of(Work.COMMUNICATION)

    def _of(self, kind: int) -> Intervals:
        work = self.facts.work
        return work.intervals((work.device == self.device) & (work.kind == kind))


def ranks_of(profiles: Sequence[Facts]) -> Ranks | None:
    """Return the ranks of a run from the facts of its profiles; None where there is one only."""
    members = list(_members(profiles))
    if len(members) < 2:
        return None
    tokens = Tokens()
    every: list[list[Lane]] = []
    for number, each in enumerate(members):
        calls = collective_calls(each.facts.profile, each.facts.work, each.device)
        every.append(list(lanes(number, each.facts.work, calls, tokens)))
    begins = [
        0 if len(profiles) == 1 else each.facts.profile.header.begin_unix_ns for each in members
    ]
    found = match([lane for some in every for lane in some], begins)
    sizes = [each.facts.profile.header.world_size for each in members]
    world = max((size for size in sizes if size), default=None)
    complete = [each for each in found.groups if _is_complete(each, found, world, len(members))]
    late, collectives, waited_ns = _lateness(complete, len(members))
    own = [work for group in complete if (work := _own_work(group, members))]
    own.sort(key=lambda each: -each[0])
    first = members[min(found.clocks_ns, default=0)].facts.profile.header
    told = tuple(_rank(each, number, found, first) for number, each in enumerate(members))
    why = None if collectives else _why(every, found, complete, world)
    return Ranks(told, world, collectives, waited_ns, tuple(each for _, each in own), late, why)


def _members(profiles: Sequence[Facts]) -> list[_Member]:
    found = []
    for place, facts in enumerate(profiles):
        communicating = {each.device for each in facts.communication}
        devices = [each.device for each in facts.busy if each.device in communicating]
        longest = max(facts.busy, key=lambda each: each.busy_ns, default=None)
        if not devices and longest is not None:
            devices = [longest.device]
        number = facts.profile.header.rank
        for device in devices:
            name = f"rank {place if number is None else number}"
            if len(devices) > 1:
                name = f"GPU {device}" if len(profiles) == 1 else f"{name}, GPU {device}"
            found.append(_Member(facts, place, device, name))
    return found


def _is_complete(matched: Matched, found: Matching, world: int | None, members: int) -> bool:
    """Return whether all ranks of a group are known: where nothing tells its size it is all ranks,
    or part of a run of which all ranks are here, and all that they did together was found."""
    here = len(matched.ranks)
    if matched.size is not None:
        return here == matched.size
    return (world is None or members >= world) and (here == members or not found.alone)


def _why(
    every: Sequence[Sequence[Lane]],
    found: Matching,
    complete: Sequence[Matched],
    world: int | None,
) -> str:
    without_any = sum(not some for some in every)
    if without_any:
        return f"{without_any} of {len(every)} ranks recorded no collective"
    if complete:
        return "none of the collectives that they have in common is one in which all wait for all"
    if found.groups:
        size = found.groups[0].size or world or 0
        here = len(found.groups[0].ranks)
        if here < size:
            return f"{here} of {size} ranks are here, and another one may come later still"
    if found.in_doubt:
        return (
            f"which collectives of the {len(every)} ranks are the same is in doubt: the traces"
            " neither number them nor show beyond chance which of them ended together"
        )
    return (
        f"the collectives of the {len(every)} ranks could not be matched: they differ in order, or"
        " no difference of the clocks makes them overlap"
    )


# -- who comes late ------------------------------------------------------------------------------


def _lateness(groups: Sequence[Matched], members: int) -> tuple[tuple[Lateness, ...], int, int]:
    """Return how late the ranks came, the number of collectives, and by how much the last ones were
    later than the first."""
    count = np.zeros(members, np.int64)
    sums = np.zeros((members, 4), np.int64)
    chances = [1.0] * members
    collectives, waited_ns = 0, 0
    for group in groups:
        begin = group.begin_ns[:, group.is_together]
        if not begin.shape[1]:
            continue
        collectives += begin.shape[1]
        last = begin.argmax(axis=0)
        ordered = np.sort(begin, axis=0)
        waited = ordered[-1] - ordered[0]
        behind_next = ordered[-1] - ordered[-2]
        waited_ns += int(waited.sum())
        for row, rank in enumerate(group.ranks):
            is_last = last == row
            count[rank] += len(last)
            added = (np.ones_like(waited), waited, behind_next)
            sums[rank, :3] += [int(values[is_last].sum()) for values in added]
            sums[rank, 3] = max(sums[rank, 3], int(waited[is_last].max(initial=0)))
            often = _chance(int(is_last.sum()), len(last), len(group.ranks))
            chances[rank] = min(chances[rank], often)
    late = [
        Lateness(rank, int(count[rank]), times, waits, longest, next_one, chances[rank])
        for rank in range(members)
        for times, waits, next_one, longest in [sums[rank].tolist()]
        if times
    ]
    late.sort(key=lambda each: -each.waited_ns)
    return tuple(late), collectives, waited_ns


def _own_work(group: Matched, members: Sequence[_Member]) -> tuple[int, OwnWork] | None:
    """Return how long a group's ranks waited for each other, and what they did besides."""
    columns = np.flatnonzero(group.is_together)
    if not len(columns):
        return None
    begin = group.begin_ns[:, columns]
    exposed, spans, idle = [], [], []
    for row, rank in enumerate(group.ranks):
        member = members[rank]
        work = member.facts.work
        end_ns = np.maximum.accumulate(work.end_ns[group.rows[row, columns]])
        lasted = int(group.end_ns[row, columns[0]] - begin[:, 0].min())
        edges = np.concatenate(([end_ns[0] - lasted], end_ns))
        alone = without(member.talking, member.compute)
        exposed.append(covered_ns(alone, edges[:-1], edges[1:]))
        first, last = int(edges[0]), int(edges[-1])
        spans.append(last - first)
        pauses = gaps(work.intervals(work.device == member.device), first, last)
        idle.append(covered_ns(pauses, edges[:-1], edges[1:]))
    if min(spans) <= 0:
        return None
    most = np.array(exposed).argmin(axis=0)  # the rank with most to do, in each piece
    ordered = np.sort(np.array(exposed), axis=0)
    least, paused = ordered[0], np.array(idle)
    waited_ns = int((begin.max(axis=0) - begin.min(axis=0)).sum())
    exposed_ns = tuple(int(each.sum()) for each in exposed)
    return waited_ns, OwnWork(
        group.ranks,
        max(spans),
        tuple(span - each for span, each in zip(spans, exposed_ns, strict=True)),
        tuple(paused.sum(axis=1).tolist()),
        exposed_ns,
        int((ordered.mean(axis=0) - least).sum()),
        int((ordered[1] - least).sum()),
        int((paused[most, np.arange(len(most))] - paused.mean(axis=0)).sum()),
    )


MOST_COUNTED = 400
"""Collectives of which a chance is computed: of more it is that of so many in the same share."""


def _chance(last: int, of: int, ranks: int) -> float:
    """Return how probable it is that some rank comes last so often, if each does as often."""
    if of > MOST_COUNTED:
        last, of = last * MOST_COUNTED // of, MOST_COUNTED
    share = 1 / ranks
    tail = sum(comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(last, of + 1))
    return min(ranks * tail, 1.0)


# -- a rank's time -------------------------------------------------------------------------------


def _rank(member: _Member, number: int, found: Matching, first: Header) -> Rank:
    facts, device = member.facts, member.device
    work, compute, talking = facts.work, member.compute, member.talking
    busy = next(each for each in facts.busy if each.device == device)
    waits, matched = _waits(number, found, work.begin_ns, work.end_ns)
    window, header = facts.window, facts.profile.header
    clock_ns, apart_ns = found.clocks_ns.get(number), None
    if clock_ns is not None and None not in (header.begin_unix_ns, first.begin_unix_ns):
        apart_ns = clock_ns - (header.begin_unix_ns or 0) + (first.begin_unix_ns or 0)
    return Rank(
        member.name,
        member.place,
        device,
        max(window.run_ns, busy.span_ns),
        busy.busy_ns,
        compute.total_ns,
        talking.total_ns,
        uncovered_ns(talking, compute),
        None if matched is None else uncovered_ns(waits, compute),
        None if matched is None else uncovered_ns(without(matched, waits), compute),
        apart_ns,
    )


def _waits(
    number: int, found: Matching, begin_ns: IntArray, end_ns: IntArray
) -> tuple[Intervals, Intervals | None]:
    """Return when a rank waited for later ones, and when its matched collectives ran."""
    waits, matched = none(), None
    for group in found.groups:
        if number not in group.ranks or not group.is_together.any():
            continue
        row = group.ranks.index(number)
        arrival = group.begin_ns[:, group.is_together]
        rows = group.rows[row, group.is_together]
        late_ns = arrival.max(axis=0) - arrival[row]
        until = np.minimum(begin_ns[rows] + late_ns, end_ns[rows])
        waits = either(waits, union(begin_ns[rows], until))
        ran = union(begin_ns[rows], end_ns[rows])
        matched = ran if matched is None else either(matched, ran)
    return waits, matched

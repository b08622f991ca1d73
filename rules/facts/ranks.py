"""The ranks of a run beside each other: how busy each was, and which of them the others wait for.

A rank is a device of a profile: each trace of a folder has one, and one trace may have several. In
a collective in which all wait for all, a rank waits from its own arrival until the last one's;
what is left is the transfer. Both are told apart only where collectives could be matched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from gpuadvisor.domain.profile import Header
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.communication import collective_calls
from gpuadvisor.rules.facts.device_work import Work
from gpuadvisor.rules.facts.intervals import (
    IntArray,
    Intervals,
    either,
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
class Ranks:
    """All ranks of a run."""

    ranks: tuple[Rank, ...]
    world_size: int | None
    collectives: int
    """Number of collectives in which all ranks of a group are known."""
    waited_ns: int
    """The first one to come waited so long for the last, in all of them together."""
    behind_mean_ns: int
    """How much later than the mean of the ranks the last one came, added up."""
    behind_next_ns: int
    """How much later than the last but one the last came, added up."""
    late: tuple[Lateness, ...]
    """The ranks that came last at least once, the one that others waited for longest first."""
    unmatched: str | None
    """Why nothing can be said of who comes late; None where it can."""

    @property
    def absent(self) -> int:
        """Number of the run's ranks of which there is no profile."""
        return max((self.world_size or 0) - len(self.ranks), 0)


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
    late, collectives, sums = _lateness(complete, len(members))
    first = members[min(found.clocks_ns, default=0)].facts.profile.header
    told = tuple(_rank(each, number, found, first) for number, each in enumerate(members))
    why = None if collectives else _why(every, found, complete, world)
    return Ranks(told, world, collectives, *sums, late, why)


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


def _lateness(
    groups: Sequence[Matched], members: int
) -> tuple[tuple[Lateness, ...], int, tuple[int, int, int]]:
    """Return how late the ranks came, the number of collectives, and by how much the last ones were
    later than the first, the mean and the last but one."""
    count = np.zeros(members, np.int64)
    sums = np.zeros((members, 4), np.int64)
    chances = [1.0] * members
    collectives, behind = 0, np.zeros(3, np.int64)
    for group in groups:
        begin = group.begin_ns[:, group.is_together]
        if not begin.shape[1]:
            continue
        collectives += begin.shape[1]
        last = begin.argmax(axis=0)
        ordered = np.sort(begin, axis=0)
        waited = ordered[-1] - ordered[0]
        behind_next = ordered[-1] - ordered[-2]
        behind_mean = ordered[-1] - ordered.mean(axis=0).astype(np.int64)
        behind += [int(each.sum()) for each in (waited, behind_mean, behind_next)]
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
    first, mean, last_but_one = behind.tolist()
    return tuple(late), collectives, (first, mean, last_but_one)


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
    work = facts.work
    mine = work.device == device
    busy = next(each for each in facts.busy if each.device == device)
    compute = work.intervals(mine & (work.kind == Work.COMPUTE))
    talking = work.intervals(mine & (work.kind == Work.COMMUNICATION))
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

"""Which collectives of several ranks are the same one, and how the ranks' clocks differ.

Where a trace numbers the collectives of a process group, equal numbers are the same collective.
Where it does not, their order tells: the ranks of a group begin the same collectives in the same
order, and of a recording some may be missing at either end. Of all ways to lay two orders upon
each other one counts in which names and sizes agree, and for which *one* difference of the clocks
makes every collective overlap: none can end on a rank before it began on the last one. Of several
the one is taken in which the ends, which all ranks reach together, differ clearly most alike, or
which one clock for all tells. Without named groups both must hold where ends differ by more than
10 us, and ranks must have waited for each other for much longer than their ends differ, of few
collectives for so much longer that it is no chance. Ranks may
also leave a collective at different times, as those that only send and receive do; then it needs a
named group and one clock for all. Where that leaves a doubt, nothing is matched. (Groups without
names that keep step to 10 us all the time are the exception: no trace tells them apart.)

Half and twice of each constant below were tried on nine recordings of 4 to 11 ranks: what is not
said to change something changed nothing there, or times by less than a thousandth.

The same ends give the difference of the clocks. What fits nowhere stays alone: nothing is concluded
of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN
from gpuadvisor.rules.facts.intervals import BoolArray, FloatArray, IntArray
from gpuadvisor.rules.facts.lanes import Lane

FEWEST = 3
"""Fewest collectives that two ranks must have in common: two agree by chance. [own]"""
MOST_SHIFT = 64
"""Collectives that one rank may have recorded before another one's first. [own]"""
CLOSE_NS = 10_000
"""Times on two clocks that are taken for the same: kernels' ends of one collective on 8 V100 of a
machine differ by 1 to 9 us (facebookresearch/param's traces of DLRM)."""
DRIFT = 2e-5
"""How fast two clocks may drift apart: 20 us a second, ten times what NTP leaves. [own]"""
MOST_APART = 0.05
"""Largest share of the collectives that need not overlap: events with a wrong time. [own]"""
MOST_SKEW = 0.5
"""Largest part of a kernel's duration by which it may end before that of another rank: with twice
as much two of eight ranks are matched that are in doubt, with half nothing changes. [own]"""
MOST_SKEWED = 0.5
"""Largest share of the collectives that ranks may leave at different times: of fewer, the median
still is the difference of the clocks."""

CLEARLY = 4.0
"""Times as far as in the best way to match them, ends must differ in every other one. [own]"""
ONE_CLOCK_NS = 5 * CLOSE_NS
"""Most by which the clocks of one machine differ from what collectives tell of them: with half of
it two of nine recordings are not matched, with twice as much nothing changes. [own]"""
ONLY_WAY_NS = 2 * ONE_CLOCK_NS
"""Most by which ends of the same collectives may differ, in nanoseconds, where there is only one
way to lay the collectives of two ranks upon each other: 71 us on four V100 of a machine, whose
processes place their GPUs' times by themselves. [own]"""
ENOUGH = 6
"""Fewest collectives whose ends tell alone that they are the same: with twice as many the eight of
a recording of eight ranks are not matched, with half as many nothing changes. [own]"""
MANY = 16
"""Fewest collectives that tell it where their ends differ by more than `CLOSE_NS`: a trace of whole
microseconds or a slow link leaves 30 to 270 us on 4 V100 of a machine. Besides, one clock for all
ranks and much longer waits have to tell the same; of fewer collectives, to `ENOUGH`, waits have to
be so long that ends do not agree by chance. With twice as many, recordings of 30 collectives are
not matched. [own]"""
MOST_CHANCE = 1e-6
"""Largest chance with which ends of fewer than `MANY` collectives agree so well where nobody waits,
each anywhere in the time by which ranks came apart: a thousandth, of a thousand ways. [own]"""


@dataclass(frozen=True, eq=False)
class Matched:
    """Collectives that were found on several ranks, a column each; a row for each rank."""

    ranks: tuple[int, ...]
    group: str
    size: int | None
    kinds: tuple[str, ...]
    begin_ns: IntArray
    """On the clock of the first of these ranks, as `end_ns`."""
    end_ns: IntArray
    rows: IntArray
    """Rows of each rank's device work."""
    is_together: BoolArray
    """Whether no rank can go on before all have come; of columns."""


@dataclass(frozen=True, eq=False)
class Matching:
    """All that could be matched."""

    groups: tuple[Matched, ...]
    clocks_ns: Mapping[int, int]
    """What is to be added to a rank's times, to have those of the first rank that it is connected
    with through collectives; no entry for a rank that nothing connects."""
    alone: int
    """Number of lanes that were found on no other rank."""
    in_doubt: int
    """Number of those that may be the same as another, in more than one way or not surely."""


@dataclass(frozen=True, eq=False)
class _Fit:
    """How one lane lies upon another."""

    first: IntArray
    """Places in the one, and of the same collectives in the other."""
    second: IntArray
    clocks_ns: IntArray
    """What is to be added to the other's times, at each collective: clocks may drift."""
    spread_ns: float
    """How far the ends differ from that, their median."""
    widest_ns: float
    """And in nine of ten."""
    is_skewed: bool = False
    """Whether more of the ends differ than errors of the recording make differ."""
    is_loose: bool = False
    """Whether they only overlap if the clocks differ now more, now less."""

    @property
    def clock_ns(self) -> int:
        return int(_median(self.clocks_ns))

    @property
    def is_tight(self) -> bool:
        """Whether the ends alone tell that these are the same collectives."""
        return len(self.first) >= ENOUGH and self.widest_ns <= CLOSE_NS


class _Clocks:
    """Differences of clocks, as far as collectives have told them."""

    def __init__(self, ranks: int) -> None:
        self.root = list(range(ranks))
        self.offset_ns = [0] * ranks

    def __len__(self) -> int:
        return len(self.root)

    def difference_ns(self, one: int, other: int) -> int | None:
        """Return what is to be added to the times of the other; None where nothing connects."""
        if self.root[one] != self.root[other]:
            return None
        return self.offset_ns[other] - self.offset_ns[one]

    def connect(self, one: int, other: int, difference_ns: int) -> None:
        """Take the difference of two clocks."""
        old, new = self.root[other], self.root[one]
        if old == new:
            return
        more = self.offset_ns[one] + difference_ns - self.offset_ns[other]
        for rank, root in enumerate(self.root):
            if root == old:
                self.root[rank] = new
                self.offset_ns[rank] += more


@dataclass(eq=False)
class _Group:
    """Lanes of several ranks that go together, with how each lies upon the first one."""

    lead: Lane
    fits: list[tuple[Lane, _Fit]] = field(default_factory=list)
    in_doubt: bool = False
    """Whether the first lane may belong to another one, which was not sure."""
    latest_ns: IntArray = field(init=False)
    """When the last one came to each collective, on the clock of the first lane."""
    first_begin_ns: IntArray = field(init=False)
    first_end_ns: IntArray = field(init=False)

    @property
    def ranks(self) -> set[int]:
        return {self.lead.rank, *(lane.rank for lane, _ in self.fits)}

    def __post_init__(self) -> None:
        self.latest_ns = self.lead.begin_ns.copy()
        self.first_begin_ns = self.lead.begin_ns.copy()
        self.first_end_ns = self.lead.end_ns.copy()

    @property
    def spread_ns(self) -> float:
        """How far ends differ from what the clocks do, of the lane that fits worst."""
        return max((fit.spread_ns for _, fit in self.fits), default=0.0)

    @property
    def widest_ns(self) -> float:
        """And in nine of ten collectives."""
        return max((fit.widest_ns for _, fit in self.fits), default=0.0)

    @property
    def has_waited(self) -> bool:
        """Whether ends agree better than begins do: else nobody need have waited for another."""
        common = self.common()
        earliest = self.first_begin_ns[common]
        waited = float((self.latest_ns[common] - earliest).mean()) if len(common) else 0.0
        return waited >= CLEARLY * max(self.spread_ns, CLOSE_NS)

    @property
    def is_by_chance(self) -> bool:
        """Whether ends may agree so by chance, where ranks come not as far apart as usual."""
        common = self.common()
        came, by_chance = self.latest_ns[common] - self.first_begin_ns[common], False
        came = np.abs(came - _median(came))
        common, came = (each[came > CLEARLY * CLOSE_NS] for each in (common, came))
        for lane, fit in self.fits:
            if not fit.is_loose and (fit.is_tight or len(fit.first) >= MANY):
                continue
            at = np.searchsorted(fit.first, common)
            ends = lane.end_ns[fit.second[at]] + fit.clocks_ns[at]
            apart = np.abs(self.lead.end_ns[common] - ends) + CLOSE_NS
            by_chance |= _chance(np.minimum(apart / came, 1.0)) > MOST_CHANCE
        return by_chance

    def add(self, lane: Lane, fit: _Fit) -> None:
        """Take another lane; from now on all of them have to overlap."""
        self.fits.append((lane, fit))
        begin, end = (times[fit.second] + fit.clocks_ns for times in (lane.begin_ns, lane.end_ns))
        self.latest_ns[fit.first] = np.maximum(self.latest_ns[fit.first], begin)
        self.first_begin_ns[fit.first] = np.minimum(self.first_begin_ns[fit.first], begin)
        self.first_end_ns[fit.first] = np.minimum(self.first_end_ns[fit.first], end)

    def common(self, also: IntArray | None = None) -> IntArray:
        """Return the places in the first lane of the collectives that all of them have."""
        found = np.arange(len(self.lead)) if also is None else also
        for _, fit in self.fits:
            found = np.intersect1d(found, fit.first, assume_unique=True)
        return found


def match(every: Sequence[Lane], begin_unix_ns: Sequence[int | None]) -> Matching:
    """Return the collectives that lanes of several ranks have in common.

    `begin_unix_ns` is when each rank's profile begins by its own clock, None where it is not told.
    """
    clocks = _Clocks(len(begin_unix_ns))
    groups = _groups(every, clocks, begin_unix_ns)
    if len(groups) > 1 and any(lane.size is None for lane in every):
        # Small groups may look alike: the clocks of the largest one tell them apart.
        largest = max(groups, key=lambda each: (len(each.fits), -each.spread_ns))
        clocks = _Clocks(len(begin_unix_ns))
        for lane, fit in largest.fits:
            clocks.connect(largest.lead.rank, lane.rank, fit.clock_ns)
        groups = _groups(every, clocks, begin_unix_ns)
    groups = list(_certain(groups, clocks, begin_unix_ns))
    matched = tuple(_matched(each, len(begin_unix_ns)) for each in groups if each.fits)
    connected = {rank for each in matched for rank in each.ranks}
    return Matching(
        matched,
        {rank: clocks.offset_ns[rank] for rank in sorted(connected)},
        sum(not each.fits for each in groups),
        sum(each.in_doubt for each in groups),
    )


def _groups(every: Sequence[Lane], clocks: _Clocks, begins: Sequence[int | None]) -> list[_Group]:
    """Return the lanes by what goes together, and connect the clocks of their ranks."""
    groups: list[_Group] = []
    # Groups of most ranks tell the clocks, which tell apart the small ones that look alike.
    for lane in sorted(every, key=lambda each: (-(each.size or 0), -len(each), each.rank)):
        ways = [(group, fit) for group in groups for fit in _ways(group, lane, clocks)]
        surest = _surest(ways, lane, begins)
        if surest is None:
            groups.append(_Group(lane, in_doubt=bool(ways)))
            continue
        group, fit = surest
        group.add(lane, fit)
        clocks.connect(group.lead.rank, lane.rank, fit.clock_ns)
    return groups


def _ways(group: _Group, lane: Lane, clocks: _Clocks) -> list[_Fit]:
    """Return all ways in which a lane lies upon those of a group; none where it is of another."""
    lead = group.lead
    is_same = (lead.group, lead.size) == (lane.group, lane.size)
    if not is_same or lane.rank in group.ranks or len(group.ranks) >= (lead.size or len(clocks)):
        return []
    known = clocks.difference_ns(lead.rank, lane.rank)
    if lead.identity is not None and lane.identity is not None:
        _, first, second = np.intersect1d(lead.identity, lane.identity, return_indices=True)
        order = np.argsort(first)
        places: Iterable[tuple[IntArray, IntArray]] = [(first[order], second[order])]
    else:
        places = _overlays(lead.token, lane.token)
    places = list(places)
    for tolerance in (CLOSE_NS, ONE_CLOCK_NS) if lane.size is None else (CLOSE_NS,):
        found = [_judged(group, lane, *each, known, tolerance) for each in places]
        fits = [fit for fit in found if fit is not None and len(group.common(fit.first)) >= FEWEST]
        together = [fit for fit in fits if not fit.is_skewed]
        if together or (fits and lane.size is not None):
            return together or fits
    return []


def _surest(
    ways: Sequence[tuple[_Group, _Fit]], lane: Lane, begins: Sequence[int | None]
) -> tuple[_Group, _Fit] | None:
    """Return the one way in which a lane belongs to a group; None where there is a doubt."""
    if not ways:
        return None
    group, fit = best = min(ways, key=lambda each: each[1].spread_ns)
    if lane.size is None and not fit.is_tight and len(fit.first) < ENOUGH:
        return None  # nothing tells even that they are of one group
    others = [each for each in ways if each[1] is not fit and _is_near(each[1], fit)]
    if not others and (_is_numbered(group.lead, lane) or fit.is_tight):
        return best
    # Ends do not tell: on one machine the time of day does.
    apart = sorted(
        ((_from_told_ns(group, fit, lane, begins), place)
         for place, (group, fit) in enumerate(ways) if fit is best[1] or _is_near(fit, best[1])),
    )  # fmt: skip
    nearest, place = apart[0]
    most = ONE_CLOCK_NS if len(ways) > 1 else ONLY_WAY_NS
    if nearest > most or any(each < CLEARLY * ONE_CLOCK_NS for each, _ in apart[1:]):
        return None
    return ways[place]


def _is_near(other: _Fit, best: _Fit) -> bool:
    return other.spread_ns <= CLEARLY * best.spread_ns + CLOSE_NS


def _is_numbered(one: Lane, other: Lane) -> bool:
    return one.identity is not None and other.identity is not None


def _from_told_ns(group: _Group, fit: _Fit, lane: Lane, begins: Sequence[int | None]) -> float:
    """Return how far the clocks of a fit are at first from one clock for both ranks."""
    begun, other = begins[group.lead.rank], begins[lane.rank]
    if begun is None or other is None:
        return np.inf
    return abs(int(fit.clocks_ns[0]) - (other - begun))


def _certain(
    groups: Sequence[_Group], clocks: _Clocks, begins: Sequence[int | None]
) -> Iterator[_Group]:
    """Yield the groups, those in pieces of which a lane may as well be of another one."""
    doubtful = {
        id(group)
        for one in groups
        for other in groups
        if one is not other and not one.ranks >= other.ranks
        if _may_be_one(one, other, clocks, begins)
        for group in (one, other)
    }
    doubtful |= {
        id(each)
        for each in groups
        if each.lead.size is None and (not each.has_waited or each.is_by_chance)
    }
    for group in groups:
        if id(group) not in doubtful:
            yield group
            continue
        for lane in (group.lead, *(lane for lane, _ in group.fits)):
            yield _Group(lane, in_doubt=True)


def _may_be_one(one: _Group, other: _Group, clocks: _Clocks, begins: Sequence[int | None]) -> bool:
    """Return whether a lane of one group lies upon the first of another as well as its own do, or
    two that nothing names are halves of one for all that is known."""
    lanes = (other.lead, *(lane for lane, _ in other.fits))
    lane = next(each for each in lanes if each.rank not in one.ranks)
    worst = max(one.spread_ns, other.spread_ns)
    may_skew = any(fit.is_skewed for each in (one, other) for _, fit in each.fits)
    return any(
        fit.spread_ns <= CLEARLY * worst + CLOSE_NS and fit.is_skewed <= may_skew
        for fit in _ways(_Group(one.lead), lane, clocks)
    ) or _may_be_halves(one, other, begins)


def _may_be_halves(one: _Group, other: _Group, begins: Sequence[int | None]) -> bool:
    """Return whether two groups that nothing names overlap in all collectives by the time of day:
    where the ends of either differ, ranks that leave each other alike may be half of a group in
    which others leave later, and ends do not tell their clocks."""
    apart_ns = max(one.widest_ns, other.widest_ns)
    lead, second = one.lead, other.lead
    begun, also = begins[lead.rank], begins[second.rank]
    if begun is None or also is None or apart_ns <= CLOSE_NS:
        return False
    if lead.size is not None or second.size is not None:
        return False
    clock = also - begun
    for first, places in _overlays(lead.token, second.token):
        begin = np.maximum(one.latest_ns[first], other.latest_ns[places] + clock)
        end = np.minimum(one.first_end_ns[first], other.first_end_ns[places] + clock)
        if (begin > end + ONE_CLOCK_NS + apart_ns).mean() <= MOST_APART:
            return True
    return False


def _overlays(one: IntArray, other: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the places that lie upon each other wherever names and sizes agree throughout."""
    least = max(FEWEST, min(len(one), len(other)) // 2)
    for shift in range(-min(MOST_SHIFT, len(other)), min(MOST_SHIFT, len(one)) + 1):
        start, stop = max(shift, 0), min(len(one), len(other) + shift)
        if stop - start < least or one[start] != other[start - shift]:
            continue
        if np.array_equal(one[start:stop], other[start - shift : stop - shift]):
            first = np.arange(start, stop)
            yield first, first - shift


def _judged(
    group: _Group, lane: Lane, first: IntArray, second: IntArray, known: int | None, close_ns: int
) -> _Fit | None:
    """Return a fit; None where no difference of the clocks, to `close_ns`, makes these overlap."""
    lead = group.lead
    if len(first) < FEWEST:
        return None
    together = lead.together[first]
    chosen = together == (1 if (together == 1).any() else UNKNOWN)
    if not chosen.any():
        return None
    one, other = first[chosen], second[chosen]
    ends = lead.end_ns[one] - lane.end_ns[other]
    clock = _clock_ns(lead.end_ns[one], ends, lead.end_ns[first])
    tolerance = float(close_ns)
    if known is not None and abs(_median(clock) - known) > close_ns:
        clock = np.full(len(first), known, np.int64)
        tolerance += DRIFT * float(np.ptp(lead.begin_ns[one]))
    clocks, clock = clock, clock[chosen]
    begin, end = lane.begin_ns[other] + clock, lane.end_ns[other] + clock
    apart = (end < group.latest_ns[one] - tolerance) | (begin > group.first_end_ns[one] + tolerance)
    shorter = np.minimum(end - begin, lead.end_ns[one] - lead.begin_ns[one])
    skewed = apart | (np.abs(ends - clock) > tolerance + MOST_SKEW * shorter)
    if apart.mean() > MOST_APART or skewed.mean() >= MOST_SKEWED:
        return None
    spread = np.abs(ends - clock)
    widest = float(np.quantile(spread, 0.9, method="higher"))
    is_skewed = bool(skewed.mean() > MOST_APART)
    is_loose = close_ns > CLOSE_NS
    return _Fit(first, second, clocks, _median(spread), widest, is_skewed, is_loose)


def _matched(group: _Group, ranks: int) -> Matched:
    common = group.common()
    lead = group.lead
    begins, ends, rows = [lead.begin_ns[common]], [lead.end_ns[common]], [lead.rows[common]]
    for lane, fit in group.fits:
        at = fit.second[np.searchsorted(fit.first, common)]
        clock = fit.clocks_ns[np.searchsorted(fit.first, common)]
        begins.append(lane.begin_ns[at] + clock)
        ends.append(lane.end_ns[at] + clock)
        rows.append(lane.rows[at])
    kinds = tuple(lead.kinds[place] for place in common.tolist())
    begin, end = np.stack(begins), np.stack(ends)
    widest = [min(fit.widest_ns, ONLY_WAY_NS) for _, fit in group.fits if not fit.is_skewed]
    return Matched(
        (lead.rank, *(lane.rank for lane, _ in group.fits)),
        lead.group, lead.size, kinds, begin, end, np.stack(rows),
        _together(lead.together[common], begin, end, max(widest, default=0),
                  is_all=len(begins) == ranks),
    )  # fmt: skip


def _clock_ns(at_ns: IntArray, ends_ns: IntArray, wanted_ns: IntArray) -> IntArray:
    """Return the difference of two clocks at some times, from the differences of ends at others:
    one, or a line where they drift."""
    edge = max(len(ends_ns) // 4, 1)
    early, late = _median(ends_ns[:edge]), _median(ends_ns[-edge:])
    lasted = _median(at_ns[-edge:]) - _median(at_ns[:edge])
    if len(ends_ns) < MANY or abs(late - early) < 2 * CLOSE_NS or lasted <= 0:
        return np.full(len(wanted_ns), int(_median(ends_ns)), np.int64)
    slope = min(max((late - early) / lasted, -DRIFT), DRIFT)
    line: FloatArray = slope * (at_ns - at_ns[0])
    begin = _median(ends_ns - line)
    moved: IntArray = (begin + slope * (wanted_ns - at_ns[0])).astype(np.int64)
    return moved


def _chance(shares: FloatArray) -> float:
    """Return the chance of so small a product of even numbers up to 1 (Fisher's method)."""
    total = -float(np.log(shares).sum())
    terms = np.cumsum(np.log(np.maximum(total, 1e-300) / np.arange(1, len(shares))))
    return float(np.exp(-total) + np.exp(terms - total).sum())


def _median(values: IntArray | FloatArray) -> float:
    """Return the median; of few numbers, as here, NumPy's takes five times as long."""
    ordered, half = np.sort(values), len(values) // 2
    middle = ordered[half : half + 1] if len(values) % 2 else ordered[half - 1 : half + 1]
    return sum(map(float, middle)) / len(middle)


def _together(
    told: IntArray, begin_ns: IntArray, end_ns: IntArray, apart_ns: float, *, is_all: bool
) -> BoolArray:
    """Return in which collectives no rank went on before all had come; of a kind that does not tell
    only where all ranks of the run were in all of them: else one may have sent to another."""
    overlap: BoolArray = begin_ns.max(axis=0) <= end_ns.min(axis=0) + CLOSE_NS + apart_ns
    certain, unsure = told == 1, told == UNKNOWN
    if is_all and unsure.any() and overlap[unsure].mean() >= 1 - MOST_APART:
        certain |= unsure
    known: BoolArray = certain & overlap
    return known

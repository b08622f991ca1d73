"""The host waits for the GPU within the loop, and then the GPU for the host."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.profile import UNKNOWN, Direction
from gpuadvisor.rules.estimates import LEAST_SAVED, idle_parts, saved_shares
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.host_waits import Host
from gpuadvisor.rules.facts.idle import AGAIN
from gpuadvisor.rules.facts.idle_causes import Cause
from gpuadvisor.rules.facts.intervals import (
    BoolArray,
    IntArray,
    Intervals,
    both,
    none,
    union,
    without,
)
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.what_if import Scenario
from gpuadvisor.rules.paces import MARGIN, idle_ns, loader_sets_pace, paces, span_ns
from gpuadvisor.rules.requirements import LOOP_OF_WORK
from gpuadvisor.rules.rule import MOST, NOTICEABLE, Estimate, Rule, RuleResult, percent

FEWEST = 2
"""Waits after which the host launched more: one may be the end of a warm-up. [own]"""
MAKES = re.compile(
    r"aten::(linalg_vector_norm|norm|any|all|isnan|isinf|isfinite|ne|eq|lt|le|gt|ge|abs|sum|mean|std|var"
    r"|max|min|amax|amin|argmax|argmin|logical_\w+|bitwise_\w+|copy_|clone)$"
)
"""Operators that make a number of a tensor, tests on the way to one, and copies in one piece."""
REACH = 4
"""Most kernels before a fetch that compute what is fetched: a comparison, `any`, a norm, a copy in
one piece. [own]"""
EVERYWHERE = 0.8
"""Least share of the kernels of a kind that precede a fetch, for the kind to be there for that.
[own]"""
REPEATED = 2
"""Fewest such fetches in a step: a step's loss is fetched once, and needed."""
PLAIN = {
    "aten::_local_scalar_dense": ".item()",
    "aten::item": ".item()",
    "aten::nonzero": "nonzero()",
    "aten::copy_": "a copy to the host",
    "aten::_to_copy": "a copy to the host",
}
"""What a user wrote to get an operator that waits."""

_AS_TENSOR = ", as a tensor (`.tolist()`)"
"""In what to do, the words of PyTorch."""
_WITHOUT = Scenario({Host.SYNCHRONIZING: 0.0})

RULE = Rule(Category.SYNC, needs=(LOOP_OF_WORK,))


@dataclass(frozen=True)
class _Waits:
    what: str
    """The call or operator in which most of their time went, for people."""
    calls: IntArray
    """Rows of its calls."""
    count: int
    """Number of all waits."""
    waited_ns: int


@dataclass(frozen=True)
class _Fetched:
    """What is there only for fetches."""

    makes: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    """Rows of the device's work that computes what is fetched."""
    copies: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    """Rows of the copies that one copy with others would do for."""
    times: Intervals = field(default_factory=none)
    """When the host was at either."""
    looped: Intervals = field(default_factory=none)
    """When it was at the second only."""
    is_most: bool = False
    """Whether most of what is waited for is copied so."""


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find waits that keep the host from launching ahead."""
    facts = evidence.known_facts
    waits = _waits(facts)
    if waits is None or not evidence.run_ns:
        return
    # What the host does for long after a wait is `host_bound`'s: it may need what it waited for.
    most = idle_ns(facts, Cause.SYNCHRONIZING, Cause.LAUNCHING) / evidence.run_ns
    low, high = (min(share, most) for share in saved_shares(facts, _WITHOUT))
    if (low + high) / 2 * evidence.run_ns < NOTICEABLE * span_ns(facts):
        return
    found = _fetched(facts)
    rows = np.concatenate((found.makes, found.copies))
    _, whole = _saved_with(facts, rows, found.times, low, high)
    low, high = _saved_with(facts, found.copies, found.looped, low, high)
    advice = _advice(facts, waits, found.is_most)
    kernels = {
        f"kernel/{name}": float(time)
        for name, time in facts.work.kernel_times_ns(found.makes).items()
    }
    yield RuleResult(
        f"The host waits for the GPU {waits.count:,} times in the run, mostly in {waits.what}, and"
        " cannot launch ahead",
        (
            Figure("waits_for_the_gpu", waits.count, "", FEWEST),
            Figure("mostly_in", waits.what),
            percent("host_in_these_waits", evidence.share(waits.waited_ns)),
            percent("gpu_idle_after_waits", evidence.share(idle_ns(facts, Cause.SYNCHRONIZING))),
            Figure("run_saved_without_waits", round(50 * (low + high), 1), "%", 100 * NOTICEABLE),
        ),
        advice,
        Estimate(
            LEAST_SAVED * low * evidence.run_ns,
            whole * evidence.run_ns,
            {**idle_parts(facts, whole * evidence.run_ns), **kernels},
        ),
        "At most what the run played again without these waits saves, the host at the pace that it"
        " may have without the profiler, and no more than the GPU's idle time that the waits"
        " began or in which the host launched"
        + (
            ", and without what the same thread computed just before them, again and again, and"
            " nowhere else"
            if len(rows)
            else ""
        )
        + f"; at least {LEAST_SAVED:.0%} of that at the pace that saves less.",
        calls=waits.calls,
        program_advice=advice.replace(_AS_TENSOR, ""),
    )


def _advice(facts: Facts, waits: _Waits, one_by_one: bool) -> str:
    """Return what to do; values that are not fetched cannot be fetched later."""
    copied = (facts.work.copies["direction"] == Direction.DEVICE_TO_HOST).any()
    if not copied and not waits.what.startswith(tuple(PLAIN.values())):
        return (
            "Leave out calls that only synchronise: what is launched on one stream runs in order"
            " without them. Wait where the host reads what the GPU wrote, and every so many steps"
            " only."
        )
    return (
        f"Fetch what a loop fetches one by one at once{_AS_TENSOR}; f" if one_by_one else "F"
    ) + (
        "etch values from the GPU every so many steps only, or after the step's work is launched;"
        " leave out calls that only synchronise."
    )


def _fetched(facts: Facts) -> _Fetched:
    """Return what is there only for fetches that a step makes several times, in one thread.

    That is what computes what is fetched: operators that make a number of a tensor, or bring it
    into one piece, just before a fetch wherever they come. And where a fetch follows another one
    with nothing but that in between, as in a loop over elements or parameters, all that the host
    does meanwhile: one fetch would do for all.
    """
    line, work, launched, ran = facts.timeline, facts.work, facts.launched, facts.launching
    if line is None or not len(line.wait_kind):
        return _Fetched()
    fetched = line.rows[line.waited_for] >= work.kernels
    waits = line.wait_kind == Host.SYNCHRONIZING
    wait = np.flatnonzero(waits & fetched)
    # Of a copy of pageable memory both the copy and the stream are waited for: the last one counts.
    wait = wait[np.append(np.diff(line.waited_for[wait]) != 0, True)[: len(wait)]]
    copy, call = line.waited_for[wait], line.wait_call[wait]
    if len(wait) < REPEATED * max(facts.step_count, 1):
        return _Fetched()
    operator = ran.of_work[line.rows]
    known = operator != UNKNOWN
    names = np.full(len(operator), UNKNOWN, np.int64)
    names[known] = ran.name[operator[known]]
    texts = facts.profile.header.texts
    small = [each for each in np.unique(names).tolist() if each >= 0 and MAKES.match(texts[each])]
    may = np.isin(names, small) & work.is_kernel[line.rows]
    pairs = work.name[line.rows].astype(np.int64) * len(texts) + names
    key = np.unique(pairs, return_inverse=True)[1]
    count = np.bincount(key)
    thread = facts.host.thread_key[call]
    left, first = np.ones(len(wait), np.bool_), copy.copy()
    for distance in range(1, REACH + 1):
        place = np.maximum(copy - distance, 0)
        left &= (copy >= distance) & may[place]
        left &= launched.thread_key[line.rows[place]] == thread
        here = np.bincount(key[place[left]], minlength=len(count))
        left &= (here >= EVERYWHERE * count)[key[place]]
        first[left] = place[left]
    again = np.append(False, (first[1:] - 1 == copy[:-1]) & (thread[1:] == thread[:-1]))
    if facts.steps is None:  # what comes again and again is known of those in a row only
        again &= _in_a_row(again)
        first = np.where(again | np.append(again[1:], False), first, copy)
    computed = first < copy
    made = np.zeros(len(key) + 1, np.int64)
    np.add.at(made, first, 1)
    np.add.at(made, copy, -1)
    makes = np.flatnonzero(np.cumsum(made)[:-1])
    chosen = np.flatnonzero(computed | again)
    begin = facts.host.end_ns[call[chosen - 1]]
    alone = ~again[chosen]  # what it computes begins it, in an operator
    begin[alone] = ran.begin_ns[operator[first[chosen[alone]]]]
    # What lasts between two of them may be what they are fetched for.
    times = without(union(begin, facts.host.begin_ns[call[chosen]]), line.away)
    operators = np.unique(operator[makes])
    making = union(ran.begin_ns[operators], ran.end_ns[operators])
    looped = union(facts.host.end_ns[call[:-1][again[1:]]], facts.host.begin_ns[call[again]])
    return _Fetched(
        line.rows[makes],
        line.rows[copy[again]],
        times,
        both(without(looped, making), times),
        bool(again.sum() > MOST * len(np.unique(line.waited_for[waits]))),
    )


def _in_a_row(again: BoolArray) -> BoolArray:
    """Say of each fetch whether it is one of several in a row; `again` says which ones follow
    another one with nothing else between."""
    number = np.cumsum(~again)
    several: BoolArray = np.bincount(number)[number] >= AGAIN
    return several


def _saved_with(
    facts: Facts, rows: IntArray, times: Intervals, least: float, most: float
) -> tuple[float, float]:
    """Return the least and the most of the run that is saved without the waits, this work of the
    device and these times of the host; as given where that is less."""
    player = facts.faster_kernels
    if player is None or not len(times) or loader_sets_pace(facts):
        return least, most
    shares = [
        player.saved_share([(rows, 1.0)], pace, times, 1.0, _WITHOUT.host) for pace in paces(facts)
    ]
    return max(least, min(shares)), max(most, min(MARGIN * max(shares), 1.0))


def _waits(facts: Facts) -> _Waits | None:
    """Return the waits after which more was launched."""
    line = facts.timeline
    if line is None:
        return None
    later = np.flatnonzero(
        (line.wait_kind == Host.SYNCHRONIZING)
        & (np.arange(len(line.wait_kind)) < line.waits_before.max(initial=0))
    )
    if len(later) < FEWEST:
        return None
    calls = line.wait_call[later]
    names = [_named(facts, call) for call in calls.tolist()]
    host = facts.host
    lasted = host.end_ns[calls] - host.begin_ns[calls]
    waited: Counter[str] = Counter()
    for name, time_ns in zip(names, lasted.tolist(), strict=True):
        waited[name] += time_ns
    what = waited.most_common(1)[0][0]
    return _Waits(
        what,
        calls[[name == what for name in names]],
        len(calls),
        int(lasted.sum()),
    )


def _named(facts: Facts, call: int) -> str:
    """Return the operator that waited, in the user's words if possible, else the call."""
    texts = facts.profile.header.texts
    operator = int(facts.launching.of_call[call]) if len(facts.launching.of_call) else UNKNOWN
    if operator == UNKNOWN:
        return str(texts[facts.host.name[call]])
    name = str(texts[facts.launching.name[operator]])
    return f"{PLAIN[name]} ({name})" if name in PLAIN else name

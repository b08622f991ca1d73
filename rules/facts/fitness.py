"""Which part of a recording can be judged, and what that can show.

Loading (what is copied to the devices before their first kernel, and not again) is left out, where
a loop follows. Of a program without steps that works at a pace for most of its kernels' time, and
otherwise stands still in gaps that come once or twice, the stretch at a pace is looked at, and the
gaps are told. Start-up (`facts.starting`) happens once. Where it takes a part of the run that
matters, the diagnosis looks at the longest row of steps without it; where there is none, and most
of the idle time is start-up, nothing is said about idle time at all: what the program does once it
is warm is not in this recording.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN, CallKind, Direction, Profile
from gpuadvisor.rules.facts.device_work import DeviceWork, Work
from gpuadvisor.rules.facts.failures import lost_launches, only_last_lost
from gpuadvisor.rules.facts.idle import AGAIN, alike_counts, split_gaps
from gpuadvisor.rules.facts.idle_causes import Cause, Gaps
from gpuadvisor.rules.facts.intervals import (
    IntArray,
    Intervals,
    both,
    covered_ns,
    either,
    none,
    numbered,
)
from gpuadvisor.rules.facts.intervals import gaps as gaps_of
from gpuadvisor.rules.facts.kernel_families import short_name
from gpuadvisor.rules.facts.parts import Part
from gpuadvisor.rules.facts.starting import LOADING_NS, SLOW_CALL_NS
from gpuadvisor.rules.facts.steps import NO_STEPS
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.time_breakdown import IDLE
from gpuadvisor.rules.facts.two_clocks import two_clocks
from gpuadvisor.rules.facts.window import FILLED, Fitness

MOST = 0.5
"""Share from which on something is most of it: all else together is less."""
_KINDS = {
    "loading": "CUDA starts and kernels are loaded",
    "capturing": "CUDA graphs are captured",
    "compiling": "kernels are compiled",
    "trying": "algorithms are tried",
}


ALL = Fitness()


def judged(
    profile: Profile, ceilings: Mapping[str, float] | None = None, fitness: Fitness = ALL
) -> Facts:
    """Return the facts of the part of a profile that can be judged, with what it can show.

    `fitness` tells of a profile that is an excerpt of a longer one which part it is.
    """
    whole = Facts(profile, ceilings or {}, fitness)
    if not whole.has_timeline or not whole.busy:
        return whole
    if (apart := two_clocks(whole)) is not None:
        told = fitness.noted(apart.told)
        if apart.on_one_clock:
            moved = Facts(apart.profile, ceilings or {}, replace(fitness, note=told))
            return _judged(_both_recorded(moved))
        return Facts(apart.profile, ceilings or {}, replace(fitness, note=told, no_idle=apart.told))
    return _judged(whole)


def _judged(whole: Facts) -> Facts:
    """Return the facts of the part of a recording on one clock that can be judged."""
    profile, ceilings, fitness = whole.profile, whole.ceilings, whole.fitness
    if fitness.not_before_ns is None and (queued := _after_queue(whole)) is not None:
        return _judged(queued)
    if not fitness.excerpt and (recorded := _while_recorded(whole)) is not None:
        return _judged(recorded)
    if not fitness.excerpt:
        whole = _without_loading(whole) or whole
        if (paced := _at_pace(profile, whole)) is not None:
            return paced
    if not whole.starting.once:
        return whole
    cold = _cold(whole)
    if cold.total_ns <= (1 - FILLED) * whole.window.run_ns:
        return whole
    words = " and ".join(_KINDS[kind] for kind in whole.starting.kinds)
    these, run, this = "", "recorded run", "This"
    if fitness.excerpt:
        these, run, this = "these ", "time of these", "This part of the"
    found = _steady(whole, cold)
    if found is not None:
        begin_ns, end_ns, kept = found
        others = "before them" if kept == whole.step_count else "in the others"
        why = (
            f"{kept} of {these}{whole.step_count} steps are looked at: {others} {words}, for"
            f" {_percent(cold.total_ns / whole.window.run_ns)} of the {run}"
        )
        part = Part(profile, begin_ns, end_ns)
        since = max(part.not_before_ns, fitness.not_before_ns or begin_ns)
        note = whole.fitness.noted(why)
        return Facts(part, ceilings, replace(fitness, note=note, not_before_ns=since))
    idle = sum(each.idle_ns for each in whole.idle)
    once = sum(each.causes_ns[Cause.STARTING] for each in whole.idle)
    if once < MOST * idle:
        return whole
    why = (
        f"{this} recording shows a start: {words} in {_percent(once / max(idle, 1))} of the time in"
        " which the GPU was idle, and no steady steps follow that are marked; what the program does"
        " once it is warm is not in it"
    )
    note = whole.fitness.noted(why)
    return Facts(whole.profile, ceilings, replace(whole.fitness, note=note, no_idle=why))


def _both_recorded(whole: Facts) -> Facts:
    """Return what is to be judged of a recording whose devices were put on the host's clock.

    What ran on the devices was recorded by their own clock, and so began or ended elsewhere than
    what the host did: launches before the first that has work, or behind the last, were recorded
    without it, and the devices were not idle then.
    """
    host, launched = whole.host, whole.launched
    called = np.sort(host.begin_ns[host.of_kinds((CallKind.LAUNCH, CallKind.GRAPH_LAUNCH))])
    with_work = launched.begin_ns[launched.known]
    first, last = int(with_work.min()), int(with_work.max())
    before = first - int(called.min(initial=first))
    behind = int(called.max(initial=last)) - last
    if not whole.window.share(before + behind) > 1 - FILLED:
        return whole
    sides = (("first", before), ("last", behind))
    parts = " and ".join(f"the {which} {_ms(took)}" for which, took in sides if took)
    note = whole.fitness.noted(
        f"Left out are {parts} of the launches: what they launched was not recorded"
    )
    part = Part(whole.profile, first, last + 1)
    since = int(whole.work.begin_ns.min())
    return Facts(part, whole.ceilings, replace(whole.fitness, note=note, not_before_ns=since))


def _after_queue(whole: Facts) -> Facts | None:
    """Return what is to be judged of a recording that began with a full queue: what was launched
    first in it began long after that, on devices that by the recording did nothing. Either they
    then worked on what was launched before, or the recording ended with a full queue as well: its
    last launches, which are left out, have no kernel. None where it is no such recording."""
    begin_ns, work, launched = whole.window.begin_ns, whole.work, whole.launched
    order = np.argsort(work.begin_ns, kind="stable")
    since = int(work.begin_ns[order[0]])
    first = int(order[np.argmax(launched.known[order])])
    if whole.window.share(since - begin_ns) <= 1 - FILLED or not launched.known[first]:
        return None
    if int(work.begin_ns[first] - launched.end_ns[first]) < MOST * (since - begin_ns):
        return None
    until, lost = whole.window.end_ns + 1, None
    if first == order[0]:
        lost = lost_launches(whole)
        if lost is None or not only_last_lost(whole):
            return None
        until = int(launched.begin_ns[launched.known].max()) + 1
    note = (
        f"The first {(since - begin_ns) / 1e6:,.3g} ms are left out: the GPU still worked on what"
        " was launched before recording began, of which nothing was recorded"
        + (f". {lost}" if lost else "")
    )
    part, note = Part(whole.profile, begin_ns, until), whole.fitness.noted(note)
    return Facts(part, whole.ceilings, replace(whole.fitness, note=note, not_before_ns=since))


def _while_recorded(whole: Facts) -> Facts | None:
    """Return what is to be judged of a recording that went on to mark steps when it no longer
    recorded CUDA: its last steps neither call into CUDA nor have work, for more than `1 - FILLED`
    of its run, and all before them call. None where it is no such recording."""
    called, begins = np.sort(whole.host.begin_ns), (whole.steps or NO_STEPS).begin_ns
    if len(begins) < AGAIN or not len(called):
        return None
    last = max(int(called[-1]), int(whole.work.end_ns.max()))
    kept = int(np.searchsorted(begins, last, side="right"))
    silent_ns = whole.window.end_ns - last
    with_calls = np.diff(np.searchsorted(called, [*begins[:kept], last + 1])) > 0
    if kept == len(begins) or whole.window.share(silent_ns) <= 1 - FILLED or not with_calls.all():
        return None
    note = (
        f"CUDA was recorded in the first {kept:,} of {len(begins):,} steps only: the last"
        f" {_ms(silent_ns)}, in which nothing of it was recorded, are left out"
    )
    part = Part(whole.profile, whole.window.begin_ns, int(begins[kept]))
    return Facts(part, whole.ceilings, replace(whole.fitness, note=whole.fitness.noted(note)))


def _without_loading(whole: Facts) -> Facts | None:
    """Return the facts of what follows the loading of a program that first copies its data to the
    devices, for more than `1 - FILLED` of its run, and then works in a loop; None where it is no
    such program.

    Before the first kernel that computes nothing but copies, fillings and communication ran, mostly
    copies to the devices; what is copied there later takes less than half as long: batches come
    again.
    """
    work, window = whole.work, whole.window
    computing = np.flatnonzero((work.kind == Work.COMPUTE) & (work.end_ns > work.begin_ns))
    if not len(computing) or whole.steps is not None:
        return None
    first = computing[np.argmin(work.begin_ns[computing])]
    until = int(work.begin_ns[first])
    share = window.share(until - window.begin_ns)
    direction = work.copies["direction"]
    to_device = np.flatnonzero(direction == Direction.HOST_TO_DEVICE) + work.kernels
    before = to_device[work.begin_ns[to_device] < until]
    took = int(work.duration_ns[before].sum())
    short = until - window.begin_ns < SLOW_CALL_NS  # a first launch alone may take as long
    if short or share <= 1 - FILLED or work.duration_ns[to_device].sum() >= (1 + MOST) * took:
        return None
    called = whole.launched.begin_ns[first] if whole.launched.known[first] else until
    part = Part(whole.profile, min(int(called), until), int(window.end_ns) + 1)
    if work.intervals(before).total_ns <= MOST * (until - window.begin_ns):
        return None
    size = int(np.maximum(work.copies["bytes"][before - work.kernels], 0).sum())
    why = whole.fitness.noted(
        f"The first {_percent(share)} of the recorded run"
        f" ({(until - window.begin_ns) / 1e6:,.0f} ms) load: {size / 2**20:,.0f} MiB are copied to"
        " the GPU before its first kernel that computes, which a program does once; what follows is"
        " looked at"
    )
    found = Facts(part, whole.ceilings, Fitness(why, None, part.not_before_ns))
    return found if _recurs(found.work) else None


def _at_pace(profile: Profile, whole: Facts) -> Facts | None:
    """Return the facts of the stretch in which the GPU works at a pace, of a program without steps
    that otherwise stands still in single gaps; None where there is no such stretch for certain.

    Certain is one with more than half of the kernels' time, mostly of kernels that ran again and
    again, whose idle time is neither start-up nor single gaps, and that is no shorter than a first
    pass that loads something may be (`LOADING_NS`).
    """
    if whole.step_count > 1 or len(whole.busy) != 1 or whole.too_short:
        return None
    idle, once = whole.idle[0].idle_ns, whole.idle[0].causes_ns[Cause.STARTING]
    single = max(once, whole.idle[0].seldom_ns)
    if whole.no_loop is None and (single < MOST * idle or whole.window.busy_share >= FILLED):
        return None
    stretch = _stretch(whole)
    if stretch is None or stretch.end_ns - stretch.begin_ns < LOADING_NS:
        return None  # so little may be a first pass, which tells nothing of later ones
    part = Part(profile, stretch.called_ns, stretch.until_ns)
    share = whole.window.share(stretch.end_ns - stretch.begin_ns)
    note = whole.fitness.noted(_told(whole, stretch))
    found = Facts(part, whole.ceilings, Fitness(note, None, stretch.begin_ns, share))
    if not found.busy or found.too_short or found.no_loop or not _recurs(found.work):
        return None
    starts = found.idle[0].causes_ns[Cause.STARTING]
    return None if starts >= MOST * max(found.idle[0].idle_ns, 1) else found


@dataclass(frozen=True)
class _Stretch:
    """A part of the run between two single gaps."""

    begin_ns: int
    """When its first work begins."""
    called_ns: int
    """When that was launched."""
    end_ns: int
    """When its last work ends."""
    until_ns: int
    """When the first work behind it was launched."""
    share: float
    """Share of the kernels' time, 0 to 1."""
    outside: IntArray
    """Which of the device's gaps are single ones outside of it, the longest first."""
    gaps: Gaps


def _stretch(whole: Facts) -> _Stretch | None:
    """Return the stretch with more than half of the kernels' time that is left when a run is cut at
    its single gaps: first at those that are no small part of it, then at those that are none of
    what is left."""
    (_, found), *_ = split_gaps(whole.work, whole.launched, whole.threads, whole.window.begin_ns)
    begin, end = found.times.begin_ns, found.times.end_ns
    single = np.flatnonzero(
        (end - begin >= SLOW_CALL_NS) & (alike_counts(whole.work, found) < AGAIN)
    )
    kernels = whole.work.intervals(whole.work.is_kernel)
    first, last = whole.window.span
    cuts = np.empty(0, np.int64)
    while True:
        inside = single[(begin[single] >= first) & (end[single] <= last)]
        long = inside[(end - begin)[inside] > (1 - FILLED) * (last - first)]
        if not len(long):
            break
        cuts = np.union1d(cuts, long)
        starts, stops = np.append(first, end[long]), np.append(begin[long], last)
        most = int(np.argmax(covered_ns(kernels, starts, stops)))
        first, last = int(starts[most]), int(stops[most])
    worked = int(covered_ns(kernels, np.array([first]), np.array([last]))[0])
    share = worked / kernels.total_ns if kernels.total_ns else 0.0
    if not len(cuts) or share <= MOST:
        return None
    called = _called_ns(whole, found)
    before, behind = cuts[end[cuts] <= first], cuts[begin[cuts] >= last]
    since = int(called[before[-1]]) if len(before) else first
    until = int(called[behind[0]]) if len(behind) else whole.window.end_ns + 1
    order = np.argsort(begin[cuts] - end[cuts], kind="stable")
    return _Stretch(first, min(since, first), last, until, share, cuts[order], found)


def _called_ns(whole: Facts, found: Gaps) -> IntArray:
    """Return when what ended each gap was launched; when it began where that is not known."""
    known = whole.launched.known[found.after]
    return np.where(known, whole.launched.begin_ns[found.after], found.times.end_ns)


def _told(whole: Facts, stretch: _Stretch) -> str:
    """Return which part of the run is looked at, and what is told of the rest."""
    found, work = stretch.gaps, whole.work
    begin, end = found.times.begin_ns[stretch.outside], found.times.end_ns[stretch.outside]
    still = int((end - begin).sum())
    longest = int(stretch.outside[0])
    before, after = int(found.before[longest]), short_name(work.describe(int(found.after[longest])))
    where = f"before {after}"
    if before != UNKNOWN:
        where = f"between {short_name(work.describe(before))} and {after}"
    call = int(whole.launched.call[found.after[longest]])
    if call != UNKNOWN:
        where += f", which {work.texts[whole.host.name[call]]} launched"
    once = int(found.causes_ns[stretch.outside, IDLE.index(Cause.STARTING)].sum())
    words = " and ".join(_KINDS[kind] for kind in whole.starting.kinds)
    starts = f", in {_percent(once / still)} of it as {words}" if once > MOST * still else ""
    count = len(stretch.outside)
    often = "once" if count == 1 else f"{count} times"
    longest_is = "" if count == 1 else f", at the longest for {_ms(end[0] - begin[0])}"
    left = ""
    if stretch.share < FILLED:
        left = (
            f". Left out is what ran beyond that, {_percent(1 - stretch.share)} of the kernels'"
            " time: record it by itself to have it judged"
        )
    return (
        f"The GPU works at a pace in {_ms(stretch.end_ns - stretch.begin_ns)} of the recorded"
        f" {_ms(whole.window.run_ns)}, with {_percent(stretch.share)} of the kernels' time: these"
        f" are looked at. Outside of them it stood still {often}, for {_ms(still)}{starts}"
        f"{longest_is}, {_ms(begin[0])} after the recording began, {where}{left}"
    )


def _ms(time_ns: float) -> str:
    return f"{time_ns / 1e6:,.0f} ms" if time_ns >= 1e7 else f"{time_ns / 1e6:.3g} ms"


def _recurs(work: DeviceWork) -> bool:
    """Say whether most of the time of kernels is of those that ran again and again."""
    computing = np.flatnonzero(work.kind == Work.COMPUTE)
    _, name = numbered(work.name[computing])
    again = np.bincount(name)[name] >= AGAIN
    took = work.duration_ns[computing]
    return bool(took[again].sum() > MOST * took.sum())


def _cold(facts: Facts) -> Intervals:
    """Return when a device was idle while its process started something."""
    once = none()
    for times in facts.starting.once.values():
        once = either(once, times)
    found = none()
    for _, rows in facts.work.lasting_by_device():
        idle = gaps_of(facts.work.intervals(rows), *facts.window.span)
        found = either(found, both(idle, once))
    return found


def _steady(facts: Facts, cold: Intervals) -> tuple[int, int, int] | None:
    """Return when the longest row of steps without start-up begins and ends, and how many they are;
    None where no step is without, or where no work of a device was launched in these."""
    steps = facts.steps or NO_STEPS
    begin, end = steps.begin_ns, steps.end_ns
    clean = covered_ns(cold, begin, end) <= (1 - FILLED) * (end - begin)
    best, run = (0, 0), 0
    for place, is_clean in enumerate(clean.tolist()):
        run = run + 1 if is_clean else 0
        best = max(best, (run, place))
    count, last = best
    if not count or count == len(begin) == 1:
        return None
    following = int(begin[last + 1]) if last + 1 < len(begin) else int(facts.window.end_ns) + 1
    since = int(begin[last - count + 1])
    launched = facts.launched.begin_or(facts.work.begin_ns)
    if not ((since <= launched) & (launched < following)).any():
        return None
    return since, following, count


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"

"""What the run would save: it is played again, at the host's pace with and without a profiler.

`saved_shares` is about a change of the host's work or of copies (`launching` of that which launches
kernels); `saving` and `row_saving` are about kernels that take less time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.facts.copies import Transfers
from gpuadvisor.rules.facts.host_waits import Host
from gpuadvisor.rules.facts.idle import AGAIN
from gpuadvisor.rules.facts.idle_causes import Cause
from gpuadvisor.rules.facts.intervals import IntArray, Intervals, none, union, without
from gpuadvisor.rules.facts.kernel_families import readable
from gpuadvisor.rules.facts.kernel_loads import UNCUT_S
from gpuadvisor.rules.facts.kernels import KernelUse
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.what_if import AS_IT_WAS, Scenario
from gpuadvisor.rules.paces import (
    MARGIN,
    idle_ns,
    loader_sets_pace,
    paces,
    paces_tried,
    why_not_timed,
    without_profiler_ns,
)
from gpuadvisor.rules.rule import Estimate

ALL_OF_RUN = 0.5
"""Share of the run from which on copies that come once, as at a start, are told all the same: more
than all that follows."""


def saved_shares(facts: Facts, change: Scenario) -> tuple[float, float]:
    """Return the least and the most of the run (0 to 1) that a change would save; both are 0 where
    nothing can be played again."""
    shares = [saved_at(facts, change, pace) for pace in paces_tried(facts)]
    paced = Host.LOADING not in change.host and loader_sets_pace(facts)
    return 0.0 if paced else min(shares), min(MARGIN * max(shares), 1.0)


def saved_at(facts: Facts, change: Scenario, pace: float) -> float:
    """Return the share of the run (0 to 1) that a change saves at one pace of the host."""
    line = facts.timeline
    if line is None:
        return 0.0
    if Host.LOADING in change.host and loader_sets_pace(facts):
        # A loader takes as long without the profiler: what was timed then tells how long.
        before = line.takes_ns(AS_IT_WAS)
        if (times := without_profiler_ns(facts)) is not None and not why_not_timed(facts):
            before = min(before, times[1])
    else:
        before = line.takes_ns(Scenario({Host.WORKING: pace}))
    after = line.takes_ns(Scenario({Host.WORKING: pace, **change.host}, change.pageable))
    return min(max(1.0 - after / before, 0.0), 1.0) if before > 0 else 0.0


def kernels_come_again(facts: Facts) -> bool:
    """Tell whether the GPU runs some kernel again and again."""
    names = facts.work.name[: facts.work.kernels]
    return bool((np.bincount(np.maximum(names, 0), minlength=1) >= AGAIN).any())


def how_often(facts: Facts, copies: Transfers, share: float) -> tuple[str, Severity | None]:
    """Return in words how often some copies come, which take that share (0 to 1) of the run, and
    how severe it can be where they come once, as at a start.

    Where no kernel comes again either, nothing tells what a longer run would have more of; a
    program that only copies is judged by what it does, but not by one copy or two.
    """
    times = f"{copies.count:,} times" if copies.count > 1 else "once"
    steps = facts.step_count
    most = share >= ALL_OF_RUN
    comes_again = copies.rounds >= (min(steps, AGAIN) if steps > 1 else AGAIN)
    if comes_again or (not facts.work.kernels and most and copies.count >= AGAIN):
        return times, None
    if not kernels_come_again(facts):
        times += f", in a recording in which no kernel comes {AGAIN} times"
    else:
        times += ", one after the other, as at a start" if copies.count > 1 else ", as at a start"
    return times, Severity.NOTICE if most else Severity.INFO


WAITING = (
    ("idle/synchronizing", Cause.SYNCHRONIZING),
    ("idle/launching", Cause.LAUNCHING),
    ("idle/other_host", Cause.OTHER_HOST),
)
"""What the device is idle for because the host waited for it before: the end of the wait, and what
the host then does that it could have done before."""


def idle_parts(facts: Facts, most_ns: float) -> Mapping[str, float]:
    """Return which idle time goes when the host no longer waits, so much of it at most, nearest to
    the waits first."""
    found, left = dict[str, float](), most_ns
    for name, cause in WAITING:
        if taken := min(left, idle_ns(facts, cause)):
            found[name] = taken
            left -= taken
    return found


def parts(high_ns: float, times_ns: Mapping[str, float]) -> Mapping[str, float]:
    """Return the parts of the run that a saving shortens, made longer alike where the run saves
    more than it shows of them: without the profiler they are a larger share of it."""
    total = sum(times_ns.values())
    longer = high_ns / total if 0 < total < high_ns else 1.0
    return {name: longer * time for name, time in times_ns.items()}


LEAST_OF_ONE = 0.1
"""Least share of the kernel time, in one kernel, for its own grid or blocks to be worth a finding.
[own]"""
LEAST_NS = 1e9 * UNCUT_S
"""Least time of one launch of it: shorter ones need not get shorter."""
SATURATING = 2.5
"""Multiprocessors, or resident threads, that one can stand for where the memory is the limit: about
two fifths of them are enough to reach its bandwidth. [own]"""
AT_ONCE = 1.2
"""Kernels that run at once on average, from which on others may fill the rest: then the blocks of
the largest of them, as often as so many run, must not be enough either. [own]"""
PERSISTENT = 0.5
"""Blocks for each multiprocessor, below which a kernel leaves most of the GPU idle: many of
libraries keep just under one on each, and loop. [own]"""
LEAST_SAVED = 0.7
"""Share of what the run saves when it is played again without something, at the pace that saves
less, that a cure saves at least: of 140 cures on an H200 of rules that say so 129 saved so much and
more of it, and 119 of 149 whose steps were timed without the profiler
(`benchmarks/defects/h200_today.jsonl` and `h200_timed.jsonl`)."""
PLAYED = "the timeline is played again with these kernels faster"


@dataclass(frozen=True)
class Gain:
    """The share (0 to 1) of its time by which some kernel gets faster, at least and at most."""

    use: KernelUse
    low: float
    high: float


def saving(
    facts: Facts, gains: Sequence[Gain], more_launches: Sequence[KernelUse] = ()
) -> Estimate:
    """Return what the run saves when kernels get faster, at least with a launch more for each of
    some kernels."""
    rows = [RowGain(each.use.rows, each.use.time_ns, each.low, each.high) for each in gains]
    if not more_launches:
        return row_saving(facts, rows)
    return row_saving(facts, rows, _before_launches(facts, more_launches), (-1.0, 0.0))


def _before_launches(facts: Facts, uses: Sequence[KernelUse]) -> Intervals:
    """Return before each launch of some kernels as much of the host's time as one takes."""
    line, launched = facts.timeline, facts.launched
    if line is None or not len(line.rows):
        return none()
    took_ns = round(line.launch_ns[Host.WORKING].max() / len(line.rows))
    rows = np.concatenate([each.rows for each in uses])
    called = launched.begin_ns[rows[launched.known[rows]]]
    return union(called - took_ns, called)


@dataclass(frozen=True, eq=False)
class RowGain:
    """The share of their time by which some rows of the device's work get faster."""

    rows: Sequence[int] | IntArray
    time_ns: int
    low: float
    high: float


def row_saving(
    facts: Facts,
    gains: Sequence[RowGain],
    times: Intervals | None = None,
    host: tuple[float, float] = (0.0, 0.0),
) -> Estimate:
    """Return what the run saves when some work of the device gets faster, and, of some times of the
    host, a share goes away, at least and at most.

    It is played at the host's pace with the profiler and without (`paces`): the faster the host
    is, the more of the run is the device's. A DataLoader's workers keep their pace, and so does the
    host that waits for them.
    """
    player = facts.faster_kernels
    if player is None:
        return Estimate(0.0, 0.0)
    slow, fast = (1.0, 1.0) if loader_sets_pace(facts) else paces(facts)
    low = [(each.rows, each.low) for each in gains]
    high = [(each.rows, each.high) for each in gains]
    tried = [(low, slow, host[0]), (high, fast, host[1])]
    if times is not None:  # the host's time counts most where the host is slow
        tried += [(low, fast, host[0]), (high, slow, host[1])]
    shares = [player.saved_share(spared, pace, times, share) for spared, pace, share in tried]
    run_ns = facts.window.run_ns
    least, most = min(shares) * run_ns, min(MARGIN * max(shares), 1.0) * run_ns
    rows = [np.asarray(each.rows, np.int64) for each in gains]
    work = np.concatenate(rows) if rows else np.empty(0, np.int64)
    times_ns = facts.work.kernel_times_ns(work)
    shortened = {f"kernel/{name}": float(time) for name, time in times_ns.items()}
    return Estimate(least, most, parts(most, shortened), work=work)


GRID = ("grid_x", "grid_y", "grid_z")


def filled(facts: Facts, use: KernelUse, sm_count: int) -> float | None:
    """Return which share of so many multiprocessors, 0 to 1, the launches of a kernel give a block,
    by the time that they take; None where nothing tells."""
    if not sm_count or "kernels.grid_x" in facts.profile.header.not_measured:
        return None
    blocks = np.ones(len(use.rows))
    for each in facts.profile.columns("kernels", GRID).values():
        blocks *= each[use.rows]
    if not use.time_ns or (blocks <= 0).any():
        return None
    took = facts.work.duration_ns[use.rows]
    return float((took * np.minimum(blocks / sm_count, 1.0)).sum() / took.sum())


def launching(facts: Facts, groups: Iterable[IntArray]) -> Intervals:
    """Return when the host launched these groups of rows, each from its first kernel to its last
    one; what else the script does between two of them stays."""
    launched = facts.launched
    known = [rows[launched.known[rows]] for rows in groups]
    times = [launched.begin_ns[rows] for rows in known if len(rows)]
    found = union(
        np.array([each.min() for each in times], np.int64),
        np.array([each.max() for each in times], np.int64),
    )
    return found if facts.timeline is None else without(found, facts.timeline.away)


def named(some: Sequence[KernelUse], most: int = 2) -> str:
    """Return the names of the longest of some kernels, short enough for a sentence."""
    names = list(dict.fromkeys(short(each.name) for each in some))
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def short(name: str, most: int = 60) -> str:
    """Return a kernel's name without what does not tell it apart."""
    name = readable(name)
    plain = _without_arguments(name.removeprefix("void ")) if "(anonymous" not in name else name
    plain = plain.removeprefix("void ").replace("(anonymous namespace)::", "")
    for wrapper in ("cutlass::Kernel2<", "cutlass::Kernel<"):
        if plain.startswith(wrapper):
            plain = plain.removeprefix(wrapper).removesuffix(">")
    return plain if len(plain) <= most else plain[: most - 3] + "..."


def _without_arguments(name: str) -> str:
    """Return a name up to its arguments: brackets within a template's, as in `reduce<(int)4>`, are
    none of these."""
    depth = 0
    for place, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth <= 0 and place:
            return name[:place]
    return name

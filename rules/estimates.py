"""What the run would save, at the host's pace with and without a profiler.

A profiler makes launching slower, but neither the device nor what else the script does for longer,
so that what a trace shows of launching is the most that it can cost. How much slower is not in the
trace. Every estimate that depends on the host's pace is therefore made at the pace recorded, at one
as much faster as profilers are known to slow programs down, and between; the truth is among them.

`saved_shares` and `saved_by_launching` are about a change of the host's work or of copies;
`saving` and `row_saving` about kernels that take less time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.unprofiled import Drift
from gpuadvisor.rules.facts.copies import Transfers
from gpuadvisor.rules.facts.host_waits import Host
from gpuadvisor.rules.facts.idle import AGAIN
from gpuadvisor.rules.facts.idle_causes import Cause
from gpuadvisor.rules.facts.intervals import (
    IntArray,
    Intervals,
    both,
    covered_ns,
    none,
    union,
    without,
)
from gpuadvisor.rules.facts.kernel_families import readable
from gpuadvisor.rules.facts.kernel_loads import UNCUT_S
from gpuadvisor.rules.facts.kernels import KernelUse
from gpuadvisor.rules.facts.launches import Queue
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.what_if import AS_IT_WAS, Scenario, Timeline
from gpuadvisor.rules.rule import MOST, Estimate

SLOWER_WITH_KINETO = (1.2, 3.0)
"""From the least to the most, where nothing tells what it recorded. [own]"""
SLOWER_WITH_DETAILS = (1.3, 2.8)
"""How much slower the host is with shapes and memory: of 34 programs of `benchmarks/defects` on an
H200's host that sets their pace, timed without the profiler as well, nine tenths lie between 1.32
and 2.75, the middle at 1.9."""
DETAILS = ("record_shapes", "profile_memory")
"""What was recorded besides, in the words of Kineto's traces."""
GRAPH_GAP_NS = 1_000
"""Time between two kernels of a CUDA graph: 1.0 to 1.5 us on A100 and H100 ("Constant Time Launch
for Straight-Line CUDA Graphs", developer.nvidia.com)."""
SLOWER_WITH_NSIGHT = (1.0, 1.3)
"""1 to 2 us for each call into CUDA. [own]"""
HALVINGS = 8
"""How often the range of paces is halved: to 0.3 % of the host's time, less than steps differ."""

ALL_OF_RUN = 0.5
"""Share of the run from which on copies that come once, as at a start, are told all the same: more
than all that follows."""


def paces(facts: Facts) -> tuple[float, float]:
    """Return the factors on the host's recorded time between which the truth lies, the larger one
    first.

    Where steps were timed without the profiler, those are left with which the run played again
    takes as long as they say (`_without_profiler_ns`): a host that is ahead of the device, or is
    kept by a loader, can be at any pace up to the one at which it would be late.
    """
    return _usual_paces(facts) if why_not_timed(facts) else _timed_paces(facts)


def _timed_paces(facts: Facts) -> tuple[float, float]:
    slow, fast = _usual_paces(facts)
    line, times = facts.timeline, _without_profiler_ns(facts)
    if line is None or times is None or _allocates(line, facts):
        return slow, fast
    least_ns, most_ns = times
    if loader_sets_pace(facts):  # what the host is faster, it waits longer
        return _last_pace(lambda pace: _takes_ns(line, pace, loading=0.0) <= most_ns, fast), fast
    return (
        max(_last_pace(lambda pace: _takes_ns(line, pace) <= most_ns, fast), fast),
        _last_pace(lambda pace: _takes_ns(line, pace) < least_ns, fast),
    )


def _allocates(line: Timeline, facts: Facts) -> bool:
    return idle_ns(facts, Cause.ALLOCATING) > LEAST_IDLE * line.takes_ns()


def _takes_ns(line: Timeline, pace: float, loading: float = 1.0) -> float:
    return line.takes_ns(Scenario({Host.WORKING: pace, Host.LOADING: loading}))


def is_timed(facts: Facts) -> bool:
    """Return whether steps that were timed without the profiler tell the host's pace."""
    return facts.unprofiled_steps is not None and not why_not_timed(facts)


def bounded(facts: Facts) -> str:
    """Return a sentence that says that what a run without waiting for batches saves is bounded by
    steps that were timed without the profiler; empty where it is not."""
    line = facts.timeline
    if line is None or not is_timed(facts):
        return ""
    if not loader_sets_pace(facts) and _allocates(line, facts):
        return ""
    return (
        " Without the profiler its steps are taken to last no longer than those that were timed"
        " before it was switched on."
    )


def why_not_timed(facts: Facts) -> str:
    """Return why steps that were timed without the profiler do not tell the host's pace, in a
    sentence without a full stop; empty where they do, and where none were timed.

    They are not of one kind with the recorded ones where they surely got longer or shorter by
    themselves, where they differ more than profilers do, and where the recorded ones cannot have
    been as short, or were shorter with the profiler than these without it: what these waited for,
    such as a loader that has got ahead meanwhile, is not in the recording then.
    """
    steps, line, times = facts.unprofiled_steps, facts.timeline, _without_profiler_ns(facts)
    if steps is None or times is None:
        return ""
    why, (least_ns, most_ns), recorded = "", times, _recorded(facts)
    drift = 0.0 if steps.steadiness is None else _shown(steps.steadiness.drift)
    slow, fast = _usual_paces(facts)
    gaps_ns = idle_ns(facts, Cause.BETWEEN_KERNELS)  # a profiler may have made these
    if drift:
        why = f"but got {'longer' if drift > 0 else 'shorter'} by themselves"
    elif most_ns * fast >= least_ns * slow:
        why = f"but {_ms(least_ns / recorded)} to {_ms(most_ns / recorded)} by themselves"
    elif line is not None and (fastest_ns := _takes_ns(line, 0.0)) - gaps_ns > most_ns:
        least = _ms(fastest_ns / recorded)
        why = f"and the recorded ones would take {least} on a CPU that needs no time"
    elif line is not None and (took_ns := line.takes_ns()) * MARGIN < least_ns:
        took = _ms(took_ns / recorded)
        why = f"and the recorded ones {took}: what made the others longer is not in this recording"
    if not why:
        return ""
    return (
        "How much the profiler slows the CPU down is assumed: the steps that were timed before it"
        f" was switched on are of another kind than the recorded ones (they took"
        f" {_ms(steps.mean_ns)}, {why})"
    )


def _ms(time_ns: float) -> str:
    return f"{time_ns / 1e6:,.3g} ms"


def _recorded(facts: Facts) -> int:
    """Return how many steps were recorded."""
    return 0 if facts.window.steps is None else len(facts.window.steps.steps)


def _without_profiler_ns(facts: Facts) -> tuple[float, float] | None:
    """Return how long the recorded steps would have taken without the profiler, at least and at
    most, by those that were timed before; None where none were.

    That is their mean, which runs of the same program keep to within `MARGIN`, what as many of them
    in a row took, and what they tend to; and more or less where steps surely get more or less to do
    while they are recorded.
    """
    steps, did = facts.unprofiled_steps, facts.launched_in_steps
    if steps is None or did is None:
        return None
    means, low_ns, high_ns = [steps.mean_ns], steps.mean_ns, steps.mean_ns
    if (found := steps.steadiness) is not None:
        low_ns, high_ns = found.low_ns, found.high_ns
        means.append(max(steps.mean_ns * (1 + found.drift.share), 0.0))
    recorded = _recorded(facts)
    middle = (recorded - 1) / 2
    more_ns = (
        _shown(Drift.of(did.time_ns, middle)) * sum(did.time_ns),
        _shown(Drift.of(did.count, middle)) * recorded * steps.mean_ns,
        0.0,
    )
    least_ns = recorded * min(low_ns, min(means) / MARGIN) + min(more_ns)
    return max(least_ns, 0.0), recorded * max(high_ns, MARGIN * max(means)) + max(more_ns)


def _shown(drift: Drift | None) -> float:
    """Return the share by which something drifts, if that is surely more than `MARGIN`; else 0."""
    if drift is None or abs(drift.share) - drift.error <= MARGIN - 1:  # nor with any quantile
        return 0.0
    from scipy.special import stdtrit

    surely = abs(drift.share) - float(stdtrit(drift.values - 2, SURE)) * drift.error
    return drift.share if surely > MARGIN - 1 else 0.0


SURE = 0.95
"""How sure a drift must be to be one, in one direction: the lower end of a 90 % interval."""


def _last_pace(holds: Callable[[float], bool], least: float) -> float:
    """Return the slowest pace, from this one to the recorded one, for which something holds that
    holds for all that are faster; the fastest where it holds for none."""
    most = 1.0
    if holds(most):
        return most
    if not holds(least):
        return least
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        least, most = (middle, most) if holds(middle) else (least, middle)
    return least


def _usual_paces(facts: Facts) -> tuple[float, float]:
    header = facts.profile.header
    least, most = SLOWER_WITH_NSIGHT
    if header.source == "kineto":
        detailed = all(header.facts.get(name) == "1" for name in DETAILS)
        least, most = SLOWER_WITH_DETAILS if detailed else SLOWER_WITH_KINETO
    return 1.0 / least, 1.0 / most


def loader_sets_pace(facts: Facts) -> bool:
    """Say whether the GPU waits for the workers of a DataLoader: they deliver at their own pace, so
    that whatever else becomes faster only makes the script wait longer."""
    return not facts.loading.in_process and late_ns(facts) >= LEAST_IDLE * facts.window.run_ns


def late_ns(facts: Facts) -> float:
    """Return how long the device was idle as batches were late, without the start of the workers
    and what taking a batch that is ready lasts."""
    return facts.loading.late_share * idle_ns(facts, Cause.WAITING_FOR_DATA)


LEAST_IDLE = 0.05
"""Least share of the run in which the device computes nothing for one reason, launching, something
else that the host does, a late loader or other ranks, for that to be what sets the pace: in runs
that are well fed it is idle for 2 to 4 % between kernels, and the last bucket of gradients can hide
behind nothing. [own]"""


def saved_shares(facts: Facts, change: Scenario) -> tuple[float, float]:
    """Return the least and the most of the run (0 to 1) that a change would save; both are 0 where
    nothing can be played again."""
    shares = [_saved(facts, change, pace) for pace in _paces_tried(facts)]
    paced = Host.LOADING not in change.host and loader_sets_pace(facts)
    return 0.0 if paced else min(shares), min(MARGIN * max(shares), 1.0)


def saved_by_launching(facts: Facts) -> tuple[float, float]:
    """Return the least and the most that launching for free would save, besides what goes with the
    waits for the GPU, also of calls that free memory: a host that waits cannot launch ahead,
    however fast it is. What lies between launches goes as well, as it is Python of the same
    program, but for what prepares batches (`input_bound`)."""
    launching = Scenario({Host.WORKING: 0.0, Host.AWAY: _preparing_share(facts)})
    waits = Scenario({Host.SYNCHRONIZING: 0.0, Host.ALLOCATING: 0.0})
    both = Scenario({**launching.host, **waits.host})
    shares = []
    for pace in _paces_tried(facts):
        besides = _saved(facts, both, pace) - _saved(facts, waits, pace)
        shares.append(max(min(besides, _saved(facts, launching, pace)), 0.0))
    return min(shares), min(MARGIN * max(shares), 1.0)


COMPILED_CALL = 8
"""Launches whose time of the host a call of compiled code takes, in a forward or a backward pass:
guards, and the wrappers of autograd. Inductor's form of 1 to 8 linear layers with their activations
took 0.17 ms for a forward and a backward pass, and more with each layer, where a launch of the
layers themselves took 10 us (torch 2.13, on a CPU); CUDA graphs copy their inputs besides."""


def saved_by_compiling(facts: Facts, times: Intervals) -> float | None:
    """Return the least share of the run that goes with some times of the host where a compiler
    surely reaches them, or a graph that captures the model; None where the trace tells no passes.

    A call of what it makes costs `COMPILED_CALL` launches of those that it replaces.
    """
    found, player = facts.passes, facts.faster_kernels
    if found is None or player is None:
        return None
    within = both(times, found.reached)
    saved = min(player.saved_without(within, pace) for pace in _paces_tried(facts))
    called = facts.launched.begin_ns[facts.kernel_uses.rows]
    launches = int((covered_ns(found.reached, called, called + 1) > 0).sum())
    stays = COMPILED_CALL * found.count / max(launches, 1)
    return saved * max(1 - stays, 0.0)


def breaks_off(facts: Facts, times: Intervals) -> bool:
    """Tell whether a compiler may leave most of what the host does at some times in forward and
    backward passes, as the host reads a value from the device in a forward pass before."""
    found = facts.passes
    if found is None or not found.interrupted:
        return False
    return both(times, found.reached).total_ns < MOST * both(times, found.times).total_ns


def _preparing_share(facts: Facts) -> float:
    """Return which share of the host's time away from launching goes into batches (0 to 1)."""
    found, line = facts.host_idle, facts.timeline
    steps = len(facts.steps.steps) if facts.steps is not None else 0
    if line is None or facts.loader_waits or not found.comes_again(steps):
        return 0.0
    return min(found.preparing_ns / max(line.away.total_ns, 1), 1.0)


MARGIN = 1.03
"""Factor on the most that is saved: two runs of the same program differ by so much easily. [own]"""


def longer_with_profiler(facts: Facts, parts: Collection[str] = ()) -> float:
    """Return how many times as long as without the profiler the run may have taken, at most: 1
    where the device, or a loader's workers, set its pace anyway.

    Of `parts` that are what is waited for these workers, how many times as long that may be
    without the profiler: for as much longer as the host is faster then.
    """
    line = facts.timeline
    if line is None:
        return 1.0
    fastest = Scenario({Host.WORKING: paces(facts)[1]})
    if not loader_sets_pace(facts):
        least = line.takes_ns(fastest)
        return max(line.takes_ns() / least, 1.0) if least > 0 else 1.0
    waits_ns = idle_ns(facts, Cause.WAITING_FOR_DATA)
    if set(parts) != {"idle/waiting_for_data"} or not waits_ns:
        return 1.0
    slow, fast = (
        line.takes_ns(Scenario({Host.LOADING: 0.0, **each.host})) for each in (AS_IT_WAS, fastest)
    )
    return 1.0 + max(slow - fast, 0.0) / waits_ns


def _paces_tried(facts: Facts) -> tuple[float, float, float]:
    slow, fast = paces(facts)
    return slow, (slow + fast) / 2, fast


def _saved(facts: Facts, change: Scenario, pace: float) -> float:
    line = facts.timeline
    if line is None:
        return 0.0
    if Host.LOADING in change.host and loader_sets_pace(facts):
        # A loader takes as long without the profiler: what was timed then tells how long.
        before = line.takes_ns(AS_IT_WAS)
        if (times := _without_profiler_ns(facts)) is not None and not why_not_timed(facts):
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
    steps = len(facts.steps.steps) if facts.steps is not None else 0
    most = share >= ALL_OF_RUN
    comes_again = copies.rounds >= (min(steps, AGAIN) if steps > 1 else AGAIN)
    if comes_again or (not facts.work.kernels and most and copies.count >= AGAIN):
        return times, None
    if not kernels_come_again(facts):
        times += f", in a recording in which no kernel comes {AGAIN} times"
    else:
        times += ", one after the other, as at a start" if copies.count > 1 else ", as at a start"
    return times, Severity.NOTICE if most else Severity.INFO


def idle_ns(facts: Facts, *causes: Cause) -> float:
    """Return how long the device that was played was idle for one of these causes."""
    line = facts.timeline
    found = [each for each in facts.idle if line is None or each.device == line.device]
    return float(max((sum(each.causes_ns[cause] for cause in causes) for each in found), default=0))


def queue(facts: Facts) -> Queue | None:
    """Return how launching went for the device that was played."""
    line = facts.timeline
    found = [each for each in facts.queues if line is None or each.device == line.device]
    return max(found, key=lambda each: each.kernels, default=None)


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


def span_ns(facts: Facts) -> float:
    """Return the time from the first work of the device that was played to the last one."""
    line = facts.timeline
    return float(facts.window.span_ns(None if line is None else line.device))


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
COVERED = 0.9
"""Share of the launches that a compiler or a CUDA graph takes over: the optimizer's bookkeeping,
losses and metrics stay. [own]"""
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

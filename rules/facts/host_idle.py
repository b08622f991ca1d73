"""What the host did while a device was idle.

Of a gap that began in a wait, `idle` blames the launching in it on the wait. Here each moment is
what the host did then: a script that waits for a value and then computes for long on the CPU is
slow for what it computes, not for the wait.

Nsight Systems sees calls of the operating system (`--trace=osrt`) where they take longer than its
threshold, 1 us as it comes. They explain idle time that else has no cause in the recording: a
thread that waits in `poll` for another process does not compute. Its samples of the CPU
(`--sample`) say what a thread executed while it ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import NO_TEXT, SYSTEM_CALLS, Direction, Profile, Range
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.idle import AGAIN, REACH_NS, launching_at
from gpuadvisor.rules.facts.intervals import (
    BoolArray,
    IntArray,
    Intervals,
    both,
    covered_ns,
    either,
    ends,
    none,
    one,
    union,
    without,
)
from gpuadvisor.rules.facts.joins import call_tree, thread_keys
from gpuadvisor.rules.facts.launches import Calls, LaunchingCalls
from gpuadvisor.rules.facts.operators import Operators
from gpuadvisor.rules.facts.stalls import LEAST_SHARE, share_interval
from gpuadvisor.rules.facts.steps import OPTIMIZER

BATCH_BYTES = 65_536
"""A copy to the device of at least so many is taken for a batch rather than for a parameter. Copies
of pageable memory of fewer do not even wait (CUDA: API synchronization behavior)."""
MOSTLY = 0.3
"""Share of some time from which on an operator of the framework is named rather than a range of the
program around it, and taken for what that time is spent on. [own]"""
LEAST_NAMED = 0.01
"""Share of some time that an operator or a range of the CPU takes at least, to be named with its
share as what the host does then: less would be told as 0 %."""
INNER = 0.9
"""Share of what an operator takes, from which on the one that it calls is all that it does; and of
the time from the first to the last moment that is to be explained, from which on a marked range is
around all of it. [own]"""
HOST_RANGES = (Range.USER, Range.STEP, Range.PYTHON, Range.LOADER)
"""Kinds of ranges that tell what the host did."""
FEWEST_SAMPLES = 20
"""Samples from which on shares of them are told: of fewer, the 95 % interval of a half is wider
than 40 points (Wilson's)."""


@dataclass(frozen=True, eq=False)
class HostIdle:
    """Idle time of the device, by what the host did in it."""

    launching_times: Intervals
    """Times in calls that give the device work, in operators that make them, or shortly between."""
    preparing_times: Intervals
    """Python, and operators of the CPU, that ended with a batch's copy to the device."""
    preparing_bytes: int
    """Bytes of the batches' copies."""
    preparing_calls: IntArray
    """Rows of the calls that copied these batches."""
    preparing_rounds: int
    """Number of times that such copies came, with kernels between: weights that are loaded come one
    after the other."""
    other_times: Intervals
    """Times in which the host did something else: Python, and operators of the CPU."""
    own_times: Intervals
    """These, and the same before pages of managed memory moved, which no call launches."""

    @property
    def launching_ns(self) -> int:
        return self.launching_times.total_ns

    @property
    def preparing_ns(self) -> int:
        return self.preparing_times.total_ns

    def comes_again(self, steps: int) -> bool:
        """Tell whether batches came again and again, or in each of several marked steps."""
        return self.preparing_rounds >= (min(steps, AGAIN) if steps > 1 else AGAIN)


MPI = "MPI_"
"""How the names of calls begin that pass messages between processes."""
OF_MESSAGES = (
    "Pass messages while the GPU works (MPI_Irecv, MPI_Iallreduce and their kin), or give an MPI"
    " that is aware of CUDA the memory of the GPU, which then needs no copy; where a process waits"
    " for another one, share the work more evenly."
)
"""What helps where such calls take the host's time."""


def host_recorded(profile: Profile) -> bool:
    """Say whether anything of the host was recorded but its calls into CUDA and of MPI: those tell
    when it passes messages, and nothing of what else it does."""
    if profile.rows("operators"):
        return True
    columns = profile.columns("ranges", ("kind", "name"))
    used = np.unique(columns["name"][np.isin(columns["kind"], HOST_RANGES)]).tolist()
    return not all(profile.header.texts[each].startswith(MPI) for each in used)


def unseen(profile: Profile, host: Calls, work: DeviceWork) -> Intervals:
    """Return when devices worked on what was launched before recording began, or had done so, and
    nothing of the host was recorded yet."""
    begins = [host.begin_ns, profile.columns("operators", ("begin_ns",))["begin_ns"]]
    ranges = profile.columns("ranges", ("begin_ns", "kind"))
    begins.append(ranges["begin_ns"][np.isin(ranges["kind"], HOST_RANGES)])
    first = min((int(each.min()) for each in begins if len(each)), default=0)
    return one(int(work.begin_ns.min(initial=first)), first)


NOTHING = HostIdle(none(), none(), 0, np.empty(0, np.int64), 0, none(), none())


def host_idle(
    rows: IntArray,
    begin_ns: int,
    not_working: Intervals,
    work: DeviceWork,
    host: Calls,
    launched: LaunchingCalls,
    launching: Operators,
) -> HostIdle:
    """Return what the host did in the gaps between some rows of a device's work, from the run's
    begin on; `not_working` is when the threads that launch waited, handled memory, or were not
    recorded yet."""
    known = launched.known[rows]
    begin = work.begin_ns[rows]
    reached = np.maximum.accumulate(np.concatenate(([begin_ns], work.end_ns[rows])))[:-1]
    gap = np.flatnonzero(known & (begin > reached))
    called = np.clip(launched.begin_ns[rows[gap]], reached[gap], begin[gap])
    busy = launching_at(host, launching, launched.call[rows[gap]])
    busy = without(busy, not_working)
    occupied = either(busy, not_working)
    other = called - reached[gap] - covered_ns(occupied, reached[gap], called)
    until = np.minimum(begin[gap], launched.end_ns[rows[gap]] + REACH_NS)
    batch = _batches(work, rows[gap]) & (other > 0)
    size = work.copies["bytes"][np.maximum(rows[gap][batch] - work.kernels, 0)]
    kernels = np.cumsum(work.is_kernel[rows])[gap[batch]]
    others = without(Intervals(reached[gap], called), occupied)
    moved = np.flatnonzero(work.is_migration[rows] & (begin > reached))
    return HostIdle(
        either(both(busy, Intervals(reached[gap], called)), union(called, until)),
        without(Intervals(reached[gap][batch], called[batch]), occupied),
        int(size.sum()),
        launched.call[rows[gap][batch]],
        len(np.unique(kernels)),
        others,
        either(others, without(Intervals(reached[moved], begin[moved]), occupied)),
    )


def _batches(work: DeviceWork, rows: IntArray) -> BoolArray:
    number = np.maximum(rows - work.kernels, 0)
    if not len(work.copies["bytes"]):
        return np.zeros(len(rows), np.bool_)
    to_device = work.copies["direction"][number] == Direction.HOST_TO_DEVICE
    large = work.copies["bytes"][number] >= BATCH_BYTES
    found: BoolArray = (rows >= work.kernels) & to_device & large
    return found


@dataclass(frozen=True)
class Doing:
    """What the host did in some time, with its share."""

    name: str
    """An operator of the framework, else a range that the program marked or a call of MPI."""
    share: float
    """Share of the time, 0 to 1."""

    @property
    def passes_messages(self) -> bool:
        return self.name.startswith(MPI)


def doing(
    profile: Profile, ran: Operators, times: Intervals, processes: IntArray, closures: Intervals
) -> Doing | None:
    """Return what more of some time was spent in than in anything else that is known, whatever the
    share; None where that is less than a hundredth. Of operators that do nothing but call each
    other it is the inner one. Of ranges those of some processes count: others launch on other
    devices. An optimizer's step does not take the time of the `closures` that it calls."""
    if not times.total_ns:
        return None
    spent = covered_ns(times, ran.begin_ns, ran.end_ns)
    found = _named(profile, times, ran.name, np.where(ran.call_tree.outermost(ran.name), spent, 0))
    if found is not None and found.share >= MOSTLY:
        return found
    columns = profile.columns("ranges")
    user = (columns["kind"] == Range.USER) & (columns["name"] > NO_TEXT)
    user &= np.isin(columns["process"], processes)
    # A range around all that a program does tells nothing of what it does at a time: one that comes
    # again does, and one that lies within some of the time.
    often = np.bincount(columns["name"][user], minlength=1) >= AGAIN
    rows = np.flatnonzero(user)
    begin, end = ends(columns["begin_ns"][rows], columns["duration_ns"][rows])
    is_part = end - begin <= INNER * (int(times.end_ns.max()) - int(times.begin_ns.min()))
    is_within = covered_ns(times, begin, end) >= INNER * (end - begin)
    telling = often[columns["name"][rows]] | (is_part & is_within)
    rows, begin, end = rows[telling], begin[telling], end[telling]
    process, thread, name = (columns[each][rows] for each in ("process", "thread", "name"))
    tree = call_tree(begin, end, thread_keys(process, thread, process[:0], thread[:0])[0])
    spent = covered_ns(times, begin, end)
    if len(closures):
        texts = profile.header.texts
        marked = [each for each in np.unique(name).tolist() if texts[each].startswith(OPTIMIZER)]
        less = covered_ns(both(times, closures), begin, end)
        spent -= np.where(np.isin(name, marked), less, 0)
    spent = np.where(tree.outermost(name), spent, 0)
    of_program = _named(profile, times, name, spent)
    known = [each for each in (found, of_program) if each is not None]
    return max(known, key=lambda each: each.share, default=None)


def outside_operators(ran: Operators, times: Intervals) -> float:
    """Return the share of some time, 0 to 1, in which no operator of the framework ran."""
    rest = without(times, union(ran.begin_ns, ran.end_ns))
    return rest.total_ns / times.total_ns if times.total_ns else 0.0


def _named(
    profile: Profile, times: Intervals, name: npt.NDArray[np.int32], spent: IntArray
) -> Doing | None:
    by_name = np.bincount(name, spent) if len(name) else np.zeros(1)
    most = float(by_name.max())
    if most < LEAST_NAMED * times.total_ns:
        return None
    inner = np.flatnonzero(by_name >= INNER * most)
    number = int(inner[by_name[inner].argmin()])
    share = min(float(by_name[number]) / times.total_ns, 1.0)
    return Doing(profile.header.texts[number], share)


@dataclass(frozen=True)
class SystemCalls:
    """The calls of the thread that launches into the operating system, within some time."""

    share: float
    """Share of the time (0 to 1) that all of them take."""
    named: Sequence[tuple[str, float]]
    """Their names with the share of each, the largest first."""


def system_calls(
    profile: Profile, host: Calls, launched: LaunchingCalls, rows: IntArray, times: Intervals
) -> SystemCalls | None:
    """Return what the thread that launches some work, `rows`, called of the operating system in
    some time.

    None where such calls were not recorded, and where several threads launch it: which of them was
    waited for is not known then.
    """
    call = _of_one_thread(launched, rows)
    if SYSTEM_CALLS not in profile.header.facts or call is None or not times.total_ns:
        return None
    columns = profile.columns("ranges")
    rows = (columns["kind"] == Range.SYSTEM) & (columns["process"] == host.process[call])
    rows &= columns["thread"] == host.thread[call]
    name = columns["name"][rows]
    spent = covered_ns(times, *ends(columns["begin_ns"][rows], columns["duration_ns"][rows]))
    by_name = np.bincount(name, spent, 1) / times.total_ns
    order = np.argsort(-by_name, kind="stable")
    named = [(profile.header.texts[each], float(by_name[each])) for each in order.tolist()]
    return SystemCalls(min(float(by_name.sum()), 1.0), [each for each in named if each[1] > 0])


def _of_one_thread(launched: LaunchingCalls, rows: IntArray) -> int | None:
    """Return a call of the thread that launches; None where several do, or none is known."""
    known = rows[launched.known[rows]]
    return int(launched.call[known[0]]) if len(np.unique(launched.thread_key[known])) == 1 else None


@dataclass(frozen=True)
class SampledPlace:
    """A place of the CPU's code, and how many samples were in it."""

    module: str
    """The library or program; empty where it is not known."""
    function: str
    """The innermost function; empty where all of the module is meant."""
    samples: int
    share: float
    """Share of all samples of that time, 0 to 1."""
    low: float
    high: float
    """Ends of the share's 95 % interval (Wilson's), as if each sample was drawn by itself."""


@dataclass(frozen=True)
class CpuSamples:
    """What the thread that launches executed within some time, as far as it was sampled.

    A thread is sampled while it runs: what it waits for is not in these shares.
    """

    samples: int
    """All of them in that time; of fewer than `FEWEST_SAMPLES` no place is told."""
    modules: Sequence[SampledPlace]
    """Libraries and programs, those with most samples first."""
    functions: Sequence[SampledPlace]
    """Their innermost functions, as far as these have symbols."""


def cpu_samples(
    profile: Profile, host: Calls, launched: LaunchingCalls, rows: IntArray, times: Intervals
) -> CpuSamples | None:
    """Return what the thread that launches some work, `rows`, executed in some time.

    None where the CPU was not sampled, and where several threads launch it: which of them was
    waited for is not known then.
    """
    call = _of_one_thread(launched, rows)
    if not profile.rows("samples") or call is None or not times.total_ns:
        return None
    columns = profile.columns("samples")
    at = columns["time_ns"]
    rows = (columns["process"] == host.process[call]) & (columns["thread"] == host.thread[call])
    rows &= covered_ns(times, at, at + 1) > 0
    total = int(rows.sum())
    if total < FEWEST_SAMPLES:
        return CpuSamples(total, (), ())
    module, function = columns["module"][rows], columns["function"][rows]
    known, named = module != NO_TEXT, function != NO_TEXT
    return CpuSamples(
        total,
        _sampled(profile, module[known], np.full_like(module[known], NO_TEXT), total),
        _sampled(profile, module[named], function[named], total),
    )


def _sampled(
    profile: Profile, module: npt.NDArray[np.int32], function: npt.NDArray[np.int32], total: int
) -> Sequence[SampledPlace]:
    """Return the places with many of all samples, those with most first."""
    texts = profile.header.texts
    places, counted = np.unique(np.stack((module, function)), axis=1, return_counts=True)
    found = [
        SampledPlace(texts[one], texts[other], count, count / total, *share_interval(count, total))
        for one, other, count in zip(*places.tolist(), counted.tolist(), strict=True)
    ]
    kept = (each for each in found if each.low >= LEAST_SHARE)
    return sorted(kept, key=lambda each: (-each.samples, each.module, each.function))

"""How fast the host is without a profiler, and whether it, a loader or the device sets the pace.

A profiler makes launching slower, but neither the device nor what else the script does for longer,
so that what a trace shows of launching is the most that it can cost. How much slower is not in the
trace, unless steps were timed before the profiler was switched on. Every estimate that depends on
the host's pace is therefore made at the pace recorded, at one as much faster as profilers are known
to slow programs down, and between; the truth is among them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from gpuadvisor.domain.unprofiled import Drift
from gpuadvisor.rules.facts.host_waits import Host
from gpuadvisor.rules.facts.idle_causes import Cause
from gpuadvisor.rules.facts.launches import Queue
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.what_if import AS_IT_WAS, Scenario, Timeline

SLOWER_WITH_KINETO = (1.2, 3.0)
"""From the least to the most, where nothing tells what it recorded. [own]"""
SLOWER_WITH_DETAILS = (1.3, 2.8)
"""How much slower the host is with shapes and memory: of 34 programs of `benchmarks/defects` on an
H200's host that sets their pace, timed without the profiler as well, nine tenths lie between 1.32
and 2.75, the middle at 1.9."""
DETAILS = ("record_shapes", "profile_memory")
"""What was recorded besides, in the words of Kineto's traces."""
SLOWER_WITH_NSIGHT = (1.0, 1.3)
"""1 to 2 us for each call into CUDA. [own]"""
HALVINGS = 8
"""How often the range of paces is halved: to 0.3 % of the host's time, less than steps differ."""
MARGIN = 1.03
"""Factor on the most that is saved: two runs of the same program differ by so much easily. [own]"""
SURE = 0.95
"""How sure a drift must be to be one, in one direction: the lower end of a 90 % interval."""
LEAST_IDLE = 0.05
"""Least share of the run in which the device computes nothing for one reason, launching, something
else that the host does, a late loader or other ranks, for that to be what sets the pace: in runs
that are well fed it is idle for 2 to 4 % between kernels, and the last bucket of gradients can hide
behind nothing. [own]"""


def paces(facts: Facts) -> tuple[float, float]:
    """Return the factors on the host's recorded time between which the truth lies, the larger one
    first.

    Where steps were timed without the profiler, those are left with which the run played again
    takes as long as they say (`without_profiler_ns`): a host that is ahead of the device, or is
    kept by a loader, can be at any pace up to the one at which it would be late.
    """
    return _usual_paces(facts) if why_not_timed(facts) else _timed_paces(facts)


def _timed_paces(facts: Facts) -> tuple[float, float]:
    slow, fast = _usual_paces(facts)
    line, times = facts.timeline, without_profiler_ns(facts)
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


def paces_tried(facts: Facts) -> tuple[float, float, float]:
    """Return the two of `paces`, and their middle between them."""
    slow, fast = paces(facts)
    return slow, (slow + fast) / 2, fast


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
    steps, line, times = facts.unprofiled_steps, facts.timeline, without_profiler_ns(facts)
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


def without_profiler_ns(facts: Facts) -> tuple[float, float] | None:
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


def loader_sets_pace(facts: Facts) -> bool:
    """Say whether the GPU waits for the workers of a DataLoader: they deliver at their own pace, so
    that whatever else becomes faster only makes the script wait longer."""
    return not facts.loading.in_process and late_ns(facts) >= LEAST_IDLE * facts.window.run_ns


def late_ns(facts: Facts) -> float:
    """Return how long the device was idle as batches were late, without the start of the workers
    and what taking a batch that is ready lasts."""
    return facts.loading.late_share * idle_ns(facts, Cause.WAITING_FOR_DATA)


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


def span_ns(facts: Facts) -> float:
    """Return the time from the first work of the device that was played to the last one."""
    line = facts.timeline
    return float(facts.window.span_ns(None if line is None else line.device))

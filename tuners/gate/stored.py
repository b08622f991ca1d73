"""The decision of a gate whose base ran on other days: what recordings say of a new one.

Runs of one session share its level: temperature, clocks, neighbours, where memory lies. So there
are as many observations as sessions, however many runs each has, and how much a new session may
differ is learnt from how much the recorded ones do. It is the prediction interval of the mean of a
new session in a model of random effects of sessions and of runs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from gpuadvisor.domain.baseline import Change, Recording
from gpuadvisor.domain.gate import Difference, GateVerdict, MetricRole
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.tuners.gate.change_points import change_points
from gpuadvisor.tuners.gate.comparing import PRIMARY_SHARE
from gpuadvisor.tuners.gate.decision import LIMIT, ORDINARY, TOLERANCE, Bounds
from gpuadvisor.tuners.gate.metric import Evidence, Read, Statistical
from gpuadvisor.tuners.gate.metrics import load_metrics

FAIL_ERROR = 0.01
"""Chance that a version that is worse by just the tolerance fails."""
PASS_ERROR = 0.05
"""Chance that a version that is worse by the limit passes."""
LEAST = 5
"""Recorded days from which a new one is compared: with four degrees of freedom an interval is 3.7
standard deviations wide, with one fewer 4.5, with one 32."""
DAY = timedelta(hours=20)
"""Time after a recording from which another one counts by itself: recordings of one day share its
level, and say nothing of how much days differ. It leaves a nightly job four hours to be early."""
UNUSUAL = 10
"""Ratio of a time without a recording to the usual time between two from which it is told: what is
recorded each night may rest for a week of holidays. [own]"""
RUNS = 5
"""Runs of a recording: a mean of five differs by half as much as a single run."""


def days_of(recordings: Sequence[Recording], accepted: datetime | None = None) -> list[Recording]:
    """Return the recordings that count for themselves: those of one level, one a day, in order."""
    found: list[Recording] = []
    for each in sorted(recordings, key=lambda recording: recording.at):
        if accepted is not None and each.at <= accepted:
            continue
        if not found or each.at - found[-1].at >= DAY:
            found.append(each)
    return found


def gap_among(days: Sequence[Recording], now: datetime) -> str:
    """Return, as a clause, since when or from when to when nothing was recorded; empty where no
    such time is unusual by those between these days, or they are too few to say what is usual."""
    if len(days) < LEAST:
        return ""
    times = [day.at for day in days]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    usual = timedelta(seconds=median(gap.total_seconds() for gap in gaps))
    age, longest = now - times[-1], max(gaps)
    every = round(usual / timedelta(days=1))
    often = f"where they usually come every {f'{every} days' if every > 1 else 'day'}"
    if age >= UNUSUAL * usual:
        return (
            f"the newest recording is of {times[-1]:%Y-%m-%d}, {age.days} days ago, {often}: what "
            "else changed since then counts as the script's, until `gpuadvisor gate record` adds "
            "new days"
        )
    if longest >= UNUSUAL * usual:
        end = times[gaps.index(longest) + 1]
        return (
            f"nothing was recorded from {end - longest:%Y-%m-%d} to {end:%Y-%m-%d}, for "
            f"{longest.days} days, {often}: where the machine changed meanwhile, `gpuadvisor gate "
            "accept` lets only days to come count"
        )
    return ""


def level_of(days: Sequence[Recording]) -> tuple[list[Recording], list[Change]]:
    """Return the days of the newest level, and all changes of what a verdict rests on, in order."""
    found = [
        change
        for metric, read in _readable(_measured(days))
        if metric.role is MetricRole.DECIDES
        for change in _changes(metric, days, read)
    ]
    found.sort(key=lambda change: change.at)
    return [day for day in days if not found or day.at >= found[-1].at], found


def figures_of(days: Sequence[Recording], metric: str) -> list[list[float]]:
    """Return the figures of a metric that every run has, of the runs of each day."""
    found = load_metrics()[metric]
    assert isinstance(found, Statistical)
    read = found.reader(_measured(days))
    return [_figures(day, read) for day in days]


def compare_with_days(
    days: Sequence[Recording],
    new: Sequence[Measurement],
    tolerance: float = TOLERANCE,
    limit: float = LIMIT,
    asked: Collection[str] = (),
) -> tuple[Difference, ...]:
    """Say what runs show beside recorded days of one level, of each metric that all of them have.

    Metrics that are only reported are left out, unless they are `asked` for. ValueError for fewer
    days than `LEAST`, or fewer runs than a day has.
    """
    readable = [
        (metric, read)
        for metric, read in _readable([*_measured(days), *new])
        if metric.role is not MetricRole.REPORTED or metric.name in asked
    ]
    others = sum(not metric.primary for metric, _ in readable)
    found = []
    for metric, read in readable:
        recorded, own = [_figures(day, read) for day in days], [read(each) or 0.0 for each in new]
        share = PRIMARY_SHARE if metric.primary else (1 - PRIMARY_SHARE) / others
        means = [math.exp(_mean_log(each)) for each in recorded]
        bounds = metric.bounds(Evidence((), (), tolerance, limit), median(means), share)
        found.append(
            replace(
                compare_stored(metric.name, recorded, own, bounds),
                title=metric.title,
                unit=metric.unit,
                base=tuple(means),
                head=tuple(own),
                role=MetricRole.DECIDES if metric.name in asked else metric.role,
            )
        )
    return tuple(found)


def _readable(measured: Sequence[Measurement]) -> Iterator[tuple[Statistical, Read]]:
    """Yield the metrics that each of these runs has, and what reads them."""
    for metric in load_metrics().values():
        if isinstance(metric, Statistical) and measured:
            read = metric.reader(measured)
            if all(map(read, measured)):
                yield metric, read


def _measured(days: Sequence[Recording]) -> list[Measurement]:
    return [run.measurement for day in days for run in day.runs]


def _figures(day: Recording, read: Read) -> list[float]:
    return [read(run.measurement) or 0.0 for run in day.runs]


def _changes(metric: Statistical, days: Sequence[Recording], read: Read) -> Iterator[Change]:
    """Yield the days from which a figure had another level, by half of what is tolerated or more.

    Less is no matter, and would only have recordings count no more.
    """
    means = [math.exp(_mean_log(_figures(day, read))) for day in days]
    least = metric.bounds(Evidence((), ()), median(means), 1.0).tolerance / 2
    places = change_points(means, least)
    for start, place, end in zip([0, *places], places, [*places[1:], len(means)], strict=False):
        before, after = _mean_log(means[start:place]), _mean_log(means[place:end])
        yield Change(metric.title, days[place].at, math.exp(after - before))


def compare_stored(
    metric: str,
    recorded: Sequence[Sequence[float]],
    new: Sequence[float],
    bounds: Bounds = ORDINARY,
) -> Difference:
    """Say what a session of runs shows of a metric, beside recorded sessions of one level.

    Each session is a sequence of figures, one a run. The new one must have at least as many as any
    recorded one, or its mean differs by more than theirs do. The interval is Student's t with a
    degree of freedom less than there are recorded sessions. Where their means happen to be closer
    than their runs let expect, it is as wide as those say. ValueError for fewer than `LEAST`
    sessions, or too few runs.
    """
    from scipy.special import stdtrit

    count = len(recorded)
    if count < LEAST or len(new) < max(map(len, recorded)):
        raise ValueError("too few sessions, or runs of the new one")
    means = [_mean_log(session) for session in recorded]
    level = math.fsum(means) / count
    variance = math.fsum((each - level) ** 2 for each in means) / (count - 1)
    error = math.sqrt(max(variance, _of_runs([*recorded, new])) * (1 + 1 / count))
    logarithm = _mean_log(new) - level
    wide = error * float(stdtrit(count - 1, 1 - FAIL_ERROR * bounds.error_share))
    sure = error * float(stdtrit(count - 1, 1 - PASS_ERROR))
    if logarithm - wide > math.log1p(bounds.tolerance):
        verdict = GateVerdict.FAIL
    elif logarithm + sure < math.log1p(bounds.limit):
        verdict = GateVerdict.PASS
    else:
        verdict = GateVerdict.INCONCLUSIVE
    ratio = math.exp(logarithm)
    ends = math.exp(logarithm - wide), math.exp(logarithm + wide)
    return Difference(metric, verdict, ratio, *ends, ratio, bounds.tolerance, bounds.limit)


def _of_runs(sessions: Sequence[Sequence[float]]) -> float:
    """Return the variance of a session's mean if sessions had no level of their own."""
    squares = 0.0
    for session in sessions:
        mean = _mean_log(session)
        squares += math.fsum((math.log(each) - mean) ** 2 for each in session)
    freedom = sum(len(session) - 1 for session in sessions)
    return squares / freedom / max(map(len, sessions)) if freedom else 0.0


def _mean_log(values: Sequence[float]) -> float:
    return math.fsum(map(math.log, values)) / len(values)

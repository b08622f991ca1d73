"""What the runs of a gate showed that was interrupted before they could decide anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from gpuadvisor.domain.baseline import Recording
from gpuadvisor.domain.gate import GateRun
from gpuadvisor.tuners.gate.decision import ratio_within
from gpuadvisor.tuners.gate.metric import Metric, Statistical, measured
from gpuadvisor.tuners.gate.metrics import load_metrics
from gpuadvisor.tuners.gate.stored import figures_of

PAIR = "pair "
"""How the place of a run begins that is one of a pair."""
RUN = "run "
"""How the place of a run begins that is recorded, or compared with recorded ones."""
TIME = "step_time"
EARLY = "too early for a verdict"
Pair = tuple[GateRun, GateRun]
"""Runs of the base and of the head that were made for each other."""


def told_of(runs: Iterable[GateRun], base: str, head: str, metrics: Sequence[Metric] = ()) -> str:
    """Return how far a gate of two versions came with these runs, without a verdict: that takes
    more of them. Versions are called `base` and `head`."""
    pairs = complete_pairs(runs)
    if not pairs:
        return "interrupted before anything was compared"
    count = "1 pair" if len(pairs) == 1 else f"{len(pairs)} pairs"
    said = f"interrupted after {count} of runs, {EARLY}"
    if not (ratios := list(_ratios(pairs, metrics))):
        return said
    said += f"; in {'it' if len(pairs) == 1 else 'them'} a step of {head} took {median(ratios):.2f}"
    said += f" times as long as one of {base}"
    said += _spread(ratios, ".2f")
    both = [run for pair in pairs for run in pair]
    if seen := [run.trial.disturbance for run in both if run.trial.disturbance]:
        said += f"; something else used the machine beside {len(seen)} of {len(both)} runs"
    return said


def told_of_recording(runs: Iterable[GateRun], count: int) -> str:
    """Return how far a recording of so many runs came with these; it is not kept."""
    if not (times := list(_recorded_ms(runs))):
        return "interrupted before anything was measured; nothing was recorded"
    said = f"interrupted after {len(times)} of {count} runs, in which a step took "
    return f"{said}{median(times):.3g} ms{_spread(times, '.3g')}; nothing was recorded"


def told_of_check(runs: Iterable[GateRun], count: int, days: Sequence[Recording], name: str) -> str:
    """Return how far a check of so many runs came with these beside the days of a baseline,
    without a verdict."""
    if not (times := list(_recorded_ms(runs, days))):
        return "interrupted before anything was compared"
    on_days = median(median(each) for each in figures_of(days, TIME))
    ratios = [each / on_days for each in times]
    return (
        f"interrupted after {len(times)} of {count} runs, {EARLY}; in "
        f"{'it' if len(times) == 1 else 'them'} a step took {median(ratios):.2f} times as long as "
        f"on {len(days)} days of {name}{_spread(ratios, '.2f')}"
    )


def _recorded_ms(runs: Iterable[GateRun], days: Sequence[Recording] = ()) -> Iterator[float]:
    """Yield the step times of runs that are recorded or checked, read as those of these days.

    Of one that was made again the last counts.
    """
    last = {run.place: run for run in runs if run.place.startswith(RUN)}
    found = [m for run in last.values() if (m := measured(run)) is not None]
    if not found:
        return
    metric = load_metrics()[TIME]
    assert isinstance(metric, Statistical)
    read = metric.reader([*(run.measurement for day in days for run in day.runs), *found])
    yield from filter(None, map(read, found))


def _spread(values: Sequence[float], form: str) -> str:
    """Return, in brackets, between which ends these values lie of which the median was told."""
    if len(values) == 1:
        return ""
    return f" (median; {min(values):{form}} to {max(values):{form}})"


def complete_pairs(runs: Iterable[GateRun]) -> list[Pair]:
    """Return the pairs of which both runs were measured, in their order.

    One that was made again counts as it was the last time, and not at all until both of its runs
    are there.
    """
    found: dict[str, dict[str, GateRun]] = {}
    for run in runs:
        if not run.place.startswith(PAIR):
            continue
        number, _, _ = run.place.partition(",")
        if run.side in found.get(number, {}):
            found[number] = {}
        found.setdefault(number, {})[run.side] = run
    whole = (each for each in found.values() if len(each) == 2)
    pairs = ((each["base"], each["head"]) for each in whole)
    return [pair for pair in pairs if all(measured(run) is not None for run in pair)]


def _ratios(pairs: Sequence[Pair], metrics: Sequence[Metric]) -> Iterator[float]:
    """Yield the step time of each pair's head over that of its base, compared as a gate does.

    Nothing is yielded where the gate compares no step time.
    """
    times = (each for each in metrics if each.primary and isinstance(each, Statistical))
    if (metric := next(times, None)) is None:
        return
    read = metric.reader([m for pair in pairs for run in pair if (m := measured(run))])
    for base, head in pairs:
        in_turns, within = metric.ratio(base, head), metric.within(base, head)
        if in_turns is not None:
            yield in_turns
        elif within is not None:
            yield ratio_within(*within)
        else:
            old, new = (m and read(m) for m in map(measured, (base, head)))
            if old and new:
                yield new / old

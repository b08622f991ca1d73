"""What the pairs of a gate showed that was interrupted before they could decide anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from gpuadvisor.domain.gate import GateRun
from gpuadvisor.tuners.gate.decision import ratio_within
from gpuadvisor.tuners.gate.metric import Metric, Statistical, measured

PAIR = "pair "
"""How the place of a run begins that is one of a pair."""
Pair = tuple[GateRun, GateRun]
"""Runs of the base and of the head that were made for each other."""


def told_of(runs: Iterable[GateRun], base: str, head: str, metrics: Sequence[Metric] = ()) -> str:
    """Return how far a gate of two versions came with these runs, without a verdict: that takes
    more of them. Versions are called `base` and `head`."""
    pairs = complete_pairs(runs)
    if not pairs:
        return "interrupted before anything was compared"
    count = "1 pair" if len(pairs) == 1 else f"{len(pairs)} pairs"
    said = f"interrupted after {count} of runs, too early for a verdict"
    if not (ratios := list(_ratios(pairs, metrics))):
        return said
    said += f"; in {'it' if len(pairs) == 1 else 'them'} a step of {head} took {median(ratios):.2f}"
    said += f" times as long as one of {base}"
    if len(ratios) > 1:
        said += f" (median; {min(ratios):.2f} to {max(ratios):.2f})"
    both = [run for pair in pairs for run in pair]
    if seen := [run.trial.disturbance for run in both if run.trial.disturbance]:
        said += f"; something else used the machine beside {len(seen)} of {len(both)} runs"
    return said


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

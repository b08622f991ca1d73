"""What the diagnosis of the unchanged script promises, and what the search then measured of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.finding import Diagnosis, Severity
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Expectation, Objective
from gpuadvisor.tuners.search import OrderedSearch

Look = Callable[[Command, Measurement, Device, tuple[int, ...]], Diagnosis]
"""Diagnoses the unchanged script on a GPU and these CPU cores, none of them for all. ScriptError
where it cannot be profiled."""

OF_TIME = (Objective.THROUGHPUT, Objective.LATENCY)
"""Objectives whose gains can be compared with what findings promise, which is time."""


def expected(diagnosis: Diagnosis) -> tuple[Expectation, ...]:
    """Return what is worth a word, the most expensive first."""
    return tuple(
        Expectation(
            finding.rule,
            str(finding.severity),
            finding.summary,
            finding.improvement_pct.low if finding.improvement_pct else None,
            finding.improvement_pct.high if finding.improvement_pct else None,
            finding.knobs,
        )
        for finding in diagnosis.shown
        if finding.severity.rank >= Severity.NOTICE.rank
    )


def combined(
    profiled: Iterable[Expectation], timed: Iterable[Expectation]
) -> tuple[Expectation, ...]:
    """Return what a profile of the script says with what whole runs of it say.

    A profile is short: a loader that keeps up while it records need not in a whole run. Where the
    run saw more of the same, its words count, and the estimate spans both. What came from the run
    is put before what promises less.
    """
    every = list(profiled)
    for each in timed:
        known = next((other for other in every if other.rule == each.rule), None)
        if known is not None:
            if (each.high_pct or 0.0) <= (known.high_pct or 0.0):
                continue
            each = replace(each, low_pct=known.low_pct)
            every.remove(known)
        place = (n for n, other in enumerate(every) if _middle_pct(other) < _middle_pct(each))
        every.insert(next(place, len(every)), each)
    return tuple(every)


def _middle_pct(each: Expectation) -> float:
    return ((each.low_pct or 0.0) + (each.high_pct or 0.0)) / 2


def said(expectation: Expectation) -> str:
    """Return it as a sentence before the search."""
    worth = ""
    if expectation.low_pct is not None and expectation.high_pct is not None:
        worth = f", worth {_range(expectation.low_pct, expectation.high_pct)} % of the time"
    return f"{expectation.summary}{worth} ({expectation.rule})"


def _range(low: float, high: float) -> str:
    return f"{low:.0f}" if round(low) == round(high) else f"{low:.0f} to {high:.0f}"


def measured(
    expectations: Iterable[Expectation],
    search: OrderedSearch | None,
    objective: Objective,
    unavailable: Mapping[str, str],
) -> tuple[Expectation, ...]:
    """Return the expectations with what the search measured of them."""
    return tuple(_measured(each, search, objective, unavailable) for each in expectations)


def _measured(
    each: Expectation,
    search: OrderedSearch | None,
    objective: Objective,
    unavailable: Mapping[str, str],
) -> Expectation:
    if not each.knobs:
        return replace(each, why="no knob can try it")
    if objective not in OF_TIME:
        return replace(each, why=f"the objective was {objective}, not time")
    if search is None:
        return replace(each, why="the study ended before its search")
    kept = {name: search.spared[name] for name in each.knobs if name in search.spared}
    if kept:
        settings = {name: value for name, value in search.best.settings.items() if name in kept}
        return replace(each, measured_pct=100 * sum(kept.values()), settings=settings)
    tried = [name for name in each.knobs if name in search.attempted]
    if tried:
        best = max(tried, key=lambda name: search.attempted[name][0])
        share, value = search.attempted[best]
        return replace(each, measured_pct=100 * share, settings={best: value})
    reasons = {**unavailable, **search.pointless}
    found = [f"{name}: {reasons[name]}" for name in each.knobs if name in reasons]
    return replace(each, why="; ".join(found) or "none of its knobs was tried to its end")

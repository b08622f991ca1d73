"""The result of a study: what its findings promised and brought, its proof, and its plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from gpuadvisor.domain.finding import Diagnosis
from gpuadvisor.domain.knobs import Contribution, Settings
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.study import (
    Expectation,
    Objective,
    Plan,
    StudyResult,
    Trial,
    TrialState,
    Verdict,
)
from gpuadvisor.tuners.proof import Proof, is_faster
from gpuadvisor.tuners.search import OrderedSearch
from gpuadvisor.tuning.plans import environment_fingerprint, write_plan

TIME_OBJECTIVES = (Objective.THROUGHPUT, Objective.LATENCY)
"""Objectives whose gains can be compared with what findings promise, which is time."""


def expected(diagnosis: Diagnosis) -> tuple[Expectation, ...]:
    """Return what a diagnosis promises and is worth a word, the most expensive first."""
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
    """Return what a profile of a script promises together with what whole runs of it promise.

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


def format_expectation(expectation: Expectation) -> str:
    """Return an expectation as a sentence, before the search."""
    worth = ""
    if expectation.low_pct is not None and expectation.high_pct is not None:
        low, high = round(expectation.low_pct), round(expectation.high_pct)
        worth = f", worth {low if low == high else f'{low} to {high}'} % of the time"
    return f"{expectation.summary}{worth} ({expectation.rule})"


def with_measured(
    each: Expectation,
    search: OrderedSearch | None,
    objective: Objective,
    unavailable: Mapping[str, str],
) -> Expectation:
    """Return an expectation with what the search measured of it."""
    if not each.knobs:
        return replace(each, why="no knob can try it")
    if objective not in TIME_OBJECTIVES:
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


def proven(
    result: StudyResult, settings: Settings, contributions: tuple[Contribution, ...], proof: Proof
) -> StudyResult:
    """Return the result with what the proof says of the settings, faster or not."""
    objective = result.objective
    best = typical(proof.head, objective)
    plain = typical(proof.base, objective)
    result = replace(
        result,
        settings=settings,
        speedup=proof.speedup,
        best=best.measurement if best else None,
        equivalence=best.equivalence if best else None,
        baseline=plain.measurement if plain and plain.measurement else result.baseline,
    )
    if proof.speedup is None or not is_faster(proof.speedup):
        return result
    if len(settings) == 1:
        whole = proof.speedup
        contributions = tuple(
            Contribution(name, value, whole.ratio, whole.ci99_low, whole.ci99_high)
            for name, value in settings.items()
        )
    return replace(result, verdict=Verdict.FASTER, contributions=contributions)


def typical(trials: Sequence[Trial], objective: Objective) -> Trial | None:
    """Return the run of median cost, so that what is shown fits the ratio; None without any."""
    costs = [
        (cost, place)
        for place, trial in enumerate(trials)
        if trial.state is TrialState.COMPLETE
        and trial.measurement is not None
        and (cost := objective.cost(trial.measurement)) is not None
    ]
    return trials[sorted(costs)[(len(costs) - 1) // 2][1]] if costs else None


def keep_plan(result: StudyResult, path: Path) -> StudyResult:
    """Write the plan and return the result that names it; UsageError where it cannot be."""
    plan = Plan(
        script=result.script,
        args=result.args,
        settings=result.settings,
        speedup=result.speedup,
        level=result.level,
        objective=result.objective,
        contributions=result.contributions,
        equivalence=result.equivalence,
        environment=environment_fingerprint(result.environment),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        is_module=result.is_module,
    )
    write_plan(plan, path)
    return replace(result, plan=str(path))

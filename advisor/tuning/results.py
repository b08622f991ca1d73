"""The result of a study: what its findings promised and brought, its proof, and its plan."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import variance

from gpuadvisor.domain.finding import Diagnosis
from gpuadvisor.domain.knobs import Contribution, Origin, Settings
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
from gpuadvisor.tuners.screening.knowledge import TOO_LITTLE
from gpuadvisor.tuners.statistics import ERROR, LEAST_UNCERTAINTY
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


def with_measured(each: Expectation, result: StudyResult) -> Expectation:
    """Return an expectation with what its knobs were proven to be worth.

    That is what the best settings lose without one of them (ablation), or what the proof found
    where all that it compared is of this expectation. Single runs of the search are no proof: one
    said 72 % where the proof found 0.65x.
    """
    if not each.knobs:
        return replace(each, why="no knob can try it")
    if result.objective not in TIME_OBJECTIVES:
        return replace(each, why=f"the objective was {result.objective}, not time")
    speedup, settings = result.speedup, result.settings
    if speedup is not None and settings and settings.keys() <= set(each.knobs):
        ends = (speedup.ratio, speedup.ci99_low, speedup.ci99_high)
        return _measured(each, [100 * (1 - 1 / end) for end in ends], settings)
    known = [
        one
        for one in result.contributions
        if one.knob in each.knobs and one.origin.is_shown and one.low and one.high
    ]
    if speedup is not None and known:
        best = max(known, key=lambda one: one.ratio)
        value, low, high = (end or 0.0 for end in (best.ratio, best.low, best.high))
        # Of the unchanged script's time, as the estimate is. What is not sure of the whole gain is
        # taken in the direction that makes the interval wider.
        least, most = sorted((speedup.ci99_low, speedup.ci99_high))
        shares = [
            100 * (value - 1) / speedup.ratio,
            100 * (low - 1) / (most if low > 1 else least),
            100 * (high - 1) / (least if high > 1 else most),
        ]
        return _measured(each, shares, {best.knob: best.value})
    return replace(each, why=_why_not_measured(each, result))


def _measured(each: Expectation, shares: Sequence[float], settings: Settings) -> Expectation:
    """Return an expectation with an estimate and the ends of its interval, all in percent."""
    value, low, high = shares
    return replace(
        each,
        measured_pct=value,
        measured_low_pct=low,
        measured_high_pct=high,
        settings=settings,
    )


def _why_not_measured(each: Expectation, result: StudyResult) -> str:
    kept = [name for name in each.knobs if name in result.settings]
    live = [one.knob for one in result.contributions if one.origin is Origin.LIVE]
    if kept and set(kept) <= set(live):
        return f"{', '.join(kept)}: compared in one running process only, which is no proof"
    if kept:
        return f"{', '.join(kept)} had too few runs for an interval"
    ran = {name for trial in result.trials for name in trial.settings}
    tried = [name for name in each.knobs if name in ran]
    if tried:
        return f"{', '.join(tried)}: tried once or twice and not kept, which is no proof"
    # A knob that might have worked says more than those that could not.
    for reasons in (result.untried, result.no_effect):
        found = [name for name in each.knobs if name in reasons]
        if found:
            return f"{found[0]}: {reasons[found[0]]}"
    spared = [name for name in each.knobs if name in result.spared]
    if spared:
        return f"{spared[0]}: {TOO_LITTLE}"
    return "none of its knobs was tried to its end"


def proven(
    result: StudyResult,
    settings: Settings,
    contributions: tuple[Contribution, ...],
    proof: Proof,
) -> StudyResult:
    """Return the result with what the proof says of the settings, faster or not."""
    objective = result.objective
    best = typical(proof.head, objective)
    plain = typical(proof.base, objective)
    turned = proof.speedup is not None and (proof.speedup.in_turns or proof.ratios)
    if proof.speedup is not None and turned and plain and plain.measurement:
        # Runs differ by more than the gain may be: the one that fits it best is shown.
        wanted = (objective.cost(plain.measurement) or 0.0) / proof.speedup.ratio
        best = typical(proof.head, objective, wanted)
    result = replace(
        result,
        settings=settings,
        speedup=proof.speedup,
        best=best.measurement if best else None,
        equivalence=best.equivalence if best else None,
        baseline=plain.measurement if plain and plain.measurement else result.baseline,
    )
    if not is_faster(proof.speedup) or proof.speedup is None:
        return replace(result, needed_s=proof.needed.seconds if proof.needed else None)
    if len(settings) == 1:
        whole = proof.speedup
        contributions = tuple(
            Contribution(name, value, whole.ratio, whole.ci99_low, whole.ci99_high, Origin.PROOF)
            for name, value in settings.items()
        )
    else:
        if {each.knob for each in contributions} - settings.keys():  # they stood beside more
            contributions = tuple(
                replace(each, low=None, high=None, origin=Origin.SEARCH)
                for each in contributions
                if each.knob in settings
            )
        contributions = tuple(
            _with_interval(each, proof, objective) if each.origin is Origin.FRESH else each
            for each in contributions
        )
    return replace(result, contributions=contributions)


def _with_interval(each: Contribution, proof: Proof, objective: Objective) -> Contribution:
    """Return a contribution with an interval where the ablation had too few rounds for its own.

    It needs few where it is clear. How much two runs of the same settings differ on this machine
    is known from the proof, over all its runs; a contribution rests on one pair of runs at least.
    """
    from scipy.special import stdtrit

    if each.low is not None:
        return each
    sides = [_costs(trials, objective) for trials in (proof.base, proof.head)]
    freedom = sum(len(costs) - 1 for costs in sides)
    squares = sum(variance(map(math.log, costs)) * (len(costs) - 1) for costs in sides)
    spread = max(LEAST_UNCERTAINTY, math.sqrt(squares / freedom))
    half = float(stdtrit(freedom, 1 - ERROR / 2)) * spread * math.sqrt(2)
    ends = each.ratio * math.exp(-half), each.ratio * math.exp(half)
    return replace(each, low=ends[0], high=ends[1])


def _costs(trials: Sequence[Trial], objective: Objective) -> list[float]:
    """Return the costs of the runs that have one."""
    measured = (trial.measurement for trial in trials if trial.state is TrialState.COMPLETE)
    return [cost for each in measured if each and (cost := objective.cost(each))]


def typical(
    trials: Sequence[Trial], objective: Objective, wanted: float | None = None
) -> Trial | None:
    """Return the run of median cost, so that what is shown fits the ratio; None without any.

    With a `wanted` cost, that which comes closest to it.
    """
    costs = [
        (cost, place)
        for place, trial in enumerate(trials)
        if trial.state is TrialState.COMPLETE
        and trial.measurement is not None
        and (cost := objective.cost(trial.measurement)) is not None
    ]
    if wanted is not None:
        costs = sorted(costs, key=lambda each: abs(math.log(each[0] / wanted)))[:1]
    return trials[sorted(costs)[(len(costs) - 1) // 2][1]] if costs else None


def deserves_plan(result: StudyResult, wanted: Path | None) -> bool:
    """Say whether a plan is to be written: unasked only of a gain that was rehearsed.

    `wanted` is the place that the user named for it, if any.
    """
    unverified = result.verdict is Verdict.FASTER_UNVERIFIED
    return result.verdict is Verdict.FASTER or (unverified and wanted is not None)


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
        study=result.study,
        verdict=result.verdict,
    )
    write_plan(plan, path)
    return replace(result, plan=str(path))

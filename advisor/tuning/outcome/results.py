"""The result of a study: its proof, and its plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import variance

from gpuadvisor.domain.knobs import Contribution, Origin, Settings
from gpuadvisor.domain.study import (
    Objective,
    Plan,
    Speedup,
    StudyResult,
    Trial,
    TrialState,
    Verdict,
)
from gpuadvisor.errors import AdvisorError
from gpuadvisor.tuners.proof import Proof, is_faster
from gpuadvisor.tuners.statistics import ERROR, LEAST_UNCERTAINTY
from gpuadvisor.tuning.plans.file import environment_fingerprint, write_plan


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


def on_top(
    found: StudyResult, known: StudyResult, over: Speedup | None, base: Speedup | None
) -> StudyResult:
    """Return what is gained in all where what was found is relative to what was known before.

    Ratios multiply, and so do the ends of their intervals: `over` and `base` are those with
    intervals wide enough to hold both at once. Where something was shown on top, it is no less than
    what was proven before. What is set besides, if that is one knob, was proven beside all others.
    """
    if over is None or base is None or found.speedup is None or known.speedup is None:
        return found
    least = known.speedup.ci99_low if is_faster(found.speedup) else 0.0
    whole = Speedup(
        over.ratio * base.ratio,
        max(least, over.ci99_low * base.ci99_low),
        over.ci99_high * base.ci99_high,
        over.pairs + base.pairs,
        over.in_turns and base.in_turns,
    )
    settings = found.settings
    new = {n: value for n, value in settings.items() if known.settings.get(n) != value}
    contributions = {each.knob: each for each in found.contributions}
    if len(settings) == 1 and is_faster(found.speedup):
        each = contributions[next(iter(settings))]
        ends = whole.ci99_low, whole.ci99_high
        contributions[each.knob] = replace(each, ratio=whole.ratio, low=ends[0], high=ends[1])
    elif len(new) == 1 and known.settings.keys() <= settings.keys() - new.keys():
        [(name, value)] = new.items()
        own = found.speedup
        contributions[name] = Contribution(
            name, value, own.ratio, own.ci99_low, own.ci99_high, Origin.PROOF
        )
    every = tuple(contributions.values())
    return replace(found, speedup=whole, baseline=known.baseline, contributions=every)


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


def planned(result: StudyResult, path: Path, note: Callable[[str], None]) -> StudyResult:
    """Write the plan and return the result that names it; what stands in the way of it, or was in
    its place before, is noted."""
    existed = path.exists()
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
    try:
        write_plan(plan, path)
    except AdvisorError as error:  # the study is worth more than its file
        note(str(error))
        return result
    if existed:
        note(f"the plan that was in {path} before is replaced")
    return replace(result, plan=str(path))

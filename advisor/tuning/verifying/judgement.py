"""What measurements say of a plan: whether its gain is still there, and results are the same."""

from __future__ import annotations

import math
from collections.abc import Iterable

from gpuadvisor.domain.study import (
    Aspect,
    Equivalence,
    Objective,
    Plan,
    Rehearsal,
    Speedup,
    Trial,
    TrialState,
    Verdict,
)
from gpuadvisor.domain.verification import Outcome
from gpuadvisor.tuners.proof import (
    NARROW,
    NARROW_SHARE,
    Needed,
    Proof,
    is_faster,
    is_no_gain,
    still_needed,
)
from gpuadvisor.tuners.statistics import spread_of

FAILED = (TrialState.CRASHED, TrialState.HUNG, TrialState.OUT_OF_MEMORY)
"""States of a run under a plan that has to run and does not."""
BROKEN = (Outcome.RESULTS_DIFFER, Outcome.FAILS)
"""Outcomes beside which no gain counts."""
KEPT_SHARE = 0.5
"""Part of a promised gain, as a logarithm, that has to be shown where all of it is seen. To find a
gain takes an interval that tells how large it is; for whether it is still there, one that tells it
from a gain half as large is enough, and four pairs have that for 1.1x at 1 % between runs."""


def judge(
    plan: Plan, proof: Proof, equivalence: Equivalence | None, rehearsal: Rehearsal | None
) -> tuple[Outcome, str]:
    """Return what became of a plan, and what that rests on.

    `equivalence` is what the rehearsal says of results, else the plan's run of median cost. What a
    rehearsal did not cover is no evidence against a plan; a problem that it found is.
    """
    if proof.failed is not None:
        return _of_failure(proof.failed)
    if rehearsal is not None and rehearsal.problems:
        problem = next((p for p in rehearsal.problems if p.aspect is Aspect.END), None)
        outcome = Outcome.RESULTS_DIFFER if problem is None else Outcome.FAILS
        return outcome, (problem or rehearsal.problems[0]).sentence
    outcome, reason = of_gain(plan.speedup, proof.speedup)
    if outcome is Outcome.INCONCLUSIVE and proof.speedup is not None:
        return outcome, f"{reason}; {_wanting(proof.needed)}"
    if outcome is Outcome.HOLDS and _promises_results(plan) and not is_shown(equivalence):
        why = equivalence.reason if equivalence and equivalence.reason else "nothing was compared"
        return Outcome.INCONCLUSIVE, f"{reason}, but results could not be checked: {why}"
    return outcome, reason


def least_ratio(promised: Speedup) -> float:
    """Return the least ratio that keeps a promise.

    It is the lower end of the promised interval, less the half width at which a proof takes a
    gain for known: two proofs of the same gain may differ by that.
    """
    known = max(NARROW * promised.ratio, NARROW_SHARE * (promised.ratio - 1))
    return promised.ci99_low - known


def _least_shown(promised: Speedup | None) -> float:
    """Return the ratio that an interval has to lie above where a gain is said to be still there."""
    return 1.0 if promised is None else max(1.0, promised.ci99_low**KEPT_SHARE)


def to_tell(promised: Speedup | None) -> float | None:
    """Return how far, as a difference of logarithms, the whole of a promised gain lies above what
    has to be shown of it; None where nothing is promised."""
    if promised is None or promised.ratio <= (least := _least_shown(promised)):
        return None
    return math.log(promised.ratio / least)


def of_gain(promised: Speedup | None, measured: Speedup | None) -> tuple[Outcome, str]:
    """Return what two intervals say.

    A gain is gone where the whole interval says so. It is still there where the whole interval lies
    above part of it, and the middle keeps the promise.
    """
    if measured is None:
        return Outcome.INCONCLUSIVE, "no ratio was measured"
    least = least_ratio(promised) if promised is not None else 1.0
    was = f"{measured.ratio:.2f}x ({measured.ci99_low:.2f}-{measured.ci99_high:.2f})"
    if promised is not None:
        was += f" where the plan promised {promised.ratio:.2f}x"
        was += f" ({promised.ci99_low:.2f}-{promised.ci99_high:.2f})"
    if is_no_gain(measured):
        return Outcome.GAIN_GONE, f"there is no gain any more: {was}"
    if measured.ci99_high < least:
        return Outcome.GAIN_GONE, f"the gain is smaller than promised: {was}"
    kept = is_faster(measured) and measured.ci99_low >= _least_shown(promised)
    if kept and measured.ratio >= least:
        return Outcome.HOLDS, f"the gain is still there: {was}"
    return Outcome.INCONCLUSIVE, f"the interval is too wide to tell: {was}"


def needed(promised: Speedup | None, proof: Proof, objective: Objective) -> Needed | None:
    """Return what an undecided proof would probably still take until a promise is kept or broken.

    None where it is decided, or nobody could wait for it.
    """
    found = proof.speedup
    if found is None or of_gain(promised, found)[0] is not Outcome.INCONCLUSIVE:
        return None
    least = least_ratio(promised) if promised is not None else 1.0
    kept = found.ratio >= least
    distance = math.log(found.ratio / (_least_shown(promised) if kept else least))
    costs: Iterable[list[float]] = (
        [cost for t in side if t.measurement and (cost := objective.cost(t.measurement))]
        for side in (proof.base, proof.head)
    )
    if proof.ratios:
        costs = proof.ratios, [1.0] * len(proof.ratios)
    return still_needed(proof, found, abs(distance), spread_of(*costs))


def _wanting(needed: Needed | None) -> str:
    """Return what it would take to tell, as a clause; that nobody could wait for it if None."""
    if needed is None:
        return (
            "no number of runs that anybody could wait for would tell on a machine like this now,"
            " but a quieter one may"
        )
    pairs = "pair" if needed.pairs == 1 else "pairs"
    return (
        f"about {needed.pairs} more {pairs} of runs would, in {needed.seconds / 60:.1f} min, for"
        " which a larger --budget has room"
    )


def _of_failure(failed: Trial) -> tuple[Outcome, str]:
    """Return what a run under the plan that ended the proof says of it."""
    if failed.state is TrialState.WRONG:
        return Outcome.RESULTS_DIFFER, failed.reason
    words = str(failed.state).replace("_", " ")
    if failed.state in FAILED:
        return Outcome.FAILS, f"the script fails under the plan: {words}: {failed.reason}"
    return Outcome.INCONCLUSIVE, f"the plan could not be measured: {words}: {failed.reason}"


def _promises_results(plan: Plan) -> bool:
    """Say whether results were checked when the plan was made; else that cannot get worse."""
    return plan.equivalence is not None and plan.equivalence.status == "equivalent"


def is_shown(equivalence: Equivalence | None) -> bool:
    """Say whether results were compared and are equivalent."""
    return equivalence is not None and equivalence.status == "equivalent"


def failed_equivalence(proof: Proof) -> Equivalence | None:
    """Return what was found of results that are wrong; None where they are not."""
    failed = proof.failed
    return failed.equivalence if failed is not None else None


def verdict_of(outcome: Outcome, speedup: Speedup | None, lacks: str | None) -> Verdict:
    """Return what the measurements show as those of any study do, whatever was promised.

    `lacks` is what was not rehearsed though a gain needs it.
    """
    if outcome in BROKEN or speedup is None:
        return Verdict.INCONCLUSIVE
    if is_faster(speedup):
        return Verdict.FASTER if lacks is None else Verdict.FASTER_UNVERIFIED
    return Verdict.NO_GAIN if is_no_gain(speedup) else Verdict.INCONCLUSIVE

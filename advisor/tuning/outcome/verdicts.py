"""What a study may conclude from its search and its proof, and what it did not try."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence

from gpuadvisor.domain.knobs import Settings, Value
from gpuadvisor.domain.study import StudyResult, Trial, TrialState, Verdict
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.proof import SMALLEST_GAIN, is_faster, is_no_gain
from gpuadvisor.tuners.rehearsal.comparison import missing
from gpuadvisor.tuners.search import OrderedSearch
from gpuadvisor.tuners.space import Space
from gpuadvisor.tuning.budgeting.budget import Budget

SLOW_START_S = 100.0
"""Time that a knob's first start takes longer from which a budget is named without it, too: room
for autotuning, and for a proof of it, is room for many other knobs."""
MEASURED = (TrialState.COMPLETE, TrialState.PRUNED)
"""States of a run that says how fast its settings are; a pruned one was clearly slower."""
USELESS = (TrialState.NO_EFFECT, TrialState.UNSUPPORTED)
"""States after which other values of the same knob need no trial."""


def verdict_of(result: StudyResult) -> Verdict:
    """Return the verdict that the trials, the proof and `untried` of a result allow.

    A gain is called faster where enough of the script's life was rehearsed. That there is none is
    shown only where every knob that applies was tried, or screened as worthless, and the best of
    them proven to be worth too little, which a study that was interrupted has not.
    """
    if is_faster(result.speedup) and result.best is not None:
        rehearsed = missing(result.rehearsal) is None
        return Verdict.FASTER if rehearsed else Verdict.FASTER_UNVERIFIED
    if not _searched(result.trials) and not (result.settings and result.was_in_proof):
        return Verdict.NOT_TRIED
    if result.interrupted or untried_knobs(result.untried) or not is_no_gain(result.speedup):
        return Verdict.INCONCLUSIVE
    return Verdict.NO_GAIN


def candidate(trials: Sequence[Trial], without: Collection[str] = ()) -> Settings:
    """Return the settings that looked best in the search, though not better than noise.

    Only their proof can show that there is no gain. Empty where none was measured to its end.
    """
    best = looks_best(trials, without)
    return best.settings if best is not None else {}


def looks_best(trials: Sequence[Trial], without: Collection[str] = ()) -> Trial | None:
    """Return the run of the search that gained most, better than noise or not.

    Those with a knob of `without`, which a rehearsal found a problem with, are none. What was
    stopped early for being slow is taken only where there is nothing else.
    """
    searched = [each for each in _searched(trials) if not set(each.settings) & set(without)]
    complete = [trial for trial in searched if trial.state is TrialState.COMPLETE] or searched
    return max(complete, key=lambda trial: trial.gain or 0.0, default=None)


def is_worth_a_proof(
    trials: Sequence[Trial],
    without: Collection[str],
    untried: Collection[str],
    may_show: Callable[[Settings, float], bool] = lambda settings, gain: True,
) -> bool:
    """Say whether to prove what looked best, though not better than noise, before trying more.

    Its proof alone can show that there is no gain, but not while knobs are `untried`: until then
    only what may be a gain worth having is worth the time. Nor is it where a proof of no settings
    that were tried `may_show` such a gain or that there is none. `without` is that of `looks_best`.
    """
    best = looks_best(showable(trials, may_show), without)
    return best is not None and not (untried and (best.gain or 0.0) < SMALLEST_GAIN)


def showable(trials: Sequence[Trial], may_show: Callable[[Settings, float], bool]) -> list[Trial]:
    """Return the runs of whose settings a proof `may_show` what they gained, or that it is less
    than a gain worth having."""
    return [
        trial
        for trial in _searched(trials)
        if may_show(trial.settings, max(trial.gain or 0.0, SMALLEST_GAIN))
    ]


def _searched(trials: Sequence[Trial]) -> list[Trial]:
    """Return the runs of the search that say how fast their settings are."""
    return [
        trial
        for trial in trials
        if trial.phase == "search" and trial.settings and trial.state in MEASURED
    ]


def untried_knobs(untried: Mapping[str, str]) -> list[str]:
    """Return the knobs of which no value was tried; `knob=value` names one value only."""
    return [name for name in untried if "=" not in name]


def budgets_for(
    wanting: Sequence[Settings], budget: Budget, knobs: Mapping[str, Knob]
) -> tuple[float | None, str]:
    """Return a budget for what was not tried, in seconds if it is in time, and words that name it.

    They name one without what starts most slowly, too. The new knob comes last in each settings.
    """
    limit = budget.enough_for(wanting)
    words = f"`--budget {shlex.quote(str(limit))}`"
    new = {list(settings)[-1]: settings for settings in wanting}
    slow = [name for name in new if knobs[name].first_start_s >= SLOW_START_S]
    quick = [settings for name, settings in new.items() if name not in slow]
    if limit.seconds and slow and quick:
        words += f" (`{budget.enough_for(quick)}` without {', '.join(slow)})"
    return limit.seconds, words


def time_needed(
    result: StudyResult,
    space: Space,
    budget: Budget,
    enough_s: float | None = None,
) -> float | None:
    """Return how much longer it would probably take until a study is decided, in seconds.

    Of what looked better and was not proven, that is its proof. Else it is a run of each knob that
    was not tried, and a proof; where all were, what the proof says of itself. None where it is
    decided. `enough_s` is a whole budget that would have room for what was not tried, if one is
    known.
    """
    decided = result.verdict not in (Verdict.INCONCLUSIVE, Verdict.NOT_TRIED)
    untried = untried_knobs(result.untried)
    left = [{name: space[name].values[0]} for name in untried if name in space]
    dropped = [each.knob for each in result.dropped]
    best = left[-1] if left else result.settings or candidate(result.trials, dropped)
    is_proven = result.speedup is not None or result.was_in_proof
    if decided or result.interrupted:
        return None
    if not best:
        return max(0.0, enough_s - result.wall_s) if untried and enough_s is not None else None
    if is_proven and not left:
        return result.needed_s
    if result.settings and not is_proven:
        return budget.deciding_s(result.settings)
    if left and enough_s is not None:
        return max(0.0, enough_s - result.wall_s)
    return sum(map(budget.expected_s, left)) + budget.deciding_s(best)


def not_tried(
    space: Space, search: OrderedSearch, trials: Sequence[Trial], no_room: str, interrupted: str
) -> dict[str, str]:
    """Return the knobs and values that were not tried though they might have worked, and why.

    `no_room` says that the budget was spent, `interrupted` why the study ended early, if it did.
    """
    tried = _tried(trials)
    found: dict[str, str] = {}
    for parameter in space.parameters:
        name = parameter.name
        if name not in tried:
            if name in search.limited:
                found[name] = search.limited[name]
            elif name in search.discouraged:
                found[name] = search.discouraged[name]
            elif name not in search.pointless:
                found[name] = _why(name, search, no_room, interrupted) or "nothing led to it"
        elif disturbance := _slow_beside_others(name, trials):
            found[name] = f"it was slow, but while {disturbance}, which says nothing of it"
        elif not _is_useless(name, trials):
            why = _why(name, search, no_room, interrupted) or search.ended.get(name)
            why = why or _spared(tried[name])
            left = (value for value in parameter.values if value not in tried[name])
            found.update({f"{name}={value}": why for value in left})
    return found


def _tried(trials: Sequence[Trial]) -> dict[str, list[Value]]:
    tried: dict[str, list[Value]] = {}
    for trial in trials:
        if trial.phase in ("search", "proof"):
            for name, value in trial.settings.items():
                if value not in tried.setdefault(name, []):
                    tried[name].append(value)
    return tried


def _is_useless(name: str, trials: Sequence[Trial]) -> bool:
    """Say whether a knob was seen to do nothing, or not to work, in a run that tried it."""
    return any(
        trial.state in USELESS and list(trial.settings)[-1:] == [name]  # the new one comes last
        for trial in trials
    )


def _slow_beside_others(name: str, trials: Sequence[Trial]) -> str:
    """Return what disturbed a run of a knob, all of whose runs were stopped early and disturbed;
    empty where any of them says more.

    Two threads on busy cores may take 20 times as long: such runs are held against no knob.
    """
    runs = [trial for trial in trials if name in trial.settings and trial.phase == "search"]
    tells = any(trial.state is not TrialState.PRUNED or not trial.disturbance for trial in runs)
    return "" if tells or not runs else runs[-1].disturbance


def _why(name: str, search: OrderedSearch, no_room: str, interrupted: str) -> str:
    if name in search.left_out:
        return no_room
    return "the study ended early" if interrupted else ""


def _spared(tried: Sequence[Value]) -> str:
    """Return why the search left the other values of a parameter alone."""
    amount = f"{len(tried)} of its values" if len(tried) > 1 else "1 of its values"
    return f"the search tried {amount} and went on to other knobs"


def beside_others(result: StudyResult) -> str:
    """Return what the proof of a gain does not show, as most runs of proofs were disturbed, or why
    those of one that shows nothing may have differed; nothing if that is not known.

    Two threads of a script that wait for each other on busy cores take 20 times what one takes, and
    no longer than that on a quiet machine.
    """
    runs = [trial for trial in result.trials if trial.phase == "proof"]
    disturbed = [trial.disturbance for trial in runs if trial.disturbance]
    if not disturbed or result.speedup is None:
        return ""
    seen = f"in {len(disturbed)} of {len(runs)} runs of proofs {disturbed[0]}"
    if result.verdict is Verdict.INCONCLUSIVE:
        return f"{seen}: where nothing else runs they may differ less"
    if is_faster(result.speedup) and 2 * len(disturbed) > len(runs):
        return f"{seen}: what is gained where nothing else runs was not shown"
    return ""

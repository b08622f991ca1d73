"""What a study concludes, in sentences: one wording for the terminal, Markdown and HTML."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from math import ceil, isfinite

from gpuadvisor.domain.knobs import ARGUMENT_PREFIX, Level, Origin
from gpuadvisor.domain.study import (
    Aspect,
    Equivalence,
    Expectation,
    Objective,
    Rehearsal,
    Speedup,
    StudyResult,
    TrialState,
    Verdict,
)
from gpuadvisor.reports import figures
from gpuadvisor.reports.study.rehearsal import compared, not_rehearsed, rehearsal_advice
from gpuadvisor.rules.registry import load_rules
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuners.proof import is_no_gain
from gpuadvisor.tuners.screening.knowledge import TOO_LITTLE

CONFIDENCE = "99 % interval"
SAYS_NOTHING = 100.0
"""Upper end of a gain's interval over its lower end from which neither says anything: three pairs
of runs of which one was held up by another job end there."""
MOST_LONGER_PCT = 100
"""Percent of the run's time: an interval that does not exclude that a cure makes the run take more
than twice as long says nothing of it."""
IN_TURNS = "both sides in turns within each"
DIFFER = "differ too much"

_HEADLINES = {
    Verdict.NO_GAIN: "No gain",
    Verdict.INCONCLUSIVE: "Inconclusive",
    Verdict.NOT_TRIED: "Not tried",
}

_GAIN = {
    Objective.THROUGHPUT: "faster",
    Objective.LATENCY: "lower latency",
    Objective.MEMORY: "lower peak memory",
    Objective.ENERGY: "lower energy",
}
STATES = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "stopped early",
    TrialState.OUT_OF_MEMORY: "out of memory",
    TrialState.CRASHED: "crashed",
    TrialState.HUNG: "hung",
    TrialState.WRONG: "wrong results",
    TrialState.NO_EFFECT: "no effect",
    TrialState.UNSUPPORTED: "unsupported",
}
"""States of a trial in the words of tables and legends."""
ORIGINS = {
    Origin.PROOF: "the proof",
    Origin.FRESH: "processes of their own",
    Origin.LIVE: "one process, no proof",
    Origin.LOADER: "the loader alone needs it",
    Origin.SEARCH: "the search only",
}
"""Where it is known from what a knob brings, in the words of tables."""


def verdict(result: StudyResult) -> Verdict:
    """Return the verdict; inconclusive where a gain has no proof, or was judged by half a study."""
    gain = result.verdict in (Verdict.FASTER, Verdict.FASTER_UNVERIFIED)
    if gain and (result.speedup is None or result.best is None):
        return Verdict.INCONCLUSIVE
    if result.verdict is Verdict.NO_GAIN and (result.speedup is None or result.interrupted):
        return Verdict.INCONCLUSIVE
    return result.verdict


def is_gain(result: StudyResult) -> bool:
    """Say whether a gain was proven, rehearsed or not."""
    return verdict(result) in (Verdict.FASTER, Verdict.FASTER_UNVERIFIED)


def headline(result: StudyResult) -> str:
    """Return the verdict in a few words: `1.42x faster`, `No gain`, `Inconclusive`."""
    found = verdict(result)
    if found in (Verdict.FASTER, Verdict.FASTER_UNVERIFIED) and result.speedup is not None:
        gain = f"{speedup_ratio(result.speedup)} {_GAIN[result.objective]}"
        return gain if found is Verdict.FASTER else f"{gain}, not verified"
    return _HEADLINES[found]


def speedup_ratio(speedup: Speedup) -> str:
    """Return the ratio with as many decimals as its interval."""
    return figures.ratio(speedup.ratio, figures.ratio_decimals(speedup.ci99_low, speedup.ci99_high))


def evidence(speedup: Speedup) -> str:
    """Return `99 % interval 1.39-1.45, 8 interleaved pairs`, or what else it rests on."""
    ends = figures.interval(speedup.ci99_low, speedup.ci99_high)
    if speedup.in_turns:
        return f"{CONFIDENCE} {ends}, {2 * speedup.pairs} processes, {IN_TURNS}"
    return f"{CONFIDENCE} {ends}, {figures.count(speedup.pairs, 'interleaved pair')}"


def processes(result: StudyResult) -> str:
    """Return of what processes the pairs of the proof were: ` of fresh processes`, or how many
    of them were forked from one that had imported already."""
    runs = [each for each in result.trials if each.phase == "proof"]
    sides = [each for each in runs if each.settings.items() <= result.settings.items()]
    # Where forks were found to matter, none of them counted.
    refused = result.forking is not None and result.forking.why
    if refused or not (forked := sum(each.is_forked for each in sides)):
        return " of fresh processes"
    fresh = len(sides) - forked
    return f" of processes, {fresh} fresh and {forked} forked from one that had imported already"


def verdict_sentence(result: StudyResult) -> str:
    """Return the conclusion as one sentence, with what it rests on."""
    device = result.environment.device.name
    if is_gain(result) and result.speedup is not None:
        proof = evidence(result.speedup)
        return f"{headline(result)} ({proof}) on {device}, {_results(result.equivalence)}."
    return f"{headline(result)} on {device}: {reason(result)}."


def _results(equivalence: Equivalence | None) -> str:
    """Return `results equivalent by mean relative difference of 10 losses`, or what they are."""
    if equivalence is None or equivalence.status == "not_checked":
        return "results not checked"
    word = "equivalent" if equivalence.status == "equivalent" else "different"
    return f"results {word} by {equivalence.metric}"


INCOMPARABLE = "cannot be compared"
"""Stands in a table in place of a speed-up whose interval is so wide that it says nothing."""


def says_nothing(speedup: Speedup) -> bool:
    """Say whether the interval of a speed-up is so wide that it says neither more nor less."""
    return not speedup.ci99_high < SAYS_NOTHING * speedup.ci99_low


def _compared_with_unchanged(speedup: Speedup) -> str:
    """Return `measured 1.04x (99 % interval ...)`, or that this says nothing."""
    if not says_nothing(speedup):
        return f"measured {speedup_ratio(speedup)} ({evidence(speedup)})"
    pairs = figures.count(speedup.pairs, "pair of runs", "pairs of runs")
    return f"cannot be compared with the unchanged script by {pairs}, as runs {DIFFER}"


_ONE = "the one setting that was tried"


def reason(result: StudyResult) -> str:
    """Return what a verdict other than a gain rests on, as a clause without its full stop."""
    if result.verifies is not None:
        return ", ".join(result.notes[:1]) or "the study verified a plan"  # with what came of it
    number = len(settings_tried(result))
    tried, is_one = figures.count(number, "setting"), number == 1
    best_of = _ONE if is_one else f"the best of {tried}"
    if verdict(result) is Verdict.NOT_TRIED:
        return _not_tried(result)
    if result.interrupted:
        return f"the study ended early, after trying {tried}"
    if result.speedup is None:
        if result.settings:
            what = "failed in the proof" if result.was_in_proof else "was not proven in the budget"
            seen = _in_single_runs(result)
            return f"{best_of}, {figures.settings(result.settings)}, {seen}{what}"
        if result.dropped:
            names = ", ".join(each.knob for each in result.dropped)
            return f"{best_of} does something else in a rehearsal: {names}"
        if is_one:
            return f"{_ONE} was not better beyond the noise, and was not proven"
        return f"none of {tried} was better beyond the noise, and the best of them was not proven"
    best = f"{best_of}, {figures.settings(result.settings)},"
    measured = f"{best} {_compared_with_unchanged(result.speedup)}"
    if verdict(result) is Verdict.NO_GAIN:
        most = result.speedup.ci99_high - 1
        gains = f", so it gains {figures.short(100 * most)} % at most" if most > 0 else ""
        spared = figures.count(len(result.spared), "other knob was", "other knobs were")
        return f"{measured}{gains}" + (f"; {spared} {TOO_LITTLE}" if result.spared else "")
    if knobs := _untried_knobs(result):
        return f"{measured}, and {figures.count(len(knobs), 'knob was', 'knobs were')} not tried"
    neither = ", which shows neither a gain nor that there is none"
    return measured if measured.endswith(DIFFER) else f"{measured}{neither}"


def _not_tried(result: StudyResult) -> str:
    if result.interrupted:
        return "the study ended early, before a setting was measured"
    if tried := settings_tried(result):
        if len(tried) == 1:
            return f"{_ONE} did not run to its end with usable results"
        return f"none of {figures.count(len(tried), 'setting')} ran to its end with usable results"
    if _untried_knobs(result):
        return "the budget had no room for a setting"
    if len(result.no_effect) == 1:
        ((knob, why),) = result.no_effect.items()
        return f"`{knob}` has nothing to set in this script: {why.rstrip('.')}"
    return "no knob has anything to set in this script, at this level"


def advice(result: StudyResult) -> str:
    """Return what to do about a verdict, in friendly words; empty where the gain is there."""
    if result.verifies is not None:
        return "" if is_gain(result) else "`gpuadvisor tune` makes a new plan."
    match verdict(result):
        case Verdict.FASTER:
            return ""
        case Verdict.FASTER_UNVERIFIED:
            return _unverified_advice(result)
        case Verdict.NO_GAIN:
            kept = "Nothing was changed: the script is best left as it is, at this level."
            return " ".join(filter(None, [kept, _wider_advice(result)]))
        case Verdict.NOT_TRIED:
            return _not_tried_advice(result)
    return _inconclusive_advice(result)


def _unverified_advice(result: StudyResult) -> str:
    """Return what was not rehearsed, how to get it rehearsed, and what became of the plan."""
    plan = (
        "No plan was written: `--plan FILE` writes one all the same."
        if result.plan is None
        else "The plan was written because you named a place for it."
    )
    said = [not_rehearsed(result.rehearsal), rehearsal_advice(result.rehearsal), plan]
    return " ".join(filter(None, said))


def _not_tried_advice(result: StudyResult) -> str:
    if result.interrupted:
        return "Nothing was changed. Run it again with `--resume` to go on from here."
    nothing = "Nothing was changed, and nothing is known of a gain"
    if settings_tried(result):
        below = f"{nothing}: why each of them failed is said below."
        return " ".join(filter(None, [below, _wider_advice(result)]))
    if _untried_knobs(result):
        return f"{nothing}: {_larger_budget(result)} has room for some."
    kept = "Nothing was changed, and no run was made with a setting."
    return " ".join(filter(None, [kept, _wider_advice(result)]))


def _inconclusive_advice(result: StudyResult) -> str:
    if result.interrupted:
        return "Nothing was changed. Run it again with `--resume` to go on from here."
    words = "Nothing was changed, and a gain is possible: "
    if result.speedup is not None and result.speedup.ratio < 1:
        words = "Nothing was changed: this looks slower, though a gain is not ruled out: "
    if result.speedup is None and result.settings and result.was_in_proof:
        return f"{words}the notes say how the proof failed."
    if result.speedup is None and result.settings:
        room = "its proof alone" if _untried_knobs(result) else "the proof"
        return f"{words}{_larger_budget(result)} has room for {room}."
    if left := _untried_knobs(result):
        hopeful = tuple(name for name in left if not _screened_slower(result, name))
        if not hopeful and result.speedup is None:
            words = "Nothing was changed: what is left looks slower, but a gain is not ruled out: "
        left = hopeful or left
        # What more pairs may still show is not to be lost for what was never tried.
        again = () if result.speedup is None or is_no_gain(result.speedup) else result.settings
        what = "compares that again, and tries what is left" if again else "tries what is left"
        return f"{words}{_only((*again, *left))}{_larger_budget(result)} {what}."
    if result.speedup is None and result.dropped:
        names = ",".join(each.knob for each in result.dropped)
        return f"{words}`--without {names}` searches among what is left."
    if result.speedup is None:
        return f"{words}{_larger_budget(result)} has room for the proof."
    only = _only(tuple(result.settings))
    return f"{words}{only}{_larger_budget(result)}, or a quieter machine, narrows the interval."


def _screened_slower(result: StudyResult, knob: str) -> bool:
    """Say whether each value of a knob that was timed in one process was slower than without it,
    if by less than can be told."""
    ratios = [each.ratio.ratio for each in result.screened if each.knob == knob and each.ratio]
    return bool(ratios) and max(ratios) < 1.0


def _only(knobs: Sequence[str]) -> str:
    """Return the option that tries these knobs alone; the script's own arguments have none."""
    names = ",".join(name for name in knobs if not name.startswith(ARGUMENT_PREFIX))
    return f"`--only {names}` with " if names else ""


def _larger_budget(result: StudyResult) -> str:
    """Return what may decide it: a budget, and how much longer that is where it is known."""
    if result.needed_s is None or not isfinite(result.needed_s + result.wall_s):
        return "a larger `--budget`"
    minutes = max(1, ceil((result.wall_s + result.needed_s) / 60))
    longer = figures.duration(result.needed_s)
    return f"`--budget {minutes}m` (it would probably take {longer} more)"


def _untried_knobs(result: StudyResult) -> tuple[str, ...]:
    """Return the knobs of which no value was tried; `knob=value` names one value only."""
    return tuple(name for name in result.untried if "=" not in name)


def not_tried(result: StudyResult) -> dict[str, str]:
    """Return what was not tried though it might have worked, and why, as names in groups.

    Names with one reason stand together: `compile, compile_cudagraphs` to the reason.
    """
    return grouped(result.untried)


def grouped(reasons: Mapping[str, str]) -> dict[str, str]:
    """Return `knob, knob` to their reason, one entry a reason, so that a long list stays short."""
    groups: dict[str, list[str]] = {}
    for name, why in reasons.items():
        groups.setdefault(why.rstrip("."), []).append(name)
    return {", ".join(names): why for why, names in groups.items()}


def _wider_advice(result: StudyResult) -> str:
    wider = _wider_level(result)
    if wider is None:
        return ""
    return f"`--level {wider}` may turn more, at a price in how far results may move."


def _wider_level(result: StudyResult) -> Level | None:
    """Return the next level at which there is more to try for this script; None if there is not."""
    facts, device = result.baseline.facts, result.environment.device
    wider = [level for level in Level if level > result.level]
    if wider and any(trial.state is TrialState.WRONG for trial in result.trials):
        return wider[0]  # where more is tolerated
    levels = {
        knob.level_for(facts)
        for knob in load_knobs().values()
        if result.objective in knob.serves and knob.unavailable(device, facts) is None
    }
    return min(levels.intersection(wider), default=None)


def equivalence_sentence(
    equivalence: Equivalence | None, rehearsal: Rehearsal | None = None
) -> str:
    """Return what was compared with the baseline, what came out, and the limit; that a script wrote
    files of which a rehearsal could not say whether they are equivalent, and that it doubts those
    of a whole run."""
    if equivalence is None:
        return "Results were not checked."
    if equivalence.status not in ("equivalent", "wrong"):
        why = f": {equivalence.reason.rstrip('.')}" if equivalence.reason else ""
        return f"Results were not checked{why}."
    word = "equivalent" if equivalence.status == "equivalent" else "different"
    unread = rehearsal is not None and Aspect.FILES in rehearsal.not_covered
    but = "; what is in the written files was not compared" if unread else ""
    if rehearsal is not None and rehearsal.doubt and not rehearsal.doubt_is_timed:
        but += "; results of a whole run may differ"
    return f"Results are {word}: {compared(equivalence)}{but}."


def settings_tried(result: StudyResult) -> tuple[str, ...]:
    """Return the different settings that ran, each on one line, in the order of their trials."""
    tried = (figures.settings(trial.settings) for trial in result.trials if trial.settings)
    return tuple(dict.fromkeys(tried))


def not_helpful(result: StudyResult) -> dict[str, str]:
    """Return the knobs that were looked at and not kept, each with the reason in words."""
    reasons = {**dict.fromkeys(result.spared, TOO_LITTLE), **result.no_effect}
    # A study that was cut short has not proven anything, against a knob as little as for it.
    judged = is_gain(result) or not result.interrupted
    kept = {} if verdict(result) is Verdict.NO_GAIN else result.settings
    not_shown = _not_shown(result, "further gain" if kept else "gain")
    told = {each.knob for each in result.dropped}  # of these the rehearsal says why
    for trial in result.trials:
        names = list(trial.settings)
        if trial.state is not TrialState.COMPLETE:
            names = names[-1:]  # the new one, with which the others had worked
        for knob in names:
            if knob in kept or knob in told or knob in result.no_effect or knob in result.untried:
                continue
            if trial.state is TrialState.COMPLETE:
                if judged:  # what else used the machine may have cost more than the knob brings
                    beside = f"; meanwhile {trial.disturbance}" if trial.disturbance else ""
                    reasons[knob] = f"{not_shown}{beside}"
            else:
                state = STATES[trial.state]
                reasons.setdefault(knob, f"{state}: {trial.reason}" if trial.reason else state)
    return reasons


def _in_single_runs(result: StudyResult) -> str:
    """Return what the settings of a result gained in the search, as the beginning of a clause;
    nothing where that was no gain, and no figure where it may be that of an unlucky baseline."""
    runs = [t for t in result.trials if t.phase == "search" and t.settings == result.settings]
    gains = [trial.gain for trial in runs if trial.state is TrialState.COMPLETE and trial.gain]
    if not gains or min(gains) <= 1:
        return ""
    single = "a single run" if len(gains) == 1 else "single runs"
    if min(gains) <= _apart(result):
        less = "by less than runs of the unchanged script differ"
        return f"looked {_GAIN[result.objective]} in {single}, {less}, and "
    return f"looked {figures.ratio(min(gains))} {_GAIN[result.objective]} in {single}, but "


def _not_shown(result: StudyResult, gain: str) -> str:
    """Return what single runs say against a gain, with how much those of the unchanged script
    differ: a smaller one there may be."""
    if (apart := _apart(result)) == 0.0:
        return f"no {gain} was shown"
    differ = figures.percent(apart - 1)
    return f"no {gain} was shown, where runs of the unchanged script differ by {differ}"


def _apart(result: StudyResult) -> float:
    """Return how many times as much the dearest run of the unchanged script cost as the cheapest;
    0 where there are no two."""
    runs = [t.measurement for t in result.trials if t.phase == "baseline" and t.measurement]
    costs = [cost for run in runs if (cost := result.objective.cost(run))]
    return max(costs) / min(costs) if len(costs) > 1 else 0.0


def expectation_rows(result: StudyResult, brief: bool = False) -> list[tuple[str, str, str]]:
    """Return for each finding what it is, the estimate, and what was measured or why nothing.

    `brief` says only what is wrong, without the figures and names that were found.
    """
    titles = {rule.name: rule.title for rule in load_rules()} if brief else {}
    return [
        (
            f"{titles.get(each.rule, each.summary)} ({each.rule})",
            figures.percent_range(each.low_pct, each.high_pct),
            _measured(each),
        )
        for each in result.expectations
    ]


def _measured(each: Expectation) -> str:
    """Return `22 % (20 to 24 %) with tf32`, `24 % longer (...)` or why nothing was measured, and
    what one running process showed in its place."""
    value, ends = each.measured_pct, (each.measured_low_pct, each.measured_high_pct)
    if value is None or None in ends:
        why = f"not measured: {each.why or 'single runs of the search are no proof'}"
        if each.screened_pct is None:
            return why
        but = ", for which a loader may be too slow," * each.screened_of_computing
        return f"{_saved(each, *each.screened_pct)}{but} in one running process, no proof; {why}"
    said = _saved(each, value, *(end or 0.0 for end in ends))
    if each.of_foretold_pct is not None and abs(each.of_foretold_pct - value) >= 1:
        said += f"; of the runs that this was predicted from, {each.of_foretold_pct:.0f} %"
    if each.cured_too:
        said += f"; it cures {', '.join(each.cured_too)}, too"
        if each.together_pct is not None:
            said += f" (together {figures.percent_range(*each.together_pct)})"
    return said


def _saved(each: Expectation, value: float, *ends: float) -> str:
    """Return what its settings save, in percent, with the ends of the interval."""
    with_them = f" with {figures.settings(each.settings)}" if each.settings else ""
    if ends[0] < -MOST_LONGER_PCT:
        return f"cannot be told{with_them}, as runs differ too much"
    longer = value <= -0.5
    low, high = sorted(-end if longer else end for end in ends)
    moved = f"{abs(value):.0f} %" + (" longer" if longer else "")
    return f"{moved} ({figures.percent_range(low, high)}){with_them}"


def command(result: StudyResult) -> str:
    """Return the script and its arguments as typed in a shell."""
    return shlex.join([*_script(result), *result.args])


def _script(result: StudyResult) -> list[str]:
    return ["-m", result.script] if result.is_module else [result.script]


def apply_command(result: StudyResult) -> str | None:
    """Return the command that runs the script with the plan; None where there is no plan."""
    if result.plan is None:
        return None
    words = ["gpuadvisor", "run", "--plan", result.plan, *_script(result)]
    return shlex.join([*words, "--", *result.args] if result.args else words)

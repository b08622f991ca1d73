"""What a study concludes, in sentences: one wording for the terminal, Markdown and HTML."""

from __future__ import annotations

import shlex

from gpuadvisor.domain.knobs import ARGUMENT_PREFIX, Level
from gpuadvisor.domain.study import (
    Equivalence,
    Expectation,
    Objective,
    Speedup,
    StudyResult,
    TrialState,
    Verdict,
)
from gpuadvisor.reports import figures
from gpuadvisor.rules.registry import load_rules
from gpuadvisor.tuners.knobs import load_knobs

CONFIDENCE = "99 % interval"
POSSIBLE = 1.05
"""Upper end of an interval above which an unproven gain would be worth a longer study."""

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


def is_proven(result: StudyResult) -> bool:
    """Say whether a gain may be claimed: without the interval of a proof there is none."""
    return (
        result.verdict is Verdict.FASTER and result.speedup is not None and result.best is not None
    )


def headline(result: StudyResult) -> str:
    """Return `1.42x faster`, `No gain found` or, if it was cut short, `No gain proven`."""
    if is_proven(result) and result.speedup is not None:
        return f"{speedup_ratio(result.speedup)} {_GAIN[result.objective]}"
    return "No gain proven" if result.interrupted or may_be_faster(result) else "No gain found"


def may_be_faster(result: StudyResult) -> bool:
    """Say whether a gain that matters is possible, and only not proven."""
    return result.speedup is not None and result.speedup.ci99_high > POSSIBLE


def speedup_ratio(speedup: Speedup) -> str:
    """Return the ratio with as many decimals as its interval."""
    return figures.ratio(speedup.ratio, figures.ratio_decimals(speedup.ci99_low, speedup.ci99_high))


def evidence(speedup: Speedup) -> str:
    """Return `99 % interval 1.39-1.45, 8 interleaved pairs`."""
    ends = figures.interval(speedup.ci99_low, speedup.ci99_high)
    return f"{CONFIDENCE} {ends}, {figures.count(speedup.pairs, 'interleaved pair')}"


def verdict_sentence(result: StudyResult) -> str:
    """Return the conclusion as one sentence, with what it rests on."""
    device = result.environment.device.name
    if is_proven(result) and result.speedup is not None:
        status = result.equivalence.status if result.equivalence else "not_checked"
        words = {"equivalent": "results equivalent", "wrong": "results differ"}
        results = words.get(status, "results not compared")
        proof = evidence(result.speedup)
        return f"{headline(result)} ({proof}) on {device}, {results}."
    return f"{headline(result)} on {device}: {no_gain_reason(result)}."


def no_gain_reason(result: StudyResult) -> str:
    """Return what stands against a claim, as a clause without its full stop."""
    tried = figures.count(len(settings_tried(result)), "setting")
    if result.interrupted:
        return f"the study ended early, after trying {tried}"
    if result.speedup is not None:
        proof = evidence(result.speedup)
        best = f"the best of {tried}, {figures.settings(result.settings)},"
        return f"{best} measured {speedup_ratio(result.speedup)} ({proof})"
    if not settings_tried(result):
        return "no setting was tried, and the notes say why"
    if result.settings:
        return f"the best of {tried} failed in the proof"
    return f"none of {tried} was better beyond the noise"


def no_gain_advice(result: StudyResult) -> str:
    """Return what a user without a gain may do, in friendly words."""
    if result.interrupted:
        return "Nothing was changed. Run it again with `--resume` to go on from here."
    if not settings_tried(result):
        return "Nothing was changed, and nothing is known: give it a larger `--budget`."
    if may_be_faster(result):
        again = ",".join(n for n in result.settings if not n.startswith(ARGUMENT_PREFIX))
        alone = f"`--only {again}` with a larger" if again else "a larger"
        return (
            f"Nothing was changed. A gain is possible, but runs differ too much to tell: {alone}"
            " `--budget`, or a quieter machine, narrows the interval."
        )
    text = "Nothing was changed: the script is best left as it is, at this level."
    wider = _wider_level(result)
    if wider is not None:
        text += f" `--level {wider}` may turn more, at a price in how far results may move."
    return text


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


def equivalence_sentence(equivalence: Equivalence | None) -> str:
    """Return what was compared with the baseline, what came out, and the limit."""
    if equivalence is None:
        return "Results were not compared."
    if equivalence.status not in ("equivalent", "wrong"):
        reason = f": {equivalence.reason.rstrip('.')}" if equivalence.reason else ""
        return f"Results were not compared{reason}."
    verdict = "equivalent" if equivalence.status == "equivalent" else "different"
    value = figures.short(equivalence.value)
    limit = figures.short(equivalence.limit) if figures.is_figure(equivalence.limit) else "not set"
    return f"Results are {verdict}: {equivalence.metric} {value} (limit {limit})."


def settings_tried(result: StudyResult) -> tuple[str, ...]:
    """Return the different settings that ran, each on one line, in the order of their trials."""
    tried = (figures.settings(trial.settings) for trial in result.trials if trial.settings)
    return tuple(dict.fromkeys(tried))


def not_helpful(result: StudyResult) -> dict[str, str]:
    """Return the knobs that were looked at and not kept, each with the reason in words."""
    reasons = dict(result.no_effect)
    # A study that was cut short has not proven anything, against a knob as little as for it.
    judged = is_proven(result) or not result.interrupted
    failed = result.speedup is None and bool(result.settings)  # in the proof
    refuted = judged and not is_proven(result) and not may_be_faster(result) and not failed
    kept = {} if refuted else result.settings
    for trial in result.trials:
        names = list(trial.settings)
        if trial.state is not TrialState.COMPLETE:
            names = names[-1:]  # the new one, with which the others had worked
        for knob in names:
            if knob in kept or knob in result.no_effect:
                continue
            if trial.state is TrialState.COMPLETE:
                if judged:
                    reasons[knob] = "no further gain" if kept else "no gain beyond the noise"
            else:
                state = STATES[trial.state]
                reasons.setdefault(knob, f"{state}: {trial.reason}" if trial.reason else state)
    return reasons


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
    """Return `22 % with tf32`, `24 % longer with ...` or why nothing was measured."""
    if each.measured_pct is None:
        return f"not measured: {each.why}"
    moved = figures.percent_range(abs(each.measured_pct), abs(each.measured_pct))
    told = f"{moved} longer" if each.measured_pct <= -0.5 else moved
    return f"{told} with {figures.settings(each.settings)}" if each.settings else told


def notes(result: StudyResult) -> tuple[str, ...]:
    """Return the study's notes and those that its figures call for.

    What stands among the predictions is not said again.
    """
    own = [f"The study ended early: {result.interrupted}"] if result.interrupted else []
    if result.best is not None and figures.steps_differ(
        figures.quantities(result.baseline), figures.quantities(result.best)
    ):
        own.append(
            "A step of the best settings holds another number of samples than one of the baseline:"
            " compare times and energies per sample, not per step."
        )
    predicted = tuple(each.summary for each in result.expectations)
    return (*own, *(note for note in result.notes if not note.startswith(predicted)))


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

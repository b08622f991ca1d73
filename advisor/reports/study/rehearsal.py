"""What a rehearsal covered and found, in sentences: the same in every format."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.study import (
    Aspect,
    Equivalence,
    Forecast,
    Problem,
    Rehearsal,
    StudyResult,
    Verdict,
)
from gpuadvisor.reports import figures
from gpuadvisor.tuners.base import COMPILING_S
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuners.rehearsal.comparison import NAMES, missing

_CURES = {
    Aspect.BATCHES: "read its batches from a DataLoader",
    Aspect.SECOND_EPOCH: "make two epochs or more",
    Aspect.ROWS: "call its model as a module, from its own process",
    Aspect.RESULTS: "draw the same random numbers each time that it runs",
    Aspect.END: "end by itself after its last epoch",
}
"""What a script has to do for a part to be rehearsed that a verdict needs, after `let the
script`."""
ENDLESS_S = 7 * 24 * 3600.0
"""Seconds of an epoch from which on it is told by the hour: that of a loader that draws for ever,
as 10^10 samples with replacement, has a length that nobody waits for. [own]"""


def rehearsed(result: StudyResult) -> tuple[str, ...]:
    """Return what the rehearsal of the best settings covered and found, a sentence each.

    What an unverified gain lacks is said with the verdict. Settings that went because of an
    earlier rehearsal come last.
    """
    sentences = tuple(_sentences(result.rehearsal)) if result.rehearsal else ()
    if result.verdict is Verdict.FASTER_UNVERIFIED:
        told = not_rehearsed(result.rehearsal)
        sentences = tuple(each for each in sentences if each != told)
    went = (
        f"`{figures.settings({each.knob: each.value})}` was left out: {_difference(each.problem)}."
        for each in result.dropped
    )
    return (*sentences, *went)


def not_rehearsed(rehearsal: Rehearsal | None) -> str:
    """Return what was not rehearsed and why, as a sentence; empty where all was."""
    if rehearsal is None:
        return "Nothing of the script's life was rehearsed: the budget had no room for it."
    reasons = dict.fromkeys(rehearsal.not_covered.values())
    if len(reasons) == 1 and not rehearsal.covered:
        return f"Nothing of the script's life was rehearsed: {_clause(*reasons)}."
    parts = []
    for reason in reasons:
        names = [NAMES[each] for each, why in rehearsal.not_covered.items() if why == reason]
        parts.append(f"{', '.join(names)} ({_clause(reason)})")
    if parts:
        doubt = f" {_sentence(rehearsal.doubt)}" if rehearsal.doubt not in ("", *reasons) else ""
        return f"Not rehearsed: {'; '.join(parts)}.{doubt}"
    lacks = missing(rehearsal) or ""
    return _sentence(lacks) if lacks else ""


def rehearsal_advice(rehearsal: Rehearsal | None) -> str:
    """Return what gets the rest rehearsed, as a sentence; empty where nothing is known to."""
    if rehearsal is None or rehearsal.wants_time:
        return "A larger --budget gives a rehearsal the time that it needs."
    without = dict(rehearsal.not_covered)
    if no_end := without.pop(Aspect.END, ""):  # of what lacks for that reason it is the cause
        without = {each: why for each, why in without.items() if why != no_end}
        without[Aspect.END] = no_end
    *most, last = [_CURES[each] for each in without if each in _CURES] or [""]
    told = f"{', '.join(most)} and {last}" if most else last
    return f"To have that rehearsed, let the script {told}." if told else ""


def _sentences(rehearsal: Rehearsal) -> Iterator[str]:
    if rehearsal.covered:
        amount = []
        if rehearsal.lived_epochs:
            *most, last = map(str, rehearsal.lived_epochs)
            amount.append(f"epochs {', '.join(most)} and {last}")
        elif rehearsal.epochs:
            amount.append(figures.count(rehearsal.epochs, "epoch"))
        if rehearsal.samples:
            amount.append(f"{figures.count(rehearsal.samples, 'sample')} of each side")
        over = f" over {' and '.join(amount)}" if amount else ""
        parts = ", ".join(NAMES[each] for each in rehearsal.covered)
        yield f"Compared in shortened runs{over}: {parts}."
    if lacks := not_rehearsed(rehearsal):
        yield lacks
    if rehearsal.changes_results:
        names = ", ".join(f"`{name}`" for name in rehearsal.changes_results)
        yield f"Results were not compared, as these change them on purpose: {names}."
    yield from map(_problem, rehearsal.problems)
    if rehearsal.equivalence is not None:
        yield _results(rehearsal.equivalence)
    if rehearsal.forecast is not None:
        yield from _forecast(rehearsal.forecast, _compiles(rehearsal))


def _problem(problem: Problem) -> str:
    suspects = ", ".join(f"`{name}`" for name in problem.suspects)
    cause = f"; {suspects} can cause that" if suspects else ""
    return f"A difference in {_difference(problem)}{cause}."


def _difference(problem: Problem) -> str:
    return f"{NAMES[problem.aspect]}: {_clause(problem.sentence)}"


def _results(found: Equivalence) -> str:
    """Return the comparison of results without a verdict, which is the study's."""
    if found.status == "not_checked":
        reason = f": {_clause(found.reason)}" if found.reason else ""
        return f"Results of the rehearsal could not be compared{reason}."
    return f"Results of the rehearsal: {compared(found)}."


def compared(found: Equivalence) -> str:
    """Return what was compared, and the difference with its limit where that is a number."""
    if not figures.is_figure(found.value) and not figures.is_figure(found.limit):
        return found.metric
    limit = figures.short(found.limit) if figures.is_figure(found.limit) else "not set"
    in_part = f"; {found.reason}" if found.reason else ""
    return f"{found.metric} {figures.short(found.value)} (limit {limit}){in_part}"


def _compiles(rehearsal: Rehearsal) -> bool:
    knobs = load_knobs()
    known = (knobs[name] for name in rehearsal.settings if name in knobs)
    return any(knob.first_start_s >= COMPILING_S for knob in known)


def _forecast(forecast: Forecast, compiles: bool) -> Iterator[str]:
    """Yield what the settings mean for the whole run."""
    yield f"Forecast: it {saving(forecast)}."
    late = forecast.extra_start_s
    if figures.is_figure(late) and abs(late) >= 1:  # less is not felt
        earned = forecast.break_even_steps
        back = (
            "which is never earned back"
            if earned is None
            else f"which is earned back after {figures.count(earned, 'step')}"
        )
        cause = "seen once, with what was in the compilers' caches" if compiles else "seen once"
        yield (
            f"The first step comes {figures.duration(late)} later ({cause}), {back}."
            if late > 0
            else f"The first step comes {figures.duration(-late)} earlier."
        )
    if forecast.later_ratio is not None and figures.is_figure(forecast.later_ratio):
        share = figures.percent(1 / forecast.later_ratio) if forecast.later_ratio else "none"
        yield f"A later epoch takes {share} of the unchanged script's time."


def saving(forecast: Forecast) -> str:
    """Return `saves 3 h 10 min of the 4 h 02 min of your 90 epochs`, or what it loses."""
    verb = "saves" if forecast.saved_s >= 0 else "loses"
    if forecast.epochs is forecast.steps is None and forecast.whole_s > ENDLESS_S:
        part_s = 3600 * abs(forecast.saved_s) / forecast.whole_s
        return f"{verb} {figures.duration(part_s)} of each hour that it goes on"
    span = f"the {figures.duration(forecast.whole_s)} of "
    if forecast.epochs is not None:
        span += f"your {figures.count(forecast.epochs, 'epoch')}"
    else:
        span += f"its {figures.count(forecast.steps, 'step')}" if forecast.steps else "an epoch"
    preposition = "of" if forecast.saved_s >= 0 else "on top of"
    return f"{verb} {figures.duration(abs(forecast.saved_s))} {preposition} {span}"


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


def _clause(words: str) -> str:
    return words.strip().rstrip(".")

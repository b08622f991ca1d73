"""From evidence to findings: rules are asked, causes hide their symptoms, the rest is ranked."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gpuadvisor.domain.finding import (
    RUN,
    Diagnosis,
    Finding,
    NotMeasured,
    Place,
    Scope,
    Span,
)
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.calibration import UNFITTED, Calibration
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.registry import load_rules
from gpuadvisor.rules.rule import NOTICEABLE, SERIOUS, Estimate, Loaded, RuleResult

LOG = logging.getLogger(__name__)

SEVERITIES = (
    (25.0, Severity.CRITICAL),
    (100 * SERIOUS, Severity.WARNING),
    (100 * NOTICEABLE, Severity.NOTICE),
)
"""Percent of the run, by what a rule's own range counts as (`TOO_WIDE_PCT`), from which on a
finding is so severe. Below 8 % a run-to-run difference of the usual 3 to 5 % is a good part of what
there is to gain; what is worth a quarter deserves to be the first thing one does. Where kernels
were counted one by one it is percent of the time of all of them. [own]"""
SEVERER = 1
"""Steps of severity by which a symptom may seem to matter more than its cause: two estimates of
the same time differ by one, and what is worth 3 % does not explain what costs half a run. [own]"""
TOO_WIDE_PCT = 30.0
"""Width, in percent of the run, from which on a range says no more than that there is something:
its ends then call for a notice and for a critical finding (`SEVERITIES`). What it counts as is the
middle of its first so many percent."""
LEAST_LOOKED_AT = 0.05
"""Least share of the recorded run that is looked at for something in it to be more than a notice:
of less, the other 95 % of what the program does are not judged. [own]"""
LEAST_ABOUT = 0.05
"""Least share of a kernel's time for a finding to be about the kernel: what is known of less leaves
its time as good as all to be told of. [own]"""
NS_PER_MS = 1e6


@dataclass(frozen=True)
class _Found:
    rule: Loaded
    result: RuleResult
    finding: Finding
    counts_ms: float = 0.0
    """The saving that it ranks with."""


def diagnose(
    evidence: Evidence,
    rules: Iterable[Loaded] | None = None,
    fitted: Calibration = UNFITTED,
) -> Diagnosis:
    """Return what the rules say, the most expensive first, with the ranges that were `fitted`."""
    found: list[_Found] = []
    not_measured, failed = [], []
    for rule in load_rules() if rules is None else rules:
        missing = rule.missing(evidence)
        if missing is not None:
            not_measured.append(NotMeasured(rule.name, *missing))
            continue
        try:
            results = tuple(rule.check(evidence))
        except Exception as error:
            LOG.debug("the rule %s failed", rule.name, exc_info=True)
            failed.append((rule.name, f"{type(error).__name__}: {error}"))
            continue
        found.extend(_found(rule, result, evidence, fitted) for result in results)
    shared = (_of_all_captured(each, evidence) for each in _hidden(found))
    ranked = sorted(shared, key=_rank)
    shown = [each for each in ranked if each.finding.hidden_by is None]
    return Diagnosis(
        tuple(each.finding for each in ranked),
        tuple(not_measured),
        tuple(failed),
        evidence.run_ns / NS_PER_MS if evidence.run_ns else None,
        _together(shown, evidence.run_ns),
        _busy_ms(evidence),
    )


def _busy_ms(evidence: Evidence) -> float | None:
    """Return the time of a step in which the devices worked."""
    if evidence.facts is None or not evidence.facts.has_timeline:
        return None
    window = evidence.facts.window
    if window.steps is None or not window.busy:
        return None
    return window.busy_share * window.run_ns / len(window.steps.steps) / NS_PER_MS


def _found(rule: Loaded, said: RuleResult, evidence: Evidence, fitted: Calibration) -> _Found:
    said = _remarked(said) if evidence.too_short else _held(said, evidence)
    from gpuadvisor.rules.paces import is_timed

    timed = evidence.facts is not None and is_timed(evidence.facts)
    moved = fitted.applied(rule.name, said, evidence.run_ns, timed=timed)
    result = _held(moved, evidence)
    counted = None if said.saving is None else _counted(said.saving, evidence)
    finding = _judged(rule, result, evidence, counted)
    if said.saving is not None and result.saving != said.saving:
        finding = replace(finding, uncalibrated_pct=_worth(said.saving, evidence))
    return _Found(rule, result, finding, _counts_ms(finding, counted))


def _counted(own: Estimate, evidence: Evidence) -> Span | None:
    """Return what of a finding's worth counts where findings are put in order: what its rule says.
    By how much more the gains of other programs differed makes nothing worth more or less, and a
    range that ends at 0 would have its middle moved by being widened."""
    if own.counts_ns is None:
        return _worth(own, evidence)
    most = max(min(own.high_ns, own.counts_ns), own.low_ns)
    return _worth(replace(own, high_ns=most), evidence)


def _remarked(result: RuleResult) -> RuleResult:
    """Return a result of a recording that is too short to be judged: what it says of the run's time
    is good to know, and worth nothing that can be told."""
    if result.saving is None:
        return result
    return replace(result, saving=None, method="", severity=Severity.INFO)


def _held(result: RuleResult, evidence: Evidence) -> RuleResult:
    """Return a result whose saving is no more than the account has of the parts that it shortens,
    as a share of the run that it may be without the profiler: there they are a larger one."""
    saving, facts = result.saving, evidence.facts
    if saving is None or saving.of_ns is not None or facts is None or not facts.has_timeline:
        return result
    held = facts.account.held_ns(saving.parts)
    if held is None:
        return result
    from gpuadvisor.rules.paces import longer_with_profiler

    held *= longer_with_profiler(facts, saving.parts)
    if saving.high_ns <= held:
        return result
    low, high = min(saving.low_ns, held), min(saving.high_ns, held)
    return replace(result, saving=replace(saving, low_ns=low, high_ns=high))


def _saved_ns(saving: Estimate, evidence: Evidence) -> float:
    """Return what of the time that was recorded is about what is saved: no more than was there,
    although it may be a larger share of a run without the profiler."""
    middle = (saving.low_ns + saving.high_ns) / 2
    if saving.of_ns is not None or evidence.facts is None or not evidence.facts.has_timeline:
        return middle
    held = evidence.facts.account.held_ns(saving.parts)
    return middle if held is None else min(middle, held)


def _judged(rule: Loaded, result: RuleResult, evidence: Evidence, counted: Span | None) -> Finding:
    worth = None if result.saving is None else _worth(result.saving, evidence)
    severe = _severity(counted)
    saving_ms = None
    if worth is not None and result.saving is not None:
        saving_ms = _saved_ns(result.saving, evidence) / NS_PER_MS
    source, place = _place(rule, result, evidence)
    severity = severe if result.severity is None else _stated(result.severity, worth)
    if evidence.facts is not None and evidence.facts.fitness.share < LEAST_LOOKED_AT:
        # What the program does for all the rest of its run may matter more.
        severity = min(severity, Severity.NOTICE, key=lambda one: one.rank)
    of_pytorch = evidence.facts is None or evidence.facts.is_of_pytorch
    knobs = rule.rule.knobs if result.knobs is None else result.knobs
    return Finding(
        rule.name,
        rule.rule.category,
        severity,
        result.scope,
        result.summary,
        result.evidence,
        worth,
        saving_ms,
        result.method,
        result.advice if of_pytorch else result.program_advice or result.advice,
        knobs if of_pytorch else (),
        source,
        parts=() if result.saving is None else tuple(_about(result.saving, evidence)),
        captured_pct=_captured(result.saving, evidence),
        place=place,
    )


def _about(saving: Estimate, evidence: Evidence) -> Iterator[str]:
    """Yield the parts of the run that a finding is about: not a kernel of whose time it is about as
    good as nothing, as who launches less saves some microseconds of each kernel, however long."""
    facts = evidence.facts
    if saving.of_ns is not None or facts is None or not facts.has_timeline:
        yield from saving.parts
        return
    for part, time_ns in saving.parts.items():
        held = facts.account.held_ns((part,)) if part.startswith("kernel/") else None
        if held is None or time_ns > LEAST_ABOUT * held:
            yield part


def _place(rule: Loaded, result: RuleResult, evidence: Evidence) -> tuple[str | None, Place | None]:
    """Return the source line that a result comes from, and what else is known of its place."""
    saving = result.saving
    work = saving.work if result.work is None and saving is not None else result.work
    parts = {} if saving is None else saving.parts
    return evidence.place_of(result.scope, rule.rule.category, parts, work, result.calls)


def _severity(worth: Span | None) -> Severity:
    value = 0.0 if worth is None else _value_pct(worth)
    return next((each for least, each in SEVERITIES if value >= least), Severity.INFO)


def _stated(severity: Severity, worth: Span | None) -> Severity:
    """Return the severity that a rule states: of what saves less of the run at most than anybody
    could tell, it is good to know and nothing to fix, whatever the rule thinks of it."""
    is_told = worth is None or worth.high >= 100 * NOTICEABLE
    return severity if is_told else min(severity, Severity.INFO, key=lambda one: one.rank)


def _value_pct(span: Span) -> float:
    """Return what a range counts as: its middle, of which no more counts above its low end than a
    range may be wide (`TOO_WIDE_PCT`)."""
    return span.low + min(span.width, TOO_WIDE_PCT) / 2


def _worth(saving: Estimate, evidence: Evidence) -> Span | None:
    """Return percents of the run; None where its time is not known."""
    return _percents(saving, evidence.run_ns if saving.of_ns is None else saving.of_ns)


def _captured(saving: Estimate | None, evidence: Evidence) -> Span | None:
    """Return percents of all captured time for the saving of a kernel that was counted alone; None
    where not all of that time is known."""
    if saving is None or saving.of_ns is None or evidence.untimed:
        return None
    return _percents(saving, evidence.captured_ns)


def _percents(saving: Estimate, total: float) -> Span | None:
    if total <= 0:
        return None
    shares = (min(max(each / total, 0.0), 1.0) for each in (saving.low_ns, saving.high_ns))
    low, high = sorted(shares)
    return Span(100 * low, 100 * high)


def _of_all_captured(each: _Found, evidence: Evidence) -> _Found:
    """Return a finding of a kernel as severe as its share of all captured time lets it be: no more
    than a notice where that is not known, for some kernel's time was not counted.

    What explains what was judged within the kernel before: there its share is the same for all.
    """
    captured = each.finding.captured_pct
    if captured is None and not (evidence.untimed and each.finding.improvement_pct is not None):
        return each
    most = Severity.NOTICE if captured is None else _severity(captured)
    severity = min(each.finding.severity, most, key=lambda one: one.rank)
    return replace(each, finding=replace(each.finding, severity=severity))


def _hidden(found: list[_Found]) -> Iterator[_Found]:
    """Yield all, with the symptoms marked by their cause; these matter less than they seem."""
    causes = _Causes(found)
    for each in found:
        cause = causes.root_of(each)
        if cause is None:
            yield each
            continue
        severity = min(each.finding.severity, Severity.NOTICE, key=lambda one: one.rank)
        yield replace(
            each, finding=replace(each.finding, hidden_by=cause.rule.name, severity=severity)
        )


class _Causes:
    """What is severe enough to explain something, by what it hides and where."""

    def __init__(self, found: Iterable[_Found]) -> None:
        self._by_symptom: dict[tuple[str, Scope], list[_Found]] = defaultdict(list)
        for each in found:
            if each.finding.severity.rank >= Severity.NOTICE.rank:
                for hidden in each.rule.rule.hides:
                    self._by_symptom[hidden, each.result.scope].append(each)

    def root_of(self, symptom: _Found) -> _Found | None:
        """Return what explains a finding: of several the most severe that no other explains."""
        causes = self._of(symptom)
        known = {id(each) for each in causes}
        roots = [each for each in causes if not any(id(one) in known for one in self._of(each))]
        return min(roots or causes, key=_rank, default=None)

    def _of(self, symptom: _Found) -> list[_Found]:
        names = {symptom.rule.name, str(symptom.rule.rule.category)}
        scopes = {symptom.result.scope, RUN}
        found = (self._by_symptom.get((name, at), ()) for name in names for at in scopes)
        return [
            each
            for some in found
            for each in some
            if each.rule.name != symptom.rule.name
            and each.finding.severity.rank >= symptom.finding.severity.rank - SEVERER
            and not _yields(each, symptom)
        ]


def _yields(one: _Found, other: _Found) -> bool:
    """Return whether of two findings that hide each other the other one is worth more."""
    rule, hides = one.rule, other.rule.rule.hides
    mutual = rule.name in hides or str(rule.rule.category) in hides
    return mutual and other.result.scope.covers(one.result.scope) and _rank(other) < _rank(one)


def _counts_ms(finding: Finding, counted: Span | None) -> float:
    """Return the saving that a finding ranks with, of what was recorded."""
    span, middle = finding.improvement_pct, finding.saving_ms or 0.0
    if span is None or counted is None or not span.middle:
        return middle
    return middle * _value_pct(counted) / span.middle


def too_wide(span: Span) -> bool:
    """Tell whether a range is no answer to how much something is worth."""
    return span.width > TOO_WIDE_PCT


def _rank(each: _Found) -> tuple[bool, int, float, str, str]:
    finding = each.finding
    return (
        finding.hidden_by is not None,
        -finding.severity.rank,
        -each.counts_ms,
        finding.rule,
        str(finding.scope),
    )


def _together(shown: Iterable[_Found], run_ns: float) -> Span | None:
    """Return what all are worth together, in percent of the run.

    In the order of their worth each takes its share of what the ones before have left of the parts
    that it shortens. That is no less than what one of them is worth alone, which may be more than
    its parts: of the run without the profiler they may be a larger share.
    """
    if run_ns <= 0:
        return None
    lows, highs, least, most = [], [], 0.0, 0.0
    left_low: dict[str, float] = {}
    left_high: dict[str, float] = {}
    for each in shown:
        saving = each.result.saving
        if saving is None or saving.of_ns is not None:
            continue
        if each.finding.severity is Severity.INFO:  # nobody is told to mend it
            continue
        lows.append(_taken(saving, saving.low_ns, left_low))
        highs.append(_taken(saving, saving.high_ns, left_high))
        least, most = max(least, saving.low_ns), max(most, saving.high_ns)
    if not lows:
        return None
    sums = max(sum(lows), least), max(sum(highs), most)
    low, high = (min(100 * each / run_ns, 100.0) for each in sums)
    return Span(low, max(low, high))


def _taken(saving: Estimate, wanted_ns: float, left: dict[str, float]) -> float:
    """Return the time that a saving still takes, and leave the rest of its parts."""
    total = sum(saving.parts.values())
    if total <= 0:
        return wanted_ns
    remaining = sum(time * left.get(part, 1.0) for part, time in saving.parts.items())
    share = min(wanted_ns / total, 1.0)
    for part in saving.parts:
        left[part] = left.get(part, 1.0) * (1.0 - share)
    return share * remaining

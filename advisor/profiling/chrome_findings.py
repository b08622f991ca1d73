"""Findings as annotations of a Chrome trace: a track each, over the times that it is about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gpuadvisor.domain.finding import Category, Finding, ScopeKind
from gpuadvisor.profiling.chrome_places import microseconds, quoted
from gpuadvisor.rules.facts.device_work import Work
from gpuadvisor.rules.facts.idle import Cause
from gpuadvisor.rules.facts.intervals import Intervals, ends, union
from gpuadvisor.rules.facts.summary import Facts

MOST_MARKS = 1000
"""Of a finding, the longest: a kernel may have run a million times."""
MOST_TRACKS = 20
_LONGEST = 80
"""Characters of a track's name."""
CAUSES = {
    Category.INPUT_BOUND: Cause.WAITING_FOR_DATA,
    Category.LAUNCH_BOUND: Cause.LAUNCHING,
    Category.SYNC: Cause.SYNCHRONIZING,
}
"""What a device waits for in the gaps that such a finding is about."""
_WORK = {Category.COPY: Work.MEMORY, Category.COMMUNICATION: Work.COMMUNICATION}


def tracks(findings: Sequence[Finding]) -> Iterator[tuple[int, str]]:
    """Yield the number and the name of each finding's track."""
    for number, finding in enumerate(findings[:MOST_TRACKS], 1):
        yield number, f"{number}. {finding.rule}"[:_LONGEST]


def marks(facts: Facts, findings: Sequence[Finding], process: int) -> Iterator[str]:
    """Yield the events of all findings, a line of JSON each."""
    for number, finding in enumerate(findings[:MOST_TRACKS], 1):
        times = about(facts, finding)
        lasted = times.end_ns - times.begin_ns
        longest = np.sort(np.argsort(-lasted, kind="stable")[:MOST_MARKS])
        args = _args(finding)
        for row in longest.tolist():
            yield (
                f'{{"ph":"X","cat":"gpuadvisor","name":{quoted(finding.rule)},"pid":{process},'
                f'"tid":{number},"ts":{microseconds(int(times.begin_ns[row]))},'
                f'"dur":{microseconds(int(lasted[row]))},"args":{{{args}}}}}'
            )


def about(facts: Facts, finding: Finding) -> Intervals:
    """Return the times that a finding is about, the whole run where they are not known."""
    times = _times(facts, finding)
    if times is not None and len(times):
        return times
    return union(np.array([facts.begin_ns], np.int64), np.array([facts.end_ns], np.int64))


def _times(facts: Facts, finding: Finding) -> Intervals | None:
    scope, category = finding.scope, finding.category
    texts = facts.profile.header.texts
    if scope.kind is ScopeKind.KERNEL:
        named = [number for number, text in enumerate(texts) if text == scope.name]
        return facts.work.intervals(np.isin(facts.work.name, named))
    if scope.kind is ScopeKind.OPERATOR:
        return _of_operator(facts, [n for n, text in enumerate(texts) if text == scope.name])
    if category in CAUSES:
        gaps = [gap for each in facts.idle for gap in each.longest if gap.cause is CAUSES[category]]
        begin = np.array([gap.begin_ns for gap in gaps], np.int64)
        return union(begin, begin + np.array([gap.duration_ns for gap in gaps], np.int64))
    if category in _WORK:
        return facts.work.intervals(facts.work.kind == _WORK[category])
    return None


def _of_operator(facts: Facts, named: list[int]) -> Intervals:
    """Return when operators, or what PyTorch marks as a range such as an optimizer's step, ran."""
    begins, ended = [], []
    for table in ("operators", "ranges"):
        columns = facts.profile.columns(table, ("begin_ns", "duration_ns", "name"))
        rows = np.isin(columns["name"], named)
        begin, end = ends(columns["begin_ns"][rows], columns["duration_ns"][rows])
        begins.append(begin)
        ended.append(end)
    return union(np.concatenate(begins), np.concatenate(ended))


def _args(finding: Finding) -> str:
    worth = finding.improvement_pct
    told = {
        "what": finding.summary,
        "severity": str(finding.severity),
        "about": str(finding.scope),
        "worth": f"{worth.low:.0f} to {worth.high:.0f} % of the run" if worth else "",
        "what to do": finding.advice,
        "source": finding.source or "",
    }
    return ",".join(f"{quoted(name)}:{quoted(value)}" for name, value in told.items() if value)

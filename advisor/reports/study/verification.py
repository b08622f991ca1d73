"""The verification of a plan: whether it still holds, and what that rests on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuadvisor.domain.study import Speedup
from gpuadvisor.domain.verification import Outcome, Verification
from gpuadvisor.reports import figures
from gpuadvisor.reports.document import Bullets, Column, Document, Paragraph, Section, Table
from gpuadvisor.reports.render_markdown import markdown
from gpuadvisor.reports.render_text import print_sections
from gpuadvisor.reports.study import wording
from gpuadvisor.reports.study.notes import notes

if TYPE_CHECKING:
    from rich.console import Console

HEADLINES = {
    Outcome.HOLDS: ("The plan holds", "good"),
    Outcome.GAIN_GONE: ("The plan does not hold", "bad"),
    Outcome.RESULTS_DIFFER: ("The plan does not hold, results differ", "bad"),
    Outcome.FAILS: ("The plan does not hold", "bad"),
    Outcome.INCONCLUSIVE: ("Inconclusive", "strong"),
}
"""Outcomes in words, and the styles of their paragraphs."""


def print_verification(found: Verification, console: Console) -> None:
    """Print what a verification found."""
    print_sections(console, _sections(found))


def verification_markdown(found: Verification) -> str:
    """Return what a verification found as GitHub-flavoured Markdown, for a pull request."""
    name = (found.plan, wording.command(found.result))
    return markdown(Document(name=name, sections=tuple(_sections(found))))


def _sections(found: Verification) -> Iterator[Section]:
    result = found.result
    headline, style = HEADLINES[found.outcome]
    results = Paragraph(wording.equivalence_sentence(result.equivalence))
    yield Section("", [Paragraph(f"{headline}: {found.reason}.", style), results])
    yield Section("", [_promise(found)])
    if (gain := result.speedup) is not None and not gain.in_turns:
        yield Section("", [Paragraph(f"The pairs were{wording.processes(result)}.")])
    columns = [Column("", "label"), Column("Baseline", "baseline")]
    if result.best is not None:
        columns += [Column("Plan", "best", strong=True), Column("Change", "change")]
    yield Section("", [Table(figures.comparisons(result), columns)])
    # The first of its own says what was verified.
    if sentences := notes(replace(result, notes=result.notes[1:])):
        yield Section("Notes", [Bullets(sentences)])


def _promise(found: Verification) -> Table:
    rows = [("promised", found.promised), ("measured", found.result.speedup)]
    columns = [
        Column("Gain", lambda row: row[0]),
        Column("Ratio", lambda row: _ratio(row[1])),
        Column(wording.CONFIDENCE, lambda row: _interval(row[1])),
        Column("Pairs", lambda row: str(row[1].pairs) if row[1] else ""),
    ]
    return Table(rows, columns)


def _ratio(speedup: Speedup | None) -> str:
    if speedup is not None and wording.says_nothing(speedup):
        return wording.INCOMPARABLE
    return figures.ratio(speedup.ratio if speedup else None)


def _interval(speedup: Speedup | None) -> str:
    if speedup is None or wording.says_nothing(speedup):
        return ""
    return figures.interval(speedup.ci99_low, speedup.ci99_high)

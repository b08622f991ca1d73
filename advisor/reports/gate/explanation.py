"""Why a version is slower, in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuadvisor.domain.explanation import Cause, CauseKind, Explanation
from gpuadvisor.printable import printable
from gpuadvisor.reports import figures
from gpuadvisor.reports.document import Block, Bullets, Code, Column, Paragraph, Section, Table
from gpuadvisor.rules.facts.kernel_families import short_name

SAME_COUNT = 0.01
"""Relative difference of how often something runs in a step that is none: steps differ."""
UNCLEAR = (
    "No cause of that is clear: nothing differs in both pairs of profiles by a twentieth of it, "
    "and by more than steps of one version do among each other"
)
"""Sentence where two pairs of profiles agree in no cause of a slower step: it may be in them all
the same, below what their steps differ by."""
LONGEST = 100
"""Letters of a name."""


def explanation_sections(found: Explanation | None) -> Iterator[Section]:
    """Yield what profiles of both versions show; nothing where nobody looked."""
    if found is None:
        return
    blocks: list[Block] = [Paragraph(lead(found))]
    if found.causes:
        rows = [(row, row is not each) for each in found.causes for row in (each, *each.inside)]
        columns = [
            Column("A step", lambda row: _cell(*row)),
            Column("Base", lambda row: _time(row[0].base_ms)),
            Column("Head", lambda row: _time(row[0].head_ms)),
            Column("Difference", lambda row: _more(row[0].more_ms)),
            Column("Of the slow-down", lambda row: _share(row[0], found)),
            Column("Runs", lambda row: _runs(row[0]), left=True),
        ]
        blocks.append(Table(rows, columns))
    if found.findings:
        new = [f"New in the head: {_finding(e.summary, e.source)}" for e in found.findings]
        blocks.append(Bullets(new))
    yield Section("Why it is slower", blocks)


def explanation_lines(found: Explanation | None) -> Iterator[str]:
    """Yield the same in sentences without a table, for formats that hold plain text."""
    if found is None:
        return
    yield lead(found)
    for each in found.causes:
        yield f"- {cause_sentence(each, found)}"
    for finding in found.findings:
        yield f"- New in the head: {_finding(finding.summary, finding.source)}"


def lead(found: Explanation) -> str:
    """Return what the profiles show of the slow-down as a whole, and what they leave open."""
    if found.base_ms is None or found.head_ms is None:
        return f"Why it is slower is not known: {found.note}."
    parts = [
        f"With a profiler, which lengthens steps, a step takes {_time(found.head_ms)} instead of "
        f"{_time(found.base_ms)}, {_more(found.head_ms - found.base_ms)}"
    ]
    if found.slower_ms is not None:
        parts.append(f"; without it {_more(found.slower_ms)}")
    parts.append(f" (mean of {found.steps} steps of each version). ")
    if found.causes:
        unexplained = found.unexplained_ms / found.of_ms
        parts.append(f"Of {_time(found.of_ms)} more, {1 - unexplained:.0%} are explained here")
        parts.append(f", {_time(found.unexplained_ms)} are not. " if unexplained > 0 else ". ")
    elif found.of_ms > 0:
        parts.append(f"{UNCLEAR}. ")
    if found.note:
        parts.append(f"{found.note[0].upper()}{found.note[1:]}.")
    return "".join(parts).strip()


def cause_sentence(cause: Cause, found: Explanation) -> str:
    """Return what became of one thing: `train.py:41 in step: +3.1 ms a step (97%), aten::mm`."""
    words = f"{_name(cause)}: {_more(cause.more_ms)} a step"
    if share := _share(cause, found):
        words += f" ({share} of the slow-down)"
    words += f", {_status(cause)}" if _status(cause) else ""
    inside = [f"{_name(e)} {_more(e.more_ms)}" + (f" ({_status(e)})" if _status(e) else "")
              for e in cause.inside]  # fmt: skip
    return printable(f"{words}; of this {', '.join(inside)}" if inside else words)


def explanation_json(found: Explanation | None) -> dict[str, Any] | None:
    """Return an explanation as plain values."""
    if found is None:
        return None
    return {
        "slower_ms": found.slower_ms,
        "base_ms": found.base_ms,
        "head_ms": found.head_ms,
        "steps": found.steps,
        "of_ms": found.of_ms,
        "explained_ms": found.explained_ms,
        "unexplained_ms": found.unexplained_ms,
        "causes": [
            {**_plain(each), "source": each.source, "inside": [_plain(e) for e in each.inside]}
            for each in found.causes
        ],
        "findings": [
            {
                "rule": each.rule,
                "severity": str(each.severity),
                "summary": each.summary,
                "advice": each.advice,
                "source": each.source,
            }
            for each in found.findings
        ],
        "note": found.note or None,
    }


def _plain(cause: Cause) -> dict[str, Any]:
    return {
        "kind": str(cause.kind),
        "name": cause.name,
        "base_ms": cause.base_ms,
        "head_ms": cause.head_ms,
        "more_ms": cause.more_ms,
        "base_count": cause.base_count,
        "head_count": cause.head_count,
    }


def _cell(cause: Cause, is_inside: bool) -> str:
    return Code(f"{'in it: ' * is_inside}{printable(_name(cause))}")


def _name(cause: Cause) -> str:
    if cause.kind is CauseKind.FUNCTION:
        return f"{cause.source} in {cause.name}"[:LONGEST]
    if cause.kind is CauseKind.KERNEL:
        at = f" ({cause.source})" if cause.source else ""
        return f"{short_name(cause.name)[:LONGEST]}{at}"
    return cause.name[:LONGEST] or "its own Python"


def _status(cause: Cause) -> str:
    """Return `new`, `gone` or how often it runs now, where that changed."""
    before, after = cause.base_count, cause.head_count
    if not before and not after:
        return ""
    if not before or not after:
        return "new" if after else "gone"
    if abs(after / before - 1) <= SAME_COUNT:
        return ""
    return f"runs {after:,.4g} times instead of {before:,.4g}"


def _runs(cause: Cause) -> str:
    counts = f"{cause.head_count:,.4g}" if cause.head_count else ""
    return _status(cause) or counts


def _share(cause: Cause, found: Explanation) -> str:
    return f"{cause.more_ms / found.of_ms:.0%}" if found.of_ms > 0 else ""


def _finding(summary: str, source: str | None) -> str:
    return printable(f"{summary.rstrip('.')}{f' ({source})' if source else ''}.")


def _time(value_ms: float) -> str:
    return figures.milliseconds(value_ms) if value_ms else "-"


def _more(value_ms: float) -> str:
    sign = "+" if value_ms > 0 else "-" if value_ms < 0 else ""
    return sign + figures.milliseconds(abs(value_ms))

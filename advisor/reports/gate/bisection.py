"""What `gpuadvisor gate bisect` found, in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gpuadvisor.reports import figures
from gpuadvisor.reports.document import Bullets, Column, Paragraph, Section, Table
from gpuadvisor.reports.gate.document import why
from gpuadvisor.reports.render_text import print_sections
from gpuadvisor.reports.strict_json import strict

if TYPE_CHECKING:
    from rich.console import Console

    from gpuadvisor.domain.gate import Bisected, Commit, Step

VERSION = 1
"""Version of the JSON."""


def print_bisection(found: Bisected, console: Console) -> None:
    """Print the first bad commit, and what was compared to find it."""
    print_sections(console, _sections(found))


def bisection_json(found: Bisected) -> dict[str, Any]:
    """Return what was found as values that are valid JSON."""
    document: dict[str, Any] = strict({
        "schema_version": VERSION,
        "good": found.good.commit,
        "bad": found.bad.commit,
        "first_bad": [_commit(each) for each in found.first_bad],
        "reason": _reason(found.proof),
        "steps": [
            {**_commit(each.commit), "verdict": str(each.verdict), "reason": _reason(each)}
            for each in found.steps
        ],
    })  # fmt: skip
    return document


def _sections(found: Bisected) -> Iterator[Section]:
    *others, newest = found.first_bad
    if others:
        between = f"The first bad commit is one of {len(others) + 1}:"
        names = [f"{each.name}, {each.commit}" for each in found.first_bad]
        yield Section("", [Paragraph(between, "strong"), Bullets(names)])
    else:
        words = f"First bad commit: {newest.name}, {newest.commit}."
        yield Section("", [Paragraph(words, "bad")])
    reason = _reason(found.proof)
    yield Section("", [Paragraph(f"{reason[:1].upper()}{reason[1:]}.")])
    columns = [
        Column("Compared", lambda step: step.commit.name),
        Column("Verdict", lambda step: str(step.verdict), left=True),
    ]
    gates = figures.count(len(found.steps), "gate")
    yield Section("", [Table(found.steps, columns), Paragraph(f"{gates} in all.", "muted")])


def _commit(commit: Commit) -> dict[str, str]:
    return {"commit": commit.commit, "name": commit.name}


def _reason(step: Step) -> str:
    return why(step.found) if step.found is not None else step.reason

"""A comparison of two profiles as Markdown, to be pasted into a pull request."""

from __future__ import annotations

from collections.abc import Iterable

from gpuadvisor.reports import comparison_wording
from gpuadvisor.reports.comparison_wording import Row
from gpuadvisor.reports.markdown_parts import code, table, text
from gpuadvisor.rules.facts.comparison import Change, Comparison

MOST_ROWS = 20


def comparison_markdown(comparison: Comparison) -> str:
    """Return the comparison as GitHub-flavoured Markdown."""
    before, after = comparison.before.name, comparison.after.name
    sentence = f"**{text(comparison_wording.headline(comparison))}**"
    parts = [
        f"### {code(before)} and {code(after)}",
        f"{sentence} {text(comparison_wording.largest(comparison))}".strip(),
        "\n".join(f"- {text(remark)}" for remark in comparison.remarks),
        _table("Whole", comparison_wording.summary_rows(comparison), comparison),
        _table("Device", comparison_wording.part_rows(comparison), comparison),
        _changes("Kernel", comparison.kernels, comparison),
        _changes("Operator", comparison.operators or (), comparison),
        _changes("Copy", comparison.copies, comparison),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _changes(title: str, changes: tuple[Change, ...], comparison: Comparison) -> str:
    of_kernels = title == "Kernel"
    rows = comparison_wording.rows(changes, MOST_ROWS, of_kernels)
    if not rows:
        return f"No {title.lower()} changed." if changes else ""
    more = comparison_wording.left_out(changes, len(rows))
    shown = _table(title, rows, comparison, is_code=title != "Copy")
    return f"{shown}\n\n{text(more)}." if more else shown


def _table(title: str, rows: Iterable[Row], comparison: Comparison, is_code: bool = False) -> str:
    cells = [
        (code(row.name[:120]) if is_code else text(row.name), row.before, row.after,
         row.difference, row.change, row.count, row.verdict)
        for row in rows
    ]  # fmt: skip
    header = (title, "Before", "After", f"Difference, {comparison_wording.unit(comparison)}",
              "Change", "Count", "")  # fmt: skip
    return table(header, cells) if cells else ""

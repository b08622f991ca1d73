"""A comparison of two profiles on the terminal: tables of one line a change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuadvisor.printable import printable
from gpuadvisor.reports import comparison_wording, figures
from gpuadvisor.reports.comparison_wording import Row
from gpuadvisor.rules.facts.comparison import Change, Comparison

MOST_ROWS = 12
"""Of kernels, operators and copies each, unless all are asked for."""
_NAME = 46
"""Columns of a name; with the others a line has about 110."""


def comparison_lines(comparison: Comparison, everything: bool = False) -> Iterator[str]:
    """Yield the lines to print; names hold no control characters."""
    yield f"before  {_side(comparison.before.name, comparison.before.devices)}"
    yield f"after   {_side(comparison.after.name, comparison.after.devices)}"
    yield ""
    yield comparison_wording.headline(comparison)
    if sentence := comparison_wording.largest(comparison):
        yield sentence.replace("`", "")
    yield from (f"Note: {printable(remark)}" for remark in comparison.remarks)
    yield from _table("whole", comparison_wording.summary_rows(comparison))
    when = comparison_wording.unit(comparison)
    yield from _table(f"device, {when}", comparison_wording.part_rows(comparison))
    most = None if everything else MOST_ROWS
    yield from _changes(f"kernels, {when}", comparison.kernels, most, of_kernels=True)
    if comparison.operators is None:
        yield ""
        yield f"operators: {figures.NOT_MEASURED} in both profiles"
    else:
        yield from _changes(f"operators, {when}", comparison.operators, most)
    yield from _changes(f"copies, {when}", comparison.copies, most)


def _side(name: str, devices: tuple[str, ...]) -> str:
    counted = (
        f"{devices.count(each)} x {each}" if devices.count(each) > 1 else each
        for each in dict.fromkeys(devices)
    )
    return printable(f"{name} ({', '.join(counted) or 'no GPU'})")


def _changes(
    title: str, changes: tuple[Change, ...], most: int | None, of_kernels: bool = False
) -> Iterator[str]:
    rows = comparison_wording.rows(changes, most, of_kernels)
    if rows:
        yield from _table(title, rows)
        if more := comparison_wording.left_out(changes, len(rows)):
            yield f"  {more}"
    elif changes:
        yield ""
        yield f"{title}: no change"


def _table(title: str, rows: Iterable[Row]) -> Iterator[str]:
    listed = list(rows)
    if not listed:
        return
    yield ""
    yield _line(title, "before", "after", "difference", "change", "", "count")
    for row in listed:
        name = printable(row.name)
        if len(name) > _NAME - 2:
            name = name[: _NAME - 3] + "…"
        cells = (row.before, row.after, row.difference, row.change, row.verdict, row.count)
        yield _line(f"  {name}", *cells)


def _line(
    name: str, before: str, after: str, difference: str, change: str, verdict: str, count: str
) -> str:
    figures_of = f"{before:>12}{after:>12}{difference:>12}{change:>11}"
    return f"{name:<{_NAME}}{figures_of}  {verdict:<7}{count}".rstrip()

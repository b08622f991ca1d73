"""A comparison of two profiles: its tables, the same on the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gpuadvisor.printable import printable
from gpuadvisor.reports import figures
from gpuadvisor.reports.document import Bullets, Code, Column, Document, Paragraph, Section, Table
from gpuadvisor.reports.profile.wording import PARTS
from gpuadvisor.reports.render_markdown import markdown
from gpuadvisor.reports.render_text import table_lines
from gpuadvisor.rules.facts.comparison import Change, ComparedProfile, ProfileComparison, Verdict
from gpuadvisor.rules.facts.kernel_families import short_name
from gpuadvisor.rules.facts.time_breakdown import TimeCategory

ABSENT = "–"  # noqa: RUF001 - an en dash is what typography wants for `there is none`
VERDICTS = {
    Verdict.SLOWER: "slower",
    Verdict.FASTER: "faster",
    Verdict.NEW: "new",
    Verdict.GONE: "gone",
    Verdict.SAME: "",
}
_AMOUNTS = {Verdict.SLOWER: "more", Verdict.FASTER: "less"}
"""Words for idle and busy time, which is neither slow nor fast."""
MOST_PRINTED, MOST_IN_MARKDOWN = 12, 20
"""Kernels, operators and copies shown, each, unless all are asked for."""
_LONGEST = 120
"""Characters of a name."""


@dataclass(frozen=True)
class ComparedRow:
    """A row of a comparison's tables, ready to print."""

    name: str
    before: str
    after: str
    difference: str
    """Difference in time or percentage points, with its sign."""
    change: str = ""
    """Relative change in percent."""
    verdict: str = ""
    count: str = ""
    """How often it ran, before and after."""


def comparison_lines(comparison: ProfileComparison, everything: bool = False) -> Iterator[str]:
    """Yield the lines to print on a terminal."""
    yield f"before  {_side(comparison.before)}"
    yield f"after   {_side(comparison.after)}"
    yield ""
    yield headline(comparison)
    if sentence := _largest(comparison):
        yield sentence.replace("`", "")
    yield from (f"Note: {printable(remark)}" for remark in comparison.remarks)
    for each in _tables(comparison, None if everything else MOST_PRINTED):
        yield ""
        for block in each.blocks:
            if isinstance(block, Table):
                yield from table_lines(block)
            elif isinstance(block, Paragraph):
                yield block.text


def comparison_markdown(comparison: ProfileComparison) -> str:
    """Return the comparison as GitHub-flavoured Markdown, for a pull request."""
    remarks = [Section("", [Bullets(comparison.remarks)])] if comparison.remarks else []
    return markdown(
        Document(
            name=(comparison.before.name, comparison.after.name),
            summary=(headline(comparison), _largest(comparison)),
            sections=(*remarks, *_tables(comparison, MOST_IN_MARKDOWN)),
        )
    )


def headline(comparison: ProfileComparison) -> str:
    """Return what happened on the whole, in a sentence."""
    before, after = _whole(comparison.before, comparison), _whole(comparison.after, comparison)
    if before is None or after is None or not before or not after:
        return "There is no time of the whole to compare."
    what = "A step takes" if comparison.per_step else "The recording takes"
    if comparison.before.time_ns is None or comparison.after.time_ns is None:
        what = "A mean step takes"  # the table has the median beside it
    sides = f"{figures.nanoseconds(after)} instead of {figures.nanoseconds(before)}"
    if abs(after / before - 1) < 0.005:
        return f"{what} {sides}: no difference."
    ratio = before / after
    how = f"{figures.ratio(ratio)} as fast" if ratio >= 1 else f"{figures.ratio(1 / ratio)} as long"
    return f"{what} {sides}: {how}."


def _largest(comparison: ProfileComparison) -> str:
    """Return what changed most of the devices' time, in a sentence; empty where nothing did."""
    moved = [each for each in comparison.parts if each.verdict is not Verdict.SAME]
    if not moved:
        return ""
    most = max(moved, key=lambda each: abs(each.worth_ns))
    words = "less" if most.worth_ns < 0 else "more"
    time = figures.nanoseconds(abs(most.worth_ns))
    return f"The largest change is {time} {words} of `{PARTS[TimeCategory(most.name)]}`."


def _side(side: ComparedProfile) -> str:
    return printable(f"{side.name} ({figures.counted(side.devices) or 'no GPU'})")


def _tables(comparison: ProfileComparison, most: int | None) -> Iterator[Section]:
    """Yield the tables, or in a sentence why there is none."""
    when = "a step" if comparison.per_step else "in total"
    yield _table("Whole", list(_summary_rows(comparison)))
    if comparison.parts:
        rows = [
            replace(
                _row(PARTS[TimeCategory(each.name)], each), verdict=_AMOUNTS.get(each.verdict, "")
            )
            for each in comparison.parts
        ]
        yield _table(f"Device, {when}", rows)
    yield from _changes(
        f"Kernels, {when}", comparison.kernels, most, lambda name: _code(short_name(name))
    )
    if comparison.operators is None:
        yield Section("", [Paragraph(f"operators: {figures.NOT_MEASURED} in both profiles")])
    else:
        yield from _changes(f"Operators, {when}", comparison.operators, most, _code)
    yield from _changes(f"Copies, {when}", comparison.copies, most, str)


def _code(name: str) -> Code:
    return Code(name[:_LONGEST])


def _changes(
    title: str, changes: tuple[Change, ...], most: int | None, named: Callable[[str], str]
) -> Iterator[Section]:
    """Yield what changed, the most first; what stayed the same is counted."""
    moved = [each for each in changes if each.verdict is not Verdict.SAME]
    if not moved:
        if changes:
            yield Section("", [Paragraph(f"{title.lower()}: no change")])
        return
    left_out = []
    if most is not None and len(moved) > most:
        left_out.append(f"{len(moved) - most:,} more changed by less")
    if same := len(changes) - len(moved):
        left_out.append(f"{same:,} stayed the same")
    rows = [_row(named(each.name), each) for each in moved[:most]]
    yield _table(title, rows, ", ".join(left_out))


def _table(title: str, rows: list[ComparedRow], note: str = "") -> Section:
    columns = (
        Column(title, "name", width=46),
        Column("Before", "before", width=12),
        Column("After", "after", width=12),
        Column("Difference", "difference", width=12),
        Column("Change", "change", width=11),
        Column("", "verdict", left=True, width=7),
        Column("Count", "count", left=True),
    )
    return Section("", [Table(rows, columns, notes=(note,) if note else ())])


def _summary_rows(comparison: ProfileComparison) -> Iterator[ComparedRow]:
    """Yield the rows about the profiles as a whole."""
    one, two = comparison.before, comparison.after
    for name, before, after in (
        ("step on the CPU, median", one.step_median_ns, two.step_median_ns),
        ("the run" + (", a step" if comparison.per_step else ""), one.time_ns, two.time_ns),
    ):
        if before is not None or after is not None:
            moved = "" if before is None or after is None else _signed(after - before)
            change = figures.change(before, after)
            times = figures.nanoseconds(before), figures.nanoseconds(after)
            yield ComparedRow(name, *times, moved, change)
    for name, before, after in (
        ("waiting for data, of the CPU's steps", one.data_wait_share, two.data_wait_share),
        ("device busy", one.busy_share, two.busy_share),
    ):
        if before is not None or after is not None:
            points = "" if before is None or after is None else f"{100 * (after - before):+.1f} pp"
            yield ComparedRow(name, figures.percent(before), figures.percent(after), points)
    yield ComparedRow("steps", figures.whole(one.steps), figures.whole(two.steps), "")


def _row(name: str, change: Change) -> ComparedRow:
    sides = (change.before, change.after)
    before, after = (None if each is None else each.time_ns for each in sides)
    times = [ABSENT if each is None else figures.nanoseconds(each) for each in (before, after)]
    counts = [None if each is None else each.count for each in sides]
    words = [ABSENT if count is None else f"{count:,.4g}" for count in counts]
    return ComparedRow(
        name,
        times[0],
        times[1],
        _signed(change.worth_ns),
        figures.change(before, after),
        VERDICTS[change.verdict],
        "" if counts == [None, None] else " → ".join(dict.fromkeys(words)),
    )


def _whole(side: ComparedProfile, comparison: ProfileComparison) -> float | None:
    """Return the time of a step of the run, or of all of it; of the CPU's steps without a GPU."""
    if side.time_ns is None and comparison.per_step:
        return side.step_mean_ns
    return side.time_ns


def _signed(nanoseconds: float) -> str:
    sign = "+" if nanoseconds > 0 else "-" if nanoseconds < 0 else ""
    return sign + figures.nanoseconds(abs(nanoseconds))

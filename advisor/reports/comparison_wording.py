"""The words of a comparison: rows ready to print, the same on the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpuadvisor.reports import figures
from gpuadvisor.reports.profile_wording import PARTS, short_name
from gpuadvisor.rules.facts.comparison import Amount, Change, Comparison, Side, Verdict
from gpuadvisor.rules.facts.time_breakdown import Part

ABSENT = "–"  # noqa: RUF001 - an en dash is what typography wants for `there is none`
VERDICTS = {
    Verdict.SLOWER: "slower",
    Verdict.FASTER: "faster",
    Verdict.NEW: "new",
    Verdict.GONE: "gone",
    Verdict.SAME: "",
}

_AMOUNTS = {Verdict.SLOWER: "more", Verdict.FASTER: "less"}
"""Of idle and busy time, which is neither slow nor fast."""


@dataclass(frozen=True)
class Row:
    """Of a table."""

    name: str
    before: str
    after: str
    difference: str
    """In time, with its sign."""
    change: str
    """In percent."""
    verdict: str
    count: str = ""
    """How often, before and after."""


def unit(comparison: Comparison) -> str:
    """Return what times are of."""
    return "a step" if comparison.per_step else "in total"


def headline(comparison: Comparison) -> str:
    """Return what happened on the whole, in a sentence."""
    before, after = _whole(comparison.before, comparison), _whole(comparison.after, comparison)
    if before is None or after is None or not before or not after:
        return "There is no time of the whole to compare."
    what = "A step takes" if comparison.per_step else "The recording takes"
    sides = f"{figures.milliseconds(after / 1e6)} instead of {figures.milliseconds(before / 1e6)}"
    if abs(after / before - 1) < 0.005:
        return f"{what} {sides}: no difference."
    ratio = before / after
    how = f"{figures.ratio(ratio)} as fast" if ratio >= 1 else f"{figures.ratio(1 / ratio)} as long"
    return f"{what} {sides}: {how}."


def largest(comparison: Comparison) -> str:
    """Return what changed most of the devices' time, in a sentence; empty where nothing did."""
    moved = [each for each in comparison.parts if each.verdict is not Verdict.SAME]
    if not moved:
        return ""
    most = max(moved, key=lambda each: abs(each.worth_ns))
    words = "less" if most.worth_ns < 0 else "more"
    time = figures.milliseconds(abs(most.worth_ns) / 1e6)
    return f"The largest change is {time} {words} of `{PARTS[Part(most.name)]}`."


def summary_rows(comparison: Comparison) -> Iterator[Row]:
    """Yield the rows about the profiles as a whole."""
    one, two = comparison.before, comparison.after
    for name, before, after in (
        ("step, mean", one.step_mean_ns, two.step_mean_ns),
        ("step, median", one.step_median_ns, two.step_median_ns),
        ("device, first to last event", one.time_ns, two.time_ns),
    ):
        if before is not None or after is not None:
            yield Row(name, _time(before), _time(after), _difference(before, after),
                      figures.change(before, after), "")  # fmt: skip
    for name, before, after in (
        ("waiting for data", one.data_wait_share, two.data_wait_share),
        ("device busy", one.busy_share, two.busy_share),
    ):
        if before is not None or after is not None:
            points = "" if before is None or after is None else f"{100 * (after - before):+.1f} pp"
            yield Row(name, figures.percent(before), figures.percent(after), points, "", "")
    yield Row("steps", _steps(one), _steps(two), "", "", "")


def part_rows(comparison: Comparison) -> Iterator[Row]:
    """Yield the devices' time by what they did."""
    for change in comparison.parts:
        row = _row(PARTS[Part(change.name)], change)
        yield replace(row, verdict=_AMOUNTS.get(change.verdict, ""))


def rows(changes: tuple[Change, ...], most: int | None, of_kernels: bool = False) -> list[Row]:
    """Return the rows of what changed, the most first; what stayed the same is left out."""
    moved = [each for each in changes if each.verdict is not Verdict.SAME]
    return [_row(short_name(each.name) if of_kernels else each.name, each) for each in moved[:most]]


def left_out(changes: tuple[Change, ...], shown: int) -> str:
    """Return what a table does not show, in a sentence."""
    moved = sum(each.verdict is not Verdict.SAME for each in changes)
    same = len(changes) - moved
    parts = []
    if moved > shown:
        parts.append(f"{moved - shown:,} more changed by less")
    if same:
        parts.append(f"{same:,} stayed the same")
    return ", ".join(parts)


def _row(name: str, change: Change) -> Row:
    before = change.before.time_ns if change.before else None
    after = change.after.time_ns if change.after else None
    return Row(
        name,
        ABSENT if before is None else _time(before),
        ABSENT if after is None else _time(after),
        _signed(change.worth_ns),
        figures.change(before, after),
        VERDICTS[change.verdict],
        _count(change.before, change.after),
    )


def _count(before: Amount | None, after: Amount | None) -> str:
    counts = [None if each is None else each.count for each in (before, after)]
    if counts == [None, None]:
        return ""
    words = [ABSENT if count is None else f"{count:,.4g}" for count in counts]
    return words[0] if words[0] == words[1] else " → ".join(words)


def _whole(side: Side, comparison: Comparison) -> float | None:
    """Return the time of a step, or of all: where the host runs ahead, the device's counts."""
    if not comparison.per_step or side.step_mean_ns is None:
        return side.time_ns
    return max(side.step_mean_ns, side.time_ns or 0.0)


def _steps(side: Side) -> str:
    return figures.NOT_MEASURED if side.steps is None else f"{side.steps:,}"


def _time(nanoseconds: float | None) -> str:
    return figures.milliseconds(None if nanoseconds is None else nanoseconds / 1e6)


def _difference(before: float | None, after: float | None) -> str:
    return "" if before is None or after is None else _signed(after - before)


def _signed(nanoseconds: float) -> str:
    sign = "+" if nanoseconds > 0 else "-" if nanoseconds < 0 else ""
    return sign + figures.milliseconds(abs(nanoseconds) / 1e6)

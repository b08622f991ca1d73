"""The tables at the end of a run of pytest, as pytest-benchmark's users know them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from gpuadvisor.domain.gate import GateVerdict
from gpuadvisor.pytest_plugin.document import statistics_of
from gpuadvisor.pytest_plugin.session import Benchmark
from gpuadvisor.pytest_plugin.timing import Timing

if TYPE_CHECKING:
    from gpuadvisor.pytest_plugin.comparing import Compared

Result = tuple[Benchmark, Timing]
Row = tuple[Benchmark, Timing, dict[str, Any]]
TITLES = {"iqr": "IQR", "ops": "OPS", "stddev": "StdDev"}
FIGURES = ("min", "max", "mean", "stddev", "median", "iqr", "ops")
"""Columns that are compared with the best of a table."""
UNITS = (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9))
COLORS = {GateVerdict.FAIL: "red", GateVerdict.PASS: "green", GateVerdict.INCONCLUSIVE: "yellow"}


@dataclass(frozen=True)
class Layout:
    """What tables show, by the names of pytest-benchmark."""

    columns: Sequence[str]
    sort: str
    grouping: Sequence[str]
    """What the tests of a table have in common."""


def show_times(terminal: Any, results: Sequence[Result], layout: Layout) -> None:
    """Print one table a group, with factors relative to the best of each column."""
    by_name = layout.sort in ("name", "fullname")

    def group(row: Row) -> str:
        return _group(row[0], layout.grouping)

    def place(row: Row) -> Any:
        return getattr(row[0], layout.sort) if by_name else row[2][layout.sort]

    rows = [(benchmark, timing, statistics_of(timing)) for benchmark, timing in results]
    rows.sort(key=lambda row: (group(row), place(row)))
    for title, found in groupby(rows, key=group):
        _table(terminal, title, [*found], layout.columns)


def _group(benchmark: Benchmark, grouping: Sequence[str]) -> str:
    """Return what a benchmark's table is called; empty where it has nothing of that."""
    known = {
        "group": benchmark.group,
        "func": benchmark.name.partition("[")[0],
        "fullfunc": benchmark.fullname.partition("[")[0],
        "name": benchmark.name,
        "fullname": benchmark.fullname,
        "param": benchmark.param,
    }
    parts = []
    for part in grouping:
        _, is_param, param = part.partition(":")
        params = benchmark.params or {}
        named = f"{param}={params[param]}" if param in params else None
        parts.append(named if is_param else known[part])
    return " ".join(filter(None, parts))


def _table(terminal: Any, group: str, rows: Sequence[Row], columns: Sequence[str]) -> None:
    least_s = min(stats["median"] for _, _, stats in rows)
    unit, factor = next((each for each in UNITS if least_s * each[1] >= 1), UNITS[-1])
    several = len(rows) > 1

    def cell(name: str, stats: dict[str, Any]) -> str:
        if name not in FIGURES:
            return str(stats[name])
        best = (max if name == "ops" else min)(other[name] for _, _, other in rows)
        return _relative(stats[name], best, 1.0 if name == "ops" else factor, several)

    header = [f"Name (time in {unit})", *(TITLES.get(n, n.title()) for n in columns), "Clock"]
    lines = [
        [
            benchmark.name + ("" if timing.is_steady else " (not steady)"),
            *(cell(name, stats) for name in columns),
            "GPU" if timing.on_gpu else "CPU",
        ]
        for benchmark, timing, stats in rows
    ]
    title = f" gpu-benchmark{f' {group!r}' if group else ''}: {_count(rows)} "
    _write(terminal, title, header, lines)


def _count(rows: Sequence[Any]) -> str:
    return f"{len(rows)} test{'s' if len(rows) > 1 else ''}"


def _relative(value: float, best: float, factor: float, several: bool) -> str:
    text = f"{value * factor:,.4f}"
    if not several:
        return text
    scale = "1.0" if value == best else f"{value / best:.2f}" if best else "inf"
    return f"{text} ({scale})"


def show_comparison(terminal: Any, compared: Compared) -> None:
    """Print what was shown of each benchmark, and what could not be compared."""
    lines, verdicts = [], []
    for test, (difference, count) in compared.differences.items():
        percent = [f"{100 * (value - 1):+.1f} %" for value in (difference.low, difference.high)]
        change = f"{100 * (difference.ratio - 1):+.1f} %"
        lines.append([test, change, " to ".join(percent), str(count), str(difference.verdict)])
        verdicts.append(difference.verdict)
    if lines:
        title = f" gpu-benchmark: compared with {compared.base} "
        counted = "Days" if compared.stored else "Pairs"
        header = ["Test", "Time", "Interval", counted, "Verdict"]
        _write(terminal, title, header, lines, [COLORS[verdict] for verdict in verdicts])
    for test, why in compared.notes.items():
        terminal.write_line(f"gpu-benchmark: {test} was not compared: {why}", yellow=True)
    for why in compared.undecided.values():
        terminal.write_line(f"gpu-benchmark: inconclusive: {why}", yellow=True)
    if GateVerdict.INCONCLUSIVE in verdicts:
        what = "days" if compared.stored else "runs"
        terminal.write_line(
            f"gpu-benchmark: inconclusive: {what} differ too much to tell; no test fails by that"
        )


def _write(
    terminal: Any,
    title: str,
    header: Sequence[str],
    lines: Sequence[Sequence[str]],
    colors: Sequence[str] = (),
) -> None:
    """Print a table; the first column is to the left, the others are to the right."""
    widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]

    def line(cells: Sequence[str]) -> str:
        rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
        return "  ".join((cells[0].ljust(widths[0]), *rest))

    wide = len(line(header))
    terminal.write_line("")
    terminal.write_line(title.center(wide, "-"), yellow=True)
    terminal.write_line(line(header))
    terminal.write_line("-" * wide, yellow=True)
    for number, cells in enumerate(lines):
        terminal.write_line(line(cells), **({colors[number]: True} if colors else {}))
    terminal.write_line("-" * wide, yellow=True)

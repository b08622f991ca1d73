"""The tables at the end of a run of pytest, as pytest-benchmark's users know them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from gpuadvisor.domain.gate import GateVerdict
from gpuadvisor.pytest_plugin.document import statistics_of
from gpuadvisor.pytest_plugin.session import Benchmark
from gpuadvisor.pytest_plugin.timing import Timing

if TYPE_CHECKING:
    from gpuadvisor.pytest_plugin.comparing import Compared

UNITS = (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9))
COLORS = {GateVerdict.FAIL: "red", GateVerdict.PASS: "green", GateVerdict.INCONCLUSIVE: "yellow"}


def show_times(terminal: Any, results: Sequence[tuple[Benchmark, Timing]]) -> None:
    """Print one table a group, the fastest first, with factors relative to it."""
    of_group = sorted(results, key=lambda result: result[0].group or "")
    for group, found in groupby(of_group, key=lambda result: result[0].group):
        rows = sorted(
            ((benchmark, timing, statistics_of(timing)) for benchmark, timing in found),
            key=lambda row: row[2]["median"],
        )
        _table(terminal, group, rows)


def _table(
    terminal: Any, group: str | None, rows: Sequence[tuple[Benchmark, Timing, dict[str, Any]]]
) -> None:
    unit, factor = next((each for each in UNITS if rows[0][2]["median"] * each[1] >= 1), UNITS[-1])
    columns = ("min", "median", "iqr")
    best = {name: min(stats[name] for _, _, stats in rows) for name in columns}
    header = [f"Name (time in {unit})", "Min", "Median", "IQR", "Rounds", "Calls", "Clock"]
    lines = [
        [
            benchmark.name + ("" if timing.is_steady else " (not steady)"),
            *(_relative(stats[name], best[name], factor, len(rows) > 1) for name in columns),
            str(stats["rounds"]),
            str(stats["iterations"]),
            "GPU" if timing.on_gpu else "CPU",
        ]
        for benchmark, timing, stats in rows
    ]
    title = f" gpu-benchmark{'' if group is None else f' {group!r}'}: {_count(rows)} "
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
    """Print what the pairs showed of each benchmark, and what could not be compared."""
    lines, verdicts = [], []
    for test, (difference, pairs) in compared.differences.items():
        percent = [f"{100 * (value - 1):+.1f} %" for value in (difference.low, difference.high)]
        change = f"{100 * (difference.ratio - 1):+.1f} %"
        lines.append([test, change, " to ".join(percent), str(pairs), str(difference.verdict)])
        verdicts.append(difference.verdict)
    if lines:
        title = f" gpu-benchmark: compared with {compared.base} "
        header = ["Test", "Time", "Interval", "Pairs", "Verdict"]
        _write(terminal, title, header, lines, [COLORS[verdict] for verdict in verdicts])
    for test, why in compared.notes.items():
        terminal.write_line(f"gpu-benchmark: {test} was not compared: {why}", yellow=True)
    if GateVerdict.INCONCLUSIVE in verdicts:
        terminal.write_line(
            "gpu-benchmark: inconclusive: runs differ too much to tell, after so many pairs; "
            "no test fails by that"
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

"""The columns of the table: what each shows of a GPU, and which of them fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuadvisor.domain.accumulators import Reading
from gpuadvisor.domain.metrics import BY_NAME
from gpuadvisor.domain.telemetry import Gpu, State
from gpuadvisor.tui.watch import cells, history
from gpuadvisor.tui.watch.cells import Style, style_of
from gpuadvisor.tui.watch.state import WatchState

GAP = 1
"""Blank characters between two columns."""


@dataclass(frozen=True)
class Cell:
    """What stands in the table: the first text that fits, and how it looks."""

    texts: tuple[str, ...]
    style: Style = Style.PLAIN


Show = Callable[[WatchState, Gpu, int], Cell]
"""Makes the cell of a GPU, given the width that the column has."""


@dataclass(frozen=True)
class Column:
    """One column; `rank` 0 is left out last."""

    titles: tuple[str, ...]
    rank: int
    width: int
    """Characters that it needs at least."""
    show: Show
    most: int = 0
    """Characters up to which it takes what room there is; 0 where it stays as it is."""
    needs: tuple[str, ...] = ()
    """Shown only where a GPU has one of these metrics."""
    is_number: bool = True


@dataclass(frozen=True)
class Placed:
    """A column with the width that it has."""

    column: Column
    width: int

    def title(self, state: WatchState) -> str:
        titles = self.column.titles or _sparkline_titles(state, self.width)
        return self._padded(cells.fit(titles, self.width))

    def cell(self, state: WatchState, gpu: Gpu) -> tuple[str, Style]:
        """Return its text, exactly as wide as the column, and its style."""
        shown = self.column.show(state, gpu, self.width)
        return self._padded(cells.fit(shown.texts, self.width)), shown.style

    def _padded(self, text: str) -> str:
        return text.rjust(self.width) if self.column.is_number else text.ljust(self.width)


def chosen(state: WatchState, width: int, *, with_sparkline: bool = True) -> list[Placed]:
    """Return the columns that fit in `width` characters; at least one, whatever the width."""
    there = [
        column
        for column in COLUMNS
        if (with_sparkline or column is not SPARKLINE)
        and (not column.needs or any(state.is_known(name) for name in column.needs))
    ]
    kept: list[Column] = []
    left = width + GAP
    for column in sorted(there, key=lambda column: column.rank):
        if not kept or column.width + GAP <= left:
            kept.append(column)
            left -= column.width + GAP
    return _grown(state, [column for column in there if column in kept], left)


def _grown(state: WatchState, kept: Sequence[Column], left: int) -> list[Placed]:
    """Give what is left to the columns that can use it, from left to right."""
    placed = []
    for column in kept:
        most = _longest(column, state) if column in (NUMBER, NAME) else column.most
        more = min(max(most - column.width, 0), max(left, 0))
        left -= more
        placed.append(Placed(column, column.width + more))
    return placed


def _longest(column: Column, state: WatchState) -> int:
    texts = [column.show(state, gpu, column.most).texts[0] for gpu in state.gpus]
    return min(max(map(len, texts), default=0), column.most)


def _name(state: WatchState, gpu: Gpu, width: int) -> Cell:
    """Show the model; what is left out first is what models share: `MIG`, and the memory."""
    name = cells.name(gpu)
    if gpu.is_instance:
        return Cell((name, name.removeprefix("MIG ")))
    words = name.split()
    return Cell(tuple(" ".join(words[:count]) for count in range(len(words), 0, -1)) or ("?",))


def _value(metric: str, suffix: str = "", limit: str = "") -> Show:
    """Show a metric, with what it is limited to as `71.0/80`; a limit that is not known as `?`."""

    def show(state: WatchState, gpu: Gpu, width: int) -> Cell:
        reading = state.reading(gpu.uuid, metric)
        value = _known(reading, metric)
        if value is None:
            return Cell(cells.placeholders(reading, state.now_s), style_of(reading))
        if not limit:
            return Cell((f"{value}{suffix}", value))
        most = _known(state.reading(gpu.uuid, limit), limit)
        rounded = "?" if most is None else f"{float(most):.0f}"
        return Cell((f"{value}/{rounded}", value))

    return show


def _share(title: str, rank: int, metric: str) -> Column:
    """Return the column of percents that not every GPU counts."""
    return Column((title,), rank, max(len(title), 5), _value(metric, "%"), needs=(metric,))


def _rates(title: str, rank: int, first: str, second: str) -> Column:
    """Return the column of two rates as `1.2G/340M`; one that is not known beside one as `?`."""

    def show(state: WatchState, gpu: Gpu, width: int) -> Cell:
        reading = state.reading(gpu.uuid, first)
        known = [_known(state.reading(gpu.uuid, name), name) for name in (first, second)]
        if known == [None, None]:
            return Cell(cells.placeholders(reading, state.now_s), style_of(reading))
        return Cell(("/".join(text or "?" for text in known),))

    return Column((title,), rank, len(title), show, needs=(first, second))


def _known(reading: Reading | None, metric: str) -> str | None:
    if reading is None or not reading.is_ok or reading.value is None:
        return None
    return cells.short(BY_NAME[metric], reading.value)


def _state(state: WatchState, gpu: Gpu, width: int) -> Cell:
    """Show whether the GPU is read at all, then what holds its clocks down."""
    reading = state.reading(gpu.uuid, "throttle_reasons")
    if reading is None or reading.state is State.NOT_SUPPORTED:
        reading = state.reading(gpu.uuid, "memory_used_bytes") or reading
        if reading is not None and reading.is_ok:
            return Cell(("answers",), Style.GOOD)
    elif reading.is_ok:
        words = cells.reasons(int(reading.value or 0))
        if not words:
            return Cell(("ok",), Style.GOOD)
        more = f"{words[0]} +{len(words) - 1}" if len(words) > 1 else words[0]
        return Cell((", ".join(words), more, words[0]), Style.WARNING)
    return Cell(cells.placeholders(reading, state.now_s), style_of(reading))


def _sparkline(state: WatchState, gpu: Gpu, width: int) -> Cell:
    metric = state.sparkline.metric
    step_s = history.step_s(width)
    means = state.history.means(gpu.uuid, metric, state.now_s, step_s, width)
    if all(mean is None for mean in means):
        reading = state.reading(gpu.uuid, metric)
        if reading is None or not reading.is_ok:
            return Cell(cells.placeholders(reading, state.now_s), style_of(reading))
    top = history.top_of(state.sparkline, gpu.uuid, state.latest)
    return Cell((history.blocks(means, top),), Style.SPARKLINE)


def _sparkline_titles(state: WatchState, width: int) -> tuple[str, ...]:
    title = state.sparkline.title
    span = cells.age(history.step_s(width) * width)
    return (f"{title}, last {span}", f"{title} {span}", title)


NUMBER = Column(("GPU",), 0, 3, lambda state, gpu, _: Cell((state.labels[gpu.uuid],)), most=7)
NAME = Column(("name",), 8, 8, _name, most=24, is_number=False)
STATE = Column(("state",), 3, 10, _state, most=22, is_number=False)
SPARKLINE = Column((), 4, 12, _sparkline, most=120, is_number=False)

COLUMNS = (
    NUMBER,
    NAME,
    Column(("util",), 1, 5, _value("gpu_utilization_pct", "%")),
    _share("SM", 9, "sm_active_pct"),
    _share("occup", 11, "sm_occupancy_pct"),
    _share("tensor", 10, "tensor_active_pct"),
    _share("DRAM", 12, "dram_active_pct"),
    Column(("mem GiB",), 2, 9, _value("memory_used_bytes", limit="memory_total_bytes")),
    Column(("power W",), 5, 9, _value("power_w", limit="power_limit_w")),
    Column(("°C",), 6, 4, _value("temperature_c")),
    Column(("MHz",), 7, 5, _value("sm_clock_mhz")),
    _rates("NVLink in/out", 13, "nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s"),
    _rates("PCIe in/out", 14, "pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s"),
    STATE,
    SPARKLINE,
)
"""All columns, from left to right."""

"""The columns of the table: what each shows of a GPU, and which of them fit."""

from __future__ import annotations

from collections.abc import Callable

from gpuadvisor.domain.accumulators import Reading
from gpuadvisor.domain.metrics import BY_NAME
from gpuadvisor.domain.telemetry import Gpu
from gpuadvisor.tui.watch import cells, history, table
from gpuadvisor.tui.watch.cells import Style, style_of
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.table import Cell, Column, Placed

Show = Callable[[WatchState, Gpu, int], Cell]


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


def _share(title: str, rank: int, metric: str) -> Column[Gpu]:
    """Return the column of percents that not every GPU counts."""
    return Column((title,), rank, max(len(title), 5), _value(metric, "%"), needs=(metric,))


def _rates(title: str, rank: int, first: str, second: str) -> Column[Gpu]:
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
    """Show why the GPU is slow, at the length that fits."""
    said = state.why(gpu)
    return Cell(said.texts, said.style)


def _load(metric: str, limit: str = "") -> Show:
    """Show a load as a bar: of percents, or of what a GPU is limited to."""

    def show(state: WatchState, gpu: Gpu, width: int) -> Cell:
        reading = state.reading(gpu.uuid, metric)
        if reading is None or not reading.is_ok or reading.value is None:
            return Cell(("",))
        share = float(reading.value)
        if limit:
            most = state.reading(gpu.uuid, limit)
            if most is None or not most.is_ok or not most.value:
                return Cell(("",))
            share *= 100 / float(most.value)
        return Cell((cells.bar(share, width),), cells.load_style(share))

    return show


def _sparkline(state: WatchState, gpu: Gpu, width: int) -> Cell:
    metric = state.sparkline.metric
    step_s = history.step_s(width)
    means = state.history.means(gpu.uuid, metric, state.now_s, step_s, width)
    if all(mean is None for mean in means):
        reading = state.reading(gpu.uuid, metric)
        if reading is None or not reading.is_ok:
            return Cell(cells.placeholders(reading, state.now_s), style_of(reading))
    top = history.top_of(state.sparkline, gpu.uuid, state.latest)
    return Cell((history.blocks(means, top),), Style.ACCENT)


def _sparkline_titles(state: WatchState, width: int) -> tuple[str, ...]:
    title = state.sparkline.title
    span = cells.age(history.step_s(width) * width)
    return (f"{title}, last {span}", f"{title} {span}", title)


NUMBER: Column[Gpu] = Column(
    ("GPU",), 0, 3, lambda state, gpu, _: Cell((state.labels[gpu.uuid],)), most=7, by_content=True
)
NAME: Column[Gpu] = Column(("name",), 9, 8, _name, most=24, is_number=False, by_content=True)
STATE: Column[Gpu] = Column(("why",), 3, 22, _state, most=110, is_number=False, by_content=True)
SPARKLINE: Column[Gpu] = Column(
    (), 5, 12, _sparkline, most=60, is_number=False, title=_sparkline_titles
)

COLUMNS: tuple[Column[Gpu], ...] = (
    NUMBER,
    NAME,
    Column(("util",), 1, 5, _value("gpu_utilization_pct", "%")),
    Column(("",), 4, 8, _load("gpu_utilization_pct"), most=16, is_number=False),
    Column(("mem GiB",), 2, 9, _value("memory_used_bytes", limit="memory_total_bytes")),
    Column(("",), 8, 6, _load("memory_used_bytes", "memory_total_bytes"), most=12, is_number=False),
    _share("SM", 12, "sm_active_pct"),
    _share("occup", 14, "sm_occupancy_pct"),
    _share("tensor", 13, "tensor_active_pct"),
    _share("DRAM", 15, "dram_active_pct"),
    Column(("power W",), 6, 9, _value("power_w", limit="power_limit_w")),
    Column(("°C",), 7, 4, _value("temperature_c")),
    Column(("MHz",), 10, 5, _value("sm_clock_mhz")),
    _rates("NVLink in/out", 16, "nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s"),
    _rates("PCIe in/out", 17, "pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s"),
    SPARKLINE,
    STATE,
)
"""All columns, from left to right."""


def chosen(state: WatchState, width: int, *, with_sparkline: bool = True) -> list[Placed[Gpu]]:
    """Return the columns that fit in `width` characters; at least one, whatever the width."""
    kept = [each for each in COLUMNS if with_sparkline or each is not SPARKLINE]
    return table.chosen(kept, state.gpus, state, width)

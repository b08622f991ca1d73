"""The first page: the host, the GPUs, why they are slow, who uses them, and what happened."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gpuadvisor.domain.accumulators import Reading
from gpuadvisor.domain.metrics import GPU_METRICS, Metric
from gpuadvisor.domain.telemetry import Gpu, GpuProcess, State
from gpuadvisor.tui.watch import cells, overview, table
from gpuadvisor.tui.watch.cells import Line, Span, Style, style_of
from gpuadvisor.tui.watch.curing import CURES, Curing
from gpuadvisor.tui.watch.lines import Lines
from gpuadvisor.tui.watch.state import WatchState


class Overview(Curing):
    """All GPUs at a glance."""

    KEY = "1"
    NAME = "GPUs"
    ABOUT = "Each GPU at a glance, why it is slow and what that costs, who uses it, what happened."
    DEFAULT_CSS = "#overview { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "up",
            "move(0, -1)",
            "choose a GPU",
            key_display="arrows",
            tooltip="choose the GPU whose processes and reasons come first",
        ),
        Binding("down", "move(0, 1)", show=False),
        Binding("left", "move(-1, 0)", show=False),
        Binding("right", "move(1, 0)", show=False),
        Binding("home", "move(0, -1000)", show=False),
        Binding("end", "move(0, 1000)", show=False),
        Binding(
            "enter",
            "details",
            "values",
            key_display="Enter",
            tooltip="show or hide all values of the chosen GPU, and why some are missing",
        ),
        Binding("m", "sparkline", "metric", tooltip="draw the next metric over time"),
        *CURES,
    ]

    def __init__(self) -> None:
        super().__init__()
        self._has_details = False
        self._shown = overview.Shown()

    def compose_page(self) -> ComposeResult:
        yield Lines("overview")

    def draw(self) -> None:
        lines = self.query_one("#overview", Lines)
        size = lines.size
        if not size.width or not size.height:
            return
        state, gpu = self.watched.state, self.watched.chosen
        below = self._details if self._has_details else None
        self._shown = overview.shown(state, size.width, size.height, gpu, below)
        lines.show(self._shown.lines, self._shown.cursor)

    def action_move(self, across: int, down: int) -> None:
        """Choose another GPU, beside or below the chosen one."""
        gpus, chosen = self.watched.state.gpus, self.watched.chosen
        if chosen is not None:
            place = gpus.index(chosen) + across + down * self._shown.columns
            if across and self._shown.columns == 1:
                return
            self.watched.gpu = gpus[min(max(place, 0), len(gpus) - 1)].uuid
            self.draw()

    def action_details(self) -> None:
        self._has_details = not self._has_details
        self.draw()

    def action_sparkline(self) -> None:
        self.watched.state.next_sparkline()
        self.draw()

    def on_click(self, event: events.Click) -> None:
        """Choose the GPU that was clicked on."""
        gpus = self._shown.gpus.get(event.screen_y - self.query_one("#overview").region.y, [])
        width = self._shown.cell_width
        place = event.screen_x // (width + table.GAP) if width else 0
        if place < len(gpus):
            self.watched.gpu = gpus[place]
            self.draw()

    def to_cure(self) -> GpuProcess | str:
        gpu, state = self.watched.chosen, self.watched.state
        if gpu is None:
            return "no GPU is known so far"
        label = state.labels[gpu.uuid]
        found = [
            each
            for each in state.latest.processes or ()
            if each.gpu == gpu.uuid and each.kind != "graphics"
        ]
        if len(found) == 1:
            return found[0]
        if found:
            return f"GPU {label} has {len(found)} processes: choose one of them on page 2"
        return f"no process is listed on GPU {label}: choose another GPU with the arrows"

    def _details(self, width: int, height: int) -> list[Line]:
        gpu = self.watched.chosen
        assert gpu is not None  # else nothing stands above
        title = f"all of GPU {self.watched.state.labels[gpu.uuid]}"
        found: list[Line] = [table.rule(title, width)]
        return [*found, *details(self.watched.state, gpu, width)]


PAGE = Overview


# -- one GPU in full -------------------------------------------------------------------------------

ENTRY_WIDTH = 40
"""Characters of a metric and its value: the longest name has 25."""
NAME_WIDTH = 26
GAP = 2


def details(state: WatchState, gpu: Gpu, width: int) -> Iterator[list[Span]]:
    """Yield the lines, each as texts that follow one another."""
    yield [(cells.fit(_identities(state, gpu), width), Style.PLAIN)]
    readings = [(metric, state.reading(gpu.uuid, metric.name)) for metric in GPU_METRICS]
    yield from _why(state, readings, width)
    shown = [(m, r) for m, r in readings if r is not None and r.state not in cells.PLACEHOLDERS]
    yield from _grid(state, shown, width)


def _identities(state: WatchState, gpu: Gpu) -> list[str]:
    """Return what the GPU is called, the fullest first."""
    capability = gpu.compute_capability
    parts = [f"GPU {state.labels[gpu.uuid]}", gpu.name, gpu.uuid]
    more = [gpu.pci_bus_id or "", f"compute {capability[0]}.{capability[1]}" if capability else ""]
    return ["  ".join(filter(None, some)) for some in (parts + more, parts, parts[:2])]


def _why(
    state: WatchState, readings: list[tuple[Metric, Reading | None]], width: int
) -> Iterator[list[Span]]:
    """Yield a line for each reason why metrics have no value, with how many or which."""
    groups: dict[tuple[State, str], list[tuple[Metric, Reading]]] = {}
    for metric, reading in readings:
        if reading is not None and not reading.is_ok:
            groups.setdefault((reading.state, reading.reason), []).append((metric, reading))
    for (_, reason), group in groups.items():
        first = group[0][1]
        sign = cells.placeholders(first, state.now_s)[0]
        names = ", ".join(cells.words(metric) for metric, _ in group)
        said = f"{sign}: {reason}" if reason else sign
        texts = (f"{said} ({names})", f"{said} ({len(group)} metrics)", said)
        yield [(cells.fit(texts, width), style_of(first))]


def _grid(
    state: WatchState, shown: list[tuple[Metric, Reading]], width: int
) -> Iterator[list[Span]]:
    """Yield the metrics in as many columns as fit, from top to bottom."""
    count = max((width + GAP) // (ENTRY_WIDTH + GAP), 1)
    each = max((width + GAP) // count - GAP, 1)
    height = -(-len(shown) // count)
    columns = [shown[place : place + height] for place in range(0, len(shown), max(height, 1))]
    for row in zip_longest(*columns):
        line: list[Span] = []
        for metric, reading in filter(None, row):
            line += (*_entry(state, metric, reading, each), (" " * GAP, Style.PLAIN))
        yield line[:-1]


def _entry(state: WatchState, metric: Metric, reading: Reading, width: int) -> tuple[Span, Span]:
    name_width = min(NAME_WIDTH, width * 2 // 3)
    room = width - name_width
    value = "" if reading.value is None else cells.full(metric, reading.value)
    texts: tuple[str, ...] = (value,)
    if not reading.is_ok:
        placeholders = cells.placeholders(reading, state.now_s)
        texts = (f"{placeholders[0]}, was {value}", *placeholders) if value else placeholders
    name = cells.fit([cells.words(metric)], name_width - 1).ljust(name_width)
    return (name, Style.QUIET), (cells.fit(texts, room).ljust(room), style_of(reading))

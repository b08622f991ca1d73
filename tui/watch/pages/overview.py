"""The first page: the host, the GPUs, why they are slow, who uses them, and what happened."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gpuadvisor.domain.telemetry import GpuProcess
from gpuadvisor.tui.watch import details, overview, table
from gpuadvisor.tui.watch.cells import Line
from gpuadvisor.tui.watch.curing import CURES, Curing
from gpuadvisor.tui.watch.lines import Lines


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
            "all of it",
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
        return [*found, *details.lines(self.watched.state, gpu, width)]


PAGE = Overview

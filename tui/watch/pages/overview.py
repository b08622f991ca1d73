"""The first page: a line a GPU, all of one GPU, and the newest events."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Static

from gpuadvisor.tui.watch import columns, details
from gpuadvisor.tui.watch.cells import SEVERITY_STYLES, Style
from gpuadvisor.tui.watch.page import Page
from gpuadvisor.tui.watch.state import WatchState

EVENTS = 50
TALL = 36
"""Lines from which on there is room for all of a GPU below the table."""


class Overview(Page):
    """One line a GPU, and the newest events under it."""

    KEY = "1"
    NAME = "GPUs"
    ABOUT = "A line for each GPU, all of the chosen one, and what happened."
    DEFAULT_CSS = """
    #gpus { height: auto; max-height: 70%; }
    #gpus.-beside-details { max-height: 40%; }
    #gpus, #gpus > .datatable--header, #gpus > .datatable--cursor,
    #gpus:focus > .datatable--cursor, #gpus > .datatable--hover,
    #gpus > .datatable--header-hover, #gpus > .datatable--even-row,
    #gpus > .datatable--odd-row { background: ansi_default; color: ansi_default; }
    #gpus > .datatable--header { text-style: underline; }
    #gpus > .datatable--cursor { text-style: bold; }
    #gpus:focus > .datatable--cursor { text-style: reverse; }
    #details, #events { border-top: solid ansi_blue; background: ansi_default; }
    #details { height: auto; max-height: 60%; }
    #events { height: 1fr; min-height: 3; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "sparkline", "metric", tooltip="draw the next metric over time"),
        # With priority, as the table takes it otherwise.
        Binding(
            "enter",
            "details",
            "all of a GPU",
            priority=True,
            key_display="Enter",
            tooltip="show or hide all of the chosen GPU",
        ),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._wants_details: bool | None = None
        """None until somebody has said so: it is then a matter of room."""

    def compose_page(self) -> ComposeResult:
        yield GpuTable(self.watched.state)
        with VerticalScroll(id="details") as panel:
            panel.border_title = "GPU"
            yield Static(markup=False)
        with VerticalScroll(id="events") as panel:
            panel.border_title = "Events"
            yield Static(markup=False)

    def draw(self) -> None:
        table = self.query_one(GpuTable)
        table.set_class(self._shows_details, "-beside-details")
        table.redraw()
        self._draw_details(self.query_one("#details", VerticalScroll))
        self._draw_events(self.query_one("#events", VerticalScroll))

    def action_sparkline(self) -> None:
        self.watched.state.next_sparkline()
        self.draw()

    def action_details(self) -> None:
        self._wants_details = not self._shows_details
        self.draw()

    def on_data_table_row_highlighted(self) -> None:
        self.watched.gpu = self.query_one(GpuTable).selected or self.watched.gpu
        self.draw()

    @property
    def _shows_details(self) -> bool:
        return self.size.height >= TALL if self._wants_details is None else self._wants_details

    def _draw_details(self, panel: VerticalScroll) -> None:
        gpu = self.watched.chosen
        panel.display = self._shows_details and gpu is not None
        if gpu is None or not panel.display:
            return
        width = panel.scrollable_content_region.width or self.size.width
        lines = [
            Text.assemble(*((text, style.value) for text, style in line))
            for line in details.lines(self.watched.state, gpu, width)
        ]
        panel.query_one(Static).update(Text("\n").join(lines))

    def _draw_events(self, panel: VerticalScroll) -> None:
        state = self.watched.state
        width = panel.scrollable_content_region.width or self.size.width
        lines = [
            Text(line, SEVERITY_STYLES[severity].value)
            for line, severity in state.log.lines(state.labels, width, EVENTS)
        ]
        panel.query_one(Static).update(Text("\n").join(lines) if lines else "None so far.")


class GpuTable(DataTable[Text]):
    """Redraws only what has changed, so that the cursor and the scroll position stay."""

    def __init__(self, state: WatchState) -> None:
        super().__init__(id="gpus", cursor_type="row", cell_padding=0)
        self._watched = state
        self._layout: object = None
        self._shown: dict[tuple[str, str], tuple[str, Style]] = {}

    @property
    def selected(self) -> str | None:
        """The UUID of the GPU under the cursor."""
        place = self.cursor_row
        return self._watched.gpus[place].uuid if 0 <= place < len(self._watched.gpus) else None

    def redraw(self) -> None:
        state = self._watched
        placed = columns.chosen(state, self.scrollable_content_region.width)
        titles = [(column.title(state), column.width) for column in placed]
        layout = (titles, [gpu.uuid for gpu in state.gpus])
        cells = {
            (gpu.uuid, str(place)): column.cell(state, gpu)
            for gpu in state.gpus
            for place, column in enumerate(placed)
        }
        if layout != self._layout:
            self._layout = layout
            self._rebuild(titles, cells)
        else:
            for (row, column_key), cell in cells.items():
                if self._shown.get((row, column_key)) != cell:
                    self.update_cell(row, column_key, _text(cell))
        self._shown = cells

    def _rebuild(
        self, titles: list[tuple[str, int]], cells: dict[tuple[str, str], tuple[str, Style]]
    ) -> None:
        cursor = self.cursor_row
        self.clear(columns=True)
        for place, (title, width) in enumerate(titles):
            gap = columns.GAP if place < len(titles) - 1 else 0
            self.add_column(Text(title), width=width + gap, key=str(place))
        for gpu in self._watched.gpus:
            row = [_text(cells[gpu.uuid, str(place)]) for place in range(len(titles))]
            self.add_row(*row, key=gpu.uuid)
        self.move_cursor(row=cursor, animate=False)


def _text(cell: tuple[str, Style]) -> Text:
    text, style = cell
    return Text(text, style=style.value, no_wrap=True)


PAGE = Overview

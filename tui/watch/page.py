"""The page of `gpuadvisor watch`: a table of the GPUs, all of one GPU, and the newest events."""

from __future__ import annotations

import asyncio
import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Static

from gpuadvisor.daemon.sources import Source, has_answered
from gpuadvisor.domain.telemetry import Frame
from gpuadvisor.errors import AdvisorError
from gpuadvisor.tui.watch import columns, details, plain
from gpuadvisor.tui.watch.cells import SEVERITY_STYLES, Style
from gpuadvisor.tui.watch.state import WatchState

DRAW_EVERY_S = 0.25
AGES_EVERY_S = 1.0
"""Without new values the page is drawn as often, as what is stale gets older."""
TAKEN_FOR_S = 0.1
"""How long frames are taken in before keys are looked at again."""
EVENTS = 50
KEYS = "q quit   m metric   Enter all of a GPU   ? help"
TALL = 36
"""Lines from which on there is room for all of a GPU below the table."""
CLOSE_S = 5.0
"""How long the source may take to close; a sampler is killed within two seconds."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
QUEUED = 256
"""Frames that wait for the page; a recording that is read at once waits for it in turn."""
PUT_FOR_S = 0.2
"""How long the reader waits for room before it looks whether it is to stop."""

HELP = """\
q       end, always; Ctrl-C as well
m       draw the next metric over time
Enter   show or hide all of a GPU
Up, Down  choose the GPU; Tab goes to the events
?       this help; any key leaves it

…        not read yet
n/a      this GPU or driver does not have it
no perm  the driver does not allow it
stale    it had a value, but the driver
         does not answer: for how long
lost     the GPU is gone from the bus
?        beside a value: the other is unknown

A picture's blank stands for no reading; zero
is its lowest block. Rates are in bytes/s."""

CSS = """
Screen { overflow: hidden; background: ansi_default; color: ansi_default; }
#heading { height: 1; text-style: bold; }
#notice { height: auto; max-height: 3; color: ansi_yellow; text-style: bold; }
#gpus { height: auto; max-height: 70%; }
#gpus.-beside-details { max-height: 40%; }
#gpus, #gpus > .datatable--header, #gpus > .datatable--cursor, #gpus:focus > .datatable--cursor,
#gpus > .datatable--hover, #gpus > .datatable--header-hover, #gpus > .datatable--even-row,
#gpus > .datatable--odd-row { background: ansi_default; color: ansi_default; }
#gpus > .datatable--header { text-style: underline; }
#gpus > .datatable--cursor { text-style: bold; }
#gpus:focus > .datatable--cursor { text-style: reverse; }
#details, #events { border-top: solid ansi_blue; background: ansi_default; }
#details { height: auto; max-height: 60%; }
#events { height: 1fr; min-height: 3; }
#keys { dock: bottom; height: 1; text-style: dim; }
#gpus, #details, #events, Help > VerticalScroll {
    scrollbar-size-vertical: 1;
    scrollbar-color: ansi_blue; scrollbar-color-hover: ansi_blue;
    scrollbar-color-active: ansi_blue; scrollbar-background: ansi_default;
    scrollbar-background-hover: ansi_default; scrollbar-background-active: ansi_default;
}
Help { align: center middle; background: ansi_default; }
Help > VerticalScroll {
    width: 52; max-width: 100%; height: auto; max-height: 100%;
    border: solid ansi_blue; padding: 0 1;
}
"""
"""The layout, in the terminal's own colours."""


class Page(App[int]):
    """One line a GPU, and the newest events under it."""

    CSS = CSS
    ENABLE_COMMAND_PALETTE = False
    # With priority, so that they work whatever has the focus, and on the help as well.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", priority=True),
        Binding("ctrl+c", "quit", priority=True),
        Binding("enter", "details", priority=True),
        Binding("m", "sparkline"),
        Binding("question_mark", "help"),
    ]

    def __init__(self, source: Source, state: WatchState) -> None:
        super().__init__(ansi_color=True)
        self.state = state
        self.feed = Feed(source)
        self.failure: Exception | None = None
        """What is to be said once the page is gone."""
        self._wants_details: bool | None = None
        """None until somebody has said so: it is then a matter of room."""
        self._drawn_s = 0.0

    def compose(self) -> ComposeResult:
        yield Static(id="heading", markup=False)
        yield Static(id="notice", markup=False)
        yield GpuTable(self.state)
        with VerticalScroll(id="details"):
            yield Static(markup=False)
        with VerticalScroll(id="events"):
            yield Static(markup=False)
        yield Static(KEYS, id="keys", markup=False)

    def on_mount(self) -> None:
        self.query_one("#details").border_title = "GPU"
        self.query_one("#events").border_title = "Events"
        self.feed.start()
        self.set_interval(DRAW_EVERY_S, self.look)

    def on_unmount(self) -> None:
        self.feed.stop()

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def look(self) -> None:
        """Take in what has come, and draw it."""
        has_news = False
        for frame in self.feed.waiting(TAKEN_FOR_S):
            has_news = True
            self.state.update(frame)
            if not self.state.has_begun and has_answered(frame):
                self._fail(plain.nothing(frame.problem or ""))
                return
        if self.feed.is_over and not self.state.has_ended:
            has_news = True
            self.state.end()
            if self.feed.error is not None or not self.state.has_begun:
                self._fail(self.feed.error or plain.nothing("there is no frame"))
                return
        if has_news or time.monotonic() - self._drawn_s >= AGES_EVERY_S:
            self.draw()

    def draw(self) -> None:
        self._drawn_s = time.monotonic()
        width = self.size.width
        page = self.screen_stack[0]  # the help may lie over it
        notice = page.query_one("#notice", Static)
        notice.update(self.state.notice)
        notice.display = bool(self.state.notice)
        page.query_one("#heading", Static).update(self.state.heading(width))
        table = page.query_one(GpuTable)
        table.set_class(self._shows_details, "-beside-details")
        table.redraw()
        self._draw_details(page.query_one("#details", VerticalScroll), table.selected)
        self._draw_events(page.query_one("#events", VerticalScroll))

    def action_sparkline(self) -> None:
        self.state.next_sparkline()
        self.draw()

    def action_details(self) -> None:
        if len(self.screen_stack) > 1:
            self.pop_screen()
            return
        self._wants_details = not self._shows_details
        self.draw()

    def action_help(self) -> None:
        self.push_screen(Help())

    def on_data_table_row_highlighted(self) -> None:
        self.draw()

    def stop(self, number: int) -> None:
        """End because of a signal."""
        self.exit(return_code=128 + number)

    @property
    def _shows_details(self) -> bool:
        return self.size.height >= TALL if self._wants_details is None else self._wants_details

    def _draw_details(self, panel: VerticalScroll, uuid: str | None) -> None:
        gpu = next((gpu for gpu in self.state.gpus if gpu.uuid == uuid), None)
        panel.display = self._shows_details and gpu is not None
        if gpu is None or not panel.display:
            return
        width = panel.scrollable_content_region.width or self.size.width
        lines = [
            Text.assemble(*((text, style.value) for text, style in line))
            for line in details.lines(self.state, gpu, width)
        ]
        panel.query_one(Static).update(Text("\n").join(lines))

    def _draw_events(self, panel: VerticalScroll) -> None:
        width = panel.scrollable_content_region.width or self.size.width
        lines = [
            Text(line, SEVERITY_STYLES[severity].value)
            for line, severity in self.state.log.lines(self.state.labels, width, EVENTS)
        ]
        panel.query_one(Static).update(Text("\n").join(lines) if lines else "None so far.")

    def _fatal_error(self) -> None:
        """End with a sentence, as everything here does; Textual's own prints a traceback."""
        self.failure = self.failure or self._exception
        self.panic()

    def _fail(self, error: Exception) -> None:
        self.failure = error
        self.exit(return_code=getattr(error, "exit_code", AdvisorError.exit_code))


def show(source: Source, state: WatchState) -> int:
    """Show the page until somebody ends it; return the exit status."""
    page = Page(source, state)

    async def run() -> None:
        for number in ENDING:
            asyncio.get_running_loop().add_signal_handler(number, page.stop, number)
        await page.run_async()

    try:
        asyncio.run(run())
    finally:
        page.feed.stop()
        page.feed.wait(CLOSE_S)
    if page.failure is not None:
        raise page.failure
    return page.return_code or 0


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


class Help(ModalScreen[None]):
    """Covers the page until a key is pressed."""

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            yield Static(HELP, markup=False)

    def on_key(self) -> None:
        self.dismiss()

    def on_click(self) -> None:
        self.dismiss()


class Feed:
    """A thread that reads the source. None of its threads keeps the program from ending."""

    def __init__(self, source: Source) -> None:
        self.error: Exception | None = None
        """What ended the frames, where it was not their end."""
        self._source = source
        self._frames: queue.Queue[Frame] = queue.Queue(QUEUED)
        self._stopped = threading.Event()
        self._reader = threading.Thread(target=self._read, name="frames", daemon=True)
        self._closer = threading.Thread(target=source.close, name="close", daemon=True)

    def start(self) -> None:
        self._reader.start()

    def waiting(self, for_s: float) -> Iterator[Frame]:
        """Yield the frames that have come, for at most that time."""
        until = time.monotonic() + for_s
        while time.monotonic() < until:
            try:
                yield self._frames.get_nowait()
            except queue.Empty:
                return

    @property
    def is_over(self) -> bool:
        """Whether all frames were taken, and none will come."""
        has_begun = self._reader.ident is not None
        return has_begun and not self._reader.is_alive() and self._frames.empty()

    def stop(self) -> None:
        """Ask the source to close; it may take its time, or never do it."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._closer.start()

    def wait(self, timeout_s: float) -> None:
        """Wait until the source has closed, but no longer."""
        self._closer.join(timeout_s)

    def _read(self) -> None:
        try:
            for frame in self._source.frames():
                is_waiting = True
                while is_waiting:
                    if self._stopped.is_set():
                        return
                    with suppress(queue.Full):
                        self._frames.put(frame, timeout=PUT_FOR_S)
                        is_waiting = False
        except Exception as error:
            self.error = error

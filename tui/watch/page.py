"""The page of `gpuadvisor watch`."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from gpuadvisor.daemon.sources import Source, has_answered
from gpuadvisor.errors import AdvisorError
from gpuadvisor.tui.watch import details, plain, style
from gpuadvisor.tui.watch.board import Board
from gpuadvisor.tui.watch.feed import Feed
from gpuadvisor.tui.watch.help import Help
from gpuadvisor.tui.watch.table import GpuTable
from gpuadvisor.tui.watch.tones import SEVERITIES, STYLES

DRAW_EVERY_S = 0.25
AGES_EVERY_S = 1.0
"""Without new values the page is drawn as often, as what is stale gets older."""
TAKEN_FOR_S = 0.1
"""How long frames are taken in before keys are looked at again."""
EVENTS = 50
KEYS = "q quit   m metric   Enter all of a GPU   ? help"
TALL = 36
"""From so many lines on there is room for all of a GPU below the table."""
CLOSE_S = 5.0
"""How long the source may take to close; a sampler is killed within two seconds."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Page(App[int]):
    """One line a GPU, and the newest events under it."""

    CSS = style.CSS
    ENABLE_COMMAND_PALETTE = False
    # With priority, so that they work whatever has the focus, and on the help as well.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", priority=True),
        Binding("ctrl+c", "quit", priority=True),
        Binding("enter", "details", priority=True),
        Binding("m", "picture"),
        Binding("question_mark", "help"),
    ]

    def __init__(self, source: Source, board: Board) -> None:
        super().__init__(ansi_color=True)
        self.board = board
        self.feed = Feed(source)
        self.failure: Exception | None = None
        """What is to be said once the page is gone."""
        self._wants_details: bool | None = None
        """None until somebody has said so: it is then a matter of room."""
        self._drawn_s = 0.0

    def compose(self) -> ComposeResult:
        yield Static(id="heading", markup=False)
        yield Static(id="notice", markup=False)
        yield GpuTable(self.board)
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
            self.board.update(frame)
            if not self.board.has_begun and has_answered(frame):
                self._fail(plain.nothing(frame.problem or ""))
                return
        if self.feed.is_over and not self.board.has_ended:
            has_news = True
            self.board.end()
            if self.feed.error is not None or not self.board.has_begun:
                self._fail(self.feed.error or plain.nothing("there is no frame"))
                return
        if has_news or time.monotonic() - self._drawn_s >= AGES_EVERY_S:
            self.draw()

    def draw(self) -> None:
        self._drawn_s = time.monotonic()
        width = self.size.width
        page = self.screen_stack[0]  # the help may lie over it
        notice = page.query_one("#notice", Static)
        notice.update(self.board.notice)
        notice.display = bool(self.board.notice)
        page.query_one("#heading", Static).update(self.board.heading(width))
        table = page.query_one(GpuTable)
        table.set_class(self._shows_details, "-beside-details")
        table.redraw()
        self._draw_details(page.query_one("#details", VerticalScroll), table.selected)
        self._draw_events(page.query_one("#events", VerticalScroll))

    def action_picture(self) -> None:
        self.board.picture_next()
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
        gpu = next((gpu for gpu in self.board.gpus if gpu.uuid == uuid), None)
        panel.display = self._shows_details and gpu is not None
        if gpu is None or not panel.display:
            return
        width = panel.scrollable_content_region.width or self.size.width
        lines = [
            Text.assemble(*((text, STYLES[tone]) for text, tone in line))
            for line in details.lines(self.board, gpu, width)
        ]
        panel.query_one(Static).update(Text("\n").join(lines))

    def _draw_events(self, panel: VerticalScroll) -> None:
        width = panel.scrollable_content_region.width or self.size.width
        lines = [
            Text(line.text, STYLES[SEVERITIES[line.severity]])
            for line in self.board.log.lines(self.board.labels, width, EVENTS)
        ]
        panel.query_one(Static).update(Text("\n").join(lines) if lines else "None so far.")

    def _fatal_error(self) -> None:
        """End with a sentence, as everything here does; Textual's own prints a traceback."""
        self.failure = self.failure or self._exception
        self.panic()

    def _fail(self, error: Exception) -> None:
        self.failure = error
        self.exit(return_code=getattr(error, "exit_code", AdvisorError.exit_code))


def show(source: Source, board: Board) -> int:
    """Show the page until somebody ends it; return the exit status."""
    page = Page(source, board)
    try:
        asyncio.run(_run(page))
    finally:
        page.feed.stop()
        page.feed.wait(CLOSE_S)
    if page.failure is not None:
        raise page.failure
    return page.return_code or 0


async def _run(page: Page) -> None:
    loop = asyncio.get_running_loop()
    for number in ENDING:
        loop.add_signal_handler(number, page.stop, number)
    await page.run_async()

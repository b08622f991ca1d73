"""The program behind `gpuadvisor watch`: it takes in frames, and shows one page at a time."""

from __future__ import annotations

import asyncio
import gc
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from string import digits
from typing import Any, ClassVar

from textual import events
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input

from gpuadvisor.daemon.sources import has_answered
from gpuadvisor.errors import AdvisorError
from gpuadvisor.tui.watch import plain
from gpuadvisor.tui.watch.feed import Feed
from gpuadvisor.tui.watch.first_page import ENDING, FirstPage
from gpuadvisor.tui.watch.help import bindings_of
from gpuadvisor.tui.watch.lines import Lines
from gpuadvisor.tui.watch.page import Page
from gpuadvisor.tui.watch.pages.overview import Overview
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.terminal import Terminal, is_there
from gpuadvisor.tui.watch.themes import LOOKS, TERMINAL
from gpuadvisor.tui.watch.watched import Watched

AGES_EVERY_S = 1.0
"""Without new values the page is drawn as often, as what is stale gets older."""
TAKEN_FOR_S = 0.1
"""How long frames are taken in before keys are looked at again."""
CLOSE_S = 5.0
"""How long the source may take to close; a sampler is killed within two seconds."""
SAID_FOR_S, LETTERS_A_S = 6.0, 15.0
"""How long what a key did is told: a short sentence, and how fast a long one is read."""
SEVERAL_S = 0.25
"""With several machines, whose frames come at any time, the page is drawn no more often. [own]"""
LATE_S = 1.25
"""Ages are drawn only where no values came for so long: values come each second, and are drawn with
all ages. [own]"""

CSS = """
Screen { overflow: hidden; background: $background; color: $foreground; }
#head { height: 1; text-style: bold; }
#notice { height: auto; }
#unavailable { height: 1fr; padding: 1 2; }
#keys { dock: bottom; height: 1; }
Lines, VerticalScroll, DataTable {
    background: $background; color: $foreground;
    scrollbar-size-vertical: 1;
    scrollbar-color: $primary; scrollbar-color-hover: $primary;
    scrollbar-color-active: $primary; scrollbar-background: $background;
    scrollbar-background-hover: $background; scrollbar-background-active: $background;
}
"""
"""The layout, in the colours of the theme."""


HOSTS = "0"
"""The key of the page of all machines."""


class News(Message):
    """Frames have come, or will come no more."""


class Watch(App[int]):
    """All pages of one source, or of several machines of which one is chosen."""

    CSS = CSS
    COMMAND_PALETTE_DISPLAY = "^p"
    # Each page is one of Textual's modes: it stays as it was left, with what lies over it.
    DEFAULT_MODE = "1"
    MODES: ClassVar[dict[str, str | Callable[[], Screen[None]]]] = {DEFAULT_MODE: Overview}
    # With priority, so that they work whatever has the focus.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "q",
            "quit",
            "quit",
            priority=True,
            tooltip="leave what lies over a page, or end; Ctrl-C ends anywhere",
        ),
        Binding("ctrl+c", "end", priority=True, show=False),
        Binding("question_mark", "help", "help", tooltip="this help"),
        Binding(
            "f5,r",
            "anew",
            "draw anew",
            show=False,
            key_display="F5 r",
            tooltip="draw the screen anew, as after another program wrote on it",
        ),
        Binding(
            "ctrl+t",
            "next_theme",
            "next theme",
            show=False,
            key_display="^t",
            tooltip="the next theme: " + ", ".join(LOOKS),
        ),
        Binding(
            "ctrl+s",
            "picture",
            "picture",
            show=False,
            key_display="^s",
            tooltip="save the screen as an SVG file in the current folder",
        ),
        Binding(
            "ctrl+p",
            "command_palette",
            "commands",
            show=False,
            key_display="^p",
            tooltip="all commands, to search in",
        ),
        Binding("h", "help", "help", show=False, tooltip="this help"),
    ]

    def __init__(
        self,
        watched: Watched,
        theme: str = TERMINAL.name,
        hosts: Sequence[Watched] = (),
        first: FirstPage | None = None,
    ) -> None:
        """Show `watched` first, or with several `hosts` the page of them all. `first` reads the
        source of `watched` already, and what it drew stays until there is as much to show."""
        super().__init__(driver_class=Terminal)
        for look in LOOKS.values():
            self.register_theme(look.theme())
        self._begin_with(theme)
        self._ended_by: int | None = None
        """Number of the signal that ends the program."""
        self.watched = watched
        """What is chosen; a page of a machine stays that machine's."""
        self.hosts = list(hosts) or [watched]
        self.first = first
        self.feeds = [first.feed] if first else [Feed(each.source) for each in self.hosts]
        self.pages: list[type[Page]] = []
        """All pages, once they are loaded: that waits for the first values."""
        self.failure: Exception | None = None
        """What is to be said once the page is gone."""
        self._said = ("", 0.0)
        self._drawn_s = self._heard_s = 0.0
        self._is_due = False
        """Whether it is to be drawn soon."""

    def _begin_with(self, theme: str) -> None:
        """Take a theme as the first one: as a change of it, all would be styled twice."""
        self.set_reactive(Watch.theme, theme)
        self.stylesheet.set_variables(self.get_css_variables())
        self._refresh_truecolor_filter(self.ansi_theme)
        self.set_class(self.current_theme.dark, "-dark-mode", update=False)
        self.set_class(not self.current_theme.dark, "-light-mode", update=False)

    @property
    def state(self) -> WatchState:
        """What came of the source that is chosen."""
        return self.watched.state

    @property
    def said(self) -> str:
        """What was said last, while it is new."""
        text, at_s = self._said
        for_s = max(SAID_FOR_S, len(text) / LETTERS_A_S)
        return text if time.monotonic() - at_s < for_s else ""

    def say(self, text: str) -> None:
        """Show a sentence for some seconds, above the page."""
        self._said = (text, time.monotonic())
        self.draw()

    def tell_first(self, text: str) -> None:
        """Show a sentence for some seconds from the start on."""
        self._said = (text, time.monotonic())

    def on_mount(self) -> None:
        if self._ended_by is not None:  # before there was anything to end
            self.stop(self._ended_by)
        for feed in self.feeds:
            feed.listen(lambda: self.post_message(News()))
        self.set_interval(AGES_EVERY_S, self.get_older)

    def on_unmount(self) -> None:
        for feed in self.feeds:
            feed.stop()

    def on_news(self) -> None:
        """Take in what has come, and draw it."""
        self._heard_s = time.monotonic()
        for watched, feed in zip(self.hosts, self.feeds, strict=True):
            error = self._taken(watched, feed)
            if error is not None:
                self._fail(error)
                return
        left_s = SEVERAL_S - (time.monotonic() - self._drawn_s)
        if len(self.hosts) == 1 or left_s <= 0:
            self.draw()
        elif not self._is_due:
            self._is_due = True
            self.set_timer(left_s, self._draw_due)
        if not self.pages:
            self.call_after_refresh(self._load)

    def _taken(self, watched: Watched, feed: Feed) -> Exception | None:
        """Take in what has come of a source; return why there is nothing to watch, where it is so.
        Another machine may come back."""
        state = watched.state
        for frame in feed.waiting(TAKEN_FOR_S / len(self.hosts)):
            state.update(frame)
            if watched.remote is None and not state.has_begun and has_answered(frame):
                return plain.nothing(frame.problem or "")
        if feed.is_over and not state.has_ended:
            state.end()
            if feed.error is not None or not state.has_begun:
                return feed.error or plain.nothing("there is no frame")
        state.withheld = watched.source.withheld
        return None

    def _draw_due(self) -> None:
        self._is_due = False
        self.draw()

    def get_older(self) -> None:
        """Draw ages, where no values have just come."""
        if time.monotonic() - self._heard_s >= LATE_S:
            self.draw()

    def draw(self) -> None:
        """Draw the page that is shown; something else may lie over it."""
        self._drawn_s = time.monotonic()
        if not self.is_running:  # it ends, and the page has lost its widgets
            return
        for screen in reversed(self.screen_stack):
            if isinstance(screen, Page):
                screen.redraw()
                return

    def show_through(self) -> None:
        """Show from now on what is drawn: all that the first page drew is there."""
        if self.first is not None:
            self.first = None
            self.screen.refresh()

    def _display(self, screen: Screen[Any], renderable: Any) -> None:
        """Draw on the terminal, where that takes nothing away from what the first page drew."""
        if self.first is None or not self.first.is_drawn:
            super()._display(screen, renderable)

    def action_open(self, key: str) -> None:
        """Show the page of that key."""
        self.switch_mode(self._mode(key, self.watched))

    def action_no_page(self, key: str) -> None:
        """Say that no page has that key."""
        first, last = self.pages[0].KEY, self.pages[-1].KEY
        self.say(f"There is no page {key}: {first} to {last} are there.")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Let `q` be a letter where one types."""
        return not (action == "quit" and isinstance(self.focused, Input))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Yield what the palette offers: the pages, what their keys do, themes, the picture."""
        for page in self.pages:
            yield SystemCommand(page.NAME, page.ABOUT, partial(self.action_open, page.KEY))
        told = {"command_palette"}
        for node in (screen, self):
            for binding in bindings_of(type(node)):
                if binding.action not in told:
                    told.add(binding.action)
                    yield SystemCommand(
                        binding.description,
                        f"{self.get_key_display(binding)}: {binding.tooltip or ''}",
                        partial(self.run_action, binding.action, node),
                    )
        for look in LOOKS.values():
            yield SystemCommand(
                f"theme {look.name}", look.about, partial(self.action_theme, look.name)
            )

    def action_theme(self, name: str) -> None:
        """Change how everything looks."""
        self.theme = name
        self.action_anew()

    def action_next_theme(self) -> None:
        names = list(LOOKS)
        self.action_theme(names[(names.index(self.theme) + 1) % len(names)])
        self.say(f"Theme {self.theme}: {LOOKS[self.theme].about} (--theme {self.theme})")

    def action_anew(self) -> None:
        """Draw the whole screen again."""
        for screen in self.screen_stack:
            for lines in screen.query(Lines):
                lines.refresh()
        self.refresh(layout=True)
        self.draw()

    def action_picture(self) -> None:
        """Save what is on the screen."""
        name = datetime.now().strftime("gpuadvisor-watch-%Y%m%d-%H%M%S.svg")
        try:
            Path(name).write_text(self.export_screenshot(title="gpuadvisor watch"), "utf-8")
        except OSError as error:
            self.say(f"No picture was saved: {name}: {error.strerror}.")
        else:
            self.say(f"Saved as {name} in the current folder.")

    async def on_event(self, event: events.Event) -> None:
        """Give each key to what lies over the page, if something does: also one that was on its way
        to the page when that was opened."""
        if isinstance(event, events.Key) and event.key != "ctrl+c":
            from gpuadvisor.tui.watch.dialogs import PopUp

            if self.screen_stack and isinstance(self.screen, PopUp):
                (self.focused or self.screen).post_message(event)
                return
        await super().on_event(event)

    def action_command_palette(self) -> None:
        """Let one search in all commands."""
        from gpuadvisor.tui.watch.dialogs import Palette

        if isinstance(self.screen, Page):
            self.push_screen(Palette(id="--command-palette"))

    def action_end(self) -> None:
        """End, whatever has the focus."""
        self.exit()

    def action_help(self) -> None:
        from gpuadvisor.tui.watch.help import Help, text

        if isinstance(self.screen, Page):
            self.push_screen(Help(text(self, self.screen)))

    def stop(self, number: int) -> None:
        """End because of a signal."""
        self._ended_by = number
        self.exit(return_code=128 + number)

    def _load(self) -> None:
        """Find all pages, and give each its key."""
        from gpuadvisor.tui.watch import pages

        if self.pages:
            return
        self.pages = [page for page in pages.load() if page.is_offered(self.watched)]
        gc.freeze()  # what is there so far stays: the collector need not look at it each time
        gc.enable()
        for page in self.pages:
            for host in self.hosts:
                mode = self._mode(page.KEY, host)
                if mode not in self._modes:  # what is shown first does not wait for the others
                    self.add_mode(mode, partial(_made, page, host))
            self.bind(page.KEY, f"open('{page.KEY}')", description=page.NAME, show=False)
        for key in set(digits) - {page.KEY for page in self.pages}:
            self.bind(key, f"no_page('{key}')", show=False)
        self.draw()

    def _mode(self, key: str, host: Watched) -> str:
        """Return Textual's mode of a page: the machines have one each, which stay as they were
        left, but for that of all of them."""
        place = self.hosts.index(host)
        return f"{key} {place}" if place and key != HOSTS else key

    def _fatal_error(self) -> None:
        """End with a sentence, as everything here does; Textual's own prints a traceback."""
        self.failure = self.failure or self._exception
        self.panic()

    def _fail(self, error: Exception) -> None:
        self.failure = error
        self.exit(return_code=getattr(error, "exit_code", AdvisorError.exit_code))


def _made(page: type[Page], of: Watched) -> Page:
    made = page()
    made.of = of
    return made


def show(
    watched: Watched,
    theme: str = TERMINAL.name,
    hosts: Sequence[Watched] = (),
    said: str = "",
    first: FirstPage | None = None,
) -> int:
    """Show the pages until somebody ends it; return the exit status. `said` is told at first, and
    `first` what is on the screen already."""
    if len(hosts) > 1:
        from gpuadvisor.tui.watch.pages.hosts import WatchHosts

        app: Watch = WatchHosts(watched, theme, hosts)
    else:
        app = Watch(watched, theme, hosts, first)
    app.tell_first(said)

    async def run() -> None:
        for number in ENDING:
            asyncio.get_running_loop().add_signal_handler(number, app.stop, number)
        if first is None or first.ended_by is None:
            await app.run_async()
        else:
            app.stop(first.ended_by)

    was_there = is_there()
    try:
        asyncio.run(run())
    except Exception:
        if is_there() or not was_there:
            raise
    finally:
        for feed in app.feeds:
            feed.stop()
        for feed in app.feeds:
            feed.wait(CLOSE_S)
        gc.freeze()  # else the interpreter looks through all of Textual before it ends: 0.1 s
    if was_there and not is_there():  # whatever has failed then, has failed for that
        return 128 + signal.SIGHUP
    if app.failure is not None:
        raise app.failure
    return app.return_code or 0

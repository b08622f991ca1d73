"""What lies over a page for a moment: a question, a text to read, a list to choose from, or a line
in which one types."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.containers import Vertical
from textual.screen import ModalScreen, ScreenResultType
from textual.widgets import Input

from gpuadvisor.errors import UsageError
from gpuadvisor.tui.watch.cells import Line, Style
from gpuadvisor.tui.watch.lines import Lines

CSS = """
{name} {{ align: center middle; background: $background; }}
{name} > Vertical {{
    width: {width}; max-width: 100%; height: {height}; max-height: 100%; border: solid $primary;
    padding: 0 1; background: $background;
}}
"""


class PopUp(ModalScreen[ScreenResultType]):
    """Lies over a page until it is answered, once: the app gives it all keys, and it none of them
    to anybody else.

    Textual would have the app look for what a key is bound to after this has seen it, on what is
    shown by then: a key that answered would act on the page as well, and a second key that was hit
    at once would answer again, and take away the page.
    """

    async def on_key(self, event: events.Key) -> None:
        """Take a key, unless a widget of this, as what one types into, has taken it."""
        event.stop()
        event.prevent_default()
        if self.app.screen is self:
            await self.take(event.key)

    async def take(self, key: str) -> None:
        """Do what a key is bound to here."""
        active = self.active_bindings.get(key)
        if active is not None and active.enabled:
            await self.app.run_action(active.binding.action, active.node)

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Leave it with a result, once."""
        if self.app.screen is not self:
            return AwaitComplete()
        return super().dismiss(result)


class Palette(CommandPalette, PopUp[None]):
    """Textual's palette of commands, which takes each key once as well."""

    # Before those that scroll the line in which one types, which `take` would find first.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "command_list('cursor_up')", show=False, priority=True),
        Binding("down", "cursor_down", show=False, priority=True),
        Binding("pageup", "command_list('page_up')", show=False, priority=True),
        Binding("pagedown", "command_list('page_down')", show=False, priority=True),
    ]


class Question(PopUp[bool]):
    """Asks for yes; every other key is no."""

    DEFAULT_CSS = CSS.format(name="Question", width="80", height="auto")

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        super().__init__()
        self._title, self._said = title, lines

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Lines("question")

    def on_mount(self) -> None:
        said: list[Line] = [[(line, Style.PLAIN)] for line in self._said]
        answer: Line = [("y", Style.ACCENT), (" yes   any other key: no", Style.QUIET)]
        self.query_one(Lines).show([[(self._title, Style.WARNING)], *said, [], answer])

    async def take(self, key: str) -> None:
        self.dismiss(key == "y")

    def on_click(self) -> None:
        self.dismiss(False)


class Reading(PopUp[None]):
    """Lines to read, which may be many; Esc, q or the key that opened it leaves it."""

    DEFAULT_CSS = (
        CSS.format(name="Reading", width="100%", height="100%")
        + """
    Reading Lines { height: 1fr; }
    """
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,e", "leave", "back"),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup,left_square_bracket", "move(-20)", show=False),
        Binding("pagedown,right_square_bracket", "move(20)", show=False),
        Binding("home", "move(-100000)", show=False),
        Binding("end", "move(100000)", show=False),
    ]

    def __init__(self, title: str, make: Callable[[int], Sequence[Line]]) -> None:
        """`make` returns the lines for a width."""
        super().__init__()
        self._title, self._make = title, make

    def compose(self) -> ComposeResult:
        with Vertical() as panel:
            panel.border_title = f"{self._title} - Esc: back"
            yield Lines("reading")

    def on_mount(self) -> None:
        self.call_after_refresh(self.redraw)

    def on_resize(self) -> None:
        self.call_after_refresh(self.redraw)

    def redraw(self) -> None:
        """Show the lines as they are now."""
        lines = self.query_one(Lines)
        lines.show(self._make(lines.size.width))

    def action_leave(self) -> None:
        self.dismiss()

    def action_move(self, down: int) -> None:
        self.query_one(Lines).scroll_relative(y=down, animate=False)


_LIST_CSS = (
    CSS
    + """
{name} Input {{ height: 1; border: none; padding: 0; background: $background; }}
{name} Lines {{ height: {lines}; }}
"""
)


class Choice(PopUp[str]):
    """A list of names in words; what one types leaves those that have all of its words."""

    DEFAULT_CSS = _LIST_CSS.format(name="Choice", width="76", height="80%", lines="1fr")
    # Before those that scroll the line in which one types, which `take` would find first.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back"),
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("pageup", "move(-10)", show=False, priority=True),
        Binding("pagedown", "move(10)", show=False, priority=True),
    ]

    def __init__(self, title: str, entries: Sequence[tuple[str, str]], chosen: str) -> None:
        """`entries` are what is returned and its words; `chosen` is under the cursor at first."""
        super().__init__()
        self._title, self._entries = title, entries
        self._found = list(entries)
        self._at = next((n for n, each in enumerate(entries) if each[0] == chosen), 0)

    def compose(self) -> ComposeResult:
        with Vertical() as panel:
            panel.border_title = f"{self._title} - Enter: choose, Esc: back"
            yield Input(placeholder="type to search", compact=True)
            yield Lines("choices")

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self.call_after_refresh(self.redraw)

    def redraw(self) -> None:
        """Show what is left."""
        lines: list[Line] = [[(words, Style.PLAIN)] for _, words in self._found]
        if not lines:
            self.query_one(Lines).show([[("nothing has these words", Style.QUIET)]])
            return
        self._at = min(max(self._at, 0), len(lines) - 1)
        self.query_one(Lines).show(lines, self._at)

    def on_input_changed(self, event: Input.Changed) -> None:
        wanted = event.value.lower().split()
        if not wanted and len(self._found) == len(self._entries):
            return
        self._found = [e for e in self._entries if all(w in " ".join(e).lower() for w in wanted)]
        self._at = 0
        self.redraw()

    def on_input_submitted(self) -> None:
        self.dismiss(self._found[self._at][0] if self._found else None)

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        if event.number < len(self._found):
            self.dismiss(self._found[event.number][0])

    def action_move(self, down: int) -> None:
        self._at += down
        self.redraw()

    def action_leave(self) -> None:
        self.dismiss(None)


class Typed(PopUp[float]):
    """Asks for a text that `read` makes a number of, again where it cannot."""

    DEFAULT_CSS = _LIST_CSS.format(name="Typed", width="70", height="auto", lines="auto")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back")]

    def __init__(self, title: str, hint: str, read: Callable[[str], float]) -> None:
        super().__init__()
        self._title, self._hint, self._read = title, hint, read

    def compose(self) -> ComposeResult:
        with Vertical() as panel:
            panel.border_title = f"{self._title} - Enter: go, Esc: back"
            yield Input(compact=True)
            yield Lines("hint")

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._say(self._hint, Style.QUIET)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        try:
            self.dismiss(self._read(event.value.strip()))
        except UsageError as error:
            self._say(str(error), Style.WARNING)

    def action_leave(self) -> None:
        self.dismiss(None)

    def _say(self, said: str, style: Style) -> None:
        width = max(min(self.size.width, 70) - 4, 10)
        self.query_one(Lines).show([[(line, style)] for line in textwrap.wrap(said, width)])

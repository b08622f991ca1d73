"""What lies over a page for a moment: a question, or a text to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.containers import Vertical
from textual.screen import ModalScreen, ScreenResultType

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

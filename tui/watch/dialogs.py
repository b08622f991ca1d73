"""What lies over a page for a moment: a question, or a text to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from gpuadvisor.tui.watch.cells import Line, Style
from gpuadvisor.tui.watch.lines import Lines

CSS = """
{name} {{ align: center middle; background: $background; }}
{name} > Vertical {{
    width: {width}; max-width: 100%; height: {height}; max-height: 100%; border: solid $primary;
    padding: 0 1; background: $background;
}}
"""


class Question(ModalScreen[bool]):
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

    def on_key(self, event: object) -> None:
        self.dismiss(getattr(event, "key", "") == "y")

    def on_click(self) -> None:
        self.dismiss(False)


class Reading(ModalScreen[None]):
    """Lines to read, which may be many; Esc or the key that opened it leaves it."""

    DEFAULT_CSS = (
        CSS.format(name="Reading", width="100%", height="100%")
        + """
    Reading Lines { height: 1fr; }
    """
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,e", "leave", "back"),
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

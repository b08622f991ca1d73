"""What one chooses from a list that can be searched, or types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from gpuadvisor.errors import UsageError
from gpuadvisor.tui.watch.cells import Line, Style
from gpuadvisor.tui.watch.dialogs import PopUp
from gpuadvisor.tui.watch.lines import Lines

_CSS = """
{name} {{ align: center middle; background: $background; }}
{name} > Vertical {{
    width: {width}; max-width: 100%; height: {height}; max-height: 100%; border: solid $primary;
    padding: 0 1; background: $background;
}}
{name} Input {{ height: 1; border: none; padding: 0; background: $background; }}
{name} Lines {{ height: {lines}; }}
"""


class Choice(PopUp[str]):
    """A list of names in words; what one types leaves those that have all of its words."""

    DEFAULT_CSS = _CSS.format(name="Choice", width="76", height="80%", lines="1fr")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back"),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "move(-10)", show=False),
        Binding("pagedown", "move(10)", show=False),
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

    DEFAULT_CSS = _CSS.format(name="Typed", width="70", height="auto", lines="auto")
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
        import textwrap

        width = max(min(self.size.width, 70) - 4, 10)
        self.query_one(Lines).show([[(line, style)] for line in textwrap.wrap(said, width)])

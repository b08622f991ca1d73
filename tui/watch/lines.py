"""A widget of lines that draws only those that have changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import overload

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gpuadvisor.tui.watch.cells import Line
from gpuadvisor.tui.watch.themes import LOOKS, TERMINAL


class MadeLines(Sequence[Line]):
    """Lines of which each is made when it is looked at first: those on the screen."""

    def __init__(self, make: Callable[[int], Line], count: int) -> None:
        """`make` returns the line of a number below `count`."""
        self._make = make
        self._count = count
        self._made: dict[int, Line] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> Line: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[Line]: ...

    def __getitem__(self, number: int | slice) -> Line | Sequence[Line]:
        places = range(self._count)[number]
        if isinstance(places, range):
            return [self[place] for place in places]
        if places not in self._made:
            self._made[places] = self._make(places)
        return self._made[places]


CLICKS = "@click"
"""What Textual calls the action of a text that is clicked on."""


class Lines(ScrollView, can_focus=False):
    """Lines of text, as many as there are; it scrolls where they do not fit.

    What does not change is neither rendered nor sent to the terminal again.
    """

    DEFAULT_CSS = """
    Lines { height: auto; width: 1fr; scrollbar-size: 1 1; overflow-x: hidden; }
    """

    class Chosen(Message):
        """A line was clicked on."""

        def __init__(self, lines: Lines, number: int) -> None:
            super().__init__()
            self.lines = lines
            self.number = number

        @property
        def control(self) -> Lines:
            return self.lines

    def __init__(self, name: str) -> None:
        """Take the name that it has in CSS, its id."""
        super().__init__(id=name)
        self._lines: Sequence[Line] = []
        self._cursor: int | None = None
        self._clicks: dict[tuple[int, int], str] = {}
        """Actions by the line and the place of a text in it."""

    def show(
        self,
        lines: Sequence[Line],
        cursor: int | None = None,
        clicks: dict[tuple[int, int], str] | None = None,
    ) -> None:
        """Show these lines, one of them in reverse as the chosen one.

        `clicks` are Textual's actions for texts, by their line and their place in it.
        """
        before, self._lines = self._lines, lines if isinstance(lines, MadeLines) else list(lines)
        last, self._cursor = self._cursor, cursor
        self._clicks = clicks or {}
        if len(before) != len(self._lines) or self.virtual_size.width != self.size.width:
            self.virtual_size = Size(self.size.width, len(self._lines))
            if len(before) != len(self._lines):
                self.refresh(layout=True)
        top = self.scroll_offset.y
        for number in range(top, min(top + self.size.height, len(before), len(self._lines))):
            if (number == last) != (number == cursor):
                self._redraw(number, 0, self.size.width)
            elif (old := before[number]) != (new := self._lines[number]):
                self._redraw(number, *_changed(old, new, self.size.width))
        if cursor is not None and cursor != last:
            self.bring_into_view(cursor)

    def texts(self, begin: int, end: int) -> list[str]:
        """Return what these lines say."""
        return ["".join(text for text, _ in line) for line in self._lines[begin:end]]

    def bring_into_view(self, number: int) -> None:
        """Scroll as little as needed to see a line."""
        top, height = self.scroll_offset.y, self.size.height
        if number < top:
            self.scroll_to(y=number, animate=False, force=True)
        elif height and number >= top + height:
            self.scroll_to(y=number - height + 1, animate=False, force=True)

    def redraw(self) -> None:
        """Draw all anew, as after a change of the theme."""
        self.refresh()

    def render_line(self, y: int) -> Strip:
        number = y + self.scroll_offset.y
        base = self.rich_style
        width = self.size.width
        if number >= len(self._lines):
            return Strip.blank(width, base)
        if number == self._cursor:
            base += RichStyle(reverse=True)
        styles = LOOKS.get(self.app.theme, TERMINAL).styles
        segments = []
        for place, (text, style) in enumerate(self._lines[number]):
            shown = _on(base, styles[style])
            action = self._clicks.get((number, place))
            if action is not None:
                shown += RichStyle(meta={CLICKS: action})
            segments.append(Segment(text, shown))
        return Strip(segments).simplify().adjust_cell_length(width, base)

    def on_click(self, event: events.Click) -> None:
        number = event.y + self.scroll_offset.y
        if CLICKS not in event.style.meta and number < len(self._lines):
            self.post_message(self.Chosen(self, number))

    def _redraw(self, number: int, begin: int, end: int) -> None:
        y = number - self.scroll_offset.y
        if 0 <= y < self.size.height and begin < end:
            self.refresh(Region(begin, y, end - begin, 1))


@lru_cache(256)
def _on(base: RichStyle, words: str) -> RichStyle:
    return base + RichStyle.parse(words) if words else base


def _changed(old: Line, new: Line, width: int) -> tuple[int, int]:
    """Return from where to where two lines differ, so that no more is sent to the terminal."""
    begin, end = 0, width
    for before, after in zip(old, new, strict=False):
        if before != after:
            break
        begin += cell_len(before[0])
    lengths = [sum(cell_len(text) for text, _ in line) for line in (old, new)]
    if lengths[0] == lengths[1]:
        end = lengths[0]
        for before, after in zip(reversed(old), reversed(new), strict=False):
            if before != after:
                break
            end -= cell_len(before[0])
    return begin, max(min(end, width), min(begin, width))

"""Tables of any width: which columns fit, how wide they are, and what stands in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpuadvisor.tui.watch import cells
from gpuadvisor.tui.watch.cells import Line, Span, Style
from gpuadvisor.tui.watch.state import WatchState

GAP = 1
"""Blank characters between two columns."""
T = TypeVar("T")


@dataclass(frozen=True)
class Cell:
    """What stands in the table: the first text that fits, and how it looks."""

    texts: tuple[str, ...]
    style: Style = Style.PLAIN


@dataclass(frozen=True, eq=False)
class Column(Generic[T]):
    """One column of a table of `T`; `rank` 0 is left out last."""

    titles: tuple[str, ...]
    rank: int
    width: int
    """Characters that it needs at least."""
    show: Callable[[WatchState, T, int], Cell]
    """Makes the cell of a row, given the width that the column has."""
    most: int = 0
    """Characters up to which it takes what room there is; 0 where it stays as it is."""
    needs: tuple[str, ...] = ()
    """Shown only where a GPU has one of these metrics."""
    is_number: bool = True
    by_content: bool = False
    """Whether it takes no more room than its longest cell needs."""
    title: Callable[[WatchState, int], tuple[str, ...]] | None = None
    """Makes titles that depend on the width, instead of `titles`."""


@dataclass(frozen=True)
class Placed(Generic[T]):
    """A column with the width that it has."""

    column: Column[T]
    width: int

    def title(self, state: WatchState) -> str:
        make = self.column.title
        titles = make(state, self.width) if make else self.column.titles
        return self._padded(cells.fit(titles, self.width))

    def cell(self, state: WatchState, row: T) -> Span:
        """Return its text, exactly as wide as the column, and its style."""
        shown = self.column.show(state, row, self.width)
        return self._padded(cells.fit(shown.texts, self.width)), shown.style

    def _padded(self, text: str) -> str:
        return text.rjust(self.width) if self.column.is_number else text.ljust(self.width)


def chosen(
    columns: Sequence[Column[T]], rows: Sequence[T], state: WatchState, width: int
) -> list[Placed[T]]:
    """Return the columns that fit in `width` characters; at least one, whatever the width."""
    there = [
        column
        for column in columns
        if not column.needs or any(state.is_known(name) for name in column.needs)
    ]
    kept: list[Column[T]] = []
    left = width + GAP
    for column in sorted(there, key=lambda column: column.rank):
        if not kept or column.width + GAP <= left:
            kept.append(column)
            left -= column.width + GAP
    widths: dict[Column[T], int] = {}
    for column in kept:  # what matters most grows first
        most = _longest(column, rows, state) if column.by_content else column.most
        more = min(max(most - column.width, 0), max(left, 0))
        left -= more
        widths[column] = column.width + more
    return [Placed(column, widths[column]) for column in there if column in widths]


def _longest(column: Column[T], rows: Sequence[T], state: WatchState) -> int:
    texts = [column.show(state, row, column.most).texts[0] for row in rows]
    return min(max(map(len, texts), default=0), column.most)


def titles(placed: Sequence[Placed[T]], state: WatchState) -> Line:
    """Return the line of titles."""
    text = (" " * GAP).join(column.title(state) for column in placed)
    return [(text, Style.TITLE)]


def row(placed: Sequence[Placed[T]], state: WatchState, of: T) -> Line:
    """Return the line of a row."""
    spans: list[Span] = []
    for place, column in enumerate(placed):
        if place:
            spans.append((" " * GAP, Style.PLAIN))
        spans.append(column.cell(state, of))
    return spans


def padded(line: Line, width: int) -> list[Span]:
    """Return a line cut or filled to a width."""
    spans: list[Span] = []
    left = width
    for text, style in line:
        if len(text) > left:
            text = text[:left]
        if text:
            spans.append((text, style))
        left -= len(text)
    if left > 0:
        spans.append((" " * left, Style.PLAIN))
    return spans


def beside(left: Sequence[Line], right: Sequence[Line], width: int) -> list[Line]:
    """Return lines beside others, which begin after `width` characters."""
    count = max(len(left), len(right))
    rows: list[Line] = []
    for number in range(count):
        first = left[number] if number < len(left) else []
        rows.append(padded(first, width) + list(right[number] if number < len(right) else []))
    return rows


def rule(title: str, width: int) -> Line:
    """Return a line that begins a part of a page."""
    head = f"── {title} "
    return [(head[:width], Style.ACCENT), ("─" * max(width - len(head), 0), Style.QUIET)]


def text_of(line: Line) -> str:
    """Return a line as plain text."""
    return "".join(text for text, _ in line).rstrip()

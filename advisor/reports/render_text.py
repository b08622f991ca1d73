"""Documents on the terminal: lines that wrap below their labels, and tables.

A trace, a script or a name may hold anything: no control character of it reaches the terminal.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuadvisor.printable import printable
from gpuadvisor.reports.document import Cell, Content, Table

if TYPE_CHECKING:
    from rich.console import Console

LABEL = 10
"""Columns of a label."""
NARROWEST = 40


@dataclass(frozen=True)
class Line:
    """One line, or several with the same margin where it is long."""

    text: str
    style: str = ""
    label: str = ""
    """Stands before the text, which is indented by it."""
    margin: int = 0
    is_command: bool = False
    """Stays on one line, whatever the width, so that it can be copied."""

    @property
    def head(self) -> str:
        """What stands before the text on its first line."""
        return " " * self.margin + (f"{self.label:<{LABEL}}" if self.label else "")


def print_lines(console: Console, lines: Iterable[Line]) -> None:
    """Print lines in colour and wrapped on a terminal, each as it is where it is piped."""
    from rich.text import Text

    width = console.width if console.is_terminal else 0
    for line in lines:
        for row in wrapped(line, width):
            console.print(Text(row, line.style), soft_wrap=True)


def wrapped(line: Line, width: int) -> list[str]:
    """Return a line in rows of at most `width` characters, as it is for 0."""
    head, words = line.head, _one_line(line.text)
    if not width or not words or line.is_command:
        return [f"{head}{words}".rstrip()]
    gap = " " * (len(head) if line.label or line.margin else 2)
    rows = textwrap.wrap(
        words,
        max(width, NARROWEST),
        initial_indent=head,
        subsequent_indent=gap,
        break_on_hyphens=False,
    )
    return rows or [head.rstrip()]


def table_lines(table: Table) -> Iterator[str]:
    """Yield a table whose columns have widths: a line a row, its name cut, the notes below."""
    yield _row(table, [column.title.lower() for column in table.columns])
    most = table.columns[0].width - 2
    for cells in table.cells():
        name, *others = map(_plain, cells)
        yield _row(table, [f"  {_cut(name, most)}", *others])
    yield from (f"  {note}" for note in table.notes)


def _row(table: Table, cells: Sequence[str]) -> str:
    line, was_left = "", True
    for place, (column, cell) in enumerate(zip(table.columns, cells, strict=True)):
        is_left = column.left or not place
        gap = "  " if is_left and not was_left else ""
        line += gap + (f"{cell:<{column.width}}" if is_left else f"{cell:>{column.width}}")
        was_left = is_left
    return line.rstrip()


def _cut(name: str, most: int) -> str:
    """Return a name cut to so many characters, the last of them an ellipsis."""
    return name if len(name) <= most else name[: most - 1] + "…"


def _plain(content: Content) -> str:
    return printable(content.text if isinstance(content, Cell) else content)


def _one_line(text: str) -> str:
    line = " ".join(text.split()) if "\n" in text else text
    return printable(line)

"""Documents on the terminal: lines that wrap below their labels, and tables.

A trace, a script or a name may hold anything: no control character of it reaches the terminal.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuadvisor.printable import printable
from gpuadvisor.reports.document import (
    Block,
    Bullets,
    Cell,
    Content,
    Listing,
    Paragraph,
    Section,
    Table,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

LABEL = 10
"""Characters of a label with the space behind it."""
NARROWEST = 40
_STYLES = {"strong": "bold", "good": "bold green", "bad": "bold red"}


@dataclass(frozen=True)
class Line:
    """One line, or several with the same margin where it is long."""

    text: str
    style: str = ""
    label: str = ""
    """A word before the text, which is indented by it."""
    margin: int = 0
    is_command: bool = False
    """Whether it stays on one line, whatever the width, so that it can be copied."""

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
    text = " ".join(line.text.split()) if "\n" in line.text else line.text
    head, words = line.head, printable(text)
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
        name, *others = (printable(_words(cell)) for cell in cells)
        cut = name if len(name) <= most else name[: most - 1] + "…"
        yield _row(table, [f"  {cut}", *others])
    yield from (f"  {note}" for note in table.notes)


def _row(table: Table, cells: Sequence[str]) -> str:
    line, was_left = "", True
    for place, (column, cell) in enumerate(zip(table.columns, cells, strict=True)):
        is_left = column.left or not place
        gap = "  " if is_left and not was_left else ""
        line += gap + (f"{cell:<{column.width}}" if is_left else f"{cell:>{column.width}}")
        was_left = is_left
    return line.rstrip()


def _words(content: Content) -> str:
    return content.text if isinstance(content, Cell) else content


def print_sections(console: Console, sections: Iterable[Section]) -> None:
    """Print sections with an empty line before each; tables and sentences fit the console's width.

    Colours are the console's: it is plain when piped, and obeys NO_COLOR.
    """
    for section in sections:
        console.print()
        if section.title:
            console.print(_text(console, section.title, "bold"))
        for block in section.blocks:
            _print_block(console, block)


def _print_block(console: Console, block: Block) -> None:
    match block:
        case Paragraph():
            _print_wrapped(console, _text(console, block.text, _STYLES.get(block.style, "")))
        case Table():
            _print_table(console, block)
        case Bullets():
            for item in block.items:
                _print_wrapped(console, _text(console, item), "  ")
        case Listing():
            # What may be copied is indented, but never wrapped.
            caption = "" if block.caption is None else "# {}: {}".format(*block.caption)
            for words, style in ((caption, "dim"), (block.code, "")):
                for line in words.splitlines():
                    console.print(_text(console, f"  {line}", style), soft_wrap=True)


def _print_wrapped(console: Console, text: Text, margin: str = "") -> None:
    """Print words in rows that fit the console's width, without blanks at their ends."""
    for row in text.wrap(console, console.width - len(margin)):
        row.rstrip()
        row.pad_left(len(margin))
        console.print(row, soft_wrap=True)


def _print_table(console: Console, table: Table) -> None:
    from rich import table as rich_table

    shown = rich_table.Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for place, column in enumerate(table.columns):
        shown.add_column(
            column.title,
            justify="left" if column.left or not place else "right",
            style="bold" if column.strong else "",
            overflow="fold",
        )
    for row in table.cells():
        shown.add_row(*(_text(console, _words(cell)) for cell in row))
    console.print(shown)


def _text(console: Console, words: str, style: str = "") -> Text:
    """Return the words without control characters, in what the console can encode."""
    from rich.text import Text

    encoding = console.encoding
    return Text(printable(words).encode(encoding, "replace").decode(encoding), style=style)

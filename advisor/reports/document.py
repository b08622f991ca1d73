"""What a report consists of, before it is rendered for the terminal, in Markdown or as a page.

A string is a sentence in which backticks mark code; `Code` is a name that is code as a whole. All
of it may hold what a trace or a script contained: the renderers escape it, the builders do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuadvisor.reports.markup import Markup


class Code(str):
    """A name or a command, shown as code whatever it holds."""

    __slots__ = ()


@dataclass(frozen=True)
class Cell:
    """A table cell that says more than one thing."""

    text: str
    below: tuple[str, ...] = ()
    """Small print: below the text on a page, behind it in parentheses in Markdown."""
    tip: str = ""
    """Tooltip of a page, such as a kernel's whole name."""
    mark: str = ""
    """Style classes of the coloured mark that stands before the text on a page."""


Content = str | Cell


@dataclass(frozen=True)
class Column:
    """A column of a table: its title, and how a row's cell is made."""

    title: str
    value: str | Callable[[Any], Any]
    """Attribute of a row (dots allowed), or a function of it."""
    show: Callable[[Any], Content] | None = None
    """How the value is shown; as it is where this is None."""
    left: bool = False
    """Whether it holds words, which align left; figures align right, the first column left."""
    strong: bool = False
    """Whether it is bold on the terminal."""
    width: int = 0
    """Characters on the terminal, for tables whose columns do not fit themselves to the rows."""

    def cell(self, row: Any) -> Content:
        """Return what stands in this column of a row."""
        value = attrgetter(self.value)(row) if isinstance(self.value, str) else self.value(row)
        shown: Content = value if self.show is None else self.show(value)
        return shown


@dataclass(frozen=True)
class Table:
    """Rows of anything, shown through columns."""

    rows: Sequence[Any]
    columns: Sequence[Column]
    style: str = ""
    """Class on a page: `wide` and `trials` scroll sideways, `words` holds sentences."""
    notes: tuple[str, ...] = ()
    """Remarks below the table, such as how many rows are left out."""

    def cells(self) -> Iterator[list[Content]]:
        """Yield the cells of each row."""
        return ([column.cell(row) for column in self.columns] for row in self.rows)


@dataclass(frozen=True)
class Paragraph:
    """Sentences that belong together."""

    text: str
    style: str = ""
    """`lead` introduces what follows, `note` and `muted` say little; `strong` is bold, and on the
    terminal `good` green and `bad` red."""


@dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    items: Sequence[str]


@dataclass(frozen=True)
class Terms:
    """Names, each with what is said of it; an empty one is left out."""

    rows: Sequence[tuple[str, Content]]


@dataclass(frozen=True)
class Listing:
    """Lines to copy: a command or a piece of a script."""

    code: str
    language: str = "shell"
    caption: tuple[str, str] | None = None
    """A name, and where the lines go."""


@dataclass(frozen=True)
class Plot:
    """A plot with its legend; Markdown has the table instead, where there is one."""

    plot: Callable[[float], Markup]
    """Function that draws at a width in pixels."""
    legend: Sequence[tuple[str, str]] = ()
    """Style classes of a mark, and what it stands for."""
    lead: str = ""
    """How to read the plot."""
    table: Table | None = None
    """The figures that are drawn; folded on a page."""


@dataclass(frozen=True)
class Item:
    """One of a numbered list of things to fix: a heading with its severity, and terms."""

    number: int
    severity: str
    summary: str
    terms: Terms


@dataclass(frozen=True)
class Folded:
    """Blocks that stay closed until somebody wants them."""

    title: str
    blocks: Sequence[Block]


Block = Table | Paragraph | Bullets | Terms | Listing | Plot | Item | Folded


@dataclass(frozen=True)
class Section:
    """Blocks under a title; without a title they stand alone."""

    title: str
    blocks: Sequence[Block]
    is_folded: bool = False
    """Whether Markdown folds it; on a page it is open."""

    @classmethod
    def led(cls, title: str, lead: str, *blocks: Block, is_folded: bool = False) -> Section:
        """Return a section that a paragraph introduces."""
        return cls(title, (Paragraph(lead, "lead"), *blocks), is_folded)


@dataclass(frozen=True)
class Document:
    """A report on one subject."""

    name: Sequence[str]
    """What it is about: a command or a name, of a comparison two."""
    sections: Sequence[Section]
    summary: tuple[str, str] = ("", "")
    """The conclusion as one sentence, and what follows it; the page has `headline` instead."""
    kind: tuple[str, str] = ("", "")
    """What made the report, and what it is: (`gpuadvisor`, `study train-1`)."""
    title: str = ""
    """Title of the page's window."""
    facts: Sequence[str] = ()
    """Where, when and for how long it ran."""
    headline: tuple[str, str] = ("", "")
    """The one large figure of the page and what it is; only words where the figure is empty."""
    conclusion: Sequence[Paragraph] = ()
    """Paragraphs below the headline."""
    footer: Sequence[str] = ()
    styles: Sequence[str] = field(default=("page.css",))
    """Style sheets of the page, files beside this module."""

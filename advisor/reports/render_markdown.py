"""Documents as GitHub-flavoured Markdown, to be pasted into an issue or a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gpuadvisor.printable import printable
from gpuadvisor.reports.document import (
    Block,
    Bullets,
    Cell,
    Code,
    Content,
    Document,
    Folded,
    Item,
    Listing,
    Paragraph,
    Plot,
    Section,
    Table,
    Terms,
)

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~&])")
"""What could start markup inside a line: HTML, links, emphasis, code, headings, table cells."""
_LEVEL = 4
"""Level of a section's heading; the document's own is one above."""


def markdown(document: Document) -> str:
    """Return the whole document, its name as the heading."""
    bold, more = document.summary
    parts = [
        f"### {' and '.join(map(code, document.name))}",
        f"**{text(bold)}** {text(more)}".rstrip() if bold else text(more),
        *map(_section, document.sections),
    ]
    return _paragraphs(parts) + "\n"


def _section(section: Section) -> str:
    """Return a section with its heading; empty where nothing of it can be shown."""
    level = _LEVEL + bool(section.title)
    shown = [(block, _block(block, level)) for block in section.blocks]
    # What only introduces a plot says nothing without it.
    if not any(words for block, words in shown if not _is_lead(block)):
        return ""
    body = _paragraphs(words for _, words in shown)
    if not section.title:
        return body
    if section.is_folded:
        return _details(section.title, body)
    return f"{'#' * _LEVEL} {text(section.title)}\n\n{body}"


def _is_lead(block: Block) -> bool:
    return isinstance(block, Paragraph) and block.style == "lead"


def _block(block: Block, level: int) -> str:
    match block:
        case Paragraph():
            bold = block.style == "strong"
            return f"**{text(block.text)}**" if bold else text(block.text)
        case Table():
            return _paragraphs([_table(block), *map(text, block.notes)])
        case Bullets():
            return "\n".join(f"- {text(item)}" for item in block.items)
        case Terms():
            return _terms(block)
        case Listing():
            return _listing(block)
        case Plot():
            return "" if block.table is None else _block(block.table, level)
        case Item():
            title = f"{block.number}. {text(block.summary)} ({block.severity})"
            return f"{'#' * level} {title}\n\n{_terms(block.terms)}"
        case Folded():
            return _details(block.title, _paragraphs(_block(each, level) for each in block.blocks))


def _table(table: Table) -> str:
    header = [text(column.title) for column in table.columns]
    left = [column.left or not place for place, column in enumerate(table.columns)]
    return _grid(header, left, (map(_content, row) for row in table.cells()))


def _terms(terms: Terms) -> str:
    rows = ((text(name), _content(said)) for name, said in terms.rows if said)
    return _grid(["", ""], [True, True], rows)


def _grid(header: Sequence[str], left: Sequence[bool], rows: Iterable[Iterable[str]]) -> str:
    rules = ["---" if each else "--:" for each in left]
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rules, *rows])


def _content(content: Content) -> str:
    if not isinstance(content, Cell):
        return text(content)
    below = "; ".join(map(text, content.below))
    return f"{text(content.text)} ({below})" if below else text(content.text)


def _listing(listing: Listing) -> str:
    fence = "`" * max(3, _longest_run(listing.code) + 1)
    block = f"{fence}{listing.language}\n{listing.code.rstrip()}\n{fence}"
    if listing.caption is None:
        return block
    name, where = listing.caption
    return f"{code(name)}: {text(where)}\n\n{block}"


def _details(summary: str, body: str) -> str:
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>"


def _paragraphs(parts: Iterable[str]) -> str:
    return "\n\n".join(filter(None, parts))


def text(words: str) -> str:
    """Return the text on one line; what stands between backticks is code, no other markup works."""
    if isinstance(words, Code):
        return code(words)
    parts = re.split(r"`([^`]+)`", _one_line(words))
    return "".join(
        code(part) if place % 2 else _SPECIAL.sub(r"\\\1", part) for place, part in enumerate(parts)
    )


def code(words: str) -> str:
    """Return the text as inline code, also inside a table."""
    line = _one_line(words).replace("|", "\\|") or " "
    fence = "`" * (_longest_run(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _longest_run(words: str) -> int:
    """Return the length of the longest run of backticks, which a fence must exceed."""
    return max((len(run) for run in re.findall("`+", words)), default=0)


def _one_line(words: str) -> str:
    """Return one line without control characters, as UTF-8 can hold it."""
    line = " ".join(words.encode("utf-8", "replace").decode().split())
    return printable(line)

"""Documents as GitHub-flavoured Markdown, to be pasted into an issue or a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gpuadvisor.printable import printable
from gpuadvisor.reports import document as doc

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~&])")
"""What could start markup inside a line: HTML, links, emphasis, code, headings, table cells."""
_LEVEL = 4
"""Level of a section's heading; the document's own is one above."""


def markdown(document: doc.Document) -> str:
    """Return the whole document, its name as the heading."""
    bold, more = document.summary
    parts = [
        f"### {' and '.join(map(code, document.name))}",
        f"**{text(bold)}** {text(more)}".rstrip() if bold else text(more),
        *map(_section, document.sections),
    ]
    return _paragraphs(parts) + "\n"


def _section(section: doc.Section) -> str:
    """Return a section with its heading; empty where nothing of it can be shown."""
    level = _LEVEL + bool(section.title)
    shown = [(block, _block(block, level)) for block in section.blocks]
    # What only introduces a plot says nothing without it.
    if not any(words for block, words in shown if getattr(block, "style", "") != "lead"):
        return ""
    body = _paragraphs(words for _, words in shown)
    if not section.title:
        return body
    if section.is_folded:
        return _details(section.title, body)
    return f"{'#' * _LEVEL} {text(section.title)}\n\n{body}"


def _block(block: doc.Block, level: int) -> str:
    match block:
        case doc.Paragraph():
            bold = block.style == "strong"
            return f"**{text(block.text)}**" if bold else text(block.text)
        case doc.Table():
            header = [text(column.title) for column in block.columns]
            left = [column.left or not place for place, column in enumerate(block.columns)]
            grid = _grid(header, left, (map(_content, row) for row in block.cells()))
            return _paragraphs([grid, *map(text, block.notes)])
        case doc.Bullets():
            return "\n".join(f"- {text(item)}" for item in block.items)
        case doc.Terms():
            return _terms(block)
        case doc.Listing():
            fence = "`" * max(3, _longest_run(block.code) + 1)
            lines = f"{fence}{block.language}\n{block.code.rstrip()}\n{fence}"
            if block.caption is None:
                return lines
            name, where = block.caption
            return f"{code(name)}: {text(where)}\n\n{lines}"
        case doc.Plot():
            return "" if block.table is None else _block(block.table, level)
        case doc.Item():
            title = f"{block.number}. {text(block.summary)} ({block.severity})"
            return f"{'#' * level} {title}\n\n{_terms(block.terms)}"
        case doc.Folded():
            return _details(block.title, _paragraphs(_block(each, level) for each in block.blocks))


def _terms(terms: doc.Terms) -> str:
    rows = ((text(name), _content(said)) for name, said in terms.rows if said)
    return _grid(["", ""], [True, True], rows)


def _grid(header: Sequence[str], left: Sequence[bool], rows: Iterable[Iterable[str]]) -> str:
    rules = ["---" if each else "--:" for each in left]
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rules, *rows])


def _content(content: doc.Content) -> str:
    if not isinstance(content, doc.Cell):
        return text(content)
    below = "; ".join(map(text, content.below))
    return f"{text(content.text)} ({below})" if below else text(content.text)


def _details(summary: str, body: str) -> str:
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>"


def _paragraphs(parts: Iterable[str]) -> str:
    return "\n\n".join(filter(None, parts))


def text(words: str) -> str:
    """Return the text on one line; what stands between backticks is code, no other markup works."""
    if isinstance(words, doc.Code):
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

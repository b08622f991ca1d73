"""What Markdown is made of: text and code that nothing in it can break out of, and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gpuadvisor.printable import printable

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~&])")
"""What could start markup inside a line: HTML, links, emphasis, code, headings, table cells."""


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: bool = True) -> str:
    """Return a table; all columns but the first are aligned right for figures."""
    rules = ["---"] + ["--:" if right else "---"] * (len(header) - 1)
    lines = [header, rules, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def details(summary: str, body: str) -> str:
    """Return what is folded until somebody wants it."""
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>"


def text(words: str) -> str:
    """Return the text on one line; what stands between backticks is code, no other markup works."""
    parts = re.split(r"`([^`]+)`", _one_line(words))
    return "".join(
        code(part) if place % 2 else _SPECIAL.sub(r"\\\1", part) for place, part in enumerate(parts)
    )


def code(words: str) -> str:
    """Return the text as inline code, also inside a table."""
    line = _one_line(words).replace("|", "\\|") or " "
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _one_line(words: str) -> str:
    """Return one line without control characters, as UTF-8 can hold it."""
    line = " ".join(words.encode("utf-8", "replace").decode().split())
    return printable(line)

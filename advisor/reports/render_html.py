"""Documents as one HTML page that needs nothing else: no network, no script, no other file."""

from __future__ import annotations

import re
from importlib.resources import files

from gpuadvisor.reports import document as doc
from gpuadvisor.reports import figures, svg
from gpuadvisor.reports.markup import Markup, element, join, void

# Nothing may be loaded, whatever a script or a kernel is called and whatever a trial printed.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_CORNER = element("span", "What", class_="unseen")
"""Heading of a column that has none, for those who hear the page."""
_SCROLLING = ("wide", "trials")
_CLASSES = {"lead": "lead", "muted": "muted", "note": "note muted"}


def html(document: doc.Document) -> str:
    """Return the whole page."""
    sections = (
        element("section", element("h2", each.title), *map(_block, each.blocks))
        for each in document.sections
    )
    body = element(
        "body",
        _masthead(document),
        element("main", _verdict(document), *sections),
        element("footer", *(element("p", words) for words in document.footer)),
    )
    return "<!DOCTYPE html>\n" + element("html", _head(document), body, lang="en") + "\n"


def _head(document: doc.Document) -> Markup:
    folder = files("gpuadvisor.reports")
    style = "\n".join((folder / name).read_text("utf-8") for name in document.styles)
    return element(
        "head",
        void("meta", charset="utf-8"),
        void("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        void("meta", name="viewport", content="width=device-width, initial-scale=1"),
        void("meta", name="color-scheme", content="light dark"),
        element("title", document.title),
        element("style", Markup(style)),
    )


def _masthead(document: doc.Document) -> Markup:
    """Return the head of the page: what ran, where, when and for how long."""
    maker, kind = document.kind
    # A line break must not part a word of the command, at a hyphen for example.
    words = " and ".join(document.name).split(" ")
    name = join((element("span", word) for word in words), " ")
    return element(
        "header",
        element("p", f"{maker} ", element("span", kind), class_="overline"),
        element("h1", element("code", name)),
        element("ul", *(element("li", fact) for fact in document.facts if fact), class_="facts"),
    )


def _verdict(document: doc.Document) -> Markup:
    """Return the conclusion: the one large figure of the page, and what it rests on."""
    figure, words = document.headline
    shown = [element("strong", figure), f" {words}"] if figure else [words]
    return element(
        "section",
        element("h2", "Conclusion", class_="unseen"),
        element("p", *shown, class_="figure"),
        *map(_block, document.conclusion),
        class_="verdict" if figure else "verdict none",
    )


def _block(block: doc.Block) -> Markup:
    match block:
        case doc.Paragraph():
            return element("p", _text(block.text), class_=_CLASSES.get(block.style))
        case doc.Table():
            return _table(block)
        case doc.Bullets():
            return element("ul", *(element("li", _text(item)) for item in block.items))
        case doc.Terms():
            return _terms(block)
        case doc.Listing():
            lines = element("pre", element("code", block.code.rstrip()), tabindex="0")
            if block.caption is None:
                return lines
            name, where = block.caption
            caption = element("p", element("code", name), f" {where}", class_="caption")
            return element("div", caption, lines, class_="snippet")
        case doc.Plot():
            return _plot(block)
        case doc.Item():
            heading = element("h3", element("span", block.severity), _text(block.summary))
            class_ = f"finding {block.severity}"
            return element("article", heading, _terms(block.terms), class_=class_)
        case doc.Folded():
            return _folded(block.title, join(map(_block, block.blocks)))


def _table(table: doc.Table) -> Markup:
    """Return a table whose rows are named by their first cell, and its notes."""
    titles = (column.title or _CORNER for column in table.columns)
    head = element("tr", *(element("th", title, scope="col") for title in titles))
    rows = (
        element("tr", element("th", _content(row[0]), scope="row"), *map(_cell, row[1:]))
        for row in table.cells()
    )
    body = element("table", element("thead", head), element("tbody", *rows),
                   class_=table.style or None)  # fmt: skip
    if table.style in _SCROLLING:
        body = element("div", body, class_="scroll", tabindex="0")
    return join([body, *(element("p", _text(note), class_="note muted") for note in table.notes)])


def _cell(content: doc.Content) -> Markup:
    missing = content == figures.NOT_MEASURED
    return element("td", _content(content), class_="muted" if missing else None)


def _content(content: doc.Content) -> Markup:
    if not isinstance(content, doc.Cell):
        return _text(content)
    shown = _text(content.text)
    if content.tip:
        shown = element("code", content.text, title=content.tip)
    if content.mark:
        shown = join([element("span", "", class_=content.mark, aria_hidden="true"), shown])
    return join([shown, *(element("small", _text(words)) for words in content.below)])


def _text(words: str) -> Markup:
    """Return a sentence with what stands between backticks as code."""
    if isinstance(words, Markup):
        return words
    if isinstance(words, doc.Code):
        return element("code", words)
    parts = re.split(r"`([^`]+)`", words)
    return join(element("code", part) if place % 2 else part for place, part in enumerate(parts))


def _terms(terms: doc.Terms) -> Markup:
    items = (
        element("div", element("dt", _text(name)), element("dd", _content(said)))
        for name, said in terms.rows
        if said
    )
    return element("dl", *items)


def _plot(plot: doc.Plot) -> Markup:
    """Return the plot for a wide and for a narrow page; the style sheet shows one of them."""
    parts = [element("p", _text(plot.lead), class_="lead")] if plot.lead else []
    if plot.legend:
        marks = (
            element("li", element("span", "", class_=mark, aria_hidden="true"), words)
            for mark, words in plot.legend
        )
        parts.append(element("ul", *marks, class_="legend"))
    parts.append(element("figure", plot.plot(svg.WIDE), plot.plot(svg.NARROW)))
    if plot.table is not None:
        parts.append(_folded("As a table", _table(plot.table)))
    return join(parts)


def _folded(title: str, body: Markup) -> Markup:
    return element("details", element("summary", title), body)

"""The help: what each key does, from the bindings themselves, and what the signs mean."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.dom import DOMNode
from textual.widgets import Static

from gpuadvisor.tui.watch.dialogs import PopUp
from gpuadvisor.tui.watch.page import Page

SIGNS = """\
…        not read yet
n/a      this GPU or driver does not have it
no perm  the driver does not allow it
stale    it had a value, but the driver
         does not answer: for how long
lost     the GPU is gone from the bus
?        beside a value: the other is unknown

A picture's blank stands for no reading; zero
is its lowest block. Rates are in bytes/s.
"""
WIDTH = 74
"""Characters of a line: a terminal of 80 has room for them."""
OURS = __name__.partition(".")[0]


def bindings_of(node: type[DOMNode]) -> Iterator[Binding]:
    """Yield our own bindings of an app or page, the most special first."""
    for cls in node.__mro__:
        if cls.__module__.startswith(OURS):
            for binding in Binding.make_bindings(cls.__dict__.get("BINDINGS", ())):
                if binding.description:
                    yield binding


def text(app: App[int], page: Page) -> str:
    """Return the help on a page."""
    lines = [*textwrap.wrap(page.ABOUT, WIDTH), ""]
    for node in (type(page), type(app)):
        keys: dict[str, list[str]] = {}
        for binding in bindings_of(node):
            what = binding.tooltip or binding.description
            keys.setdefault(what, []).append(app.get_key_display(binding))
        for what, names in keys.items():
            head = f"{' '.join(dict.fromkeys(names)):<8} "
            lines += textwrap.wrap(head + what, WIDTH, subsequent_indent=" " * len(head))
        lines.append("")
    return "\n".join(lines) + "\n" + SIGNS


SCROLLING = {
    "up": "scroll_up",
    "down": "scroll_down",
    "pageup": "scroll_page_up",
    "pagedown": "scroll_page_down",
    "home": "scroll_home",
    "end": "scroll_end",
}
"""What the keys do that do not leave the help: methods of Textual's widgets."""


class Help(PopUp[None]):
    """Covers the page until a key is pressed that does not scroll."""

    DEFAULT_CSS = """
    Help { align: center middle; background: $background; }
    Help > VerticalScroll {
        width: 78; max-width: 100%; height: auto; max-height: 100%;
        border: solid $primary; padding: 0 1;
    }
    """

    def __init__(self, said: str) -> None:
        super().__init__()
        self._said = said

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False) as panel:
            panel.border_title = "arrows, PgUp, PgDn: scroll   any other key: back"
            yield Static(self._said, markup=False)

    async def take(self, key: str) -> None:
        if key in SCROLLING:
            getattr(self.query_one(VerticalScroll), SCROLLING[key])(animate=False)
        else:
            self.dismiss()

    def on_click(self) -> None:
        self.dismiss()

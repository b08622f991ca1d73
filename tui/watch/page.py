"""What all pages have: a head, a notice where something is wrong, their body and the keys line."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, cast

from rich.style import Style as RichStyle
from rich.text import Text
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Static

from gpuadvisor.tui.watch.cells import Style
from gpuadvisor.tui.watch.watched import Watched

if TYPE_CHECKING:
    from gpuadvisor.tui.watch.app import Watch

GAP = 2
"""Blank characters between two keys."""


class Page(Screen[None]):
    """One page; `tui/watch/pages/__init__.py` tells how to add one."""

    KEY: ClassVar[str]
    """The key that opens it, a digit."""
    NAME: ClassVar[str]
    """As it is called in the head, the help and the palette."""
    ABOUT: ClassVar[str] = ""
    """What it shows, in one sentence."""

    @classmethod
    def unavailable(cls, watched: Watched) -> str | None:
        """Return why there is nothing to show and what to do about it; None where there is."""
        return None

    @abstractmethod
    def compose_page(self) -> ComposeResult:
        """Yield the widgets of the page."""

    @abstractmethod
    def draw(self) -> None:
        """Show what is known now; called with new values, and after a key or a change of size."""

    @property
    def watched(self) -> Watched:
        return self._watch.watched

    def rich(self, style: Style) -> str | RichStyle:
        """Return how a text looks in the theme."""
        return style.value

    def compose(self) -> ComposeResult:
        yield Static(id="head", markup=False)
        yield Static(id="notice", markup=False)
        problem = self.unavailable(self.watched)
        if problem is None:
            yield from self.compose_page()
        else:
            yield Static(problem, id="unavailable", markup=False)
        yield Static(id="keys", markup=False)

    def redraw(self) -> None:
        """Draw the head, the notice, the page and the keys line."""
        if not self.is_mounted:
            return
        self._show("#head", self._head())
        notice = self.watched.state.notice
        self.query_one("#notice").display = bool(notice)
        self._show("#notice", Text(notice))
        self._show("#keys", self._keys())
        if not self.query("#unavailable"):
            self.draw()

    def _show(self, widget: str, text: Text) -> None:
        """Give a widget its text, if it has another one."""
        static = self.query_one(widget, Static)
        if static.content != text:
            static.update(text)

    def on_screen_resume(self) -> None:
        self.call_after_refresh(self.redraw)

    def on_resize(self) -> None:
        self.call_after_refresh(self.redraw)

    @property
    def _watch(self) -> Watch:
        return cast("Watch", self.app)

    def _head(self) -> Text:
        """Return the pages with their keys, and beside them what is watched."""
        text = Text(no_wrap=True, overflow="crop")
        for page in self._watch.pages:
            is_this = isinstance(self, page)
            click = {"@click": f"app.open('{page.KEY}')"}
            text.append(f" {page.KEY} {page.NAME} ", "reverse bold" if is_this else "")
            text.stylize(RichStyle(meta=click), len(text) - len(page.NAME) - 4)
        room = self.size.width - len(text) - GAP
        if room > 0:
            heading = self.watched.state.heading(room)
            text.append(" " * (room - len(heading) + GAP) + heading)
        return text

    def _keys(self) -> Text:
        """Return as many keys as fit; a click on one is the key."""
        text = Text(no_wrap=True, overflow="crop")
        for active in self.active_bindings.values():
            binding = active.binding
            if not binding.show or not active.enabled:
                continue
            entry = f"{self.app.get_key_display(binding)} {binding.description}"
            if len(text) + len(entry) > self.size.width:
                break
            style = RichStyle(meta={"@click": f"app.simulate_key('{binding.key}')"})
            text.append(entry, style)
            text.append(" " * GAP)
        return text

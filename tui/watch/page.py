"""What all pages have: a head, a notice where something is wrong, their body and the keys line."""

from __future__ import annotations

import textwrap
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Static

from gpuadvisor.tui.watch.cells import Line, Span, Style
from gpuadvisor.tui.watch.lines import Lines
from gpuadvisor.tui.watch.themes import LOOKS, TERMINAL
from gpuadvisor.tui.watch.watched import Watched

if TYPE_CHECKING:
    from textual.binding import Binding

    from gpuadvisor.tui.watch.app import Watch

GAP = 2
"""Blank characters between two keys."""
MOST_NOTICE, NOTICE_SHARE = 3, 3
"""Lines of a notice, and the part of what is between head and keys that it takes at most."""
Clicks = dict[tuple[int, int], str]
"""Textual's actions, by the line and the place of a text in it."""


class Page(Screen[None]):
    """One page; `tui/watch/pages/__init__.py` tells how to add one."""

    AUTO_FOCUS: ClassVar[str | None] = ""  # keys are the page's until it gives them to a widget
    KEY: ClassVar[str]
    """The key that opens it, a digit."""
    NAME: ClassVar[str]
    """As it is called in the head, the help and the palette."""
    ABOUT: ClassVar[str] = ""
    """What it shows, in one sentence."""

    of: Watched | None = None
    """The machine whose page it is, where there are several; None: the one that is chosen."""

    @classmethod
    def is_offered(cls, watched: Watched) -> bool:
        """Return whether the page is in the head at all."""
        return True

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
        return self.of or self._watch.watched

    def rich(self, style: Style) -> str:
        """Return how a text looks in the theme, in Rich's words."""
        return LOOKS.get(self.app.theme, TERMINAL).styles[style]

    def compose(self) -> ComposeResult:
        yield Lines("head")
        yield Lines("notice")
        problem = self.unavailable(self.watched)
        if problem is None:
            yield from self.compose_page()
        else:
            yield Static(problem, id="unavailable", markup=False)
        yield Lines("keys")

    @property
    def notice(self) -> str:
        """What is wrong or odd, in one sentence; empty where nothing is."""
        remote = self.watched.remote
        return self.watched.state.notice or (remote.remark if remote else None) or ""

    @property
    def name_there(self) -> str:
        """The least that is to be read of what is watched."""
        return self.watched.state.host

    def heading(self, width: int) -> str:
        """Return what is watched, as much of it as fits."""
        return self.watched.state.heading(width)

    def redraw(self) -> None:
        """Draw the head, the notice, the page and the keys line."""
        if not (self.is_mounted and self.app.is_running and self.display):
            return  # it has not begun, or its widgets are being taken away
        head, clicks = self._head()
        self.query_one("#head", Lines).show([head], clicks=clicks)
        notice = self._watch.said or self.notice
        most = min(max((self.size.height - 2) // NOTICE_SHARE, 1), MOST_NOTICE)
        width = max(self.size.width, 1)
        lines = textwrap.wrap(notice, width, max_lines=most, placeholder="…")
        self.query_one("#notice").display = bool(lines)
        self.query_one("#notice", Lines).show([[(line, Style.WARNING)] for line in lines])
        keys, clicks = self._keys()
        self.query_one("#keys", Lines).show([keys], clicks=clicks)
        if not self.query("#unavailable"):
            self.draw()
        if self.watched.state.has_begun:
            self._watch.show_through()

    def on_screen_resume(self) -> None:
        self.call_after_refresh(self.redraw)

    def on_resize(self) -> None:
        self.call_after_refresh(self.redraw)

    @property
    def _watch(self) -> Watch:
        return cast("Watch", self.app)

    def _head(self) -> tuple[Line, Clicks]:
        """Return the pages with their keys, and beside them what is watched: of another machine at
        least its name, for which the other pages' names make room."""
        spans: list[Span] = []
        clicks: Clicks = {}
        offered = self._watch.pages or [type(self)]
        used = sum(len(page.KEY) + len(page.NAME) + 3 for page in offered) + GAP
        is_brief = bool(self.watched.remote) and used + len(self.name_there) > self.size.width
        for page in offered:
            is_this = isinstance(self, page)
            clicks[0, len(spans)] = f"app.open('{page.KEY}')"
            style = Style.TITLE if is_this else Style.QUIET
            name = page.KEY if is_brief and not is_this else f"{page.KEY} {page.NAME}"
            spans.append((f"[{name}]" if is_this else f" {name} ", style))
        room = self.size.width - sum(len(text) for text, _ in spans) - GAP
        if room > 0:
            heading = self.heading(room)
            spans.append((" " * (room - len(heading) + GAP) + heading, Style.PLAIN))
        return spans, clicks

    def _width_of(self, binding: Binding) -> int:
        return len(f"{self.app.get_key_display(binding)} {binding.description}") + GAP

    def _keys(self) -> tuple[Line, Clicks]:
        """Return as many keys as fit, how to leave and get help among them; a click on one is the
        key."""
        shown = [a for a in self.active_bindings.values() if a.binding.show and a.enabled]
        own = [a.binding for a in shown if a.node is not self.app]
        everywhere = [a.binding for a in shown if a.node is self.app]
        spans: list[Span] = []
        clicks: Clicks = {}
        room = self.size.width + GAP
        while own and sum(map(self._width_of, own + everywhere)) > room:
            own.pop()
        for binding in own + everywhere:
            room -= self._width_of(binding)
            if room < 0:
                break
            clicks[0, len(spans)] = clicks[0, len(spans) + 1] = f"app.simulate_key('{binding.key}')"
            key = self.app.get_key_display(binding)
            spans += [(key, Style.ACCENT), (f" {binding.description}{' ' * GAP}", Style.QUIET)]
        return spans, clicks

"""The page of several machines, which is there with `watch --host`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from gpuadvisor.tui.watch import cells, hosts
from gpuadvisor.tui.watch.app import HOSTS, Watch
from gpuadvisor.tui.watch.lines import Lines
from gpuadvisor.tui.watch.page import Page
from gpuadvisor.tui.watch.watched import Watched


class Hosts(Page):
    """All machines at a glance."""

    KEY = HOSTS
    NAME = "hosts"
    ABOUT = (
        "Each machine, those in trouble first, with the worst of its GPUs and why. The other pages"
        " are those of the machine that is chosen here."
    )
    DEFAULT_CSS = "#hosts { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "choose a host", key_display="arrows"),
        Binding("shift+tab", "move(-1)", show=False),
        Binding("down,tab", "move(1)", show=False),
        Binding("pageup,left_square_bracket", "move(-10)", show=False),
        Binding("pagedown,right_square_bracket", "move(10)", show=False),
        Binding("home", "move(-1000)", show=False),
        Binding("end", "move(1000)", show=False),
        Binding("enter", "open", "open it", key_display="Enter", tooltip="open its GPUs; 0: back"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._shown = hosts.Shown()
        self._is_chosen = False
        """Whether somebody has chosen a machine; until then it is the one in most trouble."""

    @classmethod
    def is_offered(cls, watched: Watched) -> bool:
        return watched.remote is not None

    @property
    def notice(self) -> str:
        """Nothing: what is wrong with a machine stands in its line."""
        return ""

    @property
    def name_there(self) -> str:
        return _counted(self._watch.hosts)

    def heading(self, width: int) -> str:
        every = self._watch.hosts
        gone = sum(hosts.problem(each) is not None for each in every)
        text = _counted(every) + (f", {gone} unreadable" if gone else "")
        return cells.fit([text, _counted(every), ""], width)

    def compose_page(self) -> ComposeResult:
        yield Lines("hosts")

    def draw(self) -> None:
        lines = self.query_one("#hosts", Lines)
        size = lines.size
        if size.width and size.height:
            app = self._watch
            if not self._is_chosen:
                app.watched = hosts.ordered(app.hosts)[0]
            self._shown = hosts.shown(app.hosts, size.width, size.height, app.watched)
            lines.show(self._shown.lines, self._shown.cursor)

    def on_screen_suspend(self) -> None:
        """Have the machine stay that is looked at on another page."""
        self._is_chosen = True

    def action_move(self, down: int) -> None:
        """Choose another machine."""
        listed = hosts.ordered(self._watch.hosts)
        place = listed.index(self._watch.watched) + down
        self._choose(listed[min(max(place, 0), len(listed) - 1)])

    def action_open(self) -> None:
        self._watch.action_open("1")

    def on_lines_chosen(self, message: Lines.Chosen) -> None:
        """Choose the machine that was clicked on; open the one that is chosen already."""
        if message.lines.id == "hosts" and message.number < len(self._shown.hosts):
            host = self._shown.hosts[message.number]
            if host is self._watch.watched:
                self.action_open()
            else:
                self._choose(host)

    def _choose(self, host: Watched) -> None:
        self._watch.watched, self._is_chosen = host, True
        self.redraw()


PAGE = Hosts


class WatchHosts(Watch):
    """The program with several machines: it begins with the page of all of them."""

    DEFAULT_MODE = HOSTS
    MODES: ClassVar[dict[str, str | Callable[[], Screen[None]]]] = {HOSTS: Hosts}


def _counted(every: Sequence[Watched]) -> str:
    return f"{len(every)} host" + ("s" if len(every) != 1 else "")

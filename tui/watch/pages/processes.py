"""The processes on the GPUs: who they are, what they use, and what can be done about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from gpuadvisor.domain.telemetry import GpuProcess
from gpuadvisor.printable import printable
from gpuadvisor.tui.watch import acting, curves, process_list
from gpuadvisor.tui.watch.cells import Line, Style
from gpuadvisor.tui.watch.curing import CURES, Curing
from gpuadvisor.tui.watch.curves import Identity
from gpuadvisor.tui.watch.dialogs import Question, Reading
from gpuadvisor.tui.watch.lines import Lines, MadeLines
from gpuadvisor.tui.watch.process_list import ORDERS, Row, View

MOST_ASKED = 10
"""Processes that a question names."""


class Processes(Curing):
    """A line a process and GPU."""

    KEY = "2"
    NAME = "processes"
    ABOUT = (
        "Who is on which GPU, with what. The keys are nvitop's, but for one: / searches here, and"
        " o with a capital letter reverses."
    )
    DEFAULT_CSS = """
    #processes { height: 1fr; }
    #titles, #about { height: auto; }
    #search { dock: bottom; height: 1; border: none; padding: 0; display: none;
              background: $background; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "slash",
            "search",
            "search",
            key_display="/",
            tooltip="show those with these words in user, command, container, PID or gpu3",
        ),
        Binding(
            "o",
            "sort",
            "sort",
            tooltip="sort; then n GPU, u user, p PID, g GPU memory, s SM,"
            " c CPU, m RAM, t age; a capital letter: the other way round",
        ),
        Binding("comma", "next_order(-1)", show=False),
        Binding(
            "full_stop", "next_order(1)", "previous or next order", key_display=", .", show=False
        ),
        Binding("t", "tree", "tree", tooltip="put processes below their parents, or not"),
        Binding("g", "one_gpu", "one GPU", tooltip="only those of the chosen line's GPU, or all"),
        Binding("enter", "curve", "curve", key_display="Enter", tooltip="what it used over time"),
        Binding("e", "environment", "environment", tooltip="its environment variables"),
        *CURES,
        Binding("T", "signal('T')", "terminate", key_display="T", tooltip="end it: SIGTERM"),
        Binding("K", "signal('K')", "kill", key_display="K", show=False, tooltip="SIGKILL"),
        Binding("I", "signal('I')", "interrupt", key_display="I", show=False, tooltip="SIGINT"),
        Binding(
            "P",
            "signal('P')",
            "pause",
            key_display="P",
            show=False,
            tooltip="pause it, or let it go on: SIGSTOP, SIGCONT",
        ),
        Binding(
            "space",
            "tag",
            "select",
            key_display="Space",
            tooltip="select for a signal; without a selection it goes to the line chosen",
        ),
        Binding(
            "escape",
            "clear",
            "clear",
            key_display="Esc",
            show=False,
            tooltip="end the search and the selection",
        ),
        Binding("up,shift+tab,alt+k", "move(-1)", show=False),
        Binding(
            "down",
            "move(1)",
            "choose",
            key_display="arrows",
            show=False,
            tooltip="choose a line; Home and End the first and the last",
        ),
        Binding("tab,alt+j", "move(1)", show=False),
        Binding("pageup,left_square_bracket", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding(
            "right_square_bracket", "page(1)", "page up and down", key_display="[ ]", show=False
        ),
        Binding("home", "move(-100000)", show=False),
        Binding("end", "move(100000)", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._view = View()
        self._rows: list[Row] = []
        self._at: Identity | None = None
        """The chosen process, which stays so wherever its line goes."""
        self._place = 0
        self._is_sorting = False

    def compose_page(self) -> ComposeResult:
        yield Lines("about")
        yield Lines("titles")
        yield Lines("processes")
        yield Input(placeholder="search", id="search", compact=True)

    def draw(self) -> None:
        state = self.watched.state
        body = self.query_one("#processes", Lines)
        if not body.size.width:
            return
        if self._view.selected:
            known = {each.identity for each in process_list.listed(state)}
            self._view = replace(self._view, selected=self._view.selected & known)
        self._rows = process_list.listed(state, self._view)
        self._follow()
        selected = self._view.selected
        titles, make = process_list.made_lines(self._rows, state, body.size.width, selected)
        self.query_one("#about", Lines).show(self._about())
        self.query_one("#titles", Lines).show([titles])
        if self._rows:
            body.show(MadeLines(make, len(self._rows)), self._place)
        else:
            body.show(self._nothing())

    # -- what is shown -----------------------------------------------------------------------------

    def _about(self) -> list[Line]:
        if self._is_sorting:
            choices = "  ".join(f"{key} {order.name}" for key, order in ORDERS.items())
            return [[("sort by: ", Style.WARNING), (choices, Style.PLAIN)]]
        view = self._view
        count = "1 process" if len(self._rows) == 1 else f"{len(self._rows)} processes"
        parts = [count, f"by {view.order.name}"]
        if view.is_reversed:
            parts[-1] += ", the other way round"
        if view.is_tree:
            parts.append("tree")
        if view.gpu is not None:
            parts.append(f"GPU {self.watched.state.labels.get(view.gpu, '?')} only (g: all)")
        if view.search:
            parts.append(f"with '{view.search}' (Esc: all)")
        if view.selected:
            parts.append(f"{len(view.selected)} selected (Esc: none)")
        found: list[Line] = [[("  ".join(parts), Style.QUIET)]]
        note = process_list.note(self.watched.state)
        return [*found, [(note, Style.WARNING)]] if note else found

    def _nothing(self) -> list[Line]:
        if self._view.search or self._view.gpu:
            return [[("None is like that: Esc shows all.", Style.QUIET)]]
        if self.watched.state.latest.processes is None or process_list.note(self.watched.state):
            return []
        return [[("No process is on a GPU.", Style.QUIET)]]

    def _follow(self) -> None:
        """Find the line of the chosen process; where it has gone, its place is kept."""
        for number, row in enumerate(self._rows):
            if row.identity == self._at:
                self._place = number
                return
        self._place = min(self._place, max(len(self._rows) - 1, 0))
        self._at = self._rows[self._place].identity if self._rows else None

    # -- keys --------------------------------------------------------------------------------------

    def action_move(self, down: int) -> None:
        """Choose another line."""
        self._go(self._place + down)

    def action_page(self, down: int) -> None:
        """Choose a line that many screens away."""
        self._go(self._place + down * max(self.query_one("#processes").size.height - 1, 1))

    def on_lines_chosen(self, message: Lines.Chosen) -> None:
        if message.lines.id == "processes":
            self._go(message.number)

    def _go(self, place: int) -> None:
        if self._rows:
            self._place = min(max(place, 0), len(self._rows) - 1)
            row = self._rows[self._place]
            self._at, self.watched.gpu = row.identity, row.process.gpu
            self.draw()

    def action_sort(self) -> None:
        self._is_sorting = True
        self.draw()

    def on_key(self, event: object) -> None:
        """Take the letter after `o`."""
        if not self._is_sorting:
            return
        self._is_sorting = False
        letter = getattr(event, "character", None) or ""
        order = ORDERS.get(letter.lower())
        if order is not None:
            self._view = replace(self._view, order=order, is_reversed=letter.isupper())
        event.stop()  # type: ignore[attr-defined]
        event.prevent_default()  # type: ignore[attr-defined]
        self.draw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave the letter after `o` to `on_key`."""
        return not self._is_sorting

    def action_next_order(self, step: int) -> None:
        orders = list(ORDERS.values())
        order = orders[(orders.index(self._view.order) + step) % len(orders)]
        self._view = replace(self._view, order=order)
        self.draw()

    def action_tree(self) -> None:
        self._view = replace(self._view, is_tree=not self._view.is_tree)
        self.draw()

    def action_one_gpu(self) -> None:
        chosen = self.watched.chosen
        wanted = None if self._view.gpu or chosen is None else chosen.uuid
        self._view = replace(self._view, gpu=wanted)
        self.draw()

    def action_tag(self) -> None:
        if self._at is not None:
            self._view = replace(self._view, selected=self._view.selected ^ {self._at})
            self.action_move(1)

    def action_search(self) -> None:
        search = self.query_one("#search", Input)
        search.display = True
        search.value = self._view.search
        search.focus()

    def on_input_changed(self, message: Input.Changed) -> None:
        if message.input.display:
            self._view = replace(self._view, search=message.value)
            self.draw()

    def on_input_submitted(self) -> None:
        self._end_search()

    def action_clear(self) -> None:
        self._end_search()
        self._view = replace(self._view, search="", gpu=None, selected=frozenset())
        self.draw()

    def _end_search(self) -> None:
        search = self.query_one("#search", Input)
        if search.display:
            search.display = False
            self.set_focus(None)

    # -- one process -------------------------------------------------------------------------------

    @property
    def _chosen(self) -> GpuProcess | None:
        return self._rows[self._place].process if self._rows else None

    def to_cure(self) -> GpuProcess | str:
        return self._chosen or "there is no process to choose"

    def action_environment(self) -> None:
        process = self._chosen
        if process is None:
            return
        if self.watched.recording is not None:
            self._watch.say("A recording holds no environments.")
            return
        if (remote := self.watched.remote) is not None:
            self._watch.say(f"{remote.host.name} does not tell environments to other machines.")
            return
        found = acting.environment(process)
        lines: list[Line] = [[(line, Style.PLAIN)] for line in found]
        self.app.push_screen(Reading(f"environment of {process.pid}", lambda width: lines))

    def action_curve(self) -> None:
        process = self._chosen
        if process is None:
            return
        uses = list(self.watched.state.curves.of(process))
        total = self.watched.state.latest.value(process.gpu, "memory_total_bytes")

        def make(width: int) -> Sequence[Line]:
            return curves.lines(uses, width, total)

        called = printable(process.command or process.name or "process")
        reading = Reading(f"{process.pid} over time: {called}", make)
        self.app.push_screen(reading)
        if self.watched.store is not None:
            self._read_stored(process, uses, reading)

    @work(thread=True, exit_on_error=False)
    def _read_stored(self, process: GpuProcess, uses: list[curves.Use], reading: Reading) -> None:
        """Put what the store has of the last hour before what was seen since."""
        assert self.watched.store is not None
        first_s = uses[0].time_s if uses else self.watched.state.now_s
        uses[:0] = curves.stored(self.watched.store, process, first_s)
        self.app.call_from_thread(reading.redraw)

    def action_signal(self, key: str) -> None:
        """Ask, and send a signal to the selected processes, or to the chosen one."""
        if (why := self.watched.hands_off) is not None:
            self._watch.say(f"No signal is sent: {why}.")
            return
        rows = [row for row in self._rows if row.identity in self._view.selected]
        wanted = [row.process for row in rows] or [p for p in [self._chosen] if p is not None]
        wanted = list({each.pid: each for each in wanted}.values())
        if not wanted:
            return
        number, name, effect = acting.SIGNALS[key]
        if key == "P" and all(acting.is_paused(each) for each in wanted):
            number, name, effect = acting.CONTINUE
        lines = [f"{p.pid}  {p.user or '?'}  {p.command or p.name or '?'}" for p in wanted]
        if len(lines) > MOST_ASKED:
            lines[MOST_ASKED:] = [f"and {len(lines) - MOST_ASKED} more"]
        count = "this process" if len(wanted) == 1 else f"these {len(wanted)} processes"
        title = f"{name} {count}? {number.name} {effect}."

        def answered(is_wanted: bool | None) -> None:
            self._watch.say(acting.send(wanted, number) if is_wanted else "No signal was sent.")

        self.app.push_screen(Question(title, lines), answered)


PAGE = Processes

"""A page with a list of what is stored, and all of the one that is chosen."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.style import Style as RichStyle
from rich.text import Span, Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.message import Message
from textual.widgets import DataTable, Static

from gpuadvisor.errors import AdvisorError
from gpuadvisor.tui.watch.asking import told
from gpuadvisor.tui.watch.cells import Style
from gpuadvisor.tui.watch.page import Page
from gpuadvisor.tui.watch.themes import LOOKS, TERMINAL, Look
from gpuadvisor.tui.watch.watched import Watched

if TYPE_CHECKING:
    from rich.console import Console

READ_EVERY_S = 2.0
"""How often the list is read while it is shown; a read takes some milliseconds."""


@dataclass(frozen=True)
class Entry:
    """A line of the list."""

    key: str
    """What it is called in the store."""
    cells: tuple[tuple[str, Style], ...]
    stamp: object = None
    """Whatever has changed where all that is told of it has to be read again."""


class Came(Message):
    """Something that a thread has read."""

    def __init__(self, what: str, of: str, found: Any) -> None:
        super().__init__()
        self.what = what
        self.of = of
        self.found = found


class Listed(Page):
    """Read and rendered in threads, so that a key is never kept waiting by a disk."""

    AUTO_FOCUS: ClassVar[str | None] = "#listed"
    TITLES: ClassVar[tuple[str, ...]]
    EMPTY: ClassVar[str]
    """What is said where there is nothing, with how to get something."""
    DEFAULT_CSS = """
    Listed #listed { height: auto; max-height: 45%; }
    Listed #listed, Listed #listed > .datatable--header, Listed #listed > .datatable--cursor,
    Listed #listed > .datatable--hover, Listed #listed > .datatable--header-hover,
    Listed #listed > .datatable--even-row, Listed #listed > .datatable--odd-row {
        background: $background; color: $foreground;
    }
    Listed #listed > .datatable--header { text-style: underline; }
    Listed #listed:focus > .datatable--cursor { text-style: reverse; }
    Listed #about { height: 1fr; border-top: solid $primary; }
    Listed.-whole #listed { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter", "whole", "all of it", priority=True, key_display="Enter",
            tooltip="show all of the chosen one in the whole page, or the list again",
        ),
        Binding("w", "write", "HTML page", tooltip="write an HTML page of it into this folder"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._entries: Sequence[Entry] | None = None
        self._titled = 0
        self._read_s = -READ_EVERY_S
        self._busy: set[str] = set()
        """What threads are at: `list`, or the key of an entry."""
        self._told: dict[str, tuple[object, Text]] = {}
        """What is told of entries, by key and width, and the stamp for which it was read."""

    @classmethod
    def unavailable(cls, watched: Watched) -> str | None:
        """Return that another machine does not tell what its users have stored."""
        if watched.remote is None:
            return None
        name = watched.remote.host.name
        return (
            f"{name} does not tell other machines of {cls.NAME}, which are its users' own:"
            f" `gpuadvisor watch` on {name} lists yours."
        )

    @abstractmethod
    def entries(self) -> Sequence[Entry]:
        """Return the list; called in a thread. An AdvisorError is shown."""

    @abstractmethod
    def tell(self, key: str, console: Console) -> None:
        """Print all of an entry; called in a thread. An AdvisorError is shown."""

    @abstractmethod
    def html(self, key: str) -> tuple[str, str]:
        """Return a file name and the page of an entry; called in a thread."""

    def compose_page(self) -> ComposeResult:
        yield DataTable(id="listed", cursor_type="row", cell_padding=1)
        with VerticalScroll(id="about"):
            yield Static(markup=False)

    @property
    def chosen(self) -> Entry | None:
        """The entry under the cursor."""
        place, entries = self.query_one(DataTable).cursor_row, self._entries or ()
        return entries[place] if 0 <= place < len(entries) else None

    @property
    def _made(self) -> str | None:
        """What is to be chosen as soon as it is listed."""
        made = self.watched.made
        return made[1] if made is not None and made[0] == self.KEY else None

    def draw(self) -> None:
        if self._made is not None or time.monotonic() - self._read_s >= READ_EVERY_S:
            self._read_s = time.monotonic()
            self._begin("list", "", self.entries)
        self._draw_about()

    def on_data_table_row_highlighted(self) -> None:
        self._draw_about()

    def action_whole(self) -> None:
        self.toggle_class("-whole")
        panel = self.query_one("#about") if self.has_class("-whole") else self.query_one("#listed")
        panel.focus()
        self.call_after_refresh(self._draw_about)

    def action_write(self) -> None:
        entry = self.chosen
        if entry is None:
            return

        def write() -> str:
            name, page = self.html(entry.key)
            path = Path(name).absolute()
            try:
                path.write_text(page, "utf-8")
            except OSError as error:
                return f"{path} cannot be written: {error.strerror}"
            return f"written: {path}"

        self._begin("written", entry.key, write)

    def on_came(self, message: Came) -> None:
        self._busy.discard(message.what + message.of)
        found = message.found
        if message.what == "written":
            self._watch.say(str(found))
        elif message.what == "list":
            if isinstance(found, AdvisorError):
                self._tell(Text(str(found), self.rich(Style.WARNING)))
                return
            if found != self._entries:
                self._fill(found)
            self._go_to_made()
            self._draw_about()
        else:
            error = isinstance(found, AdvisorError)
            text = Text(str(found), self.rich(Style.WARNING)) if error else found
            self._told[message.of] = message.what, text
            self._draw_about()

    def _fill(self, entries: Sequence[Entry]) -> None:
        """Show the list; where it has the same entries, only cells that changed."""
        table: DataTable[Text] = self.query_one(DataTable)
        before, shown, self._entries = self.chosen, self._entries or (), entries
        keys = [entry.key for entry in entries]
        if table.columns and keys == [entry.key for entry in shown]:
            for row, (old, new) in enumerate(zip(shown, entries, strict=True)):
                for column, (was, cell) in enumerate(zip(old.cells, new.cells, strict=True)):
                    if was != cell:
                        table.update_cell_at(
                            Coordinate(row, column), self._text(cell), update_width=True
                        )
            return
        table.clear(columns=True)
        for title in self.TITLES:
            table.add_column(title)
        for entry in entries:
            table.add_row(*map(self._text, entry.cells), key=entry.key)
        if before is not None and before.key in keys:
            table.move_cursor(row=keys.index(before.key))

    def _go_to_made(self) -> None:
        keys = [entry.key for entry in self._entries or ()]
        if self._made in keys:
            self.query_one(DataTable).move_cursor(row=keys.index(self._made))
            self.watched.made = None

    def _text(self, cell: tuple[str, Style]) -> Text:
        text, style = cell
        return Text(text, self.rich(style))

    def _draw_about(self) -> None:
        if self._entries is None:
            self._tell(Text("Reading ..."))
            return
        entry = self.chosen
        if entry is None:
            self._tell(Text(self.EMPTY))
            return
        width = self.query_one("#about").scrollable_content_region.width
        place = f"{entry.key}\0{width}"
        stamp, text = self._told.get(place, (None, Text("Reading ...")))
        self._tell(text)
        if width and stamp != repr(entry.stamp):
            self._begin(repr(entry.stamp), place, lambda: printed(width, self._teller(entry.key)))

    def _teller(self, key: str) -> Callable[[Console], None]:
        return lambda console: self.tell(key, console)

    def _tell(self, text: Text) -> None:
        text = recoloured(text, LOOKS.get(self.app.theme, TERMINAL))
        static = self.query_one("#about > Static", Static)
        if static.content != text:
            static.update(text)

    def _begin(self, what: str, of: str, work: Callable[[], Any]) -> None:
        """Do it in a thread, unless one is at it; the page does not wait for it when it ends."""
        if what + of in self._busy:
            return
        self._busy.add(what + of)

        def run() -> None:
            try:
                found = work()
            except Exception as error:
                found = told(error)
            if self.is_running:
                self.post_message(Came(what, of, found))

        threading.Thread(target=run, name=f"{self.NAME}: {what}", daemon=True).start()


def printed(width: int, to: Callable[[Console], None]) -> Text:
    """Return what is printed on a terminal of so many characters."""
    import io

    from rich.console import Console

    file = io.StringIO()
    to(Console(file=file, width=width, force_terminal=True, color_system="standard",
               highlight=False, legacy_windows=False))  # fmt: skip
    return Text.from_ansi(file.getvalue())


MEANT = {1: Style.ERROR, 2: Style.GOOD, 3: Style.WARNING, 4: Style.LIGHT, 6: Style.ACCENT}
"""What the terminal's colours stand for in what is printed, by their numbers."""


def recoloured(text: Text, look: Look) -> Text:
    """Return what was printed in the terminal's colours in those of a theme."""
    if look is TERMINAL:
        return text
    made = text.copy()
    made.spans = [Span(each.start, each.end, _in_look(each.style, look)) for each in text.spans]
    return made


def _in_look(style: str | RichStyle, look: Look) -> str | RichStyle:
    meant = None
    if isinstance(style, RichStyle) and style.color is not None:
        meant = MEANT.get(style.color.number) if style.color.number is not None else None
    if meant is None or not isinstance(style, RichStyle):
        return style
    return RichStyle(bold=style.bold, dim=style.dim) + RichStyle.parse(look.styles[meant])

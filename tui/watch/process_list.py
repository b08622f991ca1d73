"""The processes on the GPUs as rows: their order, which of them, as a tree, and their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuadvisor.domain.telemetry import GpuProcess
from gpuadvisor.printable import printable
from gpuadvisor.tui.watch import cells, table
from gpuadvisor.tui.watch.cells import Line, Style
from gpuadvisor.tui.watch.curves import Identity, identity
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.table import Cell, Column

NOT_LISTED_BYTES = 1 << 30
"""Memory in use that no listed process accounts for, from which on that is said: the driver itself
keeps some hundred MB. [own]"""
MOST_NAMED = 8
"""GPUs that a sentence names."""


@dataclass(frozen=True)
class Row:
    """A process on one GPU."""

    process: GpuProcess
    depth: int = 0
    """How deep it stands in the tree."""

    @property
    def identity(self) -> Identity:
        return identity(self.process)


@dataclass(frozen=True)
class Order:
    """What processes are sorted by."""

    key: str
    """The letter after `o`, as in nvitop."""
    name: str
    of: Callable[[GpuProcess], object]
    is_down: bool = True
    """Whether the greatest comes first."""


def _number(value: float | None) -> float:
    return -1.0 if value is None else value


ORDERS = {
    each.key: each
    for each in (
        Order("n", "GPU", lambda p: 0, is_down=False),
        Order("u", "user", lambda p: p.user or "", is_down=False),
        Order("p", "PID", lambda p: p.pid, is_down=False),
        Order("g", "GPU memory", lambda p: _number(p.memory_bytes)),
        Order("s", "SM", lambda p: _number(p.sm_utilization_pct)),
        Order("c", "CPU", lambda p: _number(p.cpu_pct)),
        Order("m", "RAM", lambda p: _number(p.host_memory_bytes)),
        Order("t", "age", lambda p: -_number(p.started_s)),
    )
}
"""Orders of the processes on the page, by the key that chooses one."""


@dataclass(frozen=True)
class View:
    """Which processes are shown and how."""

    order: Order = ORDERS["n"]
    is_reversed: bool = False
    is_tree: bool = False
    search: str = ""
    """Only those with these words in their user, command, container, number or GPU."""
    gpu: str | None = None
    """Only those of this GPU (UUID)."""
    selected: frozenset[Identity] = field(default_factory=frozenset)


def listed(state: WatchState, view: View = View()) -> list[Row]:
    """Return the processes as chosen; none where they were not listed so far."""
    places = {gpu.uuid: place for place, gpu in enumerate(state.gpus)}
    found = [
        each
        for each in state.latest.processes or ()
        if view.gpu in (None, each.gpu) and _matches(each, state, view.search)
    ]
    found.sort(key=lambda p: (places.get(p.gpu, len(places)), -_number(p.memory_bytes), p.pid))
    down = view.order.is_down is not view.is_reversed
    found.sort(key=view.order.of, reverse=down)  # type: ignore[arg-type]
    if view.order.key == "n" and view.is_reversed:
        found.sort(key=lambda p: -places.get(p.gpu, len(places)))
    return _tree(found) if view.is_tree else [Row(each) for each in found]


def _matches(process: GpuProcess, state: WatchState, search: str) -> bool:
    if not search:
        return True
    said = (
        process.user,
        process.command or process.name,
        process.container,
        str(process.pid),
        f"gpu{state.labels.get(process.gpu, '')}",
    )
    text = " ".join(filter(None, said)).lower()
    return all(word in text for word in search.lower().split())


def _tree(found: Sequence[GpuProcess]) -> list[Row]:
    """Put each process below its parent on the same GPU; one without stays where it is."""
    by_pid = {(each.gpu, each.pid) for each in found if not each.is_host_pid}
    children: dict[tuple[str, int], list[GpuProcess]] = {}
    roots = []
    for each in found:
        parent = (each.gpu, each.parent_pid or 0)
        if each.parent_pid != each.pid and parent in by_pid:
            children.setdefault(parent, []).append(each)
        else:
            roots.append(each)
    rows: list[Row] = []
    waiting = [Row(each) for each in reversed(roots)]
    while waiting:
        row = waiting.pop()
        rows.append(row)
        below = children.pop((row.process.gpu, row.process.pid), ())
        waiting += [Row(each, row.depth + 1) for each in reversed(below)]
    return rows


def is_stopped(process: GpuProcess) -> bool:
    """Return whether a process of this machine was paused, by a signal or a debugger."""
    if process.is_host_pid or process.started_s is None:
        return False
    try:
        stat = Path(f"/proc/{process.pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[:1] in (["T"], ["t"])


PAUSED = "(paused) "
"""Stands before the command of a process that was paused."""


def is_old(state: WatchState) -> bool:
    """Return whether the processes are those of before, as nothing can be read now."""
    return bool(state.latest.processes) and state.latest.processes_at(state.now_s) is None


def note(state: WatchState) -> str:
    """Return what is to be said of the list, in one sentence; empty where it is whole."""
    processes = state.latest.processes
    if is_old(state):
        return OLD if state.latest.problem else NOT_LISTED
    if state.withheld:
        return state.withheld
    if processes is None:
        return "The driver has not listed processes so far." if state.frames else ""
    if untold := [state.labels[g.uuid] for g in state.gpus if not state.latest.lists(g.uuid)]:
        return f"{_named(untold)}: the driver does not list the processes now."
    strangers = sum(each.is_host_pid for each in processes)
    if strangers:
        which = "This number is" if strangers == 1 else f"{strangers} numbers are"
        return (
            f"{which} the host's and cannot be looked up in this container: start it with "
            "--pid=host, or run this on the host."
        )
    if unknown := _unaccounted(state, processes):
        return (
            f"{_named(unknown)}: memory is in use by processes that the driver does not "
            "list here, as in another container: run this on the host."
        )
    return ""


def _named(labels: Sequence[str]) -> str:
    return f"GPU {', '.join(labels)}" if len(labels) <= MOST_NAMED else f"{len(labels)} GPUs"


def _unaccounted(state: WatchState, processes: Iterable[GpuProcess]) -> list[str]:
    """Return the GPUs with much memory in use and no process."""
    seen = {each.gpu for each in processes}
    parents = {gpu.parent_uuid for gpu in state.gpus}
    return [
        state.labels[gpu.uuid]
        for gpu in state.gpus
        if gpu.uuid not in seen
        and gpu.uuid not in parents
        and (state.latest.value(gpu.uuid, "memory_used_bytes") or 0) >= NOT_LISTED_BYTES
    ]


# -- columns ---------------------------------------------------------------------------------------


def _memory(state: WatchState, row: Row, width: int) -> Cell:
    used = row.process.memory_bytes
    if used is None:
        return Cell(("n/a",), Style.QUIET)
    total = state.latest.value(row.process.gpu, "memory_total_bytes")
    style = cells.load_style(100 * used / total) if total else Style.PLAIN
    return Cell((cells.size(used),), style)


def _percent(value: Callable[[GpuProcess], float | None], is_load: bool = True) -> Show:
    def show(state: WatchState, row: Row, width: int) -> Cell:
        pct = value(row.process)
        if pct is None:
            return Cell(("n/a",), Style.QUIET)
        return Cell((f"{pct:.0f}%",), cells.load_style(pct) if is_load else Style.PLAIN)

    return show


def _text(value: Callable[[GpuProcess], str | None], missing: str = "?") -> Show:
    def show(state: WatchState, row: Row, width: int) -> Cell:
        text = value(row.process)
        return Cell((text,)) if text else Cell((missing,), Style.QUIET)

    return show


def _age(state: WatchState, row: Row, width: int) -> Cell:
    began_s = row.process.started_s
    if began_s is None:
        return Cell(("?",), Style.QUIET)
    age_s = state.now_s - began_s  # whose seconds would move all the time
    return Cell((cells.age(age_s) if age_s >= 60 else "<1 min",))


def _ram(state: WatchState, row: Row, width: int) -> Cell:
    used = row.process.host_memory_bytes
    return Cell(("n/a",), Style.QUIET) if used is None else Cell((cells.size(used),))


def _command(state: WatchState, row: Row, width: int) -> Cell:
    process = row.process
    if process.is_host_pid:
        return Cell(("of the host: unknown in this container",), Style.QUIET)
    branch = "  " * (row.depth - 1) + "└ " if row.depth else ""
    said = process.command or process.name
    text = printable(said) if said else "gone, or another user's"
    if state.is_here and is_stopped(process):
        text = PAUSED + text
    return Cell((branch + text,), Style.PLAIN if said else Style.QUIET)


Show = Callable[[WatchState, Row, int], Cell]
_KINDS = {"compute": "C", "graphics": "G"}
BY_CONTAINER: Column[Row] = Column(
    ("container",), 9, 12, _text(lambda p: p.container, "-"), is_number=False
)
COLUMNS: tuple[Column[Row], ...] = (
    Column(
        ("GPU",),
        0,
        3,
        lambda s, r, _: Cell((s.labels.get(r.process.gpu, "?"),)),
        most=7,
        by_content=True,
    ),
    Column(("PID",), 1, 7, lambda s, r, _: Cell((str(r.process.pid),))),
    Column(("",), 10, 1, _text(lambda p: _KINDS.get(p.kind, "?"))),
    Column(("user",), 5, 8, _text(lambda p: p.user), most=16, is_number=False, by_content=True),
    BY_CONTAINER,
    Column(("GPU memory", "GPU mem"), 2, 9, _memory),
    Column(("SM",), 4, 4, _percent(lambda p: p.sm_utilization_pct)),
    Column(("CPU",), 6, 5, _percent(lambda p: p.cpu_pct, is_load=False)),
    Column(("RAM",), 7, 9, _ram),
    Column(("age",), 8, 6, _age),
    Column(("command",), 3, 14, _command, most=400, is_number=False),
)
"""All columns, from left to right."""
OLD = "These were here when they were listed last: nothing can be read now."
NOT_LISTED = "These were here when they were listed last: the driver does not list them now."
TAG = "*"
"""Stands before a process that is selected."""


def lines(rows: Sequence[Row], state: WatchState, width: int) -> list[Line]:
    """Return the titles and a line for each row."""
    titles, make = made_lines(rows, state, width)
    return [titles, *map(make, range(len(rows)))]


def made_lines(
    rows: Sequence[Row], state: WatchState, width: int, selected: frozenset[Identity] = frozenset()
) -> tuple[Line, Callable[[int], Line]]:
    """Return the titles, and what makes the line of a row by its number."""
    columns = [c for c in COLUMNS if c is not BY_CONTAINER or _has_containers(rows)]
    room = width - len(TAG) if selected else width
    placed = table.chosen(columns, rows, state, room)
    titles = table.titles(placed, state)

    def made(number: int) -> Line:
        line = table.row(placed, state, rows[number])
        return [(text, Style.QUIET) for text, _ in line] if is_old(state) else line

    if not selected:
        return titles, made

    def tagged(number: int) -> Line:
        tag = TAG if rows[number].identity in selected else " "
        return [(tag, Style.WARNING), *made(number)]

    return [(" ", Style.WARNING), *titles], tagged


def _has_containers(rows: Iterable[Row]) -> bool:
    return any(each.process.container for each in rows)

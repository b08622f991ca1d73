"""The first page as lines, for any size: the host, a line a GPU or a grid of them, why they are
slow, and below it who uses them and what happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpuadvisor.domain.telemetry import HOST, Gpu
from gpuadvisor.tui.watch import cells, columns, process_list, table
from gpuadvisor.tui.watch.cells import SEVERITY_STYLES, Line, Span, Style
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.why import WORKS

MOST_ROWS = 8
"""GPUs from which on more stand in a grid, as long as they do not all fit as lines."""
SIDE_BY_SIDE = 150
"""Characters from which on processes and events stand beside each other."""
TITLES = 1
"""Lines of the table's titles; where these, the GPUs and a sentence leave no more, the machine has
no line: a terminal of 20x5 has three."""
LEAST_EVENTS, LEAST_PROCESSES = 3, 4
"""Lines of each part, with its title, below which it is left out."""
WHY_SHARE = 3
"""The sentences take at most this part of what is left below the GPUs."""
BAR = 10
AGED_S = 60.0
"""Seconds after which it is looked anew at which events are recent."""
AGES_S = 10.0
"""Seconds after which the ages of processes are told anew, where none are listed: they are told in
minutes."""


@dataclass
class Shown:
    """The page, and which GPU stands where."""

    lines: list[Line] = field(default_factory=list)
    cursor: int | None = None
    """The line of the chosen GPU; None in a grid, where its cell shows it."""
    gpus: dict[int, list[str]] = field(default_factory=dict)
    """UUIDs of the GPUs in a line, from left to right."""
    cell_width: int = 0
    """Characters of a cell of the grid; 0 where there is none."""
    columns: int = 1
    """GPUs side by side."""


Below = Callable[[int, int], list[Line]]
"""Makes what stands below the GPUs, of a width and a height."""


def shown(
    state: WatchState, width: int, height: int, chosen: Gpu | None, below: Below | None = None
) -> Shown:
    """Return the page in that size; `below` comes before processes and events."""
    page = Shown()
    sentences = whys(state, width, chosen)
    gpus = min(len(state.gpus), MOST_ROWS)
    if height > gpus + TITLES + bool(sentences) or not gpus:
        page.lines.append(host(state, width))
    if not gpus:
        return page
    if len(state.gpus) <= MOST_ROWS or len(state.gpus) + LEAST_PROCESSES < height // 2:
        _rows(page, state, width, height - bool(sentences), chosen)
    else:
        _grid(page, state, width, height, chosen)
    left = height - len(page.lines)
    if below is not None and left >= LEAST_PROCESSES:
        page.lines += below(width, left)[:left]
        page.lines += _bottom(state, width, height - len(page.lines), chosen)
        return page
    room = max(left // WHY_SHARE, min(left, 2))
    page.lines += _few(sentences, room, width)
    left = height - len(page.lines)
    page.lines += _bottom(state, width, left, chosen)
    return page


def host(state: WatchState, width: int) -> Line:
    """Return the line of the machine: CPU, memory, load, disks and network, as many as fit."""
    if not state.frames:
        return []

    def now(metric: str) -> float | None:
        return state.latest.value(HOST, metric, state.now_s)

    parts: list[list[Span]] = []
    cpu = now("cpu_pct")
    if cpu is not None:
        parts.append(_gauge("CPU", cpu, f"{cpu:.0f}%"))
    used, total = now("host_memory_used_bytes"), now("host_memory_total_bytes")
    if used is not None and total:
        text = f"{used / 2**30:.0f}/{total / 2**30:.0f} GiB"
        parts.append(_gauge("RAM", 100 * used / total, text))
    load = now("load_1m")
    if load is not None:
        parts.append(_part("load", f"{load:.1f}"))
    read, written, busy = (
        now(f"disk_{name}") for name in ("read_bytes_per_s", "write_bytes_per_s", "busy_pct")
    )
    if read is not None and written is not None:
        share = "" if busy is None else f" {busy:.0f}%"
        parts.append(_part("disk", f"{cells.rate(read)}/{cells.rate(written)}{share}"))
    received, sent = (now(f"network_{name}_bytes_per_s") for name in ("receive", "transmit"))
    if received is not None and sent is not None:
        parts.append(_part("net", f"{cells.rate(received)}/{cells.rate(sent)}"))
    waiting = now("io_stall_pct")
    if waiting is not None and waiting >= 1:
        parts.append(_part("waits for disks", f"{waiting:.0f}%"))
    line: list[Span] = []
    for part in parts:
        longer = [*line, *([("   ", Style.PLAIN)] if line else []), *part]
        if sum(len(text) for text, _ in longer) > width:
            break
        line = longer
    return line or [(cells.fit(["no values of the host"], width), Style.QUIET)]


def _gauge(name: str, pct: float, text: str) -> list[Span]:
    return [
        (f"{name} ", Style.QUIET),
        (cells.bar(pct, BAR), cells.load_style(pct)),
        (f" {text}", Style.PLAIN),
    ]


def _part(name: str, text: str) -> list[Span]:
    return [(f"{name} ", Style.QUIET), (text, Style.PLAIN)]


def _rows(page: Shown, state: WatchState, width: int, height: int, chosen: Gpu | None) -> None:
    placed = columns.chosen(state, width)
    room = max(height - len(page.lines) - TITLES, 1)
    titles = table.titles(placed, state)
    page.lines.append(_counting(titles, len(state.gpus) - room, width))
    first = _window(state.gpus, chosen, room)
    for gpu in state.gpus[first : first + room]:
        if chosen is not None and gpu.uuid == chosen.uuid:
            page.cursor = len(page.lines)
        page.gpus[len(page.lines)] = [gpu.uuid]
        page.lines.append(table.row(placed, state, gpu))


def _counting(line: Line, left_out: int, width: int) -> Line:
    """Return a line of titles that ends with how many GPUs have no room, where there are such; it
    gives up the words that stand there."""
    said = f" +{left_out} GPU{'' if left_out == 1 else 's'}"
    if left_out <= 0 or len(said) > width:
        return line
    text, room = "".join(text for text, _ in line), width - len(said)
    whole = text[:room] if text[room : room + 1] in ("", " ") else text[:room].rpartition(" ")[0]
    return [(whole.ljust(room), Style.TITLE), (said, Style.QUIET)]


def _window(gpus: Sequence[Gpu], chosen: Gpu | None, room: int) -> int:
    """Return the first line that is shown, so that the chosen one is."""
    if chosen is None or len(gpus) <= room:
        return 0
    place = next((n for n, gpu in enumerate(gpus) if gpu.uuid == chosen.uuid), 0)
    return min(max(place - room + 1, 0), len(gpus) - room)


# -- the grid --------------------------------------------------------------------------------------

CELL_WIDTHS = (78, 58, 38, 28, 24, 18, 13)
"""Characters of a cell, of which the widest is taken with which all GPUs fit."""
GRID_SHARE = 0.7
"""Share of the page's height, 0 to 1, that the grid of GPUs takes at most where it can."""


def _grid(page: Shown, state: WatchState, width: int, height: int, chosen: Gpu | None) -> None:
    room = max(height - len(page.lines) - 1, 1)
    count = len(state.gpus)
    fitting = [each for each in CELL_WIDTHS if each <= width] or [width]
    for cell_width in fitting:
        across = max((width + table.GAP) // (cell_width + table.GAP), 1)
        if -(-count // across) <= room * GRID_SHARE:
            break
    page.cell_width, page.columns = cell_width, across
    rows = -(-count // across)
    if rows > room > 1:
        room -= 1  # a line counts those that have no room
    first = 0
    if rows > room and chosen is not None:
        place = next((n for n, gpu in enumerate(state.gpus) if gpu.uuid == chosen.uuid), 0)
        first = min(max(place // across - room + 1, 0), rows - room)
    for number in range(first, min(rows, first + room)):
        line: list[Span] = []
        gpus = state.gpus[number * across : (number + 1) * across]
        for gpu in gpus:
            if line:
                line.append((" ", Style.PLAIN))
            is_chosen = chosen is not None and gpu.uuid == chosen.uuid
            line += table.padded(cell(state, gpu, cell_width, is_chosen), cell_width)
        page.gpus[len(page.lines)] = [gpu.uuid for gpu in gpus]
        page.lines.append(line)
    left_out = count - sum(map(len, page.gpus.values()))
    if left_out and len(page.lines) < height - 1:
        page.lines.append(_counting([], left_out, width))


def cell(state: WatchState, gpu: Gpu, width: int, is_chosen: bool) -> list[Span]:
    """Return a GPU in a few characters: its number, a bar, utilization, memory, and a word."""
    label = f"{state.labels[gpu.uuid]:>3}"
    mark = ">" if is_chosen else " "
    spans: list[Span] = [(mark + label, Style.TITLE if is_chosen else Style.PLAIN)]
    said = state.why(gpu)
    used = state.reading(gpu.uuid, "gpu_utilization_pct")
    if used is None or not used.is_ok or used.value is None:
        text = cells.fit(said.texts, width - len(label) - 2)
        return [*spans, (f" {text}", said.style)]
    is_wrong = said.rank < WORKS
    room = width - len(label) - 2 - len(" 100%")
    memory = _memory(state, gpu) if room >= 14 else ""
    word = said.texts[-1] if room >= 32 else ""
    bar = max(room - len(memory) - (len(word) + 1 if word else 0), 1)
    if room >= 32:
        bar = min(bar, 16)
        word = cells.fit(said.texts, max(room - len(memory) - bar - 1, 1))
    spans.append((" " + cells.bar(used.value, bar), cells.load_style(used.value)))
    spans.append((f"{used.value:>4.0f}%", said.style if is_wrong else Style.PLAIN))
    if memory:
        spans.append((memory, Style.QUIET))
    if word:
        spans.append((f" {word}", said.style))
    return spans


def _memory(state: WatchState, gpu: Gpu) -> str:
    used = state.latest.value(gpu.uuid, "memory_used_bytes", state.now_s)
    return "" if used is None else f" {used / 2**30:>4.0f}G"


# -- below the GPUs --------------------------------------------------------------------------------


def whys(state: WatchState, width: int, chosen: Gpu | None = None) -> list[Line]:
    """Return a sentence for each GPU of which there is something to say, that of the chosen one
    first and then the worst; those of which the same is said share one."""
    groups: dict[tuple[int, str], list[Gpu]] = {}
    for gpu in state.gpus:
        said = state.why(gpu)
        if said.rank < WORKS:
            groups.setdefault((said.rank, said.sentence), []).append(gpu)
    ordered = sorted(
        groups.items(),
        key=lambda item: (chosen not in item[1], item[0][0], state.gpus.index(item[1][0])),
    )
    found: list[Line] = []
    for (_, _sentence), gpus in ordered:
        said = state.why(gpus[0])
        head = f"GPU {cells.several([state.labels[gpu.uuid] for gpu in gpus])}: "
        text = cells.fit(said.texts, max(width - len(head), 1))
        found.append([(head[:width], Style.TITLE), (text, said.style)])
    return found


def _few(sentences: Sequence[Line], room: int, width: int) -> list[Line]:
    """Return as many sentences as there is room for; where that is not all, the last line counts
    the rest, unless it is the only one."""
    room = max(room, 0)
    if len(sentences) <= room or room < 2:
        return [*sentences[:room]]
    more = f"and {len(sentences) - room + 1} more"
    said = cells.fit([f"{more}: the chosen GPU's comes first", more], width)
    return [*sentences[: room - 1], [(said, Style.QUIET)]]


def _bottom(state: WatchState, width: int, height: int, chosen: Gpu | None) -> list[Line]:
    if height < LEAST_EVENTS:
        return []
    if width >= SIDE_BY_SIDE:
        left = width * 3 // 5
        return table.beside(
            _processes(state, left - 2, height, chosen),
            _events(_event_lines(state, width - left, height - 1), width - left),
            left,
        )
    told = _event_lines(state, width, height)
    count = len(told)
    events = min(count + 1, max(height // 3, LEAST_EVENTS)) if count else 0
    if height - events < LEAST_PROCESSES:
        events = height
    above = _processes(state, width, height - events, chosen) if events < height else []
    above += [[]] * (height - events - len(above))
    return [*above, *(_events(told[: events - 1], width) if events else [])]


def _processes(state: WatchState, width: int, height: int, chosen: Gpu | None) -> list[Line]:
    """Return the processes of the chosen GPU, those with most memory first, then of the others.

    They are listed every five seconds, and made into lines as often.
    """
    age = int(state.now_s / AGES_S)
    note = process_list.note(state)
    of = (state.latest.processes, state.gpus, note, width, height, chosen, age)
    return state.kept("processes", of, lambda: _made_processes(state, width, height, chosen, note))


def _made_processes(
    state: WatchState, width: int, height: int, chosen: Gpu | None, note: str
) -> list[Line]:
    every = process_list.listed(state, process_list.View(order=process_list.ORDERS["g"]))
    first = [row for row in every if chosen is not None and row.process.gpu == chosen.uuid]
    others = [row for row in every if chosen is None or row.process.gpu != chosen.uuid]
    where = f"GPU {state.labels[chosen.uuid]}" if chosen is not None else "all GPUs"
    title = f"processes of {where} first, by memory" if others and first else "processes"
    found: list[Line] = [table.rule(title, width)]
    if note:
        found.append([(cells.fit([note], width), Style.WARNING)])
    room = height - len(found) - 1
    rows = [*first, *others]
    if not rows:
        if not note:
            found.append([("No process is on a GPU.", Style.QUIET)])
        return found
    kept = rows if len(rows) <= room else rows[: max(room - 1, 0)]
    found += process_list.lines(kept, state, width)
    if len(kept) < len(rows):
        found.append([(f"{len(rows) - len(kept)} more: press 2", Style.QUIET)])
    return found[:height]


def _events(told: Sequence[Line], width: int) -> list[Line]:
    return [table.rule("events", width), *(told or [[("None in the last day.", Style.QUIET)]])]


def _event_lines(state: WatchState, width: int, height: int) -> list[Line]:
    most = max(height, 0)

    def made() -> list[Line]:
        lines = state.log.lines(
            state.labels, width, state.now_s, height=most, is_seen=state.is_seen
        )
        return [[(text, SEVERITY_STYLES[severity])] for text, severity in lines]

    hour = state.now_s // AGED_S  # what is of the day before goes
    readable = state.is_silent, state.latest.problem is None
    of = (state.log.changes, state.gpus, width, most, hour, readable)
    return state.kept("events", of, made)

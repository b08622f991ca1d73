"""Several machines as lines, for any size: those in trouble first, each with the worst of its GPUs
and why, and below it all of them."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuadvisor.domain.telemetry import Gpu
from gpuadvisor.tui.watch import cells, overview, table
from gpuadvisor.tui.watch.cells import Line, Span, Style
from gpuadvisor.tui.watch.watched import Watched
from gpuadvisor.tui.watch.why import FREE, WORKS, Why

GONE = -1
"""The rank of a machine of which nothing is known now, before those of `why`."""
BAR = 8
LEAST_SENTENCE = 24
"""Characters that a sentence needs at least; for it memory and the bar are left out."""
INDENT = 2


@dataclass
class Shown:
    """The page, and which machine stands where."""

    lines: list[Line] = field(default_factory=list)
    hosts: list[Watched] = field(default_factory=list)
    """The machine of each line."""
    cursor: int | None = None


def problem(host: Watched) -> str | None:
    """Return why there is nothing of now to show of a machine; None where there is."""
    told = host.remote.problem if host.remote else None
    return told or host.state.latest.problem or None


def worst(host: Watched) -> tuple[Gpu, Why] | None:
    """Return the GPU that is most in trouble, and why; None where there is none."""
    said = [(gpu, host.state.why(gpu)) for gpu in host.state.gpus]
    return min(said, key=lambda each: each[1].rank, default=None)


def trouble(host: Watched) -> tuple[int, int]:
    """Return what orders machines: what is wrong first, and then on how many GPUs it is."""
    if problem(host) is not None:
        return GONE, 0
    ranks = [host.state.why(gpu).rank for gpu in host.state.gpus]
    least = min(ranks, default=FREE + 1)
    return least, -ranks.count(least)


def ordered(hosts: Sequence[Watched]) -> list[Watched]:
    """Return the machines, those in trouble first; else in the order in which they were named."""
    return sorted(hosts, key=trouble)


def shown(hosts: Sequence[Watched], width: int, height: int, chosen: Watched) -> Shown:
    """Return the page in that size: a line for every machine, and the GPUs of as many as fit, the
    chosen one's before all."""
    listed = ordered(hosts)
    name_width = max((len(each.state.host) for each in hosts), default=0)
    name_width = min(name_width, max(width // 3, 1))
    heads = {id(each): _heads(each, width, name_width) for each in listed}
    left = height - sum(map(len, heads.values()))
    below: dict[int, list[Line]] = {}
    for each in [chosen, *(other for other in listed if other is not chosen)]:
        rows = gpus(each, width) or (_whole_problem(each, width) if each is chosen else [])
        if rows and len(rows) <= left:
            below[id(each)] = rows
            left -= len(rows)
    page = Shown()
    for each in listed:
        if each is chosen:
            page.cursor = len(page.lines)
        block = heads[id(each)] + below.get(id(each), [])
        page.lines += block
        page.hosts += [each] * len(block)
    return page


def line(host: Watched, width: int, name_width: int) -> Line:
    """Return the line of a machine."""
    said = problem(host)
    name = cells.fit([host.state.host], name_width).ljust(name_width)
    if said is not None:
        return [(name, Style.ERROR), *_gone(host, said, width - name_width)]
    if not host.state.frames:
        return [(name, Style.QUIET), ("  is asked ...", Style.QUIET)]
    spans: list[Span] = [(name, Style.TITLE), (f" {_count(host):>7}", Style.QUIET)]
    sentence, style = _sentence(host)
    for part in (_load(host), _memory(host)):
        used = sum(len(text) for text, _ in [*spans, *part])
        if part and width - used - 2 >= LEAST_SENTENCE:
            spans += part
    room = width - sum(len(text) for text, _ in spans) - 2
    if room > 0:
        spans.append(("  " + cells.fit(sentence, room), style))
    return spans


def gpus(host: Watched, width: int) -> list[Line]:
    """Return all GPUs of a machine in as few lines as they need; none where it has gone."""
    state = host.state
    if problem(host) is not None or not state.gpus:
        return []
    room = max(width - INDENT, 1)
    fitting = [each for each in overview.CELL_WIDTHS if each <= room] or [room]

    def across(cell_width: int) -> int:
        return max((room + table.GAP) // (cell_width + table.GAP), 1)

    cell_width = next((w for w in fitting if across(w) >= len(state.gpus)), fitting[-1])
    count = across(cell_width)
    rows: list[Line] = []
    for first in range(0, len(state.gpus), count):
        spans: list[Span] = [(" " * INDENT, Style.PLAIN)]
        for place, gpu in enumerate(state.gpus[first : first + count]):
            if place:
                spans.append((" " * table.GAP, Style.PLAIN))
            cell = overview.cell(state, gpu, cell_width, is_chosen=False)
            spans += table.padded(cell, cell_width)
        rows.append(spans)
    return rows


def _whole_problem(host: Watched, width: int) -> list[Line]:
    """Return all of why there is nothing to show of a machine, where a line has no room for it."""
    said = problem(host)
    if said is None or len(said) < width - LEAST_SENTENCE - len(host.state.host):
        return []
    lines = textwrap.wrap(said, max(width - INDENT, 10), break_on_hyphens=False)
    return [[(" " * INDENT + each, Style.WARNING)] for each in lines]


def _heads(host: Watched, width: int, name_width: int) -> list[Line]:
    """Return the line of a machine, and what is odd about it."""
    found = [line(host, width, name_width)]
    remark = host.remote.remark if host.remote and problem(host) is None else None
    if remark is not None:
        text = cells.fit([remark], max(width - INDENT, 1))
        found.append([(" " * INDENT, Style.PLAIN), (text, Style.WARNING)])
    return found


def _gone(host: Watched, said: str, room: int) -> list[Span]:
    """Return since when nothing is known of a machine and why, and what was known last."""
    silent_s = host.remote.silent_s if host.remote else None
    is_heard = host.remote is not None and host.remote.is_heard
    if is_heard:
        head = "  not readable"
    elif silent_s is None:
        head = "  never heard"
    else:
        head = f"  last heard {cells.age(silent_s)} ago"
    last = _last(host)
    if not last or room - len(head) - len(last) < LEAST_SENTENCE:
        last = ""
    text = cells.fit([f": {said}"], max(room - len(head) - len(last), 1))
    return [(head, Style.ERROR), (last, Style.QUIET), (text, Style.WARNING)]


def _last(host: Watched) -> str:
    """Return what was read last of a machine that has gone, and when."""
    found = [
        reading
        for gpu in host.state.gpus
        if (reading := host.state.reading(gpu.uuid, "gpu_utilization_pct")) is not None
        and reading.value is not None
    ]
    if not found:
        return ""
    mean = sum(each.value or 0 for each in found) / len(found)
    when = cells.time_of_day(max(each.since_s for each in found))
    return f" ({_count(host)}, {mean:.0f}% at {when})"


def _count(host: Watched) -> str:
    parents = {gpu.parent_uuid or gpu.uuid for gpu in host.state.gpus}
    return "1 GPU" if len(parents) == 1 else f"{len(parents)} GPUs"


def _values(host: Watched, metric: str) -> list[float]:
    state = host.state
    found = (state.latest.value(gpu.uuid, metric, state.now_s) for gpu in state.gpus)
    return [value for value in found if value is not None]


def _load(host: Watched) -> list[Span]:
    """Return the mean utilization; nothing where it is known of none."""
    used = _values(host, "gpu_utilization_pct")
    if not used:
        return []
    mean = sum(used) / len(used)
    bar = cells.bar(mean, BAR)
    return [("  ", Style.PLAIN), (bar, cells.load_style(mean)), (f"{mean:>4.0f}%", Style.PLAIN)]


def _memory(host: Watched) -> list[Span]:
    """Return the memory in use; nothing where it is not known of all of them."""
    used, total = _values(host, "memory_used_bytes"), _values(host, "memory_total_bytes")
    if not used or not len(used) == len(total) == len(host.state.gpus):
        return []
    return [(f"  {sum(used) / 2**30:>4.0f}/{sum(total) / 2**30:.0f} GiB", Style.QUIET)]


def _sentence(host: Watched) -> tuple[tuple[str, ...], Style]:
    """Return what is to be said of a machine, at different lengths."""
    found = worst(host)
    if found is None:
        return ("no GPU is there now",), Style.WARNING
    gpu, said = found
    if said.rank < WORKS:
        label = host.state.labels[gpu.uuid]
        return tuple(f"GPU {label}: {text}" for text in said.texts), said.style
    counts = Counter(host.state.why(each).texts[-1] for each in host.state.gpus)
    if len(counts) == 1:
        return said.texts, said.style
    return (", ".join(f"{count} {word}" for word, count in counts.items()),), Style.PLAIN

"""Everything that is known of one GPU, and why the rest is not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from gpuadvisor.domain.accumulators import Reading
from gpuadvisor.domain.metrics import GPU_METRICS, Metric
from gpuadvisor.domain.telemetry import Gpu, State
from gpuadvisor.tui.watch import cells
from gpuadvisor.tui.watch.cells import Span, Style, style_of
from gpuadvisor.tui.watch.state import WatchState

ENTRY_WIDTH = 40
"""Characters of a metric and its value: the longest name has 25."""
NAME_WIDTH = 26
GAP = 2


def lines(state: WatchState, gpu: Gpu, width: int) -> Iterator[list[Span]]:
    """Yield the lines, each as texts that follow one another."""
    yield [(cells.fit(_identities(state, gpu), width), Style.PLAIN)]
    readings = [(metric, state.reading(gpu.uuid, metric.name)) for metric in GPU_METRICS]
    yield from _why(state, readings, width)
    shown = [(m, r) for m, r in readings if r is not None and r.state not in cells.PLACEHOLDERS]
    yield from _grid(state, shown, width)


def _identities(state: WatchState, gpu: Gpu) -> list[str]:
    """Return what the GPU is called, the fullest first."""
    capability = gpu.compute_capability
    parts = [f"GPU {state.labels[gpu.uuid]}", gpu.name, gpu.uuid]
    more = [gpu.pci_bus_id or "", f"compute {capability[0]}.{capability[1]}" if capability else ""]
    return ["  ".join(filter(None, some)) for some in (parts + more, parts, parts[:2])]


def _why(
    state: WatchState, readings: list[tuple[Metric, Reading | None]], width: int
) -> Iterator[list[Span]]:
    """Yield a line for each reason why metrics have no value, with how many or which."""
    groups: dict[tuple[State, str], list[tuple[Metric, Reading]]] = {}
    for metric, reading in readings:
        if reading is not None and not reading.is_ok:
            groups.setdefault((reading.state, reading.reason), []).append((metric, reading))
    for (_, reason), group in groups.items():
        first = group[0][1]
        sign = cells.placeholders(first, state.now_s)[0]
        names = ", ".join(cells.words(metric) for metric, _ in group)
        said = f"{sign}: {reason}" if reason else sign
        texts = (f"{said} ({names})", f"{said} ({len(group)} metrics)", said)
        yield [(cells.fit(texts, width), style_of(first))]


def _grid(
    state: WatchState, shown: list[tuple[Metric, Reading]], width: int
) -> Iterator[list[Span]]:
    """Yield the metrics in as many columns as fit, from top to bottom."""
    count = max((width + GAP) // (ENTRY_WIDTH + GAP), 1)
    each = max((width + GAP) // count - GAP, 1)
    height = -(-len(shown) // count)
    columns = [shown[place : place + height] for place in range(0, len(shown), max(height, 1))]
    for row in zip_longest(*columns):
        line: list[Span] = []
        for metric, reading in filter(None, row):
            line += (*_entry(state, metric, reading, each), (" " * GAP, Style.PLAIN))
        yield line[:-1]


def _entry(state: WatchState, metric: Metric, reading: Reading, width: int) -> tuple[Span, Span]:
    name_width = min(NAME_WIDTH, width * 2 // 3)
    room = width - name_width
    value = "" if reading.value is None else cells.full(metric, reading.value)
    texts: tuple[str, ...] = (value,)
    if not reading.is_ok:
        placeholders = cells.placeholders(reading, state.now_s)
        texts = (f"{placeholders[0]}, was {value}", *placeholders) if value else placeholders
    name = cells.fit([cells.words(metric)], name_width - 1).ljust(name_width)
    return (name, Style.QUIET), (cells.fit(texts, room).ljust(room), style_of(reading))

"""What a process used over time: from the listings that were seen, or out of a daemon's store."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from gpuadvisor.domain.telemetry import Frame, GpuProcess
from gpuadvisor.tui.watch import cells, history
from gpuadvisor.tui.watch.cells import Line, Style

KEPT_LISTINGS = 120
"""Of each process: ten minutes of a listing every five seconds, 20 kB."""
STORED_S = 3600.0
"""How far back the store is read: a second's work for 64 processes."""


class Use(NamedTuple):
    """What a process used when it was listed."""

    time_s: float
    memory_bytes: int | None
    sm_utilization_pct: float | None
    cpu_pct: float | None
    host_memory_bytes: int | None


Identity = tuple[str, int, float | None]
"""The GPU's UUID, the process's number, and when it began: the number alone is used again."""


def identity(process: GpuProcess) -> Identity:
    """Return what tells a process on a GPU from all others."""
    return process.gpu, process.pid, process.started_s


class Curves:
    """The last listings of each process that is there."""

    def __init__(self) -> None:
        self._kept: dict[Identity, deque[Use]] = {}

    def add(self, frame: Frame) -> None:
        """Take in a frame's listing; what is not listed any more is forgotten."""
        if frame.processes is None:
            return
        kept: dict[Identity, deque[Use]] = {}
        for each in frame.processes:
            uses = self._kept.get(identity(each))
            kept[identity(each)] = uses = uses or deque(maxlen=KEPT_LISTINGS)
            uses.append(
                Use(
                    frame.time_s,
                    each.memory_bytes,
                    each.sm_utilization_pct,
                    each.cpu_pct,
                    each.host_memory_bytes,
                )
            )
        self._kept = kept

    def of(self, process: GpuProcess) -> Sequence[Use]:
        """Return what it used, oldest first."""
        return self._kept.get(identity(process), ())


def stored(folder: Path, process: GpuProcess, until_s: float) -> list[Use]:
    """Return what the store has of a process; StoreError where it fails, slow for long times."""
    from gpuadvisor.storage.telemetry.reader import TelemetryReader

    since_s = max(until_s - STORED_S, process.started_s or 0.0)
    rows = TelemetryReader(folder).processes(since_s, until_s)
    found: list[Use] = []
    for chunk in rows.chunks:
        places = {name: place for place, name in enumerate(("time_s", "gpu", *chunk.names))}
        pid = places["pid"]
        wanted: list[int | None] = [places.get(name) for name in Use._fields]
        for row in chunk.rows:
            if row[pid] == process.pid and chunk.devices[row[1]] == process.gpu:
                found.append(Use._make(None if n is None else row[n] for n in wanted))
    return found


def lines(uses: Sequence[Use], width: int, gpu_bytes: float | None) -> list[Line]:
    """Return a line for each quantity: what it is now, its range, and a picture of it."""
    if not uses:
        return [[("It was not listed so far.", Style.QUIET)]]
    span = f"{cells.age(uses[-1].time_s - uses[0].time_s)}, {len(uses)} listings"
    found: list[Line] = [[(f"over {span}", Style.QUIET)]]
    for name, values, top, show in (
        ("GPU memory", [u.memory_bytes for u in uses], gpu_bytes, cells.size),
        ("SM", [u.sm_utilization_pct for u in uses], 100.0, _pct),
        ("CPU", [u.cpu_pct for u in uses], None, _pct),
        ("RAM", [u.host_memory_bytes for u in uses], None, cells.size),
    ):
        known = [value for value in values if value is not None]
        if not known:
            found.append([(f"{name:<11}", Style.TITLE), ("n/a", Style.QUIET)])
            continue
        now = "n/a" if values[-1] is None else show(values[-1])
        text = f"{now:>9}  {show(min(known))} to {show(max(known))}"
        room = max(width - 11, 1)
        found.append([(f"{name:<11}", Style.TITLE), (text, Style.PLAIN)])
        picture = history.blocks(_thinned(values, room), top)
        found.append([(" " * 11, Style.PLAIN), (picture, Style.ACCENT)])
    return found


def _pct(value: float) -> str:
    return f"{value:.0f} %"


def _thinned(values: Sequence[float | None], count: int) -> list[float | None]:
    """Return at most `count` values: the greatest of each stretch, so that no peak is lost."""
    if len(values) <= count:
        return list(values)
    edges = [round(place * len(values) / count) for place in range(count + 1)]
    return [_greatest(values[a:b]) for a, b in pairwise(edges)]


def _greatest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)

"""`gpuadvisor watch` without a screen: the table once, or an object for each full frame."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from gpuadvisor.daemon.sources import Source, has_answered
from gpuadvisor.domain.metrics import GPU_METRICS, HOST_METRICS, Metric
from gpuadvisor.domain.telemetry import HOST, Event, Frame
from gpuadvisor.errors import AdvisorError
from gpuadvisor.tui.watch import columns
from gpuadvisor.tui.watch.state import WatchState

SETTLED_FRAMES = 2
"""Rates and GPM compare two readings, so that the second full frame is the first to have them."""
SHOWN_EVENTS = 10
VERSION = 1
"""The version of the JSON that docs/watch.md describes, raised when a program that reads it must be
changed; keys may be added without."""
GPU_FIELDS = ("uuid", "index", "name", "parent_uuid")
EVENT_FIELDS = ("kind", "gpu", "key", "severity", "began_s", "ended_s", "message")
UNREAD = "unread"
"""The state of what was not read yet."""


def once(source: Source, state: WatchState, *, to_the_end: bool) -> None:
    """Read until the values are there, or all that a recording has.

    AdvisorError where there is no GPU.
    """
    settled = 0
    for frame in _frames(source):
        state.update(frame)
        settled += frame.full and bool(frame.samples)
        if settled >= SETTLED_FRAMES and not to_the_end:
            return
    state.end()


def stream(source: Source, state: WatchState, out: TextIO) -> None:
    """Write a line of JSON for each full frame, as it comes; AdvisorError where there is no GPU.

    Events of the frames between are told with the next full one.
    """
    events: list[Event] = []
    for frame in _frames(source):
        events.extend(state.update(frame))
        if frame.full:
            print(json.dumps(document(state, events)), file=out, flush=True)
            events.clear()


def as_json(state: WatchState) -> str:
    """Return the object of what is known, with the newest events, oldest first."""
    return json.dumps(document(state, reversed(state.log.newest()[:SHOWN_EVENTS])))


def table(state: WatchState, width: int) -> Iterator[str]:
    """Yield the lines of the page, for a pipe or a file."""
    yield state.heading(width)
    if state.latest.problem:
        yield state.latest.problem
    placed = columns.chosen(state, width, with_sparkline=False)
    gap = " " * columns.GAP
    yield gap.join(column.title(state) for column in placed).rstrip()
    for gpu in state.gpus:
        yield gap.join(column.cell(state, gpu)[0] for column in placed).rstrip()
    lines = [line for line, _ in state.log.lines(state.labels, width, SHOWN_EVENTS)]
    if lines:
        yield from ("", *lines)


def _frames(source: Source) -> Iterator[Frame]:
    """Yield the frames from the first on that lists GPUs."""
    problem = "there is no frame"
    is_begun = False
    for frame in source.frames():
        is_begun = is_begun or bool(frame.gpus)
        if is_begun:
            yield frame
            continue
        problem = frame.problem or problem
        if has_answered(frame):
            break
    if not is_begun:
        raise nothing(problem)


def nothing(problem: str) -> AdvisorError:
    """Return the sentence for a source without GPUs."""
    return AdvisorError(f"there is nothing to watch: {problem}")


def document(state: WatchState, events: Iterable[Event]) -> dict[str, Any]:
    """Return what is known now as an object for programs, told with these events."""
    return {
        "version": VERSION,
        "time_s": state.latest.time_s,
        "source": state.label,
        "problem": state.latest.problem,
        "gpus": [
            {name: getattr(gpu, name) for name in GPU_FIELDS}
            | {"metrics": _metrics(state, gpu.uuid, GPU_METRICS)}
            for gpu in state.gpus
        ],
        "host": _metrics(state, HOST, HOST_METRICS),
        "events": [
            {**{name: getattr(event, name) for name in EVENT_FIELDS}, "data": dict(event.data)}
            for event in events
        ],
    }


def _metrics(state: WatchState, device: str, metrics: Iterable[Metric]) -> dict[str, Any]:
    return {metric.name: _reading(state, device, metric.name) for metric in metrics}


def _reading(state: WatchState, device: str, metric: str) -> dict[str, Any]:
    """Return a value that is good, or null and why; the last one known is told apart."""
    reading = state.reading(device, metric)
    if reading is None:
        return {"value": None, "state": UNREAD}
    if reading.is_ok:
        return {"value": reading.value, "state": reading.state}
    last = {} if reading.value is None else {"last_value": reading.value}
    why = {"since_s": reading.since_s, "reason": reading.reason}
    return {"value": None, "state": reading.state, **why, **last}

"""`gpuadvisor watch` without a screen: the table once, or an object for each full frame."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Any, TextIO

from gpuadvisor.daemon.sources import NOT_ANSWERING, Source, has_answered
from gpuadvisor.domain.accumulators import Reading
from gpuadvisor.domain.metrics import GPU_METRICS, HOST_METRICS, Metric
from gpuadvisor.domain.telemetry import HOST, SILENT, STARTING, Event, Frame
from gpuadvisor.errors import AdvisorError, SilentError
from gpuadvisor.tui.watch import cells, columns, overview, process_list
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.table import row, text_of, titles

SETTLED_FRAMES = 2
"""Rates and GPM compare two readings, so that the second full frame is the first to have them."""
PATIENCE_S = 5.0
"""Seconds to wait for values of now, once the driver has started. One that works answers a sweep
in milliseconds, and the daemon stores a row each second; what is silent for so long hangs."""
SHOWN_EVENTS = 10
"""Events that are printed: the worst, and of those the newest."""
VERSION = 1
"""The version of the JSON that docs/watch.md describes, raised when a program that reads it must be
changed; keys may be added without."""
GPU_FIELDS = ("uuid", "index", "name", "parent_uuid")
EVENT_FIELDS = ("kind", "gpu", "key", "severity", "began_s", "ended_s", "message")
UNREAD = "unread"
"""The state of what was not read yet."""


def once(
    source: Source,
    state: WatchState,
    *,
    to_the_end: bool,
    now: Callable[[], float] = time.time,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Read until values are there that are newer than this call, or all that a recording has.

    Return whether they are: where none came in PATIENCE_S, the last known are old, and
    `state.latest.problem` says why. `now` tells Unix time, `clock` measures the wait, both in
    seconds. SilentError where the driver never answered, AdvisorError where there is no GPU.
    """
    if to_the_end:
        for frame in _frames(source):
            state.update(frame)
        state.end()
        return True
    try:
        return _now(source, state, now, clock)
    finally:
        state.withheld = source.withheld


def _now(
    source: Source, state: WatchState, now: Callable[[], float], clock: Callable[[], float]
) -> bool:
    """Read until values are there that are newer than this call; return whether they are."""
    asked_s, newest_s, settled = now(), 0.0, 0
    deadline = inf
    for frame in _frames(source, PATIENCE_S, clock):
        deadline = min(deadline, clock() + PATIENCE_S)  # from the first on
        state.update(frame)
        if frame.full and frame.samples and not frame.problem:
            newest_s = frame.time_s
            settled += 1
            if newest_s >= asked_s and settled >= SETTLED_FRAMES:
                return True
        if clock() >= deadline:
            break
    if not state.latest.problem:
        age = f"are {cells.age(now() - newest_s)} old" if newest_s else "have not come yet"
        old = f"The newest values {age}."
        state.update(Frame(now(), problem=old))
    return False


def stream(
    source: Source,
    state: WatchState,
    out: TextIO,
    *,
    since_s: float = -inf,
    patience_s: float = inf,
) -> None:
    """Write a line of JSON for each full frame from `since_s` (Unix time) on, as it comes.

    Events of the frames between are told with the next line, and of what was before what lasts.
    SilentError where the driver does not answer, or a daemon has no GPU for `patience_s`;
    AdvisorError where there is no GPU.
    """
    events: list[Event] = []
    for frame in _frames(source, patience_s):
        new = state.update(frame)
        events += [each for each in new if each.ended_s is None or each.ended_s >= since_s]
        if frame.full and frame.time_s >= since_s:
            print(json.dumps(document(state, events)), file=out, flush=True)
            events.clear()


def as_json(state: WatchState) -> str:
    """Return the object of what is known, with the events of the last day, oldest first."""
    return json.dumps(document(state, state.log.recent(state.now_s)))


def table(state: WatchState, width: int) -> Iterator[str]:
    """Yield the lines of the page, for a pipe or a file."""
    yield cells.fit(
        [f"gpuadvisor watch  {state.heading(width, to_the_second=True)}", "gpuadvisor"], width
    )
    if state.gpus:
        yield text_of(overview.host(state, width))
    if state.latest.problem:
        yield state.latest.problem
    if not state.gpus:
        return
    placed = columns.chosen(state, width, with_sparkline=False)
    for line in (titles(placed, state), *(row(placed, state, gpu) for gpu in state.gpus)):
        yield text_of(line)
    whys = [text_of(line) for line in overview.whys(state, width)]
    if whys:
        yield from ("", *whys)
    rows = process_list.listed(state)
    said = process_list.note(state) if state.latest.processes is not None or state.withheld else ""
    notes = [said] if said else []
    if rows or notes:
        lined = process_list.lines(rows, state, width) if rows else []
        yield from ("", *notes, *(text_of(line) for line in lined))
    told = state.log.lines(
        state.labels, width, state.now_s, most=SHOWN_EVENTS, is_seen=state.is_seen
    )
    lines = [line for line, _ in told]
    if lines:
        yield from ("", *lines)


def _frames(
    source: Source, patience_s: float = inf, clock: Callable[[], float] = time.monotonic
) -> Iterator[Frame]:
    """Yield the frames from the first on that lists GPUs.

    A driver that is starting has the time that it takes for each GPU; one that hangs is a
    SilentError, as is a source that lists none for `patience_s` and does not say why.
    """
    problem = "there is no frame"
    is_begun = False
    deadline = clock() + patience_s
    for frame in source.frames():
        is_begun = is_begun or bool(frame.gpus)
        if is_begun:
            yield frame
            continue
        problem = frame.problem or problem
        if has_answered(frame):
            break
        is_late = clock() >= deadline and frame.problem != STARTING
        if patience_s < inf and (frame.problem == SILENT or is_late):
            raise SilentError(NOT_ANSWERING)
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
        "events": [event_json(event) for event in events],
    }


def event_json(event: Event) -> dict[str, Any]:
    """Return an event as programs read it."""
    return {**{name: getattr(event, name) for name in EVENT_FIELDS}, "data": dict(event.data)}


def _metrics(state: WatchState, device: str, metrics: Iterable[Metric]) -> dict[str, Any]:
    return {metric.name: value_json(state.reading(device, metric.name)) for metric in metrics}


def value_json(reading: Reading | None) -> dict[str, Any]:
    """Return a value that is good, or null and why; the last one known is told apart."""
    if reading is None:
        return {"value": None, "state": UNREAD}
    if reading.is_ok:
        return {"value": reading.value, "state": reading.state}
    last = {} if reading.value is None else {"last_value": reading.value}
    why = {"since_s": reading.since_s, "reason": reading.reason}
    return {"value": None, "state": reading.state, **why, **last}

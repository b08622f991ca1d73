"""`gpuadvisor watch` without a screen: the table once, or an object for each full frame."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TextIO

from gpuadvisor.daemon.sources import Source, has_answered
from gpuadvisor.domain.telemetry import Event, Frame
from gpuadvisor.errors import AdvisorError
from gpuadvisor.tui.watch import columns
from gpuadvisor.tui.watch.as_json import document
from gpuadvisor.tui.watch.board import Board

SETTLED_FRAMES = 2
"""Rates and GPM compare two readings, so that the second full frame is the first to have them."""
SHOWN_EVENTS = 10


def once(source: Source, board: Board, *, to_the_end: bool) -> None:
    """Read until the values are there, or all that a recording has.

    AdvisorError where there is no GPU.
    """
    settled = 0
    for frame in _frames(source):
        board.update(frame)
        settled += frame.full and bool(frame.samples)
        if settled >= SETTLED_FRAMES and not to_the_end:
            return
    board.end()


def stream(source: Source, board: Board, out: TextIO) -> None:
    """Write a line of JSON for each full frame, as it comes; AdvisorError where there is no GPU.

    Events of the frames between are told with the next full one.
    """
    events: list[Event] = []
    for frame in _frames(source):
        events.extend(board.update(frame))
        if frame.full:
            print(json.dumps(document(board, events)), file=out, flush=True)
            events.clear()


def as_json(board: Board) -> str:
    """Return the object of what is known, with the newest events, oldest first."""
    return json.dumps(document(board, reversed(board.log.newest()[:SHOWN_EVENTS])))


def table(board: Board, width: int) -> Iterator[str]:
    """Yield the lines of the page, for a pipe or a file."""
    yield board.heading(width)
    if board.latest.problem:
        yield board.latest.problem
    placed = columns.chosen(board, width, with_picture=False)
    gap = " " * columns.GAP
    yield gap.join(column.title(board) for column in placed).rstrip()
    for gpu in board.gpus:
        yield gap.join(column.cell(board, gpu)[0] for column in placed).rstrip()
    lines = list(board.log.lines(board.labels, width, SHOWN_EVENTS))
    if lines:
        yield ""
        yield from (line.text for line in lines)


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

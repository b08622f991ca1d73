"""What the endpoint tells `gpuadvisor watch --host` of another machine: its newest frames.

A header, and each frame as a line, in the JSON of recordings. Processes are told only where the
configuration has them on the endpoint, and their command lines never.
"""

from __future__ import annotations

import gzip
import math
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from urllib.parse import parse_qs

import msgspec

from gpuadvisor.collectors.telemetry.encoding import encode
from gpuadvisor.daemon.figures import Figures
from gpuadvisor.domain.telemetry import Event, Frame, GpuProcess
from gpuadvisor.version import __version__

PATH = "/watch"
VERSION = 1
"""Raised when an older `watch` would misread what is told."""
KIND = "application/x-ndjson"
LATEST_S = 253402300799.0
"""The last second that a date of Python can have."""
KEPT_S = 120.0
"""Seconds of frames that are told at once, so that there is a history to look at, and the rarest
metrics, which are read once a minute, are in it. Those of eight GPUs take 1.2 MB."""
SET_BACK_S = 2.0
"""Who asks for frames later than the newest by more has frames of before the clock was set back."""
COMPRESSED_BYTES, LEVEL = 1024, 1
"""Answers from which on gzip pays, and how hard it tries: a tenth of the bytes, 10 ms a MB."""


class Header(msgspec.Struct, omit_defaults=True):
    """The first line of an answer."""

    version: int
    gpuadvisor: str
    """The version of the program that answers."""
    host: str
    """What the machine calls itself."""
    now_s: float
    """Unix time there as it answers."""
    withheld: str | None = None
    """What is not told of its processes and why, in one sentence."""


class RemoteAnswer:
    """Keeps the newest frames; the daemon's loop gives them, threads tell them."""

    def __init__(self, figures: Figures, *, processes: bool) -> None:
        """With `processes`, who is on the GPUs is told: their names, users, containers and use."""
        self._figures = figures
        self._with_processes = processes
        self._lock = threading.Lock()
        self._lines: deque[tuple[float, bytes]] = deque()
        """Unix times of frames, oldest first, and their lines."""

    def take(self, frame: Frame, events: Sequence[Event]) -> None:
        """Keep a frame with the events that began or ended with it."""
        if not frame.full:
            return
        try:
            line = encode(self._told(frame, events))
        except ValueError:  # a value that is no number
            return
        with self._lock:
            if self._lines and frame.time_s < self._lines[-1][0]:  # the clock was set back
                self._lines.clear()
            self._lines.append((frame.time_s, line))
            while self._lines[0][0] < frame.time_s - KEPT_S:
                self._lines.popleft()

    def body(self, query: str, accepted: str) -> tuple[bytes, list[tuple[str, str]]]:
        """Return the answer to a query and its own headers; `accepted` are codings of HTTP."""
        asked = parse_qs(query)
        made = b"\n".join(self._lines_of(_number(asked, "since"), _number(asked, "last"))) + b"\n"
        headers = [("Cache-Control", "no-store"), ("Vary", "Accept-Encoding")]
        if len(made) >= COMPRESSED_BYTES and "gzip" in accepted.replace(",", " ").split():
            return gzip.compress(made, LEVEL), [*headers, ("Content-Encoding", "gzip")]
        return made, headers

    def _lines_of(self, since_s: float | None, last_s: float | None) -> Iterator[bytes]:
        """Yield the header and the frames that are newer than a Unix time. Where that is none of a
        frame that is kept, those of the last seconds, after what may have been told long ago."""
        with self._lock:
            lines = list(self._lines)
        host, withheld = socket.gethostname(), self.withheld
        yield msgspec.json.encode(Header(VERSION, __version__, host, time.time(), withheld))
        if not lines:
            return
        first_s, newest_s = lines[0][0], lines[-1][0]
        if since_s is None or not first_s <= since_s <= newest_s + SET_BACK_S:
            yield encode(self._opening(first_s))
            since_s = newest_s - (KEPT_S if last_s is None else last_s)
            since_s = math.nextafter(since_s, -math.inf)
        newer = takewhile(lambda each: each[0] > since_s, reversed(lines))
        yield from (line for _, line in reversed(list(newer)))

    def _opening(self, time_s: float) -> Frame:
        """Return a frame of what may have been told long ago: GPUs, processes, lasting events."""
        with self._figures.lock:
            latest, lasting = self._figures.latest, tuple(self._figures.open)
            known = Frame(time_s, gpus=latest.listed, processes=latest.processes)
        return self._told(known, lasting)

    def _told(self, frame: Frame, events: Iterable[Event]) -> Frame:
        processes = frame.processes if self._with_processes else None
        if processes is not None:
            processes = tuple(map(told_process, processes))
        told = tuple(each if self._with_processes else nameless(each) for each in events)
        return replace(frame, processes=processes, events=told)

    @property
    def withheld(self) -> str | None:
        """What is not told of processes and why, in one sentence; None: they are told."""
        if self._with_processes:
            return None
        return (
            f"{socket.gethostname()} does not tell its processes: `processes = true` in"
            " [prometheus] of its daemon's configuration, and `gpuadvisor daemon reload`, has it"
            " tell all but their command lines."
        )


def _number(asked: Mapping[str, Sequence[str]], name: str) -> float | None:
    try:
        return float(asked[name][0])
    except (KeyError, ValueError):
        return None


def told_process(each: GpuProcess) -> GpuProcess:
    """Return a process without what is never told of it."""
    return replace(each, command=None, by_gpuadvisor=None)


def nameless(event: Event) -> Event:
    """Return an event without the processes that it names: the one kind that names any."""
    if event.key != "shared_gpu":
        return event
    return replace(event, message="Processes that do not belong together use this GPU.", data={})

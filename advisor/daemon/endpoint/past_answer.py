"""What the endpoint tells `gpuadvisor watch --host` of the past, out of the daemon's store.

A question is a method of `daemon.past.Past` with its arguments, in JSON; so is the answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs

import msgspec

from gpuadvisor.daemon.endpoint.answer import LATEST_S, nameless, told_process
from gpuadvisor.domain.metrics import BY_NAME
from gpuadvisor.domain.moment import Moment
from gpuadvisor.domain.timeline import TimelineRequest
from gpuadvisor.errors import StoreError

PATH = "/watch/past"
KIND = "application/json"
MOST_COLUMNS, MOST_EVENTS, MOST_DEVICES = 2000, 2000, 256
"""What is told at once at most. A terminal has fewer columns; 30 days of eight GPUs in that many
take 0.2 s."""
WAIT_S = 4.0
"""How long a question waits for those before: one is answered at a time, so that questions take
no more than one thread's part of the interpreter from the daemon's loop."""
BUSY = "It answers other questions about its past: ask again."


class Question(msgspec.Struct, omit_defaults=True):
    """What is asked. Times are Unix times of the machine that is asked."""

    about: Literal["span", "all_gpus", "timelines", "moment", "events"]
    metric: str = "gpu_utilization_pct"
    devices: tuple[str, ...] | None = None
    since_s: float = 0.0
    until_s: float | None = None
    columns: int = 1
    now_s: float | None = None
    at_least_s: float = 0.0
    limit: int | None = None


class Answer(msgspec.Struct, omit_defaults=True):
    """What is answered, or in a sentence why nothing is."""

    version: int
    found: Any = None
    problem: str | None = None


class PastAnswer:
    """Answers out of a store, from any thread."""

    def __init__(self, folder: Path, *, withheld: str | None) -> None:
        """`withheld` says why no processes are told; None: they are."""
        self._folder = folder
        self._withheld = withheld
        self._one_at_a_time = threading.Lock()

    def body(self, query: str) -> bytes:
        """Return the answer to a query string."""
        try:
            asked = msgspec.json.decode(parse_qs(query)["q"][0], type=Question)
        except (KeyError, msgspec.DecodeError, RecursionError):
            return _said("That is no question.")
        times = (asked.since_s, asked.until_s, asked.now_s, asked.at_least_s)
        if not all(each is None or 0 <= each <= LATEST_S for each in times):
            return _said("A time is beyond all dates.")
        if asked.metric not in BY_NAME:
            return _said("It does not know that metric.")
        if not 0 < asked.columns <= MOST_COLUMNS or len(asked.devices or ()) > MOST_DEVICES:
            return _said("That is too much for one question.")
        if not self._one_at_a_time.acquire(timeout=WAIT_S):
            return _said(BUSY)
        try:
            return msgspec.json.encode(Answer(VERSION, self._found(asked)))
        except (StoreError, ValueError, OverflowError, OSError) as error:
            return _said(str(error))
        finally:
            self._one_at_a_time.release()

    def _found(self, asked: Question) -> object:
        from gpuadvisor.storage.telemetry.reader import TelemetryReader

        reader, until_s = TelemetryReader(self._folder), asked.until_s
        answers: dict[str, Callable[[], object]] = {
            "span": reader.span,
            "all_gpus": reader.all_gpus,
            "moment": lambda: self._told(reader.moment(asked.since_s)),
            "events": lambda: [
                nameless(each) if self._withheld else each
                for each in reader.events(
                    asked.since_s, until_s, min(asked.limit or MOST_EVENTS, MOST_EVENTS)
                )
            ],
            "timelines": lambda: reader.timelines(
                TimelineRequest(
                    asked.metric,
                    asked.devices,
                    asked.since_s,
                    LATEST_S if until_s is None else until_s,
                    asked.columns,
                    asked.now_s,
                    asked.at_least_s,
                )
            ),
        }
        return answers[asked.about]()

    def _told(self, found: Moment) -> Moment:
        """Return a moment with what may be told of its processes."""
        events = tuple(nameless(each) if self._withheld else each for each in found.events)
        if self._withheld:
            return replace(found, events=events, processes=None, why_no_processes=self._withheld)
        processes = found.processes and tuple(map(told_process, found.processes))
        return replace(found, events=events, processes=processes)


VERSION = 1


def _said(problem: str) -> bytes:
    return msgspec.json.encode(Answer(VERSION, problem=problem))

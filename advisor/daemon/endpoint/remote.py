"""The daemon of another machine as a source of frames, through its endpoint.

Whatever answers there, or does not, is a frame with the reason as its problem, and what was known
is stale. Times are the other machine's own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import msgspec

from gpuadvisor.collectors.telemetry.decoding import decode
from gpuadvisor.daemon.endpoint.answer import LATEST_S, PATH, VERSION, Header
from gpuadvisor.daemon.endpoint.client import (
    RemoteError,
    TooLateError,
    fetched,
    harmless,
    stranger,
)
from gpuadvisor.daemon.endpoint.hosts import Host
from gpuadvisor.daemon.sources import SILENT_S
from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.metrics import BY_NAME
from gpuadvisor.domain.telemetry import Frame, Sample, State, Unavailable
from gpuadvisor.printable import brief, duration, printable
from gpuadvisor.version import __version__

EVERY_S = 1.0
"""Seconds between two questions: the daemon has a frame a second."""
AGAIN_S = 2.0
"""Seconds after which a host that did not answer is asked again."""
LITTLE_S = 5.0
"""What is asked for at first over a link that is too slow for the last two minutes, in seconds."""
SKEW_S = 3.0
"""Seconds by which another machine's clock may be wrong before that is said. [own]"""


class Remote:
    """A source that asks one host once a second; it can be asked from one thread at a time."""

    label = "daemon"
    has_all_events = True

    def __init__(self, host: Host, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.host = host
        self.problem: str | None = None
        """Why it has no values of now, in one sentence; None where it has, or was not asked yet."""
        self.is_heard = False
        """Whether it answered the last question, whatever its daemon can read."""
        self.ahead_s: float | None = None
        """By how much its clock is ahead of this machine's, in seconds; None while that is not
        known, or less than the time that its answers take."""
        self.withheld: str | None = None
        self._clock = clock
        self._closed = threading.Event()
        self._heard: tuple[float, float] | None = None
        """When it answered last by our clock, and its own Unix time then."""
        self._newest_s: float | None = None
        """Unix time of its newest frame."""
        self._latest = Latest()
        self._last_s: float | None = None
        """Asks for no more at first than so many seconds; None: for all there is."""

    @property
    def silent_s(self) -> float | None:
        """Seconds since it answered last; None where it never did."""
        return None if self._heard is None else self._clock() - self._heard[0]

    @property
    def remark(self) -> str | None:
        """What is odd while it answers, in one sentence."""
        if self.ahead_s is None or abs(self.ahead_s) < SKEW_S:
            return None
        way = "ahead of" if self.ahead_s > 0 else "behind"
        return (
            f"The clock of {self.host.name} is {duration(abs(self.ahead_s))} {way} this machine's;"
            " times here are its own."
        )

    def frames(self) -> Iterator[Frame]:
        """Yield its frames as they come, and one with a problem while none do."""
        while not self._closed.is_set():
            began = self._clock()
            yield from self.ask()
            every_s = EVERY_S if self.problem is None else AGAIN_S
            self._closed.wait(max(every_s - (self._clock() - began), every_s / 10))

    def close(self) -> None:
        self._closed.set()

    def ask(self) -> list[Frame]:
        """Ask once, and return the frames that are new; one with the problem where there is one."""
        try:
            header, frames = self._answer()
            self.is_heard = True
        except RemoteError as error:
            self.is_heard = False
            if isinstance(error, TooLateError) and self._newest_s is None:
                self._last_s = LITTLE_S
            return [self._without_values(str(error), f"{self.host.name} does not answer")]
        self.withheld = header.withheld and printable(header.withheld)
        for frame in frames:
            self._latest.add(frame)
            self._newest_s = frame.time_s
        if self._newest_s is None:
            return [self._without_values(f"The daemon of {self.host.name} has no values so far.")]
        old_s = header.now_s - self._newest_s
        if old_s >= SILENT_S:
            problem = (
                f"The daemon of {self.host.name} has read nothing for {duration(old_s)}: its log"
                " and `gpuadvisor daemon status` there say more."
            )
            return [*frames, self._without_values(problem, "its daemon reads nothing")]
        self.problem = None
        return frames

    def _without_values(self, problem: str, reason: str = "") -> Frame:
        """Return a frame in which nothing is current: what was known is stale."""
        self.problem = problem
        samples = {}
        for device, newest in self._latest.devices.items():
            gone = dict(newest.unavailable)
            for metric in BY_NAME:
                if metric not in gone and (known := newest.known(metric)) is not None:
                    gone[metric] = Unavailable(State.STALE, known[0], reason)
            samples[device] = Sample({}, gone)
        now_s = time.time() if self._heard is None else self._heard[1] + (self.silent_s or 0.0)
        return Frame(now_s, samples, problem=problem)

    def _answer(self) -> tuple[Header, list[Frame]]:
        query = ""
        if self._newest_s is not None:
            query = f"?since={self._newest_s!r}"
        elif self._last_s is not None:
            query = f"?last={self._last_s:g}"
        sent_s, began = time.time(), self._clock()
        body = fetched(self.host, PATH + query)
        took_s = self._clock() - began
        header, frames = _read(self.host, body)
        self._heard = (self._clock(), header.now_s)
        ahead_s = header.now_s - (sent_s + took_s / 2)
        self.ahead_s = ahead_s if abs(ahead_s) > took_s / 2 else None
        if self._newest_s is not None and frames and frames[0].time_s < self._newest_s:
            self._newest_s = None  # its clock was set back
        return header, frames


def _read(host: Host, body: bytes) -> tuple[Header, list[Frame]]:
    first, *lines = body.split(b"\n")
    try:
        header = msgspec.json.decode(first, type=Header)
    except (msgspec.DecodeError, RecursionError):
        raise stranger(host, brief(first.decode("utf-8", "replace"))) from None
    if header.version > VERSION:
        raise RemoteError(
            f"{host.name} runs gpuadvisor {printable(header.gpuadvisor)}, which this one"
            f" ({__version__}) does not understand: update it here."
        )
    try:
        frames = [_checked(_frame(line)) for line in lines if line]
        if not 0 <= header.now_s <= LATEST_S:
            raise ValueError("a time beyond all dates")
    except ValueError as error:
        raise stranger(host, f"a line that is no frame: {brief(str(error))}") from None
    return header, frames


def _checked(frame: Frame) -> Frame:
    """Return a frame whose times are dates; ValueError where they are not."""
    times = [frame.time_s]
    for event in frame.events:
        times += [event.began_s, event.began_s if event.ended_s is None else event.ended_s]
    for sample in frame.samples.values():
        times += [each.since_s for each in sample.unavailable.values()]
    times += [each.started_s for each in frame.processes or () if each.started_s is not None]
    if not all(0 <= time_s <= LATEST_S for time_s in times):
        raise ValueError("a time beyond all dates")
    return frame


def _frame(line: bytes) -> Frame:
    """Return the frame of a line, whose texts cannot command a terminal; ValueError for none."""
    frame = decode(line)
    if line.isascii() and line.decode("ascii").isprintable() and b"\\" not in line:
        return frame
    return msgspec.convert(harmless(msgspec.to_builtins(frame)), Frame)

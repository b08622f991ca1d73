"""Telemetry of some time, summed up for the rules: as it comes, from the store, or a recording."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gpuadvisor.daemon.telemetry_tally import LONGEST_CARRIED_S, MOST_EVENTS, Tally
from gpuadvisor.domain.telemetry import Frame
from gpuadvisor.domain.telemetry_window import TelemetryWindow

SLICE_S = 10.0
"""A rolling window is made of whole slices, so it is longer than asked for by up to one."""

SET_BACK_S = 1.0
"""As the detector `gap` has it. A frame without values, which only says that a sampler is silent,
may be some milliseconds newer than the one that comes next."""


class RollingWindow:
    """The last minute, or so: each frame is counted once, and memory does not grow with time."""

    def __init__(self, length_s: float = 60.0) -> None:
        self._slices: deque[tuple[float, Tally]] = deque()
        """Each with the Unix time of its first frame."""
        self._most = max(round(length_s / SLICE_S), 1)
        self._before = Tally()
        """Last values of what is read rarely, from before the slices."""
        self._time_s = 0.0

    def add(self, frame: Frame) -> None:
        """Take in a frame. When the clock was set back, it begins anew."""
        if frame.time_s < self._time_s - SET_BACK_S:
            self._drop(len(self._slices))
            self._time_s = frame.time_s
        self._time_s = max(self._time_s, frame.time_s)
        if not self._slices or frame.time_s - self._slices[-1][0] >= SLICE_S:
            self._slices.append((frame.time_s, Tally()))
            self._forget(frame.time_s)
        self._slices[-1][1].add(frame)

    def window(self) -> TelemetryWindow | None:
        """Return what the last minute says; None before the first frame."""
        if not self._slices:
            return None
        begin_s = self._slices[0][0]
        tally = self._before.carried(begin_s)
        for _, each in self._slices:
            tally.merge(each)
        return tally.window(begin_s, self._time_s)

    def _forget(self, now_s: float) -> None:
        oldest_s = now_s - (self._most + 0.5) * SLICE_S  # half a slice: frames do not come exactly
        self._drop(sum(begin_s < oldest_s for begin_s, _ in self._slices))

    def _drop(self, count: int) -> None:
        for _ in range(count):
            _, tally = self._slices.popleft()
            self._before.merge(tally)
        if count:
            begin_s = self._slices[0][0] if self._slices else self._time_s
            self._before = self._before.carried(begin_s)


def window_of_frames(
    frames: Iterable[Frame], begin_s: float = 0.0, end_s: float = float("inf")
) -> TelemetryWindow | None:
    """Return what frames in order of time say of a time; None where none of it is of a GPU.

    Those from before the begin tell what still held then of what is read rarely. The window is
    from the first to the last frame that is in it.
    """
    before, tally = Tally(), None
    first_s = last_s = 0.0
    for frame in frames:
        if frame.time_s < begin_s:
            before.add(frame)
        elif frame.time_s < end_s:
            if tally is None:
                tally, first_s = before.carried(frame.time_s), frame.time_s
            tally.add(frame)
            last_s = frame.time_s
    if tally is None or not tally.by_gpu:
        return None
    return tally.window(first_s, last_s)


def window_of_recording(path: Path) -> TelemetryWindow:
    """Return what a recording says; UsageError where it is none, or holds nothing of a GPU."""
    from gpuadvisor.collectors.telemetry.recording import read_recording
    from gpuadvisor.errors import UsageError

    window = window_of_frames(read_recording(path).frames())
    if window is None:
        raise UsageError(f"{path} holds no values of a GPU: record one that is at work")
    return window


def window_of_store(
    begin_s: float, end_s: float, folder: Path | None = None
) -> TelemetryWindow | None:
    """Return what the daemon stored of a time, with the events of then; None where it has nothing.

    Times are Unix times. Only raw rows are looked at (`retention.raw`): minutes do not tell how
    often a reason held. StoreError where the store cannot be read.
    """
    from gpuadvisor.daemon.store import store_folder
    from gpuadvisor.storage.telemetry.reader import TelemetryReader

    folder = store_folder() if folder is None else folder
    if not list(folder.glob("*.db")):
        return None
    reader = TelemetryReader(folder)
    window = window_of_frames(reader.frames(begin_s - LONGEST_CARRIED_S, end_s), begin_s, end_s)
    if window is None:
        return None
    return replace(window, events=tuple(reader.events(begin_s, end_s, MOST_EVENTS)))

"""Where frames come from: this machine's driver, or a recording. Consumers see no difference."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from gpuadvisor.domain.telemetry import HOST, Frame

LONGEST_PAUSE_S = 5.0
"""A gap in a recording is shown no longer than that."""


class Source(Protocol):
    """Frames in order of time, until the end of a recording or until `close`."""

    label: str
    """What is shown of it: `live`, or the recording's name."""

    def frames(self) -> Iterator[Frame]:
        """Yield frames; waits for the next one."""

    def close(self) -> None:
        """End `frames`, from any thread."""


class Live:
    """This machine now: its GPUs through a sampler process, and the machine itself."""

    label = "live"

    def __init__(self, *, fast_period_s: float | None = None) -> None:
        from gpuadvisor.collectors.telemetry.host import HostCollector
        from gpuadvisor.collectors.telemetry.supervisor import SamplerProcess

        self._host = HostCollector()
        self._sampler = SamplerProcess(fast_period_s=fast_period_s)

    def frames(self) -> Iterator[Frame]:
        """Yield the sampler's frames, with the machine in each whole one: also in its silence."""
        for frame in self._sampler.frames():
            if frame.whole:
                frame = replace(frame, samples={**frame.samples, HOST: self._host.sample()})
            yield frame

    def close(self) -> None:
        self._sampler.close()


class Replay:
    """A recording, in its own rhythm."""

    def __init__(
        self, path: Path, *, speed: float = 1.0, wait: Callable[[float], object] | None = None
    ) -> None:
        """Open it; UsageError where it is none. `speed` 2 is twice as fast, infinity at once.

        `wait` is given the seconds until the next frame.
        """
        from gpuadvisor.collectors.telemetry.recording import read_recording

        self.label = path.name
        self._recording = read_recording(path)
        self._speed = speed
        self._closed = threading.Event()
        self._wait = self._closed.wait if wait is None else wait

    def frames(self) -> Iterator[Frame]:
        """Yield the frames with the times that they were recorded at."""
        last_s: float | None = None
        for frame in self._recording.frames():
            if last_s is not None and frame.time_s > last_s:
                self._wait(min(frame.time_s - last_s, LONGEST_PAUSE_S) / self._speed)
            if self._closed.is_set():
                return
            last_s = frame.time_s
            yield frame

    def close(self) -> None:
        self._closed.set()


def live(*, fast_period_s: float | None = None) -> Source:
    """Return this machine now; with `fast_period_s`, fast values come between the whole frames."""
    return Live(fast_period_s=fast_period_s)


def replay(path: Path, *, speed: float = 1.0) -> Source:
    """Return a recording, at `speed` times its own pace; UsageError where it is none."""
    return Replay(path, speed=speed)

"""Draw `gpuadvisor watch` as it shows the recording of an H100: docs/pictures/watch.svg.

    .venv/bin/python docs/picture_watch.py

The page is the real one; only the recording's clock stands still where the GPU is at its power
limit. Run it after a change of the page; it is not compared in tests, as the page itself is.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from gpuadvisor.collectors.telemetry.recording import read_recording
from gpuadvisor.domain.telemetry import Frame
from gpuadvisor.tui.watch.app import Watch
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.watched import Watched

ROOT = Path(__file__).parents[1]
RECORDING = ROOT / "examples" / "h100.gpr"
PICTURE = ROOT / "docs" / "pictures" / "watch.svg"
UNTIL_S = 53.0
"""Of the recording: the GPU draws all that it is allowed to."""
SIZE = (132, 12)
"""Columns and lines."""


class Halted:
    """The recording up to one moment."""

    label = RECORDING.name
    has_all_events = False
    withheld = None

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self._closed = threading.Event()

    def frames(self) -> Iterator[Frame]:
        began_s = None
        for frame in read_recording(RECORDING).frames():
            began_s = began_s or frame.time_s
            if frame.time_s - began_s > UNTIL_S:
                break
            yield frame
        self.is_over.set()
        self._closed.wait()

    def close(self) -> None:
        self._closed.set()


async def draw() -> str:
    """Return the page as an SVG."""
    source = Halted()
    page = Watch(Watched(source, WatchState(source.label, host="", clock=lambda: 0.0)))
    async with page.run_test(size=SIZE) as pilot:
        while not source.is_over.is_set():
            await pilot.pause(0.05)
        await pilot.pause(0.5)
        return page.export_screenshot(title="gpuadvisor watch --replay examples/h100.gpr")


def main() -> None:
    """Write the picture."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(asyncio.run(draw()), "utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

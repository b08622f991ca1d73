"""Draw pages of `gpuadvisor watch` as they show the recording of an H100: docs/pictures/*.svg.

    .venv/bin/python docs/picture_watch.py

The pages are the real ones; only the recording's clock stands still where the GPU is at its power
limit. Run it after a change of a page; it is not compared in tests, as the pages themselves are.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from textual.pilot import Pilot

from gpuadvisor.collectors.telemetry.recording import read_recording
from gpuadvisor.daemon.jobs import WithJobs
from gpuadvisor.domain.telemetry import Frame
from gpuadvisor.storage.telemetry.writer import TelemetryWriter
from gpuadvisor.tui.watch.app import Watch
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.watched import Watched

ROOT = Path(__file__).parents[1]
RECORDING = ROOT / "examples" / "h100.gpr"
PICTURES = ROOT / "docs" / "pictures"
UNTIL_S = 53.0
"""Of the recording: the GPU draws all that it is allowed to."""
PATIENCE_S = 30.0
WIDTH = 132
"""Columns, of which the keys of each page take less."""


@dataclass(frozen=True)
class Picture:
    """A page, the keys that lead to it, and what stands on it once it is complete."""

    name: str
    height: int
    keys: tuple[str, ...] = ()
    words: str = "power cap"
    has_store: bool = False
    """Whether it shows what a daemon keeps: then one has stored the recording just now."""


ALL = (
    Picture("watch", 12),
    Picture("watch-processes", 14, ("2",), "benchmarks"),
    Picture("watch-charts", 26, ("3",), "Events of this time"),
    Picture("watch-jobs", 12, ("6",), "measured for less", has_store=True),
)


class Halted:
    """The recording up to one moment."""

    label = RECORDING.name
    has_all_events = False
    withheld = None

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self._closed = threading.Event()

    def frames(self) -> Iterator[Frame]:
        yield from recorded()
        self.is_over.set()
        self._closed.wait()

    def close(self) -> None:
        self._closed.set()


def recorded() -> list[Frame]:
    """Return the frames of the recording up to that moment."""
    frames = list(read_recording(RECORDING).frames())
    return [each for each in frames if each.time_s - frames[0].time_s <= UNTIL_S]


def stored(folder: Path) -> Path:
    """Store the recording as a daemon would that saw it just now; return the store's folder."""
    frames = recorded()
    later_s = time.time() - frames[-1].time_s
    with TelemetryWriter(folder) as writer, WithJobs(writer, folder) as both:
        both.append([replace(each, time_s=each.time_s + later_s) for each in frames])
    return folder


async def draw(picture: Picture, store: Path) -> str:
    """Return a page as an SVG."""
    source = Halted()
    state = WatchState(source.label, host="", clock=lambda: 0.0, is_past=not picture.has_store)
    watched = Watched(
        source,
        state,
        store if picture.has_store else None,
        None if picture.has_store else RECORDING,
        read_only=True,
    )
    page = Watch(watched)
    async with page.run_test(size=(WIDTH, picture.height)) as pilot:
        while not (source.is_over.is_set() and page.pages):
            await pilot.pause(0.05)
        await pilot.press(*picture.keys)
        await _until(pilot, picture.words)
        replay = "" if picture.has_store else f" --replay examples/{RECORDING.name}"
        return page.export_screenshot(title=f"gpuadvisor watch{replay}")


async def _until(pilot: Pilot[int], words: str) -> None:
    """Wait until the page shows these words, and for all else that belongs to it."""
    until_s = time.monotonic() + PATIENCE_S
    while words not in pilot.app.export_screenshot().replace("&#160;", " "):
        if time.monotonic() > until_s:
            raise SystemExit(f"a page never showed {words}: {pilot.app.export_screenshot()}")
        await pilot.pause(0.05)
    await pilot.pause(1.0)


def main() -> None:
    """Write the pictures."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GPUADVISOR_HOME"] = folder
        store = stored(Path(folder) / "telemetry")
        for each in ALL:
            path = PICTURES / f"{each.name}.svg"
            path.write_text(asyncio.run(draw(each, store)), "utf-8")
            print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

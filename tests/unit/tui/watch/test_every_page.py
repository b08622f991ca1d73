"""Each page in each theme, of the recording of four H200s, against pictures that were accepted."""

import asyncio
import re

import pytest

from gpuadvisor.tui.watch.app import Watch
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.watched import Watched
from tests.unit.tui.watch.conftest import Picture
from tests.unit.tui.watch.screens import screen_text, until
from tests.unit.tui.watch.test_app import Made
from tests.unit.tui.watch.test_four_h200 import ENDED_S, RECORDING
from tests.unit.tui.watch.test_four_h200 import until as frames_until

SAYS = {
    "1": ("GPU 3: hardly any kernel ran",),
    "2": ("5 processes",),
    "3": ("[3 charts]", "4 s a column", "Nothing is known of before", "No event then"),
    "4": ("[4 studies]", "No study is stored yet"),
    "5": ("[5 profiles]", "No profile is stored yet"),
    "6": ("[6 jobs]", "Jobs are kept by the daemon"),
}
"""What each page, by its key, says once it has read what there is."""


@pytest.mark.parametrize("theme", ["terminal", "light", "colour-blind", "mono"])
def test_every_page_in_every_theme(snapshot, theme):
    frames = frames_until(ENDED_S)
    state = WatchState(RECORDING.name, is_past=True, clock=lambda: 0.0)
    app = Watch(Watched(Made(*frames), state, None, RECORDING, True), theme)
    drawn = {}

    async def through():
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: state.frames == len(frames) and len(app.pages) > 5)
            for key, words in SAYS.items():
                await pilot.press(key)
                await settled(pilot, words)
                drawn[key] = re.sub(r"\bterminal-\d+-", "terminal-", app.export_screenshot())

    asyncio.run(through())
    for key, picture in drawn.items():
        assert picture == snapshot(name=key, extension_class=Picture), f"page {key}"


async def settled(pilot, words):
    """Wait until a page says these words, and no longer reads."""
    await until(
        pilot,
        lambda: (
            all(each in screen_text(pilot.app) for each in words)
            and "eading" not in screen_text(pilot.app)
            and not (hasattr(pilot.app.screen, "_charts") and pilot.app.screen._charts.is_busy)
        ),
    )
    pilot.app.draw()
    await pilot.pause()

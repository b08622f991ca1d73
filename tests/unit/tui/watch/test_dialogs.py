"""What lies over a page: it takes each key once, and a key that it takes goes nowhere else."""

import random
from dataclasses import replace

import pytest
from textual import events
from textual.command import CommandList, CommandPalette
from textual.widgets import Input

from gpuadvisor.domain.telemetry import GpuProcess
from gpuadvisor.tui.watch import charting
from gpuadvisor.tui.watch.app import Watch
from gpuadvisor.tui.watch.dialogs import Choice, PopUp, Question, Reading, Typed
from gpuadvisor.tui.watch.help import Help
from gpuadvisor.tui.watch.page import Page
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.watched import Watched
from tests.telemetry import GIB, frame, sample
from tests.unit.tui.watch.screens import screen_text, until
from tests.unit.tui.watch.test_app import Made

OF_THE_HOST = tuple(
    GpuProcess(f"GPU-{gpu}", 70 + gpu, "compute", GIB, None, is_host_pid=True) for gpu in range(2)
)
"""Processes to which no signal is ever sent from here."""
OPENING = {
    "question_mark": ("1", Help),
    "T": ("2", Question),
    "enter": ("2", Reading),
    "m": ("3", Choice),
    "g": ("3", Typed),
}
"""The page on which a key opens a pop-up, and which."""
KEYS = (
    *("1234560", "?hmqgcezotTKIPyn+-/uax,."),
    *("enter", "escape", "up", "down", "left", "right", "home", "end", "pageup", "pagedown"),
    *("tab", "space", "backspace", "shift+left", "ctrl+p", "ctrl+t", "f5"),
)
BURSTS, LONGEST = 60, 12


def app_of():
    made = replace(frame(0, sample(), sample()), processes=OF_THE_HOST)
    return Watch(Watched(Made(made), WatchState("live", host="node7", clock=lambda: 0.0)))


def burst(app, keys):
    """Hit keys at once, as a terminal gives them that was not read for a moment."""
    for key in keys:
        app.post_message(events.Key(key, key if len(key) == 1 else None))


async def opened(pilot, key):
    """Open the pop-up of that key."""
    app, (page, kind) = pilot.app, OPENING[key]
    await until(pilot, lambda: len(app.pages) > 1)
    await pilot.press(page)
    await until(pilot, lambda: getattr(app.screen, "KEY", "") == page and app.screen.is_mounted)
    app.draw()
    await pilot.press(key)
    await until(pilot, lambda: isinstance(app.screen, kind))
    return app.screen


@pytest.mark.asyncio
@pytest.mark.parametrize("opening", OPENING)
async def test_a_key_that_is_hit_more_than_once_at_once_ends_nothing(opening):
    app = app_of()
    async with app.run_test(size=(80, 24)) as pilot:
        for keys in ("xx", "yy", "nn", ["enter"] * 3, ["escape"] * 3, ["space"] * 3):
            await opened(pilot, opening)
            burst(app, keys)
            for _ in range(5):
                await pilot.pause()
            assert app.is_running and app.failure is None, keys
            while not isinstance(app.screen, Page):
                await pilot.press("escape")


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(2))
async def test_random_keys_never_end_the_program(seed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dice, app = random.Random(seed), app_of()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.pages) > 1)
        monkeypatch.setattr(Watch, "action_quit", lambda self: _nothing())
        for _ in range(BURSTS):
            keys = dice.choices(KEYS, k=dice.randint(1, LONGEST))
            burst(app, keys)
            await pilot.pause()
            assert app.is_running and app.failure is None, (keys, app.failure)
            assert sum(not isinstance(screen, Page) for screen in app.screen_stack) <= 1, keys


async def _nothing():
    pass


@pytest.mark.asyncio
async def test_a_key_that_says_no_does_nothing_else():
    app = app_of()
    async with app.run_test(size=(100, 24)) as pilot:
        for key in ("enter", "1", "q", "n", "escape", "tab", "m", "question_mark"):
            app.say("")
            await opened(pilot, "T")
            assert "No signal was sent." not in screen_text(app)
            await pilot.press(key)
            await until(pilot, lambda: isinstance(app.screen, Page))
            await pilot.pause()
            assert app.is_running, key
            seen = screen_text(app)
            assert "[2 processes]" in seen and "No signal was sent." in seen, key


@pytest.mark.asyncio
@pytest.mark.parametrize("opening", ["question_mark", "T", "enter"])
async def test_q_leaves_a_pop_up_and_then_the_program(opening):
    app = app_of()
    async with app.run_test(size=(100, 24)) as pilot:
        await opened(pilot, opening)
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, Page))
        await pilot.pause()
        assert app.is_running
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)


@pytest.mark.asyncio
@pytest.mark.parametrize("opening", [*OPENING, "ctrl+p"])
async def test_ctrl_c_ends_it_also_over_a_pop_up(opening):
    app = app_of()
    async with app.run_test(size=(80, 24)) as pilot:
        if opening in OPENING:
            await opened(pilot, opening)
        else:
            await until(pilot, lambda: len(app.pages) > 1)
            await pilot.press(opening)
            await until(pilot, lambda: isinstance(app.screen, CommandPalette))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not app.is_running)


@pytest.mark.asyncio
async def test_what_is_typed_at_once_arrives_in_order_and_q_is_a_letter_there():
    app = app_of()
    async with app.run_test(size=(80, 24)) as pilot:
        shown = await opened(pilot, "g")
        burst(app, "qq")
        await until(pilot, lambda: app.screen.query_one(Input).value == "qq")
        assert app.screen is shown
        burst(app, ["home", "delete", "delete"])
        await until(pilot, lambda: not app.screen.query_one(Input).value)
        burst(app, [*"14:02", "enter"])
        await until(pilot, lambda: isinstance(app.screen, Page))
        await until(pilot, lambda: "14:02:00" in screen_text(app))


@pytest.mark.asyncio
async def test_the_help_scrolls_and_goes_with_any_other_key():
    app = app_of()
    async with app.run_test(size=(80, 24)) as pilot:
        shown = await opened(pilot, "question_mark")
        assert isinstance(shown, PopUp)
        assert "Rates are in bytes/s" not in screen_text(app)
        await pilot.press("end")
        assert "Rates are in bytes/s" in screen_text(app)
        await pilot.press("home", "pagedown", "down", "up", "pageup")
        assert app.screen is shown and "Rates are in bytes/s" not in screen_text(app)
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, Page))


@pytest.mark.asyncio
async def test_arrows_move_through_a_list_beside_the_line_in_which_one_types():
    app = app_of()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, "m")
        await pilot.press("pagedown", "up", "enter")
        await until(pilot, lambda: isinstance(app.screen, Page))
        tenth = charting.metrics()[9][1].partition(" (")[0]
        await until(pilot, lambda: tenth in screen_text(app))
        await pilot.press("m", "down", "up", "enter")
        await until(pilot, lambda: isinstance(app.screen, Page))
        assert tenth in screen_text(app)


@pytest.mark.asyncio
async def test_arrows_move_through_the_commands():
    app = app_of()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.pages) > 1)
        await pilot.press("ctrl+p", *"theme")
        await until(pilot, lambda: "theme mono" in screen_text(app))
        found = app.screen.query_one(CommandList)
        await until(pilot, lambda: found.option_count == 6 and found.highlighted == 0)
        await pilot.press("down", "down", "up", "down")
        await until(pilot, lambda: found.highlighted == 2)

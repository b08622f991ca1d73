"""The pages of studies and of profiles, driven by keys, on a real store."""

import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.study import Objective
from gpuadvisor.storage.database import open_store
from gpuadvisor.tui.watch.app import Watch
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.watched import Watched
from tests import studies
from tests.telemetry import frame, sample
from tests.unit.tui.watch.screens import screen_text
from tests.unit.tui.watch.test_app import Made, until


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An empty store, in whose folder the program runs."""
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def app():
    watched = Watched(Made(frame(0, sample())), WatchState("live", clock=time.monotonic))
    return Watch(watched)


def shows(app, *words):
    return lambda: all(word in screen_text(app) for word in words)


def begun(store, name, **changes):
    """Store a study without a result, with the runs that one usually has."""
    store.create_study(
        name, "train.py", ("--epochs", "1"), studies.environment(), Level.BALANCED,
        Objective.THROUGHPUT, folder="/work dir",
    )  # fmt: skip
    for trial in studies.trials()[:3]:
        store.add_trial(name, replace(trial, **changes))


@pytest.mark.asyncio
async def test_an_empty_store_says_how_to_get_something(app):
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.pages)
        await pilot.press("4")
        await until(pilot, shows(app, "gpuadvisor tune script.py"))
        await pilot.press("5")
        await until(pilot, shows(app, "gpuadvisor import FILE"))


@pytest.mark.asyncio
async def test_what_fails_in_a_thread_is_said_on_the_page(app, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("by none")

    monkeypatch.setattr("gpuadvisor.tui.watch.pages.studies.Studies.entries", broken)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.pages)
        await pilot.press("4")
        await until(pilot, shows(app, "This failed: report it as a bug (ZeroDivisionError"))


@pytest.mark.asyncio
async def test_a_finished_study_is_told_and_its_page_written(app, home):
    with open_store() as store:
        result = studies.study(study="done-1")
        store.create_study(
            "done-1", result.script, result.args, result.environment, result.level, result.objective
        )
        store.finish_study(result)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.pages)
        await pilot.press("4")
        await until(pilot, shows(app, "done-1", f"{result.speedup.ratio:.2f}x"))
        await pilot.press("enter")
        await until(pilot, lambda: not app.screen.query_one("#listed").display)
        await pilot.press("w")
        await until(pilot, lambda: (home / "done-1.html").exists())
    assert "<!DOCTYPE html>" in (home / "done-1.html").read_text("utf-8")


@pytest.mark.asyncio
async def test_a_study_that_runs_and_one_that_was_killed_are_told_apart(app):
    with open_store() as store:
        begun(store, "killed-1")
        begun(store, "runs-1")
        late = datetime.now(UTC) + timedelta(minutes=9, seconds=30)
        store.begin_session("runs-1", late.isoformat(timespec="seconds"))
        with store.lock_study("runs-1"):
            async with app.run_test(size=(140, 40)) as pilot:
                await until(pilot, lambda: app.pages)
                await pilot.press("4")
                await until(pilot, shows(app, "runs, 9 min", "ended without a result"))
                await until(pilot, shows(app, f"process {os.getpid()} works on it"))
                await pilot.press("down")
                await until(pilot, shows(app, "gpuadvisor tune --resume"))


@pytest.mark.asyncio
async def test_a_run_that_gained_is_not_called_proven(app):
    with open_store() as store:
        begun(store, "runs-1", gain=1.5, settings={"tf32": True})
    async with app.run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: app.pages)
        await pilot.press("4")
        await until(pilot, shows(app, "1.50x so far", "measured, not proven yet"))


@pytest.mark.asyncio
async def test_a_damaged_store_is_a_sentence(app, home):
    (home / "gpuadvisor.db").write_bytes(b"no database at all" * 100)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.pages)
        await pilot.press("5")
        await until(pilot, shows(app, "gpuadvisor.db"))

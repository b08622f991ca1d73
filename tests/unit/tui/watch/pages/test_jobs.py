"""The page of jobs: what a daemon's store has of them, by keys."""

import re
import time
from dataclasses import replace

import pytest

from gpuadvisor.domain.telemetry import GpuProcess
from gpuadvisor.tui.watch.app import Watch
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.watched import Watched
from tests.telemetry import GIB, START_S, frame, h100, sample
from tests.telemetry_store import stored
from tests.unit.tui.watch.screens import screen_text, shown
from tests.unit.tui.watch.test_app import Made

pytestmark = pytest.mark.asyncio


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Forty minutes of a notebook that is idle, until now."""
    folder = tmp_path_factory.mktemp("store") / "telemetry"
    began_s = time.time() // 60 * 60 - 2400  # as causes are named for whole thirds of a minute
    notebook = GpuProcess(
        h100(0).uuid, 71, "compute", 70 * GIB, "python", "ann", "python -m ipykernel_launcher",
        started_s=began_s, cpu_pct=1.0, children_cpu_pct=0.0,
    )  # fmt: skip
    quiet = sample(gpu_utilization_pct=0, sm_active_pct=0, power_w=70.0)
    stored(
        folder,
        *(
            replace(frame(0.0, quiet), time_s=began_s + 4.0 * at, processes=(notebook,))
            for at in range(600)
        ),
    )
    return folder


def watching(store):
    state = WatchState("live", host="node7", clock=lambda: START_S)
    return Watch(Watched(Made(frame(0.0, sample())), state, store=store))


async def test_what_wastes_most_is_found_in_three_keys(store):
    async with watching(store).run_test(size=(110, 30)) as pilot:
        await shown(pilot, "6 jobs")
        await pilot.press("6")
        await shown(pilot, "-m ipykernel_launcher")
        await shown(pilot, "-m ipykernel_launcher, 0.67 GPU-hours: idle for 39 min")
        assert re.search(r"0\.6\d +idle \d+ %", screen_text(pilot.app))
        await pilot.press("enter")
        await shown(pilot, "All of the time in which it held the GPU and ran nothing.")
        assert re.search(r" \d+ %  idle", screen_text(pilot.app))
        await pilot.press("escape", "w")
        await shown(pilot, "The last 30 days")


async def test_without_a_daemon_it_says_what_to_do():
    async with watching(None).run_test(size=(100, 20)) as pilot:
        await shown(pilot, "6 jobs")
        await pilot.press("6")
        await shown(pilot, "`gpuadvisor daemon start`")

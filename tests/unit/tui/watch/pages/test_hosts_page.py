"""The page of several machines, and the others as pages of one of them, by keys."""

import time
from dataclasses import replace

import pytest

from gpuadvisor.daemon.endpoint import remote as remote_module
from gpuadvisor.domain.telemetry import GpuProcess
from gpuadvisor.tui.watch.app import Watch
from gpuadvisor.tui.watch.pages.hosts import WatchHosts
from tests.endpoint import Endpoint
from tests.telemetry import START_S, frame, sample
from tests.telemetry_store import stored
from tests.unit.tui.watch.screens import screen_text, shown
from tests.unit.tui.watch.several import XID

pytestmark = pytest.mark.asyncio
SETTLED = ("never heard: ", "Xid 79", "quiet   2 GPUs")
"""What is on the screen once all of `Machines.trouble` were asked, so that their order is final."""


async def test_enter_opens_the_machine_that_is_chosen_and_0_returns(machines):
    watched = machines.trouble()
    async with WatchHosts(watched[0], hosts=watched).run_test(size=(110, 24)) as pilot:
        await shown(pilot, "[0 hosts]", "3 hosts, 1 unreadable", "6 jobs", *SETTLED)
        firsts = [line.partition(" ")[0] for line in screen_text(pilot.app).splitlines()[1:]]
        assert [each for each in firsts if each.isalpha()][:3] == ["gone", "broken", "quiet"]
        await pilot.press("enter")  # what is listed first, whatever was named first
        await shown(pilot, "[1 GPUs]", "gone", "Nothing listens on 127.0.0.1:")
        await pilot.press("0", "down", "enter")
        await shown(pilot, "[1 GPUs]", "broken  daemon", "GPU 1: GPU 1 reported Xid 79: reboot.")
        await pilot.press("0", "down", "1")
        await shown(pilot, "[1 GPUs]", "quiet  daemon")
        await pilot.press("0", "home", "enter")
        await shown(pilot, "[1 GPUs]", "gone", "Nothing listens on 127.0.0.1:")


async def test_one_machine_has_the_page_too(machines):
    watched = machines.trouble()[1:2]
    async with WatchHosts(watched[0], hosts=watched).run_test(size=(110, 24)) as pilot:
        await pilot.press("0")
        await shown(pilot, "[0 hosts]", "1 host", "6 jobs")
        assert "1 hosts" not in screen_text(pilot.app)


async def test_pages_of_a_machine_stay_as_they_were_left(machines):
    watched = machines.trouble()
    async with WatchHosts(watched[1], hosts=watched).run_test(size=(110, 24)) as pilot:
        await shown(pilot, "6 jobs", *SETTLED)
        await pilot.press("down", "2", "slash", *"ann", "enter")
        await shown(pilot, "with 'ann'")
        await pilot.press("0", "down", "2")
        await shown(pilot, "quiet  daemon")
        assert "with 'ann'" not in screen_text(pilot.app)
        await pilot.press("0", "up", "2")
        await shown(pilot, "broken  daemon", "with 'ann'")


async def test_nothing_is_done_to_processes_of_another_machine(machines):
    python = GpuProcess("GPU-0", 1, "compute", 1 << 30, "python", "ann", started_s=START_S)
    there = machines.add("node7", sample(), processes=True)
    made = frame(0.5, sample())
    machines.endpoints["node7"].take(type(made)(made.time_s, made.samples, processes=(python,)))
    async with Watch(there).run_test(size=(110, 24)) as pilot:
        await shown(pilot, "6 jobs", "python")
        for key, said in {
            "p": "Nothing is profiled: its processes are on node7, where `gpuadvisor watch` can",
            "u": "No study is started: its processes are on node7, where `gpuadvisor watch` can",
        }.items():
            pilot.app.say("")
            await pilot.press(key)
            await shown(pilot, said)
        await pilot.press("2")
        for key in "TKIP":
            pilot.app.say("")
            await pilot.press("1", "2", key)
            await shown(pilot, "No signal is sent: its processes are on node7, where")
        await pilot.press("e")
        await shown(pilot, "node7 does not tell environments to other machines.")
        for key, name in (("4", "studies"), ("5", "profiles")):
            await pilot.press(key)
            await shown(pilot, f"node7 does not tell other machines of {name}")
        await pilot.press("6")
        await shown(pilot, "node7 does not tell other machines who used it for what")


async def test_a_machine_that_goes_and_comes_back(machines, monkeypatch):
    monkeypatch.setattr(remote_module, "EVERY_S", 0.05)
    monkeypatch.setattr(remote_module, "AGAIN_S", 0.05)
    watched = [machines.add("node7", sample()), machines.add("node8", sample())]
    async with WatchHosts(watched[0], hosts=watched).run_test(size=(160, 24)) as pilot:
        await shown(pilot, "node7   1 GPU", "node8   1 GPU")
        machines.lose("node7")
        await shown(pilot, "node7  last heard 0 s ago (1 GPU, 97% at ", "): Nothing listens on")
        await pilot.press("1")
        await shown(pilot, "stale", "Nothing listens on 127.0.0.1:")
        assert " 97%" not in screen_text(pilot.app)
        there = machines.endpoints["node7"] = Endpoint("node7")
        there.take(frame(0, sample(gpu_utilization_pct=42)))
        watched[0].remote.host = there.host()
        await shown(pilot, " 42%")


async def test_the_clock_of_another_machine_is_said(machines):
    watched = [machines.add("node7", sample()), machines.add("node8", sample())]
    async with WatchHosts(watched[0], hosts=watched).run_test(size=(110, 24)) as pilot:
        await shown(pilot, "node7   1 GPU", "6 jobs")
        watched[0].remote.ahead_s = 90.0  # until it is asked again
        pilot.app.draw()
        await shown(pilot, "The clock of node7 is 1 min 30 s ahead of this machine's")


async def test_charts_are_drawn_of_what_the_other_machine_has_stored(machines, tmp_path):
    began_s = time.time() - 120
    made = [replace(frame(0, sample()), time_s=began_s + at_s) for at_s in range(100)]
    xid = replace(XID, gpu="GPU-0", began_s=began_s + 60, ended_s=began_s + 60)
    stored(tmp_path, *made, events=(xid,))
    there = machines.add("node7", sample(), folder=tmp_path)
    async with Watch(there).run_test(size=(110, 30)) as pilot:
        await shown(pilot, "6 jobs")
        await pilot.press("3")
        await shown(pilot, "Time in which at least one kernel ran", "GPU 1 reported Xid 79")
        await pilot.press("e")
        await shown(pilot, "util 97 %", "does not tell its processes:")
        machines.lose("node7")
        await pilot.press("left")
        await shown(pilot, "Nothing listens on 127.0.0.1:")

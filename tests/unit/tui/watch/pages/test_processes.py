"""The page of processes, driven by its keys, and what it does to real processes."""

import os
import signal
import subprocess
from dataclasses import replace

import pytest

from gpuadvisor.domain.telemetry import PROCESSES, Frame, GpuProcess, Sample, State, Unavailable
from gpuadvisor.tui.watch import process_list
from gpuadvisor.tui.watch.app import Watch
from gpuadvisor.tui.watch.process_list import ORDERS, View, listed, note
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.watched import Watched
from tests.telemetry import GIB, START_S, frame, sample
from tests.unit.tui.watch.screens import PATIENCE_S, screen_text, until


def of(pid, gpu=0, gib=1.0, **fields):
    told = {"name": "python", "user": "ada", "started_s": START_S - 60 * pid, **fields}
    return GpuProcess(f"GPU-{gpu}", pid, "compute", int(gib * GIB), **told)


LISTED = (
    of(11, 0, 2, command="python train.py", sm_utilization_pct=90.0, cpu_pct=101.0),
    of(12, 0, 1, command="python worker", parent_pid=11, cpu_pct=5.0),
    of(13, 1, 70, command="python serve.py", user="bob", container="0123456789ab"),
    of(14, 1, 3, command="python eval.py", host_memory_bytes=9 * GIB),
)


class Still:
    """A source that has given all its frames."""

    label = "live"
    has_all_events = False
    withheld = None

    def frames(self):
        yield from ()
        import threading

        threading.Event().wait()

    def close(self):
        pass


def state_with(*found, used=71):
    state = WatchState("live", clock=lambda: 0.0)
    made = frame(0, *[sample(memory_used_bytes=used * GIB)] * 2)
    state.update(Frame(made.time_s, made.samples, gpus=made.gpus, processes=found))
    return state


def app_of(*found, **chosen):
    return Watch(Watched(Still(), state_with(*found), **chosen))


async def opened(pilot):
    app = pilot.app
    app._load()
    await pilot.press("2")
    await until(pilot, lambda: "  by GPU" in screen_text(app))


def shown(app):
    """The numbers of the processes on the screen, from top to bottom."""
    lines = screen_text(app).splitlines()
    return [int(words[1].lstrip("*")) for line in lines
            if len(words := line.replace("*", " ").split()) > 4 and words[1].isdigit()
            and len(words[1]) == 2]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "is_reversed", "expected"),
    [
        ("n", False, [11, 12, 13, 14]),
        ("g", False, [13, 14, 11, 12]),
        ("g", True, [12, 11, 14, 13]),
        ("u", False, [11, 12, 14, 13]),
        ("p", True, [14, 13, 12, 11]),
        ("s", False, [11, 13, 14, 12]),
        ("c", False, [11, 12, 13, 14]),
        ("m", False, [14, 11, 12, 13]),
        ("t", False, [14, 13, 12, 11]),
    ],
)
def test_every_order(key, is_reversed, expected):
    view = View(order=ORDERS[key], is_reversed=is_reversed)
    found = [row.process.pid for row in listed(state_with(*LISTED), view)]
    known = {each.pid: ORDERS[key].of(each) for each in LISTED}
    assert [known[pid] for pid in found] == [known[pid] for pid in expected]


def test_a_tree_puts_children_below_and_loops_of_parents_lose_nothing():
    rows = listed(state_with(*LISTED), View(is_tree=True))
    assert [(row.process.pid, row.depth) for row in rows][:2] == [(11, 0), (12, 1)]
    own = replace(LISTED[0], parent_pid=11)
    assert [row.process.pid for row in listed(state_with(own), View(is_tree=True))] == [11]


@pytest.mark.parametrize(
    ("search", "expected"),
    [("bob", [13]), ("EVAL", [14]), ("012345", [13]), ("gpu1 python", [13, 14]), ("13", [13]),
     ("nobody", [])],
)  # fmt: skip
def test_a_search_looks_at_user_command_container_number_and_gpu(search, expected):
    found = listed(state_with(*LISTED), View(search=search))
    assert [row.process.pid for row in found] == expected


def test_a_paused_process_is_marked():
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            state = state_with(of(child.pid, command="sleep 600"))
            (_, line) = process_list.lines(listed(state), state, 120)
            assert "paused" not in "".join(text for text, _ in line)
            os.kill(child.pid, signal.SIGSTOP)
            os.waitpid(child.pid, os.WUNTRACED)
            (_, line) = process_list.lines(listed(state), state, 120)
            assert "(paused) sleep 600" in "".join(text for text, _ in line)
            state.is_here = False
            (_, line) = process_list.lines(listed(state), state, 120)
            assert "paused" not in "".join(text for text, _ in line)
        finally:
            child.kill()


def test_numbers_of_the_host_are_said_to_be_instead_of_looked_up():
    stranger = GpuProcess("GPU-0", 77, "compute", GIB, None, is_host_pid=True)
    state = state_with(stranger)
    assert "--pid=host" in note(state)
    (_, line) = process_list.lines(listed(state), state, 120)
    assert "of the host" in "".join(text for text, _ in line)


def test_memory_of_nobody_is_said_and_an_empty_gpu_is_not():
    assert note(state_with(*LISTED[:2])).startswith("GPU 1: memory is in use by processes")
    assert note(state_with(used=0)) == ""


def test_of_a_gpu_whose_processes_are_not_listed_nobody_blames_a_container():
    state = state_with(*LISTED[:2])
    untold = Sample({"memory_used_bytes": GIB}, {PROCESSES: Unavailable(State.STALE, START_S)})
    made = frame(1, sample(), untold)
    state.update(replace(made, processes=LISTED[:2]))
    assert note(state) == "GPU 1: the driver does not list the processes now."
    assert [row.process.pid for row in listed(state)] == [11, 12]


@pytest.mark.asyncio
async def test_keys_of_nvitop():
    app = app_of(*LISTED)
    async with app.run_test(size=(120, 20)) as pilot:
        await opened(pilot)
        assert shown(app) == [11, 12, 13, 14]
        await pilot.press("o", "g")
        assert shown(app) == [13, 14, 11, 12]
        await pilot.press("o", "G")
        assert shown(app) == [12, 11, 14, 13]
        await pilot.press("o", "n", "t")
        assert "└ python worker" in screen_text(app)
        await pilot.press("slash", *"eval")
        await until(pilot, lambda: shown(app) == [14])
        await pilot.press("q")  # a letter while one types
        await until(pilot, lambda: "with 'evalq'" in screen_text(app))
        assert app.is_running
        await pilot.press("escape")
        await until(pilot, lambda: len(shown(app)) == 4)
        await pilot.press("home", "space", "space")
        assert "2 selected" in screen_text(app)
        await pilot.press("escape", "end")
        assert app.watched.gpu == "GPU-1"
        await pilot.press("g")
        assert shown(app) == [13, 14]
        await pilot.press("enter")
        await until(pilot, lambda: "14 over time" in screen_text(app))


@pytest.mark.asyncio
async def test_a_thousand_processes_and_one_that_ends():
    many = [of(n, n % 2, 1, command=f"job {n}") for n in range(1000, 2000)]
    app = app_of(*many)
    async with app.run_test(size=(100, 24)) as pilot:
        await opened(pilot)
        await pilot.press("o", "p", "end")
        assert "job 1999" in screen_text(app)
        made = frame(5, sample(), sample())
        app.state.update(Frame(made.time_s, made.samples, processes=tuple(many[:10])))
        app.draw()
        await pilot.pause()
        assert "job 1009" in screen_text(app)
        assert "10 processes" in screen_text(app)


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "1000"])
    import psutil

    yield process, of(process.pid, started_s=psutil.Process(process.pid).create_time())
    process.kill()
    process.wait()


@pytest.mark.asyncio
async def test_a_signal_is_sent_after_yes_and_only_then(sleeper):
    process, told = sleeper
    app = app_of(told)
    async with app.run_test(size=(100, 20)) as pilot:
        await opened(pilot)
        await pilot.press("T")
        await until(pilot, lambda: "terminate this process? SIGTERM" in screen_text(app))
        await pilot.press("n")
        await until(pilot, lambda: "No signal was sent." in screen_text(app))
        assert process.poll() is None
        await pilot.press("T", "y")
        await until(pilot, lambda: f"SIGTERM was sent to {process.pid}." in screen_text(app))
        assert process.wait(PATIENCE_S) == -15


@pytest.mark.asyncio
@pytest.mark.parametrize("chosen", [{"read_only": True}])
async def test_read_only_sends_nothing(sleeper, chosen):
    process, told = sleeper
    app = app_of(told, **chosen)
    async with app.run_test(size=(100, 20)) as pilot:
        await opened(pilot)
        for key in "TKIP":
            await pilot.press(key)
            await until(pilot, lambda: "No signal is sent: --read-only" in screen_text(app))
            await pilot.press("y")
        assert process.poll() is None


@pytest.mark.asyncio
async def test_a_number_that_is_another_process_now_is_left_alone(sleeper):
    process, told = sleeper
    app = app_of(replace(told, started_s=told.started_s - 100))
    async with app.run_test(size=(100, 20)) as pilot:
        await opened(pilot)
        await pilot.press("K", "y")
        await until(pilot, lambda: "another process's now" in screen_text(app))
        assert process.poll() is None


@pytest.mark.asyncio
async def test_the_environment_is_shown_on_demand():
    import psutil

    own = psutil.Process()
    app = app_of(of(own.pid, started_s=own.create_time()))
    async with app.run_test(size=(100, 200)) as pilot:
        await opened(pilot)
        assert "PATH=" not in screen_text(app)
        await pilot.press("e")
        await until(pilot, lambda: f"PATH={os.environ['PATH']}"[:60] in screen_text(app))

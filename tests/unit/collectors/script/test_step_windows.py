"""The hooks of a step that is like the one before: what they leave out changes no figure."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import mean
from types import SimpleNamespace
from typing import Any

import pytest

from gpuadvisor.collectors.script.child.channel import Channel
from gpuadvisor.collectors.script.child.counters import LONG_WAIT_S, Counters
from gpuadvisor.collectors.script.child.trace import samples_in
from gpuadvisor.collectors.script.child.windows import MAX_EXTENSIONS, CudaTimer, Windows
from gpuadvisor.collectors.script.specification import Schedule


class FakeEvent:
    """Knows the stream that it was recorded on, and when; it stays on its first device."""

    made = 0
    now_s = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        FakeEvent.made += 1
        self.stream: Any = None
        self.at_s = 0.0

    def record(self, stream: Any) -> None:
        if self.stream is not None and self.stream.device != stream.device:
            raise RuntimeError("Event device 0 does not match recording stream's device 1")
        FakeEvent.now_s += 0.5
        self.stream, self.at_s = stream, FakeEvent.now_s

    def query(self) -> bool:
        return True

    def elapsed_time(self, later: FakeEvent) -> float:
        return 1e3 * (later.at_s - self.at_s)


class FakeCuda:
    """A process with a current device and a current stream on it."""

    def __init__(self, private: bool) -> None:
        FakeEvent.made = 0
        self.device = self.stream = 0
        self.cuda = SimpleNamespace(
            Event=FakeEvent, current_stream=self._current_stream, synchronize=lambda: None
        )
        self._C = SimpleNamespace()
        if private:
            self._C._cuda_getDevice = lambda: self.device
            self._C._cuda_getCurrentStream = lambda device: (self.stream, device, 1)

    def _current_stream(self) -> Any:
        return SimpleNamespace(device=self.device, stream=self.stream)


@pytest.fixture(params=[True, False], ids=["private", "public"])
def torch(request):
    return FakeCuda(request.param)


def test_an_event_that_came_back_is_recorded_again(torch):
    timer = CudaTimer(torch)
    marks = [timer.mark() for _ in range(3)]
    assert timer.between_s(marks[0], marks[2]) == pytest.approx(1.0)
    timer.give_back(marks[:2])
    again = [timer.mark() for _ in range(3)]
    assert FakeEvent.made == 4
    assert timer.between_s(marks[2], again[-1]) == pytest.approx(1.5)


def test_a_mark_is_on_the_stream_that_is_current(torch):
    timer = CudaTimer(torch)
    timer.give_back([timer.mark()])
    torch.stream = 7
    assert timer.mark().stream.stream == 7
    torch.stream = 0
    assert timer.mark().stream.stream == 0


def test_an_event_of_another_device_is_not_used_again(torch):
    timer = CudaTimer(torch)
    timer.give_back([timer.mark()])
    torch.device = 1
    assert timer.mark().stream.device == 1


class EverySecond:
    """A timer whose marks are a second apart, and which the device has always passed."""

    def __init__(self) -> None:
        self.marks = 0.0
        self.returned: list[float] = []

    def mark(self) -> float:
        self.marks += 1.0
        return self.marks

    def ready(self, mark: float) -> bool:
        return True

    def between_s(self, first: float, second: float) -> float:
        return second - first

    def synchronize(self) -> None:
        return None

    def give_back(self, marks: Any) -> None:
        self.returned.extend(marks)


@pytest.fixture
def told(tmp_path):
    """A channel, and a function that returns the windows that were told through it."""
    pipe = tmp_path / "events"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)

    def windows() -> list[dict[str, Any]]:
        events = [json.loads(line) for line in os.read(reading, 1 << 16).splitlines()]
        return [event for event in events if event["event"] == "window"]

    yield Channel(str(pipe)), windows
    os.close(reading)


def step(counters: Counters, interrupted: bool = False) -> None:
    counters.loader_samples += 16
    counters.root_samples += 8
    counters.data_wait_s += 0.25
    counters.interruptions += interrupted
    counters.add_step()


@pytest.mark.parametrize(
    ("habitual", "steps"), [(False, 3), (True, 4)], ids=["evaluation", "teacher"]
)
def test_a_window_sums_up_the_steps_that_count(told, habitual: bool, steps: int):
    channel, windows = told
    counters = Counters()
    counting = Windows(EverySecond(), channel, counters, window_s=60.0)
    counting.start()
    for number in range(4):
        step(counters, interrupted=number == 1)
    assert counting.interrupted_steps == 1
    counting.habitual = habitual
    counting.close()
    (window,) = windows()
    assert (window["steps"], window["seconds"]) == (steps, float(steps))
    assert (window["loader_samples"], window["root_samples"]) == (16 * steps, 8 * steps)
    assert window["data_wait_s"] == 0.25 * steps


class Device(EverySecond):
    """A device that has work for a while; marks are passed once it is done, as events are."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = self.busy_until_s = 0.0

    def mark(self) -> float:
        return max(self.now_s, self.busy_until_s)


def waited(counters: Counters, device: Device, seconds: float) -> None:
    """Wait for a batch as `patch_batches` does."""
    mark = counters.begin_wait() if counters.watched else None
    device.now_s += seconds
    if seconds > LONG_WAIT_S:
        counters.waited(mark, seconds)


def test_a_wait_costs_what_the_device_is_idle_of_it(told):
    counters, device = Counters(), Device()
    counting = Windows(device, told[0], counters, window_s=60.0)
    waited(counters, device, 5.0)  # before anything is counted
    counting.start()
    assert counting.idle_while_waiting() is None
    for seconds, work_s in ((2.0, 0.5), (1.0, 4.0), (1e-6, 0.0), (3.0, 0.0)):
        device.busy_until_s = device.now_s + work_s
        waited(counters, device, seconds)
        device.now_s = max(device.now_s, device.busy_until_s)  # the script reads a loss
    assert counting.idle_while_waiting() == pytest.approx((1.5 + 0.0 + 3.0) / 6.0)


def test_short_waits_are_soon_left_alone_until_one_is_long(told):
    counters, device = Counters(), Device()
    counters.workers = 4
    Windows(device, told[0], counters, window_s=60.0).start()
    seen = []
    for seconds in (1.0, *[1e-6] * 20, 1.0, 1.0):
        seen.append(counters.watched > 0)
        waited(counters, device, seconds)
    assert seen == [True] * 11 + [False] * 11 + [True]
    assert len(counters.waits) == 2  # of the second long one the beginning was not marked


def test_a_thread_that_loads_ahead_marks_nothing(told):
    counters, device = Counters(), Device()
    Windows(device, told[0], counters, window_s=60.0).start()
    thread = threading.Thread(target=waited, args=(counters, device, 1.0))
    thread.start()
    thread.join()
    assert counters.waits == []


def test_what_cannot_be_marked_is_not_known_and_disturbs_nobody(told):
    class Captured(Device):
        def mark(self) -> float:
            raise RuntimeError("operation not permitted when stream is capturing")

    counters, device = Counters(), Device()
    counting = Windows(device, told[0], counters, window_s=60.0)
    counting.start()
    counters.mark = Captured().mark
    waited(counters, device, 1.0)
    assert counting.idle_while_waiting() is None


def test_the_next_window_begins_with_the_last_step(told):
    channel, windows = told
    counters, timer = Counters(), EverySecond()
    counting = Windows(timer, channel, counters, window_s=60.0)
    counting.start()
    for _ in range(2):
        for _ in range(3):
            step(counters)
        counting.close()
    assert [window["steps"] for window in windows()] == [3, 3]
    assert counting.seen_steps == counting.steps == 6
    assert timer.returned == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_discarded_steps_were_seen(told):
    channel, windows = told
    counters = Counters()
    counting = Windows(EverySecond(), channel, counters, window_s=60.0)
    counting.start()
    step(counters)
    counting.discard()
    counting.start()
    step(counters)
    counting.close()
    assert [window["steps"] for window in windows()] == [1]
    assert counting.seen_steps == 2


class Uneven:
    """A timer of steps that take as long as a list says, over and over."""

    def __init__(self, counters: Counters, steps_s: list[float]) -> None:
        self.counters, self.steps_s = counters, steps_s
        self.number = 0
        self.marks = 0

    def mark(self) -> float:
        self.marks += 1
        rounds, rest = divmod(self.number, len(self.steps_s))
        return rounds * sum(self.steps_s) + sum(self.steps_s[:rest])

    def ready(self, mark: float) -> bool:
        return True

    def between_s(self, first: float, second: float) -> float:
        return second - first

    def synchronize(self) -> None:
        return None

    def give_back(self, marks: Any) -> None:
        return None


def step_of(timer: Uneven, counters: Counters) -> bool:
    """Make a step, and say whether it ends without a mark."""
    timer.number += 1
    before = timer.marks
    step(counters)
    return timer.marks == before


def many_steps(told, counters: Counters, timer: Uneven, steps: int, windows: int = 8):
    """Windows of so many steps, all marked as the steps of a window before them have been."""
    channel, _ = told
    alone: list[float] = []
    channel.send_list = lambda event, values: alone.extend(values)
    counting = Windows(timer, channel, counters, window_s=float(steps))
    counting.start(1.0)
    for _ in range(windows):
        for _ in range(steps):
            step_of(timer, counters)
        while step_of(timer, counters):  # a window ends with a mark
            pass
        counting.close()
    return counting, alone


def test_of_many_steps_few_are_marked_and_all_are_counted(told):
    counters = Counters()
    timer = Uneven(counters, [0.001] * 7 + [0.004])
    counting, alone = many_steps(told, counters, timer, steps=500)
    windows = told[1]()
    assert timer.marks < 0.1 * timer.number
    assert sum(window["steps"] for window in windows) == counting.steps == timer.number
    assert sum(window["seconds"] for window in windows) == pytest.approx(timer.mark())
    assert sum(window["loader_samples"] for window in windows) == 16 * timer.number
    assert sum(window["data_wait_s"] for window in windows) == 0.25 * timer.number
    assert len(alone) >= 200


@pytest.mark.parametrize("period", [2, 7, 8, 10, 16, 25, 64])
def test_slow_steps_are_seen_as_often_as_they_come(told, period: int):
    counters = Counters()
    timer = Uneven(counters, [1.0] * (period - 1) + [3.0])
    _, alone = many_steps(told, counters, timer, steps=400, windows=40)
    share = sum(ms > 2000 for ms in alone) / len(alone)
    assert share == pytest.approx(1 / period, rel=0.35)


def test_few_steps_are_all_marked(told):
    counters = Counters()
    timer = Uneven(counters, [1.0])
    _, alone = many_steps(told, counters, timer, steps=26)
    assert len(alone) == timer.number


def test_of_steps_that_are_timed_together_those_with_an_evaluation_are_left_out(told):
    counters = Counters()
    timer = Uneven(counters, [1.0])
    counting, _ = many_steps(told, counters, timer, steps=400, windows=1)
    told[1]()
    while not step_of(timer, counters):
        pass
    for _ in range(3):
        step_of(timer, counters)
    counters.interrupt()
    timer.number += 9  # the evaluation
    assert not step_of(timer, counters)
    assert counters.open[-1][0] - counters.open[-2][0] == 14
    assert counters.open[-1][-1] - counters.open[-2][-1] == 5
    assert counting.interrupted_steps == 1
    counting.close()
    for _ in range(50):  # where one was, more may come
        step_of(timer, counters)
    assert {second[-1] - first[-1] for first, second in pairwise(counters.open)} == {1}


def shaped(*sizes: int) -> Any:
    return SimpleNamespace(shape=sizes)


@pytest.mark.parametrize(
    ("batch", "batch_size", "samples"),
    [
        pytest.param([shaped(16, 3), shaped(16)], 16, 16, id="list"),
        pytest.param([shaped(5, 3), shaped(5)], 16, 5, id="last"),
        pytest.param({"ids": shaped(16, 128)}, 16, 16, id="dictionary"),
        pytest.param({"ids": shaped(5, 128)}, 16, 5, id="last_dictionary"),
        pytest.param({}, 16, 16, id="empty"),
        pytest.param([shaped(16, 3)], None, 16, id="no_batch_size"),
        pytest.param([[shaped(3, 8, 8)] * 4], 4, 4, id="list_of_images"),
        pytest.param(SimpleNamespace(num_graphs=8), 16, 8, id="graphs"),
    ],
)
def test_samples_in_a_batch(batch: Any, batch_size: int | None, samples: int):
    assert samples_in(batch, batch_size) == samples


def test_a_mark_is_taken_once_a_step(told):
    counters, timer = Counters(), EverySecond()
    Windows(timer, told[0], counters, window_s=0.0).start()
    full: Callable[[], bool] = counters.add_step
    assert full()
    assert timer.marks == 2


def test_batches_are_taken_as_full_only_where_nothing_can_leave_samples_out():
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    from gpuadvisor.collectors.script.child.script_facts import FactsRecorder

    data = torch.ones(10, 2)
    usual = DataLoader(data, batch_size=4)
    dropping = DataLoader(data, batch_size=4, collate_fn=lambda samples: samples[1:])
    unknown = DataLoader(data, batch_size=None)
    facts = FactsRecorder(torch)
    for _ in range(20):  # an iterator may lie where one that is gone has lain
        assert [facts.loader(iter(each)).full for each in (usual, dropping, unknown)] == [2, 0, 0]


@pytest.mark.parametrize(
    ("given", "now", "own"),
    [
        ("GPU-1", "GPU-1", None),
        ("GPU-1", "0", "0"),
        ("GPU-1", None, "all"),
        ("", "0", "0"),
        (None, "0", None),
    ],
)
def test_gpus_that_the_script_chooses_itself_are_noted(monkeypatch, given, now, own):
    torch = pytest.importorskip("torch")
    from gpuadvisor.collectors.script.child.script_facts import FactsRecorder

    facts = FactsRecorder(torch, given)
    if now is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", now)
    facts.root(torch.nn.Linear(1, 1))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")  # too late to change anything
    facts.root(torch.nn.Linear(1, 1))
    assert facts.report()["own_gpus"] == own


class Steps(EverySecond):
    """A timer whose steps take given times, in seconds."""

    def __init__(self, times: Sequence[float]) -> None:
        super().__init__()
        self.times = iter([0.0, *times])

    def mark(self) -> float:
        self.marks += next(self.times)
        return self.marks


SCATTER = [1.0, 1.2, 0.9, 1.1, 0.8, 1.1, 0.9, 1.0]
assert mean(SCATTER[:4]) / mean(SCATTER[4:]) > 1 + 2 * Schedule().drift


@pytest.mark.parametrize(
    ("times", "dropped"),
    [
        (SCATTER, 0),
        ([1.0] * 8, 0),
        ([1.5, *[1.0] * 7], 1),
        ([1.5, 1.3, *[1.0, 1.01] * 3], 2),
        ([1.2] * 4 + [1.0] * 4, 4),
        ([1.0] * 4 + [1.2] * 4, 4),
        ([2.0 - 0.1 * number for number in range(8)], 4),
        ([1.04, *[1.0] * 7], 0),
    ],
    ids=[
        "scatters",
        "is alike",
        "slow start",
        "warms up",
        "is quicker",
        "is slower",
        "falls",
        "5 %",
    ],
)
def test_windows_are_dropped_that_are_unlike_those_after(told, times, dropped: int):
    channel, windows = told
    counters = Counters()
    counting = Windows(Steps(times), channel, counters, window_s=60.0)
    counting.start()
    for _ in times:
        counters.add_step()
        counting.close()
    schedule = Schedule(measure_s=0.0, min_steps=len(times))
    assert counting.enough(schedule, 0) == (not dropped)
    assert len(windows()) == len(times)
    assert counting.steps == len(times) - dropped


def test_measuring_ends_though_steps_grow_longer_for_ever(told):
    channel, _ = told
    counters = Counters()
    counting = Windows(Steps([1.1**n for n in range(60)]), channel, counters, window_s=60.0)
    counting.start()
    schedule = Schedule(measure_s=0.0, min_steps=8)
    made = 0
    while made == 0 or not counting.enough(schedule, 0):
        counters.add_step()
        counting.close()
        made += 1
    assert counting.steps == 8
    assert made == 8 + MAX_EXTENSIONS * 4

"""The step clock when somebody else takes the steps of a warm script."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import replace

import pytest

from gpuadvisor.collectors.script.child.channel import Channel
from gpuadvisor.collectors.script.child.clock import StepClock, StepHandover
from gpuadvisor.collectors.script.child.counters import Counters
from gpuadvisor.collectors.script.child.windows import HostTimer
from gpuadvisor.collectors.script.specification import Schedule

SCHEDULE = Schedule(
    warmup_steps=3, warmup_s=0.0, quiet_steps=0, measure_s=0.0, min_steps=4, window_s=0.0, drift=1e9
)


class Taker:
    """Wants three steps."""

    compiles = False

    def __init__(self) -> None:
        self.told: list[str] = []

    def begin(self) -> None:
        self.told.append("begin")

    def step(self, interrupted) -> bool:
        self.told.append("step")
        return self.told.count("step") == 3

    def abandon(self) -> None:
        self.told.append("abandon")

    def end(self) -> None:
        self.told.append("end")


@pytest.fixture
def clock(tmp_path):
    """A function that returns a clock with a taker, and what it has said and whether it ended."""
    pipe = tmp_path / "events"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)

    def make(is_owner: bool = True, measured: bool = False):
        taker, finished = Taker(), []
        handover = StepHandover(taker, lambda: is_owner)
        handovers = (None, handover) if measured else (handover, None)
        parts = (SCHEDULE, Channel(str(pipe)), Counters(), HostTimer)
        return StepClock(*parts, lambda: finished.append(True), *handovers), taker, finished

    def said() -> list[str]:
        return [json.loads(line)["event"] for line in os.read(reading, 1 << 16).splitlines()]

    yield make, said
    os.close(reading)


def test_the_steps_after_warming_up_are_handed_over(clock):
    make, said = clock
    ticking, taker, finished = make()
    for _ in range(6):
        ticking.tick("optimizer")
    assert taker.told == ["begin", "step", "step", "step"]
    assert finished == [True]
    assert said() == ["step", "warm"]


def test_a_better_marker_begins_anew(clock):
    make, said = clock
    ticking, taker, finished = make()
    for _ in range(4):
        ticking.tick("forward")
    for _ in range(3):
        ticking.tick("explicit")
    assert taker.told == ["begin", "step", "abandon", "begin"]
    assert finished == []
    assert said() == ["step", "warm", "step", "warm"]


def test_another_process_than_the_one_that_is_followed_takes_nothing(clock):
    make, said = clock
    ticking, taker, finished = make(is_owner=False)
    for _ in range(9):
        ticking.tick("optimizer")
    assert taker.told == []
    assert finished == []
    assert said() == ["step"]


def test_the_end_of_the_script_is_told_to_who_has_begun(clock):
    make, _ = clock
    ticking, taker, _ = make()
    ticking.tick("optimizer")
    assert ticking.end() is False
    assert taker.told == []
    ticking, taker, _ = make()
    for _ in range(4):
        ticking.tick("optimizer")
    assert ticking.end() is False
    assert taker.told == ["begin", "step", "end"]


def test_steps_behind_the_last_mark_are_steps_of_a_script_that_ends(tmp_path):
    """Of many short steps few are marked by themselves, and a script may end between two marks."""
    counters, schedule = Counters(), replace(SCHEDULE, window_s=1e6)
    os.mkfifo(tmp_path / "events")
    reading = os.open(tmp_path / "events", os.O_RDWR | os.O_NONBLOCK)
    ticking = StepClock(
        schedule, Channel(str(tmp_path / "events")), counters, HostTimer, lambda: None
    )
    for _ in range(3):
        ticking.tick("optimizer")
    counters.distances = itertools.repeat(7)
    for _ in range(97):
        ticking.tick("optimizer")
    assert ticking.end() is True
    assert ticking.report()["steps"] == 100
    os.close(reading)


class TestAfterTheMeasurement:
    def test_the_steps_that_follow_are_handed_over(self, clock):
        make, said = clock
        ticking, taker, finished = make(measured=True)
        noted = []
        ticking.on_measured = lambda: noted.append(list(taker.told))
        for _ in range(7):
            ticking.tick("optimizer")
        assert taker.told == ["begin"], "four steps were measured"
        assert noted == [[]], "what was measured is told as it was before that"
        measured = ticking.report()
        assert measured["steps"] == 7
        for _ in range(3):
            ticking.tick("optimizer")
        assert taker.told == ["begin", "step", "step", "step"]
        assert finished == [True]
        assert ticking.report() == measured
        assert [each for each in said() if each != "steps"] == ["step", "warm", *["window"] * 4]

    def test_a_better_marker_is_measured_anew(self, clock):
        make, _ = clock
        ticking, taker, finished = make(measured=True)
        for _ in range(8):
            ticking.tick("forward")
        for _ in range(6):
            ticking.tick("explicit")
        assert taker.told == ["begin", "step", "abandon"]
        assert ticking.windows is not None
        for _ in range(4):
            ticking.tick("explicit")
        assert taker.told == ["begin", "step", "abandon", "begin", *["step"] * 3]
        assert finished == [True]

    def test_a_script_that_ends_meanwhile_was_measured(self, clock):
        make, _ = clock
        ticking, taker, _ = make(measured=True)
        for _ in range(8):
            ticking.tick("optimizer")
        assert ticking.end() is True
        assert taker.told == ["begin", "step", "end"]

"""Two runs that start side by side: who waits for whom, and what has the second begin anew."""

import os
import time
from contextlib import contextmanager

import pytest

from gpuadvisor.collectors.script import start_line
from gpuadvisor.collectors.script.child.turns import GO, WARM
from gpuadvisor.collectors.script.start_line import StartLine


class Machine:
    """Two runs of which nothing is measured, and what speaks against their living together."""

    def __init__(self, folder):
        self.full = ""
        self.line = StartLine(lambda: self.full)
        self.places = {"first": self.line.first, "second": self.line.second}
        self.orders = {}
        for name, place in self.places.items():
            (folder / name).mkdir()
            path = place.pipe(folder / name)
            self.orders[name] = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def starts(self, name, workers=0):
        self.places[name].take({"event": WARM, "workers": workers})
        return self.told(name)

    def told(self, name):
        """Return the orders that have come since it last looked."""
        try:
            return os.read(self.orders[name], 99).decode().split()
        except BlockingIOError:
            return []


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(start_line, "PATIENCE_S", 600.0)  # however busy the machine is
    made = Machine(tmp_path)
    yield made
    for name, place in made.places.items():
        place.leave()
        os.close(made.orders[name])


@contextmanager
def later(monkeypatch, seconds):
    """Let so much time have passed."""
    now = time.monotonic
    with monkeypatch.context() as patch:
        patch.setattr(start_line.time, "monotonic", lambda: now() + seconds)
        yield


@pytest.mark.parametrize("names", [("first", "second"), ("second", "first")])
def test_the_first_is_measured_once_both_have_started(machine, names):
    assert machine.starts(names[0]) == []
    told = machine.starts(names[1])
    assert (told if names[1] == "first" else machine.told("first")) == [GO]
    assert machine.told("second") == []
    machine.line.first.leave()
    assert machine.told("second") == []
    machine.line.follow()
    assert machine.told("second") == [GO]
    assert machine.line.first.was_let and machine.line.second.was_let


def test_a_second_that_ends_before_it_has_started_keeps_nobody_waiting(machine):
    assert machine.starts("first") == []
    machine.line.second.leave()
    assert machine.told("first") == [GO]


def test_a_first_that_ended_without_waiting_was_not_let(machine):
    machine.starts("second")
    machine.line.first.leave()
    assert (machine.line.first.was_let, machine.told("second")) == (False, [])
    machine.line.give_up("the base has ended")
    assert machine.line.second.is_abandoned


@pytest.mark.parametrize("workers", [{"first": 2}, {"second": 2}])
def test_workers_would_read_ahead(machine, workers):
    for name, count in workers.items():
        machine.starts(name, count)
    assert machine.line.second.is_abandoned and not machine.line.first.is_abandoned
    assert "would read ahead" in machine.line.why_apart
    assert not machine.line.first.was_let
    machine.line.second.leave()
    assert (machine.told("first") or machine.starts("first")) == [GO]


def test_both_have_to_fit_into_the_memory_while_they_start(machine):
    machine.starts("second")
    assert not machine.line.second.is_abandoned
    machine.full = "they took 50 of 80 GiB"
    assert machine.line.second.is_abandoned
    assert machine.line.why_apart == "they took 50 of 80 GiB"


def test_what_one_takes_as_it_is_measured_is_no_matter(machine):
    machine.starts("second")
    machine.starts("first")
    machine.full = "they took 50 of 80 GiB"
    assert not machine.line.second.is_abandoned


@pytest.mark.parametrize("name", ["first", "second"])
def test_one_that_may_wait_for_the_other_is_not_waited_for(machine, monkeypatch, name):
    machine.starts(name)
    assert not machine.line.second.is_abandoned
    with later(monkeypatch, 3600):
        assert machine.line.second.is_abandoned
        assert "took much longer to start than the other" in machine.line.why_apart


def test_a_second_that_may_be_measured_is_not_given_up(machine):
    machine.starts("second")
    machine.line.follow()
    machine.line.give_up("the base has failed")
    assert not machine.line.second.is_abandoned


def test_another_process_of_the_script_that_counts_goes_on(machine):
    machine.starts("second")
    assert machine.starts("first") == [GO]
    assert machine.starts("first") == [GO]

"""Who of two runs works when: one at a time, until it is enough or one of them has ended."""

import os

import pytest

from gpuadvisor.collectors.script.child.turns import BLOCK, GO, WARM
from gpuadvisor.collectors.script.turns import LEAST_BLOCKS, MOST_LONGER, Turns


class Run:
    """Stands for the process of a run: it reads its orders, and tells of blocks."""

    def __init__(self, seat, folder):
        folder.mkdir()
        self.seat = seat
        self.orders = os.open(seat.pipe(folder), os.O_RDONLY | os.O_NONBLOCK)

    def told(self):
        """Return the orders that have come since it last looked."""
        try:
            return os.read(self.orders, 99).decode().split()
        except BlockingIOError:
            return []

    def warm(self):
        self.seat.take({"event": WARM})

    def works(self, steps=5, step_ms=10.0):
        self.seat.take({"event": BLOCK, "steps": steps, "seconds": steps * step_ms / 1e3})


@pytest.fixture
def make(tmp_path):
    made = []

    def make(measure_s=0.1, min_steps=1, longest_s=60.0):
        turns = Turns(measure_s, min_steps, longest_s, "seed")
        runs = [Run(seat, tmp_path / str(n)) for n, seat in enumerate(turns.seats)]
        made.extend(runs)
        return turns, runs

    yield make
    for run in made:
        run.seat.leave()
        os.close(run.orders)


def played(runs, most=1000, **block):
    """Let them work until both are told to end; return who did, in order."""
    order = []
    for _ in range(most):
        told = [run.told() for run in runs]
        if told == [["end"], ["end"]]:
            return order
        assert sorted(told) == [[], [GO]]  # one at a time
        order.append(told.index([GO]))
        runs[order[-1]].works(**block)
    raise AssertionError("it never ends")


def test_nobody_works_before_both_are_warm(make):
    _, runs = make()
    runs[0].warm()
    assert [run.told() for run in runs] == [[], []]
    runs[1].warm()
    assert sorted(run.told() for run in runs) == [[], [GO]]


def test_each_pair_of_blocks_has_one_of_both_in_an_order_by_chance(make):
    turns, runs = make(measure_s=2.0)
    for run in runs:
        run.warm()
    order = played(runs)
    pairs = list(zip(order[::2], order[1::2], strict=True))
    assert len(pairs) == 2.0 / 0.05
    assert set(pairs) == {(0, 1), (1, 0)}
    assert turns.blocks_ms == ((10.0,) * 40, (10.0,) * 40)


def test_it_takes_some_blocks_however_long_they_are(make):
    turns, runs = make(measure_s=0.1)
    for run in runs:
        run.warm()
    assert len(played(runs, steps=100)) == 2 * LEAST_BLOCKS
    assert len(turns.blocks_ms[0]) == LEAST_BLOCKS


def test_blocks_that_do_not_agree_are_measured_for_longer(make):
    turns, runs = make(measure_s=0.99)
    turns.is_precise = lambda first, second: False
    for run in runs:
        run.warm()
    assert len(played(runs)) == 2 * MOST_LONGER * 20


def test_it_ends_when_it_has_lasted_for_too_long(make):
    _, runs = make(measure_s=1e9, longest_s=0.0)
    for run in runs:
        run.warm()
    assert played(runs) == []


def test_a_pair_with_an_evaluation_in_it_is_left_out(make):
    turns, runs = make(measure_s=0.1)
    for run in runs:
        run.warm()
    first = next(run for run in runs if run.told() == [GO])
    first.works(steps=0, step_ms=0.0)
    second = next(run for run in runs if run is not first)
    assert second.told() == [GO]
    second.works(steps=3)
    assert turns.blocks_ms == ((), ())
    assert len(played(runs)) == 2 * LEAST_BLOCKS
    assert len(turns.blocks_ms[0]) == LEAST_BLOCKS


def test_blocks_of_another_kind_of_steps_are_forgotten(make):
    turns, runs = make()
    for run in runs:
        run.warm()
    for _ in range(4):
        next(run for run in runs if run.told() == [GO]).works()
    assert len(turns.blocks_ms[0]) == 2
    working = next(run for run in runs if run.told() == [GO])
    working.seat.take({"event": "step", "marker": "optimizer"})
    working.works(step_ms=99.0)  # begun with the steps of before
    assert turns.blocks_ms == ((), ())
    played(runs)
    assert set(turns.blocks_ms[0] + turns.blocks_ms[1]) == {10.0}


@pytest.mark.parametrize("works", [True, False], ids=["in its turn", "as it waits"])
def test_who_is_left_alone_does_not_wait_for_ever(make, works):
    _, runs = make()
    for run in runs:
        run.warm()
    working = next(run for run in runs if run.told() == [GO])
    other = next(run for run in runs if run is not working)
    gone, left = (working, other) if works else (other, working)
    gone.seat.leave()
    assert left.seat.is_abandoned
    assert not gone.seat.is_abandoned
    if left is working:
        left.works()
    assert left.told() == []


def test_who_is_left_before_it_is_warm_does_not_begin(make):
    _, runs = make()
    runs[0].seat.leave()
    runs[1].warm()
    assert runs[1].told() == []
    assert runs[1].seat.is_abandoned


def test_a_script_that_ends_by_itself_leaves_the_other_to_report(make):
    _, runs = make()
    for run in runs:
        run.warm()
    working = next(run for run in runs if run.told() == [GO])
    other = next(run for run in runs if run is not working)
    working.seat.take({"event": "done"})
    working.seat.leave(failed=False)
    assert not other.seat.is_abandoned
    assert other.told() == ["end"]

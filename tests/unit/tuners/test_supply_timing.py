"""Which numbers of workers a loader's supply leaves to trials, on loaders that are simulated."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from gpuadvisor.domain.knobs import LoaderFacts, ScriptFacts
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.domain.screening import BlockTime
from gpuadvisor.tuners.loader.supply_timing import BLOCKS, Promised, in_order, time_supply
from tests import simulation
from tests.simulation import measurement

LOADED_MS = 100.0
"""Time in which one process makes a batch."""


def baseline(rest_ms, wait_ms, workers=0, batches=1, idle=None, device="cuda"):
    step_s = (rest_ms + wait_ms) / 1e3
    loader = LoaderFacts(32, workers, False, False, None)
    return measurement(
        (rest_ms + wait_ms,),
        windows=(StepWindow(1, step_s, 32.0 * batches, wait_ms / 1e3),),
        facts=ScriptFacts(device=device, loaders=(loader,), idle_while_waiting=idle),
    )


def test_workers_promise_no_more_than_the_gpu_leaves_of_the_waiting():
    """As ResNet-50 trains: the CPU waits for the loss, and then for batches as the GPU goes on."""
    measured = baseline(rest_ms=73, wait_ms=130, workers=4, idle=82 / 130)
    found = supplied(waiting, measured, choices=(1, 2, 4, 8))
    assert found.rest_ms == pytest.approx(121)
    assert min(each.step_ms for each in found.values) == pytest.approx(121)


def waiting(settings):
    """A loader that waits for storage: cores are no matter."""
    return LOADED_MS / max(1, settings["dataloader_workers"])


def computing(settings, cores=2):
    return LOADED_MS / min(cores, max(1, settings["dataloader_workers"]))


def supplied(model, measured, choices=(1, 2), others=(), seconds=600.0, noise=None, cores=0):
    """Run the timing of a loader that takes `model(settings)` ms a batch, or fails with a text."""
    left_s = seconds
    told = []
    timing = time_supply(measured, choices, others, lambda: left_s, told.append, cores)
    blocks = next(timing)
    try:
        while True:
            times = []
            for block in blocks:
                assert len(blocks) == BLOCKS
                batch_ms = model(block.settings)
                left_s -= block.seconds
                if isinstance(batch_ms, str):
                    times.append(BlockTime(math.nan, failed=batch_ms))
                    continue
                batch_ms *= next(noise)[0] if noise else 1.0
                times.append(BlockTime(batch_ms, math.ceil(1e3 * block.seconds / batch_ms)))
            blocks = timing.send(times)
    except StopIteration as end:
        assert [each.settings for each in told] == [each.settings for each in end.value.values]
        return end.value


def counts(found):
    return [each.settings["dataloader_workers"] for each in found.values]


def test_a_loader_that_waits_for_storage_gets_more_workers_than_there_are_cores():
    found = supplied(waiting, baseline(rest_ms=5, wait_ms=100))
    assert counts(found) == [2, 4, 8, 16]
    assert (found.settings, found.workers) == ({"dataloader_workers": 16}, (16, 8))
    assert found.values[-1].step_ms == pytest.approx(6.25)
    assert found.why == ""


def test_no_more_workers_are_timed_than_pay():
    found = supplied(computing, baseline(rest_ms=5, wait_ms=100))
    assert counts(found) == [2, 4, 8]
    assert found.why == "8 were no faster than fewer"
    assert (found.settings, found.workers) == ({"dataloader_workers": 2}, (2, 4))
    assert found.values[0].step_ms == pytest.approx(50)


def test_workers_take_their_cores_from_what_computes_on_them():
    measured = baseline(rest_ms=60, wait_ms=100, device="cpu")
    found = supplied(computing, measured, cores=2)
    assert found.settings == {"dataloader_workers": 2}
    assert found.values[0].step_ms == pytest.approx(60 + LOADED_MS / 2)
    found = supplied(waiting, measured, cores=2)  # four are fast: they cannot load all the time
    assert found.values[-1].step_ms == pytest.approx(60 + LOADED_MS / 4)
    beside_gpu = supplied(computing, baseline(rest_ms=60, wait_ms=100), cores=2)
    assert beside_gpu.values[0].step_ms == pytest.approx(60)


def test_no_workers_come_first_where_they_bring_less_than_they_take():
    """A batch that is soon made is no reason to share two cores with four processes."""

    def soon(settings):
        return 0.03 * computing(settings)

    measured = baseline(rest_ms=36, wait_ms=3, workers=4, device="cpu")
    found = supplied(soon, measured, choices=(2, 1, 0), cores=2)
    assert (found.settings, found.workers) == ({}, (0, 2))


def test_the_fewest_that_keep_up_come_first():
    found = supplied(waiting, baseline(rest_ms=51, wait_ms=100))
    assert counts(found) == [2, 4]
    assert found.why == "4 supply batches faster than the script takes them"
    assert (found.settings, found.workers) == ({"dataloader_workers": 2}, (2, 4))
    assert [each.step_ms for each in found.values] == pytest.approx([51, 51])
    one_is_enough = supplied(waiting, baseline(rest_ms=300, wait_ms=100))
    assert counts(one_is_enough) == [1]


def test_more_than_one_batch_a_step():
    found = supplied(waiting, baseline(rest_ms=50, wait_ms=400, batches=4))
    assert counts(found) == [2, 4, 8, 16]
    assert found.settings == {"dataloader_workers": 8}


def test_a_script_that_has_workers_may_do_better_without():
    def slow(settings):
        return 10.0 if settings["dataloader_workers"] == 0 else 40.0

    found = supplied(slow, baseline(rest_ms=30, wait_ms=20, workers=6), choices=(2, 0))
    assert counts(found) == [6, 12, 0]
    assert found.settings == {"dataloader_workers": 0}


def test_on_a_cpu_none_come_before_more():
    """What is left is little where a run takes a tenth of the budget."""

    def sent(settings):
        return 0.4 if settings["dataloader_workers"] == 0 else 3.0

    measured = baseline(rest_ms=1.0, wait_ms=2.0, workers=1, device="cpu")
    found = supplied(sent, measured, choices=(2, 0), cores=2, seconds=2 * BLOCKS * 0.5 + 0.1)
    assert counts(found) == [1, 0]
    assert found.settings == {"dataloader_workers": 0}


@pytest.mark.parametrize(
    ("own", "cores", "choices", "expected"),
    [
        (4, 20, (19, 10, 8, 0), [4, 8, 16]),  # 10 and 19 are hardly more than 8 and 16
        (12, 20, (19, 10, 8, 0), [12, 19]),
        (16, 20, (19, 10, 8, 0), [16, 32]),
        (8, 2, (2, 1, 0), [2, 4, 8, 16]),  # fewer cores than workers
        (64, 128, (), [64]),
    ],
)
def test_fewer_workers_than_the_script_has_are_not_timed(own, cores, choices, expected):
    slow = baseline(rest_ms=0.1, wait_ms=100, workers=own)
    found = supplied(waiting, slow, choices=choices, cores=cores)
    assert [count for count in counts(found) if count] == expected


def test_what_is_fast_enough_ends_it_where_half_of_the_time_is_gone():
    measured = baseline(rest_ms=70, wait_ms=100)
    assert counts(supplied(waiting, measured)) == [2, 4]
    assert counts(supplied(waiting, measured, seconds=2 * BLOCKS * 0.5 - 0.1)) == [2]


def test_blocks_that_differ_are_followed_by_as_many_more():
    quiet = supplied(waiting, baseline(70, 100))
    noise = iter([(1.0,), (1.5,), (1.0,), (1.0,), (1.0,), (1.0,)])
    restless = supplied(waiting, baseline(70, 100), noise=noise)
    ratio = restless.values[0].batches / quiet.values[0].batches
    assert 1.5 < ratio < 2.5


def test_what_fails_is_left_out_and_two_failures_are_enough():
    found = supplied(lambda settings: "it broke", baseline(5, 100))
    assert counts(found) == [2, 4]
    assert (found.settings, found.workers) == ({}, ())
    assert [each.failed for each in found.values] == ["it broke"] * 2

    def once(settings):
        return "it broke" if settings["dataloader_workers"] == 4 else waiting(settings)

    assert supplied(once, baseline(5, 100)).settings == {"dataloader_workers": 16}


def test_workers_that_promise_nothing_do_not_begin_the_search():
    def sending(settings):
        return 95.0  # to send a batch between processes takes as long as to make it

    found = supplied(sending, baseline(rest_ms=1, wait_ms=94))
    assert found.settings == {}
    assert found.workers == (2, 4)


def test_other_settings_are_timed_with_the_best_number():
    others = ({"prefetch_factor": 4}, {"pin_memory": True})
    found = supplied(waiting, baseline(5, 100), others=others)
    assert [each.settings for each in found.values[-2:]] == [
        {"dataloader_workers": 16, "prefetch_factor": 4},
        {"dataloader_workers": 16, "pin_memory": True},
    ]
    assert found.workers == (16, 8)


def test_it_ends_where_no_time_is_left():
    found = supplied(waiting, baseline(5, 100), seconds=2.5)
    assert counts(found) == [2, 4]
    assert found.why == "no time was left for 8"
    assert found.settings == {"dataloader_workers": 4}


def test_intervals_hold_where_blocks_differ():
    generator = random.Random(3)
    total = missed = 0
    for _ in range(200):
        noise = simulation.gaussian(generator, 0.1, 0.0)
        found = supplied(waiting, baseline(5, 100), noise=noise)
        for each in found.values:
            total += 1
            missed += not each.low_ms <= waiting(each.settings) <= each.high_ms
    assert missed <= 0.02 * total


@pytest.mark.parametrize(("model", "best"), [(computing, 2), (waiting, 16)])
def test_the_fewest_are_chosen_that_are_not_behind(model, best):
    """Two cores supply no more with eight workers than with two, but one of them looks fastest."""
    generator = random.Random(5)
    chosen = []
    for _ in range(100):
        noise = simulation.gaussian(generator, 0.15, 0.0)
        chosen.append(supplied(model, baseline(5, 100), noise=noise).workers[0])
    assert chosen.count(best) >= 90


def test_order():
    def sure(ms):
        return Promised(ms, ms, ms)

    steps = {1: sure(100.0), 2: sure(51.0), 4: sure(50.0), 8: sure(60.0)}
    assert in_order(steps) == (2, 4, 8, 1)
    assert in_order({}) == ()
    unsure = {1: Promised(70.0, 45.0, 110.0), 2: Promised(51.0, 48.0, 54.0), 4: sure(50.0)}
    assert in_order({**unsure, 1: Promised(65.0, 42.0, 102.0)}) == (1, 2, 4)
    assert in_order(unsure) == (2, 4, 1)


def test_up_to_the_cores_what_was_timed_decides():
    """ResNet-50 on 16 cores, with computing that takes 70 ms, and blocks that differ by a third."""
    steps = {
        8: Promised(105.5, 70.5, 229.8),
        15: Promised(70.5, 70.5, 140.3),
        32: Promised(68.0, 40.0, 124.0),
    }
    assert in_order(steps) == in_order(steps, cores=4) == (8, 15, 32)
    assert in_order(steps, cores=16) == (15, 32, 8)


@pytest.mark.parametrize(("differ", "first"), [(0.02, 4), (0.2, 8)])
def test_fewer_workers_have_to_keep_up_surely_beside_a_gpu(differ, first):
    """A worker that stalls holds up all: how much blocks differ says how far speeds drift."""
    noise = itertools.cycle([(1 - differ,), (1 + differ,)])
    found = supplied(waiting, baseline(30, 70), noise=noise, cores=16)
    assert found.settings == {"dataloader_workers": first}
    noise = itertools.cycle([(1 - differ,), (1 + differ,)])
    on_cpu = supplied(waiting, baseline(30, 70, device="cpu"), noise=noise, cores=16)
    assert on_cpu.settings == {"dataloader_workers": 4}


def test_order_of_a_loader_that_is_timed_about_as_fast_as_it_is_waited_for():
    """A variational autoencoder on an H200 of 16 cores, whose rest of a step takes 3.46 ms."""
    batches_ms = {2: (5.54, 4.02, 7.62), 4: (2.71, 1.97, 3.73), 8: (1.86, 1.35, 2.56)}
    steps = {n: Promised(*(max(ms, 3.46) for ms in ends)) for n, ends in batches_ms.items()}
    assert in_order(steps, cores=16, spare=True) == (8, 4, 2)
    assert in_order(steps, cores=4, spare=True) == in_order(steps, cores=16) == (4, 8, 2)
    assert in_order({**steps, 0: Promised(3.47, 3.47, 3.48)}, 16, spare=True)[:2] == (0, 8)
    assert in_order({2: steps[2], 4: Promised(4.0, 3.0, 5.0)}, 16, spare=True) == (4, 2)

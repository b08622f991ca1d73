"""How far batches grow, in scripts whose blocks of steps are simulated."""

from __future__ import annotations

import random

import pytest

from gpuadvisor.domain.screening import ScreenedAs, ScreeningResult
from gpuadvisor.tuners.batch_growth import with_growth
from gpuadvisor.tuners.loader.ceiling import CACHED
from tests import simulation
from tests.live_simulation import LiveScript

FACTORS = (2, 4, 8, 16, 32, 64)
BEST = {"tf32": True}


def noise(seed=0):
    return simulation.gaussian(random.Random(seed))


def grown(step_ms, limit_s=300.0, noise=None, result=None):
    def model(settings):
        assert settings.get("tf32"), "beside the best settings"
        return step_ms(settings[CACHED])

    script = LiveScript(model, noise or simulation.gaussian(random.Random(0)), limit_s=limit_s)

    def course():
        return result or ScreeningResult(settings=BEST, step_ms=step_ms(1))
        yield

    timing = with_growth(course(), FACTORS, script.left_s, "seed")
    try:
        blocks = next(timing)
        while True:
            blocks = timing.send([script.run(block) for block in blocks])
    except StopIteration as end:
        return end.value, script


def test_to_the_knee():
    """A step of 5 ms of overhead, which a batch sixteen times as large fills."""
    found, script = grown(lambda times: max(5.0, 0.3125 * times))
    assert found.settings == {**BEST, "batch_size": 16}
    states = {each.value: each.state for each in found.values}
    assert states == {2: ScreenedAs.GAINS, 4: ScreenedAs.GAINS, 8: ScreenedAs.GAINS,
                      16: ScreenedAs.KEPT, 32: ScreenedAs.WORTHLESS}  # fmt: skip
    kept = next(each for each in found.values if each.value == 16)
    assert kept.ratio.low < 16 < kept.ratio.high
    assert kept.ratio.ratio == pytest.approx(16, rel=0.02)
    assert kept.beside == BEST
    assert script.now_s < 60


def test_to_the_end_of_the_memory():
    def step_ms(times):
        return "it would need 150 GB of the 141 GB that are free" if times > 4 else 5.0

    found, _ = grown(step_ms)
    assert found.settings == {**BEST, "batch_size": 4}
    last = found.values[-1]
    assert (last.value, last.state) == (8, ScreenedAs.FAILED)
    assert "150 GB" in last.why


def test_what_is_full_already_stays():
    found, _ = grown(lambda times: 100.0 * times)
    assert found.settings == BEST
    assert [(each.value, each.state) for each in found.values] == [(2, ScreenedAs.WORTHLESS)]


def test_noise_grows_nothing():
    for seed in range(20):
        found, _ = grown(lambda times: 20.0 * times, noise=noise(seed))
        assert found.settings == BEST


def test_no_more_time_than_there_is():
    for limit_s in (0.0, 5.0, 20.0, 60.0):
        found, script = grown(lambda times: 100.0 + times, limit_s=limit_s)
        assert script.now_s <= limit_s + script.start_s
        assert "batch_size" not in found.settings or limit_s > 5


def test_a_screening_that_ended_early_is_left_as_it_is():
    early = ScreeningResult(why="it crashed", step_ms=10.0)
    found, script = grown(lambda times: 10.0, result=early)
    assert found is early
    assert not script.blocks

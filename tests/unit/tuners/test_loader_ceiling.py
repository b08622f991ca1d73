"""What the loaders are worth at most, in scripts whose blocks of steps are simulated."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gpuadvisor.domain.knobs import LoaderFacts, ScriptFacts
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.domain.screening import Ratio, ScreeningResult
from gpuadvisor.tuners.loader_ceiling import (
    CACHED,
    is_too_little,
    is_worth_timing,
    with_ceiling,
    worthless,
)
from gpuadvisor.tuners.space import Parameter, Space
from tests import simulation
from tests.live_simulation import LiveScript
from tests.simulation import measurement

SPACE = Space((Parameter("dataloader_workers", (8, 4)), Parameter("tf32", (True,))))
BEST = {"tf32": True}


def found(step_ms, noise=None, result=None, limit_s=60.0):
    """Time the ceiling after a course that found something."""
    script = LiveScript(step_ms, noise or simulation.quiet(), limit_s=limit_s)

    def course():
        return result or ScreeningResult(settings=BEST, step_ms=100.0)
        yield

    timing = with_ceiling(course(), script.left_s, "seed")
    try:
        blocks = next(timing)
        while True:
            blocks = timing.send([script.run(block) for block in blocks])
    except StopIteration as end:
        return end.value, script


def waits(share, rest_ms=50.0):
    """A script that waits for its loader for a part of its step."""

    def step_ms(settings):
        assert settings["tf32"], "beside the best settings"
        return rest_ms if CACHED in settings else rest_ms / (1 - share)

    return step_ms


def test_what_waiting_takes_is_what_loaders_are_worth_at_most():
    result, _ = found(waits(0.5))
    assert result.loaders.ratio == pytest.approx(2.0)
    assert result.settings == BEST
    assert worthless(result.loaders, SPACE, BEST) == []


def test_a_script_that_does_not_wait_needs_no_workers():
    result, script = found(waits(0.002), simulation.gaussian(random.Random(1), 0.002, 0.0))
    assert is_too_little(result.loaders)
    assert script.now_s < 30
    ruled_out = worthless(result.loaders, SPACE, {**BEST, "dataloader_workers": 4})
    assert [(each.knob, each.value, str(each.state)) for each in ruled_out] == [
        ("dataloader_workers", 8, "worthless")
    ]


def test_at_most_holds():
    """With steps that differ, it is rarely said that loaders are worth less than they are."""
    generator = random.Random(7)
    wrong = ruled_out = 0
    for _ in range(300):
        noise = simulation.gaussian(generator, generator.choice([0.002, 0.01, 0.05]), 0.0)
        result, _ = found(waits(0.03), noise)
        wrong += result.loaders.high < 1 / 0.97
        ruled_out += is_too_little(result.loaders)
    assert wrong <= 9
    assert ruled_out <= 3


def test_what_looks_slower_without_waiting_says_how_much_the_comparison_errs():
    result, _ = found(lambda settings: 55.0 if CACHED in settings else 50.0)
    assert result.loaders.high == pytest.approx(1.09, abs=0.01)
    assert not is_too_little(result.loaders)


def test_where_it_cannot_be_timed_nothing_is_ruled_out():
    assert found(lambda settings: "it has none" if CACHED in settings else 50.0)[0].loaders is None
    assert found(waits(0.5), limit_s=-1.0)[0].loaders is None
    ended = ScreeningResult(why="the script ended", step_ms=100.0)
    assert found(waits(0.5), result=ended)[0] == ended


def test_it_is_timed_where_it_may_spare_trials():
    window = StepWindow(10, 1.0, data_wait_s=0.02)
    loader = LoaderFacts(32, 0, False, False, None)
    baseline = measurement((100.0,), windows=(window,), facts=ScriptFacts(loaders=(loader,)))
    assert is_worth_timing(baseline, SPACE)
    assert not is_worth_timing(baseline, Space(SPACE.parameters[1:]))
    varying = replace(baseline.facts, varying_shapes=True)
    assert not is_worth_timing(replace(baseline, facts=varying), SPACE)
    never = replace(window, data_wait_s=0.001)
    assert not is_worth_timing(replace(baseline, windows=(never,)), SPACE)
    assert not is_too_little(Ratio(1.001, 0.98, 1.02, 4))

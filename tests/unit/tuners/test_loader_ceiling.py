"""What the loaders are worth at most, in scripts whose blocks of steps are simulated."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from gpuadvisor.domain.knobs import LoaderFacts, ScriptFacts
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.domain.screening import Ratio
from gpuadvisor.tuners.loader.ceiling import CACHED, is_too_little, may_wait, worthless
from gpuadvisor.tuners.space import Parameter, Space
from tests import simulation
from tests.benchmark_files import loaded
from tests.live_simulation import LiveScript, screened
from tests.simulation import Switch, measurement, space_of

SPACE = Space((Parameter("dataloader_workers", (8, 4)), Parameter("tf32", (True,))))
BEST = {"tf32": True}


@pytest.fixture(scope="module")
def waiting():
    return loaded("screening_waiting")


def found(step_ms, noise=None, limit_s=math.inf, names=("tf32",), **options):
    """Screen on the batch that is there."""
    script = LiveScript(step_ms, noise or simulation.quiet(), limit_s=limit_s)
    return screened(script, space_of(map(Switch, names)), cached=True, **options), script


def waits(share, rest_ms=50.0, faster=1.0):
    """A script that waits for its loader for a part of its step, and that for so long."""

    def step_ms(settings):
        computes_ms = rest_ms / (faster if "tf32" in settings else 1.0)
        return computes_ms + (0 if CACHED in settings else rest_ms / (1 - share) - rest_ms)

    return step_ms


def test_what_waiting_takes_is_what_loaders_are_worth_at_most():
    result, script = found(waits(0.5))
    assert result.loaders.ratio == pytest.approx(2.0)
    assert result.of_computing
    assert result.step_ms == pytest.approx(50.0)
    assert worthless(result.loaders, SPACE, BEST) == []
    without = [place for place, block in enumerate(script.blocks) if CACHED not in block.settings]
    assert without == list(range(4))  # first thing, and never again


def test_a_script_that_does_not_wait_needs_no_workers():
    result, script = found(waits(0.002), simulation.gaussian(random.Random(1), 0.002, 0.0))
    assert is_too_little(result.loaders)
    assert script.now_s < 45
    ruled_out = worthless(result.loaders, SPACE, {**BEST, "dataloader_workers": 4})
    assert [(each.knob, each.value, str(each.state)) for each in ruled_out] == [
        ("dataloader_workers", 8, "worthless")
    ]


def test_what_little_waiting_is_worth_is_timed_beside_the_best():
    result, script = found(waits(0.02, faster=4.0))
    assert result.settings == BEST
    assert result.loaders.ratio == pytest.approx(1 + 4 * 0.02 / 0.98)
    assert script.blocks[-1].settings.keys() <= {"tf32", CACHED}


def test_at_most_holds():
    """With steps that differ, it is rarely said that loaders are worth less than they are."""
    generator = random.Random(7)
    wrong = ruled_out = 0
    for _ in range(300):
        noise = simulation.gaussian(generator, generator.choice([0.002, 0.01, 0.05]), 0.0)
        result, _ = found(waits(0.03), noise, names=())
        wrong += result.loaders.high < 1 / 0.97
        ruled_out += is_too_little(result.loaders)
    assert wrong <= 9
    assert ruled_out <= 3


def test_what_looks_slower_without_waiting_says_how_much_the_comparison_errs():
    result, _ = found(lambda settings: 55.0 if CACHED in settings else 50.0)
    assert result.loaders.high == pytest.approx(1.09, abs=0.01)
    assert not is_too_little(result.loaders)


def test_where_a_batch_cannot_be_given_again_that_is_all_that_is_said():
    result, script = found(lambda settings: "its batches hold a Data" if settings else 50.0)
    assert (result.why, result.of_computing) == ("its batches hold a Data", False)
    assert (result.loaders, result.settings, result.step_ms) == (None, {}, 50.0)
    assert len(script.blocks) <= 6


def test_no_block_may_take_for_ever():
    _, script = found(waits(0.02), names=())
    assert all(block.most_s <= 30 for block in script.blocks[3:])


def test_beside_a_loader_that_is_not_waited_for_no_more_is_timed():
    result, script = found(waits(0.0), waits=False)
    assert (result.loaders, result.of_computing) == (None, True)
    assert all(CACHED in block.settings for block in script.blocks[4:])


@pytest.mark.parametrize(("limit_s", "more_s"), [(100.0, 100.0), (130.0, 0.0)])
def test_a_loader_that_jitters_hides_nothing_of_the_computing(waiting, limit_s, more_s):
    """Within two thirds of the time a knob of 2 % is left out, and no other."""
    count = waiting.counted(20, limit_s, more_s, cached=True)
    assert count["three"] == 20
    assert count["best"] == (20 if more_s else 0)


def test_it_is_given_where_the_script_waits_or_may():
    window = StepWindow(10, 1.0, data_wait_s=0.02)
    loader = LoaderFacts(32, 0, False, False, None)
    baseline = measurement((100.0,), windows=(window,), facts=ScriptFacts(loaders=(loader,)))
    assert may_wait(baseline)
    varying = replace(baseline.facts, varying_shapes=True)
    assert not may_wait(replace(baseline, facts=varying))
    never = replace(baseline, windows=(replace(window, data_wait_s=0.001),))
    assert not may_wait(never)
    hidden = replace(never.facts, device="cuda", loaders=(replace(loader, num_workers=4),))
    assert may_wait(replace(never, facts=hidden))
    assert not may_wait(replace(never, facts=replace(hidden, device="cpu")))
    assert not is_too_little(Ratio(1.001, 0.98, 1.02, 4))

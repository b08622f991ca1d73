"""What faster computing can bring where the loader is the limit, with the numbers of two studies.

Both ran on H200s of 16 cores: ResNet-50 of pytorch/examples, and timm's inference over a folder.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from gpuadvisor.domain.knobs import LoaderFacts, ScriptFacts
from gpuadvisor.domain.loader_supply import LoaderSupply, Supplied
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.domain.screening import ScreenedAs
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuners.loader.limit import (
    LAST,
    computing_last,
    computing_worth,
    limit_of_computing,
    limit_of_run,
)
from gpuadvisor.tuners.search import OrderedSearch
from gpuadvisor.tuners.space import Parameter, Space
from tests.live_simulation import LiveScript, screened
from tests.simulation import SimulatedEvaluator, Switch, measurement, multiplied, space_of
from tests.unit.tuners.test_supply_timing import baseline, supplied

COMPUTING_MS = 121.8
BOTH_MS = COMPUTING_MS / 1.397 / 1.443


def alone(workers, batch_ms, low_ms, high_ms=None):
    return Supplied(
        {"dataloader_workers": workers}, batch_ms, low_ms, high_ms or batch_ms**2 / low_ms
    )


IMAGENET = LoaderSupply(
    205.0,
    87.1,
    (alone(4, 225.0, 126.2), alone(8, 114.3, 64.1), alone(15, 68.7, 62.5)),
)
"""As it was timed but for the last one's interval, which two blocks left at 38.5 to 122.6 ms."""
TIMM = LoaderSupply(
    103.6,
    9.55,
    (alone(2, 103.3, 85.6), alone(4, 51.3, 42.5), alone(8, 26.1, 21.7), alone(15, 13.8539, 11.48)),
)


def run(step_ms, waits, workers=15, device="cuda", samples=32):
    loader = LoaderFacts(samples, workers, True, False, 2)
    step_s = step_ms / 1e3
    return measurement(
        [step_ms],
        windows=(StepWindow(10, 10 * step_s, 10.0 * samples, 10 * waits * step_s),),
        facts=ScriptFacts(device=device, loaders=(loader,)),
        samples_source="loader",
    )


@pytest.mark.parametrize(
    ("computing_ms", "is_limit"),
    [(COMPUTING_MS, False), (COMPUTING_MS / 1.397, False), (BOTH_MS, True), (BOTH_MS / 1.37, True)],
)
def test_computing_that_is_faster_than_the_best_supply_is_limited_by_it(computing_ms, is_limit):
    limit = limit_of_computing(IMAGENET, computing_ms, 1.0)
    assert (limit is not None) == is_limit
    assert not is_limit or limit.supply == "68.7 ms a batch with 15 workers (62.5 ms at least)"


def test_a_supply_that_is_hardly_known_limits_nothing():
    values = (*IMAGENET.values[:2], alone(15, 68.7, 38.5))
    assert limit_of_computing(replace(IMAGENET, values=values), BOTH_MS, 1.0) is None
    assert limit_of_computing(replace(IMAGENET, values=()), BOTH_MS, 1.0) is None


def test_accumulated_gradients_read_several_batches_a_step():
    assert limit_of_computing(IMAGENET, 121.8, 2.0) is not None
    assert limit_of_computing(IMAGENET, 300.0, 2.0) is None


@pytest.mark.parametrize(
    ("made", "is_limit"),
    [
        (run(13.6, 0.3), True),
        (run(13.6, 0.01), False),  # it does not wait, so something else takes so long
        (run(13.6, 0.3, device="cpu"), False),  # the workers need the cores
        (run(13.6, 0.3, workers=12), False),  # of which nothing is known
        (run(17.0, 0.4), False),  # more than a fifth may be gained
        (run(12.5, 0.3), False),  # so the loader was slower alone than it is here
    ],
)
def test_a_run_that_waits_for_workers_that_are_as_slow_alone_is_limited_by_them(made, is_limit):
    assert (limit_of_run(TIMM, made) is not None) == is_limit


def test_a_run_that_hardly_waited_is_not_said_to_be_limited():
    """The best of ImageNet: 73 ms a step, 1.1 % of it waiting, beside 68.7 ms a batch alone."""
    runs = [run(ms, 0.011, samples=256) for ms in (77.6, 73.0, 73.0)]
    assert computing_worth(IMAGENET, runs, [run(221.0, 0.57, 4, samples=256)] * 3) == ""


def test_what_computing_could_bring_at_most_counts_with_what_runs_differ_by():
    best = [run(ms, 0.3) for ms in (13.61, 13.72, 13.55, 14.75)]
    unchanged = [run(ms, 0.91, 2) for ms in (91.1, 111.7, 105.5, 111.7)]
    told = computing_worth(TIMM, best, unchanged)
    assert told.startswith(
        "the loader is the limit: alone it supplies 13.9 ms a batch with 15 workers (11.5 ms at "
        "least), and a step takes 13.9 ms ("
    )
    assert told.endswith("if the loader is no faster beside the script than alone")
    likely, most = (float(text) for text in re.findall(r"([\d.]+)x", told))
    assert likely == 1.0
    assert most > max(each.mean_step_ms for each in best) / 11.48
    assert computing_worth(TIMM, [], unchanged) == ""


def test_only_the_computing_comes_last():
    knobs = load_knobs()
    names = ("compile", "tf32", "pin_memory", "prefetch_factor", "batch_size", "dataloader_workers")
    space = Space(tuple(Parameter(name, (1,)) for name in names))
    last = computing_last(space, TIMM, knobs)
    limited = {each.name for each in last.parameters if each.limited(run(13.6, 0.3)) == LAST}
    assert limited == {"compile", "tf32"}
    assert not any(each.limited(run(13.6, 0.0)) for each in last.parameters)
    assert computing_last(space, None, knobs) == space


def searched(gains, last, **options):
    """Search parameters of which those of `last` come last wherever the search stands."""
    parameters = (
        Parameter(name, (True,), limited=lambda best, n=name: LAST if n in last else None)
        for name in gains
    )
    evaluator = SimulatedEvaluator(multiplied(gains))
    evaluator.measure([{}], "baseline")
    search = OrderedSearch(
        evaluator, Space(tuple(parameters)), evaluator.trials[0].measurement, **options
    )
    search.run()
    return search, [list(t.settings)[-1] for t in evaluator.trials if t.settings]


def test_what_comes_last_is_not_tried_beside_a_gain_unless_that_is_asked_for():
    gains = {"compile": 1.05, "workers": 3.0}
    search, tried = searched(gains, {"compile"})
    assert (tried, search.limited) == (["workers"], {"compile": LAST})
    search, tried = searched(gains, {"compile"}, tries_limited=True)
    assert (tried, search.limited) == (["workers", "compile"], {})
    assert search.left_out == []


def test_where_nothing_else_brings_anything_it_is_tried():
    _, tried = searched({"compile": 1.3, "workers": 1.0}, {"compile"})
    assert tried[-1] == "compile"


KNOBS = {"bf16": 1.443, "channels_last": 1.397, "compile": 1.368, "tf32": 1.0, "fused": 1.0025}


@pytest.mark.parametrize("supply", [IMAGENET, None])
def test_a_screening_ends_where_the_loader_becomes_the_limit(supply):
    def limited(computing_ms):
        return supply is not None and limit_of_computing(supply, computing_ms, 1.0) is not None

    script = LiveScript(
        multiplied(KNOBS, COMPUTING_MS),
        compile_s=lambda settings: 35.0 if "compile" in settings else 0.0,
    )
    found = screened(
        script, space_of(map(Switch, KNOBS)), costly={"compile": 40.0}, cached=True, limited=limited
    )
    compiled = any("compile" in block.settings for block in script.blocks)
    assert found.is_limited == (supply is not None) == (not compiled)
    assert found.settings.keys() >= {"bf16", "channels_last"}
    (compile_,) = [each for each in found.values if each.knob == "compile"]
    if supply:
        assert (compile_.state, compile_.why) == (ScreenedAs.UNRESOLVED, "the loader is the limit")
        assert script.now_s < 60


def test_the_supply_is_timed_until_it_can_say_something():
    generator = random.Random(1)
    noise = iter(lambda: [generator.lognormvariate(0, 0.08)], None)
    times = {4: 225.0, 8: 114.3, 15: 68.7}

    def model(settings):
        return times[settings["dataloader_workers"]]

    found = supplied(model, baseline(87.1, 118.0, 4), (15,), noise=noise, cores=15)
    best = next(each for each in found.values if each.settings == {"dataloader_workers": 15})
    assert best.high_ms < 1.1 * best.batch_ms
    assert best.low_ms < 68.7 < best.high_ms

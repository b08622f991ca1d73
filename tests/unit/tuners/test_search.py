"""The ordered search on models of a script, from simple ones to those that mislead."""

import random

import pytest

from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.domain.study import TrialState
from gpuadvisor.tuners.search import PROGRESSIVE_GAIN
from tests import simulation
from tests.simulation import SimulatedEvaluator, Switch, multiplied, searched

NAMES = ("workers", "tf32", "fused", "bf16", "compile", "placebo", "harmful")
GAINS = {
    "workers": 1.5,
    "tf32": 1.2,
    "fused": 1.03,
    "bf16": 1.4,
    "compile": 1.25,
    "harmful": 0.7,
}
USEFUL = {"workers", "tf32", "fused", "bf16", "compile"}


def switches(*names):
    return [Switch(name) for name in names]


def tried(evaluator, **settings):
    return sum(trial.settings == settings for trial in evaluator.trials)


@pytest.mark.parametrize("parallel", [1, 2, 4, 8])
def test_what_multiplies_is_found_whole(parallel):
    search = searched(SimulatedEvaluator(multiplied(GAINS), parallel=parallel), switches(*NAMES))
    assert search.best.settings.keys() == USEFUL
    assert search.best.gain == pytest.approx(1.5 * 1.2 * 1.03 * 1.4 * 1.25)


def test_noise_hides_only_what_is_small():
    for seed in range(20):
        noise = simulation.gaussian(random.Random(seed))
        search = searched(SimulatedEvaluator(multiplied(GAINS), noise), switches(*NAMES))
        assert search.best.settings.keys() >= USEFUL - {"fused"}
        assert "harmful" not in search.best.settings


def test_the_best_of_a_knobs_values_is_kept():
    costs = {None: 100, 8: 80, 4: 60, 2: 90}
    evaluator = SimulatedEvaluator(lambda settings: costs[settings.get("workers")])
    assert searched(evaluator, [Switch("workers", (8, 4, 2))]).best.settings == {"workers": 4}


def test_a_knob_that_fails_twice_is_left_alone():
    evaluator = SimulatedEvaluator(multiplied({}))
    searched(evaluator, [Switch("useless", (1, 2, 3, 4))])
    assert [trial.settings.get("useless") for trial in evaluator.trials] == [None, 1, 2]


def test_patience_is_the_knobs_own():
    costs = {"16": 200, "8": 400, "64": 50}
    knob = Switch("arg:batch-size", ("16", "8", "64"))
    knob.patience = 3
    evaluator = SimulatedEvaluator(lambda settings: costs.get(settings.get("arg:batch-size"), 100))
    assert searched(evaluator, [knob]).best.settings == {"arg:batch-size": "64"}


@pytest.mark.parametrize("state", [TrialState.NO_EFFECT, TrialState.UNSUPPORTED])
def test_what_cannot_work_gets_no_second_value(state):
    evaluator = SimulatedEvaluator(lambda settings: state if settings else 100.0)
    searched(evaluator, [Switch("workers", (8, 4))])
    assert len(evaluator.trials) == 2


@pytest.mark.parametrize("parallel", [1, 4])
@pytest.mark.parametrize(
    "state", [TrialState.CRASHED, TrialState.HUNG, TrialState.OUT_OF_MEMORY, TrialState.WRONG]
)
def test_failing_settings_do_not_end_the_search(state, parallel):
    def model(settings):
        return state if "broken" in settings else multiplied(GAINS)(settings)

    evaluator = SimulatedEvaluator(model, parallel=parallel)
    search = searched(evaluator, switches("tf32", "broken", "bf16"))
    assert search.best.settings.keys() == {"tf32", "bf16"}


def test_a_wrong_result_is_no_gain_however_fast():
    evaluator = SimulatedEvaluator(multiplied({"cheats": 10, "tf32": 1.2}), parallel=2)
    honest = evaluator._run

    def run(settings, phase, gpu, turned=None):
        trial = honest(settings, phase, gpu, turned)
        if "cheats" in settings:
            object.__setattr__(trial, "state", TrialState.WRONG)
        return trial

    evaluator._run = run
    assert searched(evaluator, switches("cheats", "tf32")).best.settings == {"tf32": True}
    assert tried(evaluator, tf32=True) == 1  # it need not run again for its neighbour's failure


class TestConflicts:
    KNOBS = (Switch("graphs", excludes=["compile"]), Switch("compile"), Switch("tf32"))

    @pytest.mark.parametrize("parallel", [1, 4])
    def test_the_better_of_two_that_exclude_each_other(self, parallel):
        evaluator = SimulatedEvaluator(
            multiplied({"graphs": 1.2, "compile": 1.5, "tf32": 1.1}), parallel=parallel
        )
        search = searched(evaluator, self.KNOBS)
        assert search.best.settings == {"compile": True, "tf32": True}

    def test_they_never_run_together(self):
        evaluator = SimulatedEvaluator(multiplied({"graphs": 1.5, "compile": 1.2}), parallel=4)
        searched(evaluator, self.KNOBS)
        assert not any({"graphs", "compile"} <= trial.settings.keys() for trial in evaluator.trials)


class TestRefinement:
    """A costly form of a cheaper knob."""

    @pytest.mark.parametrize("compiled", [0.9, TrialState.CRASHED])
    def test_it_is_spared_where_the_cheaper_one_did_harm(self, compiled):
        def model(settings):
            if settings.get("compile") and isinstance(compiled, TrialState):
                return compiled
            return multiplied({"compile": compiled, "tf32": 1.2})(settings)

        evaluator = SimulatedEvaluator(model)
        costly = Switch("costly", excludes=["compile"])
        costly.refines = "compile"
        search = searched(evaluator, [Switch("compile"), costly, Switch("tf32")])
        assert not tried(evaluator, costly=True)
        assert search.best.settings == {"tf32": True}
        assert search.pointless["costly"].startswith("compile ")
        # Nothing is known of the costly one unless the cheaper one could not run at all.
        assert ("costly" in search.discouraged) == (compiled == 0.9)

    def test_it_is_tried_where_nothing_else_pays(self):
        evaluator = SimulatedEvaluator(multiplied({"compile": 0.9, "costly": 1.1}))
        costly = Switch("costly", excludes=["compile"])
        costly.refines = "compile"
        search = searched(evaluator, [Switch("compile"), costly, Switch("placebo")])
        assert search.best.settings == {"costly": True}

    def test_it_is_tried_where_the_cheaper_one_did_none(self):
        evaluator = SimulatedEvaluator(multiplied({"compile": 0.99, "costly": 1.1}))
        costly = Switch("costly", excludes=["compile"])
        costly.refines = "compile"
        assert searched(evaluator, [Switch("compile"), costly]).best.settings == {"costly": True}


class TestDependence:
    KNOBS = (Switch("persistent", needs="workers"), Switch("workers", (4,)))

    def test_a_dependent_knob_waits_for_what_it_needs(self):
        evaluator = SimulatedEvaluator(multiplied({"workers": 1.3, "persistent": 1.1}))
        search = searched(evaluator, self.KNOBS)
        assert search.best.settings == {"workers": 4, "persistent": True}
        assert not tried(evaluator, persistent=True)

    def test_it_is_explained_where_that_never_comes(self):
        search = searched(SimulatedEvaluator(multiplied({"persistent": 1.1})), self.KNOBS)
        assert search.best.settings == {}
        assert search.pointless == {"persistent": "no workers"}


class TestBatchSize:
    KNOB = Switch("batch_size", (2, 4, 8, 16, 32, 64), progressive=True)

    @staticmethod
    def growing_until(size, then=None):
        def model(settings):
            factor = settings.get("batch_size", 1)
            if then is not None and factor > size:
                return then
            return 100.0 / min(factor, size)

        return model

    def test_it_doubles_until_throughput_is_flat(self):
        evaluator = SimulatedEvaluator(self.growing_until(8))
        assert searched(evaluator, [self.KNOB]).best.settings == {"batch_size": 8}
        assert len(evaluator.trials) == 1 + 4  # 16 was the last tried

    def test_a_doubling_that_brings_little_is_the_last(self):
        gains = {2: 1.5, 4: 1.5 * (1 + PROGRESSIVE_GAIN / 2), 8: 3.0}
        evaluator = SimulatedEvaluator(lambda s: 100.0 / gains.get(s.get("batch_size"), 1.0))
        assert searched(evaluator, [self.KNOB]).best.settings == {"batch_size": 4}
        assert not tried(evaluator, batch_size=8)

    def test_it_survives_running_out_of_memory(self):
        evaluator = SimulatedEvaluator(self.growing_until(4, TrialState.OUT_OF_MEMORY))
        assert searched(evaluator, [self.KNOB]).best.settings == {"batch_size": 4}
        assert not tried(evaluator, batch_size=16)


class TestBottleneck:
    """A step takes the longer of loading and computing."""

    LOAD, COMPUTE = {"workers": 4.0}, {"bf16": 2.0, "tf32": 1.3}

    def cost(self, settings, load_ms=100.0, compute_ms=90.0):
        load = multiplied(self.LOAD, load_ms)(settings)
        return max(load, multiplied(self.COMPUTE, compute_ms)(settings))

    def test_what_did_not_pay_at_first_is_tried_again_once_the_bottleneck_moved(self):
        evaluator = SimulatedEvaluator(self.cost)
        search = searched(evaluator, switches("tf32", "bf16", "workers"))
        assert search.best.settings.keys() == {"workers", "bf16", "tf32"}

    def test_a_knob_that_has_nothing_to_cure_is_spared_until_it_has(self):
        def waits(settings, run):
            is_loading = self.cost(settings, 60.0) < self.cost(settings, 60.1)
            windows = [
                StepWindow(w.steps, w.seconds, 0.0, 0.5 * w.seconds * is_loading)
                for w in run.windows
            ]
            return simulation.measurement(run.step_ms, windows=tuple(windows))

        def cures(best):
            return None if best.data_wait_share else "it does not wait"

        evaluator = SimulatedEvaluator(lambda s: self.cost(s, 60.0), change=waits)
        search = searched(evaluator, [Switch("workers", cures=cures), *switches("bf16")])
        assert not tried(evaluator, workers=True)
        assert search.best.settings == {"bf16": True, "workers": True}
        assert search.pointless == {}

    def test_a_gain_behind_a_bottleneck_is_uncovered(self):
        """Loading takes as long as computing: neither bf16 nor workers pay without the other."""

        def waits(settings, run):
            load = multiplied(self.LOAD, 100.0)(settings)
            compute = multiplied(self.COMPUTE, 100.0)(settings)
            share = max(0.0, 1 - compute / load)
            windows = [StepWindow(w.steps, w.seconds, 0.0, share * w.seconds) for w in run.windows]
            return simulation.measurement(run.step_ms, windows=tuple(windows))

        def cures(best):
            return None if best.data_wait_share else "it does not wait"

        evaluator = SimulatedEvaluator(lambda s: self.cost(s, compute_ms=100.0), change=waits)
        search = searched(evaluator, [Switch("workers", cures=cures), *switches("bf16", "tf32")])
        assert search.best.settings.keys() == {"bf16", "workers", "tf32"}
        assert [set(trial.settings) for trial in evaluator.trials[1:3]] == [
            {"bf16"},
            {"bf16", "workers"},
        ]

    def test_a_gain_that_wants_more_of_the_machine_is_tried_with_what_leaves_that(self):
        """Two cores: with workers and two threads each waits for the other to get a core."""
        crowded_ms = {(): 21.5, ("workers",): 25.8, ("threads",): 24.0}

        def model(settings):
            ms = crowded_ms.get(tuple(sorted(settings.keys() & {"workers", "threads"})), 15.9)
            return 0.9 * ms if settings.get("workers") == 4 else ms

        def wants(run):
            return 1 if run.mean_step_ms > 23 else None

        threads = Switch("threads", (1,), relieves=wants)
        evaluator = SimulatedEvaluator(model)
        search = searched(evaluator, [*switches("bf16"), Switch("workers", (2, 4)), threads])
        # Another value alone comes before two settings, and again beside what made room for it.
        assert [trial.settings for trial in evaluator.trials[2:6]] == [
            {"workers": 2},
            {"workers": 4},
            {"workers": 2, "threads": 1},
            {"workers": 4, "threads": 1},
        ]
        assert search.best.settings == {"workers": 4, "threads": 1}

    def test_what_leaves_more_of_the_machine_in_vain_is_tried_once(self):
        evaluator = SimulatedEvaluator(multiplied({"workers": 0.8, "threads": 0.9}))
        relieves = [Switch("threads", (1,), relieves=lambda run: 1)]
        searched(evaluator, [Switch("workers", (2, 4)), *relieves])
        tried_together = [t for t in evaluator.trials if {"workers", "threads"} <= set(t.settings)]
        assert [t.settings for t in tried_together] == [{"workers": 2, "threads": 1}]

    def test_no_point_runs_twice_however_much_the_best_has_grown_since(self):
        """What was tried beside the workers in vain, and then on top of the best, says no more."""
        cost_ms = {2: 110.0, 0: 20.0}
        evaluator = SimulatedEvaluator(lambda settings: cost_ms.get(settings.get("workers"), 100.0))
        threads = Switch("threads", (1,), relieves=lambda run: 1 if run.mean_step_ms > 30 else None)
        searched(evaluator, [Switch("workers", (2, 0)), threads])
        points = [frozenset(trial.settings.items()) for trial in evaluator.trials]
        assert len(points) == len(set(points)) == 5

    def test_what_can_be_cured_now_comes_before_the_rest(self):
        """With fast arithmetic it loads; what came before workers would be measured through it."""

        def waits(settings, run):
            share = 0.5 * ("bf16" in settings and "workers" not in settings)
            windows = [StepWindow(w.steps, w.seconds, 0.0, share * w.seconds) for w in run.windows]
            return simulation.measurement(run.step_ms, windows=tuple(windows))

        def cures(best):
            return None if best.data_wait_share else "it does not wait"

        evaluator = SimulatedEvaluator(lambda s: self.cost(s, 60.0), change=waits)
        searched(evaluator, [Switch("workers", cures=cures), *switches("bf16", "tf32", "compile")])
        assert [list(trial.settings)[-1] for trial in evaluator.trials[1:4]] == [
            "bf16",
            "workers",
            "tf32",
        ]

    def test_what_waited_for_data_is_tried_again_before_the_rest(self):
        """An uneven loader: at first the diagnosis saw no wait, and so bf16 came first."""

        def waits(settings, run):
            share = 0.5 * ("bf16" in settings and "workers" not in settings)
            windows = [StepWindow(w.steps, w.seconds, 0.0, share * w.seconds) for w in run.windows]
            return simulation.measurement(run.step_ms, windows=tuple(windows))

        evaluator = SimulatedEvaluator(self.cost, change=waits)
        searched(evaluator, switches("bf16", "placebo", "workers", "tf32", "compile"))
        names = [list(trial.settings)[-1] for trial in evaluator.trials[1:]]
        assert names == ["bf16", "placebo", "workers", "bf16", "tf32", "compile", "placebo"]


def test_an_interaction_that_needs_both_is_left_to_the_neighbourhood():
    both = {"tf32", "bf16"}
    evaluator = SimulatedEvaluator(lambda s: 50.0 if both <= s.keys() else 100.0)
    assert searched(evaluator, switches(*both)).best.settings == {}


class TestBudget:
    def test_what_is_left_out_is_named(self):
        evaluator = SimulatedEvaluator(multiplied(GAINS), budget=1 + 2)
        search = searched(evaluator, switches("workers", "tf32", "bf16", "compile"))
        assert search.best.settings.keys() == {"workers", "tf32"}
        assert search.left_out == ["bf16", "compile"]

    @pytest.mark.parametrize("parallel", [1, 4])
    def test_it_is_never_exceeded(self, parallel):
        for budget in range(1, 12):
            evaluator = SimulatedEvaluator(multiplied(GAINS), budget=budget, parallel=parallel)
            searched(evaluator, switches(*NAMES))
            assert len(evaluator.trials) <= budget


def test_each_gain_is_told():
    evaluator = SimulatedEvaluator(multiplied({"tf32": 1.2, "bf16": 1.5}))
    search = searched(evaluator, switches("tf32", "placebo", "bf16"))
    assert search.brought == pytest.approx({"tf32": 1.2, "bf16": 1.5})

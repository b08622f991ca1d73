"""The seam: what a space allows, and a search of something that is no knob of a script."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import optuna
import pytest

from gpuadvisor.domain.knobs import Origin
from gpuadvisor.domain.measurement import Measurement, StepWindow
from gpuadvisor.domain.study import Objective, Trial, TrialState
from gpuadvisor.tuners.ablation import Ablation
from gpuadvisor.tuners.neighbourhood import Neighbourhood
from gpuadvisor.tuners.proof import is_faster, prove_point
from gpuadvisor.tuners.search import OrderedSearch
from gpuadvisor.tuners.space import Parameter, Point, Space
from tests.simulation import Switch, space_of

RELATED = space_of(
    [
        Switch("compile", excludes=["graphs"]),
        Switch("graphs"),
        Switch("workers"),
        Switch("persistent", needs="workers"),
        Switch("prefetch", needs="persistent"),
    ]
)


class TestCombining:
    def test_a_parameter_replaces_what_it_excludes_either_way(self):
        for new, old in (("compile", "graphs"), ("graphs", "compile")):
            point = RELATED.combined({old: True, "workers": 4}, new, 1)
            assert point == {"workers": 4, new: 1}

    def test_the_new_value_stands_last(self):
        point = RELATED.combined({"workers": 4, "compile": True}, "workers", 8)
        assert list(point.items()) == [("compile", True), ("workers", 8)]

    def test_what_needs_a_parameter_goes_with_it(self):
        whole = {"prefetch": 1, "persistent": True, "workers": 4, "compile": True}
        assert RELATED.without(whole, "workers") == {"compile": True}
        assert RELATED.without(whole, "compile").keys() == whole.keys() - {"compile"}

    @pytest.mark.parametrize(
        ("point", "allowed"),
        [
            ({}, True),
            ({"workers": True, "persistent": True}, True),
            ({"persistent": True}, False),
            ({"compile": True, "graphs": True}, False),
        ],
    )
    def test_which_points_make_sense(self, point, allowed):
        assert RELATED.allows(point) is allowed


DEFAULTS = {"block_x": 32, "block_y": 8, "tile": 1}


def at_most_1024_threads(point):
    threads = point["block_x"] * point["block_y"]
    return None if threads <= 1024 else f"a block of {threads} threads, and 1024 are the most"


@dataclass(frozen=True)
class Failure:
    """Why a point has no measurement."""

    state: TrialState
    reason: str = ""
    """One sentence."""


@dataclass
class SerialEvaluator:
    """`Evaluator` over a plain function, one point at a time.

    The empty point is measured first; ValueError if that fails or shows nothing of the objective.
    """

    evaluate: Callable[[Point], Measurement | Failure]
    budget: int
    """Evaluations, that of the empty point included, after which nothing is affordable."""
    objective: Objective = Objective.THROUGHPUT
    trials: list[Trial] = field(default_factory=list)
    parallel: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        first = self.evaluate({})
        cost = None if isinstance(first, Failure) else self.objective.cost(first)
        if isinstance(first, Failure) or cost is None:
            raise ValueError("there is no measurement of the empty point to compare with")
        self.baseline = first
        self._baseline_cost = cost
        self._keep({}, "baseline", first)

    def measure(
        self,
        points: Sequence[Point],
        phase: str,
        slower_than: float | None = None,
        turned: tuple[Point, Point] | None = None,
    ) -> list[Trial]:
        return [self._keep(point, phase, self.evaluate(point)) for point in points]

    def affordable(self, batch: Sequence[Point]) -> bool:
        return len(self.trials) + len(batch) <= self.budget

    def _keep(self, point: Point, phase: str, found: Measurement | Failure) -> Trial:
        if isinstance(found, Failure):
            trial = Trial(len(self.trials), dict(point), phase, found.state, found.reason)
        else:
            cost = self.objective.cost(found)
            gain = self._baseline_cost / cost if cost else None
            state = TrialState.COMPLETE
            trial = Trial(len(self.trials), dict(point), phase, state, measurement=found, gain=gain)
        self.trials.append(trial)
        return trial


BLOCKS = Space(
    (
        Parameter("block_x", (256, 128, 64, 16), default=32, patience=4),
        Parameter("block_y", (32, 16, 4, 2), default=8, patience=4),
        Parameter("tile", (2, 4, 8), default=1, progressive=True),
    ),
    (at_most_1024_threads,),
)


def run_kernel(point):
    """A kernel that likes blocks of 128 x 2 and tiles of 4; tiles of 8 do not fit."""
    size = {**DEFAULTS, **point}
    assert size["block_x"] * size["block_y"] <= 1024, "it was launched in spite of its restriction"
    if size["tile"] == 8:
        return Failure(TrialState.UNSUPPORTED, "too much shared memory")
    off = abs(math.log2(size["block_x"] / 128)) + abs(math.log2(size["block_y"] / 2))
    run_ms = (1 + 0.2 * off) / size["tile"] ** 0.3
    windows = tuple(StepWindow(5, 5 * run_ms / 1e3) for _ in range(3))
    return Measurement("explicit", (run_ms,) * 15, windows, 0, None, 0, 0, 0.0, 15 * run_ms / 1e3)


class TestBlockSizes:
    """A kernel's launch parameters: the second client of search, neighbourhood and ablation."""

    def test_the_ordered_search_finds_them(self):
        evaluator = SerialEvaluator(run_kernel, budget=100)
        best = OrderedSearch(evaluator, BLOCKS, evaluator.baseline).run()
        assert best.settings == {"block_x": 128, "block_y": 2, "tile": 4}
        assert best.gain == pytest.approx((1 + 0.2 * 4) * 4**0.3)
        states = [trial.state for trial in evaluator.trials]
        assert states.count(TrialState.UNSUPPORTED) == 1

    def test_values_that_a_restriction_forbids_are_passed_over(self):
        evaluator = SerialEvaluator(run_kernel, budget=100)
        OrderedSearch(evaluator, BLOCKS, evaluator.baseline).run()
        tried = [trial.settings for trial in evaluator.trials]
        assert {"block_x": 128} in tried and {"block_x": 256} not in tried

    def test_a_parameter_waits_until_one_of_its_values_is_allowed(self):
        wide = Parameter("block_x", (512, 256), default=32)
        space = Space((wide, BLOCKS["block_y"]), BLOCKS.restrictions)
        evaluator = SerialEvaluator(run_kernel, budget=100)
        search = OrderedSearch(evaluator, space, evaluator.baseline)
        assert search.run().settings == {"block_y": 2, "block_x": 256}
        assert search.pointless == {}

    def test_where_none_ever_is_the_restriction_is_the_reason(self):
        wide, fixed = Parameter("block_x", (512, 256)), Parameter("block_y", (), default=8)
        space = Space((wide, fixed), BLOCKS.restrictions)
        evaluator = SerialEvaluator(run_kernel, budget=100)
        search = OrderedSearch(evaluator, space, evaluator.baseline)
        assert search.run().settings == {}
        assert search.pointless == {"block_x": "a block of 4096 threads, and 1024 are the most"}

    def test_the_neighbourhood_keeps_to_restrictions(self):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        evaluator = SerialEvaluator(run_kernel, budget=60)
        search = OrderedSearch(evaluator, BLOCKS, evaluator.baseline)
        search.run()
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
        neighbourhood = Neighbourhood(study, BLOCKS, evaluator.baseline)
        for trial in search.trials:
            neighbourhood.record(trial)
        before = len(evaluator.trials)
        best = neighbourhood.search(evaluator, search.best)
        assert best.settings == search.best.settings
        assert len(evaluator.trials) > before

    def test_ablation_takes_each_back_to_its_default_where_that_is_allowed(self):
        evaluator = SerialEvaluator(run_kernel, budget=100)
        ablation = Ablation(evaluator, BLOCKS, {"block_y": 1.4})
        kept, contributions = ablation.run({"block_x": 256, "block_y": 2, "tile": 2})
        assert kept == {"block_x": 256, "block_y": 2, "tile": 2}
        guessed = [each.knob for each in contributions if each.origin is Origin.SEARCH]
        assert guessed == ["block_y"]  # 256 x 8 threads are too many
        worth = {each.knob: each.ratio for each in contributions}
        assert worth["tile"] == pytest.approx(2**0.3)
        assert worth["block_y"] == 1.4

    def test_the_proof_compares_two_block_sizes(self):
        evaluator = SerialEvaluator(run_kernel, budget=100)
        proof = prove_point(evaluator, {"block_x": 128, "block_y": 2}, Objective.THROUGHPUT)
        assert is_faster(proof.speedup)
        assert proof.speedup.ratio == pytest.approx(1 + 0.2 * 4)

    def test_the_budget_is_kept(self):
        for budget in range(1, 15):
            evaluator = SerialEvaluator(run_kernel, budget)
            OrderedSearch(evaluator, BLOCKS, evaluator.baseline).run()
            assert len(evaluator.trials) <= budget

    def test_a_default_that_cannot_be_measured_is_refused(self):
        with pytest.raises(ValueError, match="empty point"):
            SerialEvaluator(lambda point: Failure(TrialState.CRASHED), budget=10)

"""Studies of a script that differs from start to start, which is only simulated."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import pytest

from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.domain.knobs import Application
from gpuadvisor.domain.screening import Block, BlockTime
from gpuadvisor.domain.study import InTurns, Objective, TrialState
from gpuadvisor.reports.json_studies import study_json
from gpuadvisor.reports.study import wording
from gpuadvisor.storage.database import open_store
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
from gpuadvisor.tuning.plans.file import read_plan
from gpuadvisor.tuning.trials import trial_runner
from gpuadvisor.tuning.trials.trial_runner import Silent
from gpuadvisor.tuning.turning import LEAST_PAIRS, MOST_PAIRS, turning_of, unable_to_turn
from tests import simulation
from tests.unit.tuning.test_study import script, study, tune

__all__ = ["script"]

TEN_MINUTES = BudgetLimit(seconds=600.0)
BETWEEN = 0.1
"""Relative standard deviation of the simulated script's starts."""


class Turned:
    """Stands for processes that are measured as they have started, and then turned."""

    def __init__(self, script):
        self.script = script
        self.requests = []
        self.starts = []
        self.fails_at = math.inf
        self.ends_at = math.inf
        self._generator = random.Random(2)

    def slower(self, outcome, factor):
        windows = outcome.measurement.windows
        slow = tuple(replace(each, seconds=each.seconds * factor) for each in windows)
        return replace(outcome, measurement=replace(outcome.measurement, windows=slow))

    def start(self):
        return math.exp(self._generator.gauss(0, BETWEEN))

    def plain(self, request, *meters):
        return self.slower(self.script.run(request, *meters), self.start())

    def run(self, request, live, start, blocks, *meters):
        assert request.specification.applications == ()
        self.requests.append(request)
        self.starts.append(dict(start))
        factor = self.start()
        applied = tuple(Application(name, "", True) for name in start)
        specification = replace(request.specification, applications=applied)
        outcome = self.script.run(replace(request, specification=specification), *meters)
        if len(self.requests) == self.fails_at:
            return RunOutcome(TrialState.CRASHED, "a block failed", None, "", 1.0), []
        told = []
        for block in blocks:
            cost = 100.0 * factor * math.exp(self._generator.gauss(0, 0.005))
            told.append(BlockTime(cost / self.gain(block.settings), 10))
        kept = 3 if len(self.requests) == self.ends_at else len(told)
        return self.slower(outcome, factor), told[:kept]

    def gain(self, settings):
        return math.prod(self.script.gains.get(name, 1.0) for name in settings)


@pytest.fixture
def turned(script, monkeypatch):
    made = Turned(script)
    script.gains = {"tf32": 1.05}
    monkeypatch.setattr(trial_runner, "run_script", made.plain)
    monkeypatch.setattr(trial_runner, "run_in_turns", made.run)
    return made


class Heard(Silent):
    def __init__(self):
        self.said = []

    def on_message(self, sentence):
        self.said.append(sentence)


TF32 = {"only": frozenset({"tf32"}), "budget": TEN_MINUTES}


def test_five_percent_are_proven_where_starts_differ_by_ten(turned, on_disk):
    heard = Heard()
    result = tune(progress=heard, **TF32)
    assert (result.verdict, result.settings) == ("faster", {"tf32": True})
    assert result.speedup.in_turns
    assert result.speedup.ratio == pytest.approx(1.05, abs=0.015)
    proof = [trial for trial in result.trials if trial.phase == "proof"]
    assert len(proof) == 2 * result.speedup.pairs <= 16
    assert [trial.settings for trial in proof] == turned.starts, "half of them start with the plan"
    assert turned.starts.count({}) == result.speedup.pairs
    assert all(trial.in_turns is not None for trial in proof)
    assert any("times both sides in turns" in sentence for sentence in heard.said)
    with open_store() as store:
        kept = store.load_study("train-1")
    assert kept.speedup == result.speedup
    assert [each.in_turns for each in kept.trials] == [each.in_turns for each in result.trials]
    assert read_plan(study.Path("train.plan.toml")).speedup == result.speedup


def test_how_the_gain_was_proven_is_told(turned):
    result = tune(**TF32)
    processes = 2 * result.speedup.pairs
    words = f"{processes} processes, both sides in turns within each"
    assert words in wording.evidence(result.speedup)
    told = study_json(result)
    assert told["speedup"]["in_turns"] is True
    assert json.dumps(told["trials"][-1]["in_turns"])
    assert set(told["trials"][-1]["in_turns"]) == {"base_ms", "head_ms"}
    assert told["trials"][0]["in_turns"] is None
    shown = result.baseline.mean_step_ms / result.best.mean_step_ms
    assert shown == pytest.approx(result.speedup.ratio, rel=0.1)


def test_nothing_is_proven_of_a_knob_without_effect(turned):
    turned.script.gains = {}
    result = tune(**TF32)
    assert result.verdict in ("no_gain", "inconclusive")
    assert result.speedup.ci99_low < 1.0


def test_without_blocks_it_stays_open(turned, monkeypatch):
    def never(request, live, start, blocks, *meters):
        outcome = turned.script.run(
            replace(
                request,
                specification=replace(
                    request.specification,
                    applications=tuple(Application(name, "", True) for name in start),
                ),
            ),
            *meters,
        )
        return turned.slower(outcome, turned.start()), None

    monkeypatch.setattr(trial_runner, "run_in_turns", never)
    heard = Heard()
    result = tune(progress=heard, **TF32)
    assert result.verdict == "inconclusive"
    assert not result.speedup.in_turns
    assert any(
        sentence.startswith("each process of the proof measures one side only")
        for sentence in heard.said
    )


def test_what_fails_as_it_is_turned_is_run_as_it_starts_from_then_on(turned):
    turned.fails_at = 3
    result = tune(**TF32)
    proof = [trial for trial in result.trials if trial.phase == "proof"]
    assert len(turned.requests) == 3
    assert all(trial.state is TrialState.COMPLETE for trial in proof)
    assert [trial.in_turns is not None for trial in proof[:4]] == [True, True, False, False]
    assert not result.speedup.in_turns


def test_a_script_that_ends_before_its_blocks_do_is_turned_no_more(turned):
    turned.ends_at = 1
    result = tune(**TF32)
    assert len(turned.requests) == 1
    assert not result.speedup.in_turns


def test_where_runs_are_alike_pairs_of_them_are_enough(script, monkeypatch):
    monkeypatch.setattr(trial_runner, "run_in_turns", None)
    result = tune(**TF32)
    assert result.verdict == "faster"
    assert not result.speedup.in_turns


KNOBS = load_knobs()


@pytest.mark.parametrize(
    ("settings", "objective", "why"),
    [
        ({"tf32": True, "fused_optimizer": "fused"}, Objective.THROUGHPUT, None),
        ({"tf32": True}, Objective.MEMORY, "the objective is memory"),
        (
            {"bf16_autocast": True, "dataloader_workers": 4},
            Objective.THROUGHPUT,
            "dataloader_workers is set before the script starts",
        ),
        (
            {"sdpa_backend": "flash"},
            Objective.THROUGHPUT,
            "sdpa_backend is set before the script starts",
        ),
        ({"arg:amp": "1"}, Objective.THROUGHPUT, "arg:amp is set before the script starts"),
        ({"batch_size": 64}, Objective.THROUGHPUT, "batch_size is set before the script starts"),
    ],
)
def test_what_can_be_turned(settings, objective, why):
    assert unable_to_turn(settings, KNOBS, objective) == why


def test_beside_what_is_proven_only_what_differs_has_to_be_turned():
    workers = {"dataloader_workers": 4}
    head = {**workers, "tf32": True}
    assert unable_to_turn(head, KNOBS, Objective.THROUGHPUT, workers) is None
    turning = turning_of(head, KNOBS, 4.0, 0.01, 20.0, workers)
    assert (list(turning.live), turning.base, turning.head) == (["tf32"], {}, {"tf32": True})
    for base in ({"dataloader_workers": 2}, {**workers, "arg:amp": "1"}, {**workers, "tf32": 0}):
        why = unable_to_turn(head, KNOBS, Objective.THROUGHPUT, base)
        assert (why is None) == (base.keys() == {"dataloader_workers", "tf32"})


def test_blocks_follow_in_an_order_by_chance_and_take_no_longer_than_a_run():
    head = {"compile": "default", "tf32": True}
    turning = turning_of(head, KNOBS, measure_s=4.0, step_s=0.01, run_s=20.0)
    assert list(turning.live) == ["tf32", "compile"], "in the order in which they are turned on"
    assert (turning.pairs, turning.block_s) == (MOST_PAIRS, 1.0)
    orders = set()
    for seed in range(40):
        blocks = turning.blocks(str(seed))
        sides = [bool(block.settings) for block in blocks]
        assert all(first != second for first, second in zip(sides[::2], sides[1::2], strict=True))
        orders.add(tuple(sides))
    assert len(orders) > 8
    slow = turning_of(head, KNOBS, measure_s=4.0, step_s=0.5, run_s=20.0)
    assert LEAST_PAIRS <= slow.pairs < MOST_PAIRS
    assert slow.expected_s <= 20.0


@pytest.mark.parametrize("base", [{}, {"tf32": False, "channels_last": True}])
def test_what_both_sides_took(base):
    turning = turning_of({"tf32": True}, KNOBS, 4.0, 0.01, 20.0, base)
    assert {"tf32", *base} == turning.live.keys()
    blocks = [Block(base), Block(turning.head)]
    assert {str(each.settings) for each in turning.blocks("")} == {str(b.settings) for b in blocks}
    times = [BlockTime(12.0), BlockTime(10.0)]
    assert turning.told(blocks, times) == InTurns(pytest.approx(12.0), pytest.approx(10.0))
    assert turning.told(blocks, times[:1]) is None
    assert turning.told(blocks, [times[0], BlockTime(math.nan, failed="it failed")]) is None


def test_the_level_is_that_of_both_sides():
    assert InTurns(12.0, 3.0).level_ms == pytest.approx(6.0)
    assert simulation.in_order(6, random.Random(1)).count(True) == 3

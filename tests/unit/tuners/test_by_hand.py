"""A search by hand finds what pays, together too, and goes on where it was cut: `by_hand.py`."""

import sys

import pytest

from gpuadvisor.collectors.devices import cpu_device
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.study import TrialState
from tests import simulation
from tests.benchmark_files import loaded
from tests.simulation import SimulatedEvaluator, Switch, quiet


@pytest.fixture(scope="module")
def hand():
    return loaded("by_hand")


def search_of(hand, model, switches, affordable=lambda share: True, **options):
    evaluator = SimulatedEvaluator(model, quiet())
    space = simulation.space_of(switches)
    return hand.HandSearch(
        space, lambda stage, side: evaluator.measure([side], "proof")[0], affordable, **options
    )


def test_a_knob_that_pays_alone_and_costs_beside_another_is_left_out(hand):
    def model(settings):
        layout, compiled = settings.get("layout"), settings.get("compiled")
        return {(None, None): 80.0, (True, None): 70.0, (None, True): 46.0}.get(
            (layout, compiled), 56.0
        )

    search = search_of(hand, model, [Switch("layout"), Switch("compiled")])
    assert search.search() == {"compiled": True}
    assert [kept for _, _, kept in search.steps] == [True, False]
    assert search.ratio({"layout": True, "compiled": True}) == pytest.approx(80 / 56)


def test_what_brings_nothing_alone_gets_its_turn_beside_the_others(hand):
    def model(settings):
        return max(20.0 if "workers" in settings else 50.0, 25.0 if "bf16" in settings else 50.0)

    search = search_of(hand, model, [Switch("workers"), Switch("bf16")])
    assert search.search() == {"workers": True, "bf16": True}


@pytest.mark.parametrize(
    ("thorough", "slower", "slow"), [(False, 2, 1), (True, 4, 4)], ids=["usual", "thorough"]
)
def test_each_setting_runs_four_times_unless_it_shows_sooner_that_it_is_slower(
    hand, thorough, slower, slow
):
    model = simulation.multiplied({"good": 1.2, "slower": 0.9, "slow": 0.5})
    switches = [Switch("good"), Switch("slower"), Switch("slow")]
    search = search_of(hand, model, switches, thorough=thorough)
    search.search()
    counts = {tuple(dict(known)): len(runs) for known, runs in search.trials.items()}
    assert counts == {(): 4, ("good",): 4, ("slower",): slower, ("slow",): slow}


def test_loaders_get_their_turn_once_the_rest_is_fast_enough_to_wait_for_them(hand):
    def model(settings):
        return max(20.0 if "workers" in settings else 40.0, 25.0 if "bf16" in settings else 50.0)

    def idle(best):
        return None if best.mean_step_ms <= 40 else "nobody waits"

    switches = [Switch("workers", cures=idle), Switch("bf16")]
    unchanged = simulation.measurement([50.0])
    search = search_of(hand, model, switches, unchanged=unchanged)
    assert search.search() == {"bf16": True, "workers": True}
    assert hand.key({"workers": True}) not in search.trials


def test_wrong_results_never_count_however_fast_they_come(hand):
    def model(settings):
        return TrialState.WRONG if "fast" in settings else 100.0 / (1 + 0.1 * ("fair" in settings))

    search = search_of(hand, model, [Switch("fast"), Switch("fair")])
    assert search.search() == {"fair": True}


def test_a_search_whose_time_is_over_names_the_stage_and_keeps_what_it_found(hand):
    shares = []

    def affordable(share):
        shares.append(share)
        return len(shares) <= 13

    model = simulation.multiplied({"one": 1.3, "two": 1.2})
    search = search_of(hand, model, [Switch("one"), Switch("two")], affordable)
    assert search.search() == {"one": True}  # the other one's turn beside it ran once
    assert search.cut == "together"
    assert set(shares) == {hand.ALONE_SHARE, 1.0}


def test_studies_are_compared_with_the_same_unchanged_runs(hand):
    evaluator = SimulatedEvaluator(simulation.multiplied({"one": 1.5, "two": 1.2}), quiet())

    def run(stage, side):
        return evaluator.measure([side], "proof")[0]

    sides = {"by hand": {"one": True, "two": True}, "5m": {"one": True}, "10m": {}}
    last = hand.compared(run, sides)
    assert {label: each.ratio for label, each in last.items()} == {
        "by hand": pytest.approx(1.8),
        "5m": pytest.approx(1.5),
        "10m": pytest.approx(1.0),
    }
    assert len(evaluator.trials) == 1 + 4 * 3  # the unchanged script is the 10 minutes' side, too
    result = {
        "title": "train.py",
        "unchanged_ms": 100.0,
        "last": {label: hand._ratio(sides[label], each) for label, each in last.items()},
        "studies": {"5m": {"verdict": "faster"}, "10m": {"verdict": "no_gain"}},
    }
    assert "5m: faster, 1.50x (1.50-1.50): one=True; 83% |" in hand.row(result)
    assert "10m: no_gain, 1.00x (1.00-1.00): unchanged; 56% |" in hand.row(result)


def test_a_study_without_a_gain_proposes_the_unchanged_script(hand):
    best = {"knobs": {"tf32": True}}
    assert hand.proposed({"verdict": "faster_unverified", "best": best}) == {"tf32": True}
    assert hand.proposed({"verdict": "inconclusive", "best": best}) == {}


def test_runs_that_a_state_file_holds_are_not_run_again(hand, tmp_path):
    evaluator = SimulatedEvaluator(simulation.multiplied({"one": 1.5}), quiet())
    command = Command(sys.executable, "never_run.py")
    first = hand.Runs(tmp_path / "state.jsonl", command, cpu_device(), 100.0)
    kept = [evaluator.measure([side], "search")[0] for side in ({}, {"one": True}, {})]
    for trial in kept:
        first._keep("alone", trial)
    with first.state.open("a") as file:
        file.write('{"stage": "alone", "tri')  # cut off

    again = hand.Runs(first.state, command, cpu_device(), 100.0)
    replayed = [again.run("alone", trial.settings) for trial in kept]
    assert [trial.measurement for trial in replayed] == [trial.measurement for trial in kept]
    assert len(again) == 3

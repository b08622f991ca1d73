"""A search by hand finds what pays, goes on where it was cut, and is compared: `by_hand.py`."""

import json
import sys
from collections import defaultdict

import pytest

from gpuadvisor.collectors.devices import cpu_device
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.study import TrialState
from gpuadvisor.errors import UsageError
from tests import simulation
from tests.benchmark_files import loaded
from tests.simulation import SimulatedEvaluator, Switch, quiet


@pytest.fixture(scope="module")
def hand():
    return loaded("by_hand")


@pytest.fixture(scope="module")
def comparison(hand):
    return loaded("hand_compared")


def search_of(hand, model, switches, affordable=lambda share: True, **options):
    evaluator = SimulatedEvaluator(model, quiet())
    space = simulation.space_of(switches)

    def run(stage, side):
        return hand.Run(evaluator.measure([side], "proof")[0], "here")

    return hand.HandSearch(space, run, affordable, **options)


def best_of(search):
    search.search()
    return search.best


def test_a_knob_that_pays_alone_and_costs_beside_another_is_left_out(hand):
    def model(settings):
        layout, compiled = settings.get("layout"), settings.get("compiled")
        return {(None, None): 80.0, (True, None): 70.0, (None, True): 46.0}.get(
            (layout, compiled), 56.0
        )

    search = search_of(hand, model, [Switch("layout"), Switch("compiled")])
    assert best_of(search) == {"compiled": True}
    assert [kept for _, _, kept in search.steps] == [True, False]
    assert search.ratio({"layout": True, "compiled": True}) == pytest.approx(80 / 56)


def test_what_brings_nothing_alone_gets_its_turn_beside_the_others(hand):
    def model(settings):
        return max(20.0 if "workers" in settings else 50.0, 25.0 if "bf16" in settings else 50.0)

    search = search_of(hand, model, [Switch("workers"), Switch("bf16")])
    assert best_of(search) == {"workers": True, "bf16": True}


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
    assert best_of(search) == {"bf16": True, "workers": True}
    assert hand.key({"workers": True}) not in search.trials


def test_wrong_results_never_count_however_fast_they_come(hand):
    def model(settings):
        return TrialState.WRONG if "fast" in settings else 100.0 / (1 + 0.1 * ("fair" in settings))

    search = search_of(hand, model, [Switch("fast"), Switch("fair")])
    assert best_of(search) == {"fair": True}


def test_a_search_whose_time_is_over_names_the_stage_and_keeps_what_it_found(hand):
    shares = []

    def affordable(share):
        shares.append(share)
        return len(shares) <= 13

    model = simulation.multiplied({"one": 1.3, "two": 1.2})
    search = search_of(hand, model, [Switch("one"), Switch("two")], affordable)
    assert best_of(search) == {"one": True}  # the other one's turn beside it ran once
    assert search.cut == "together"
    assert set(shares) == {hand.ALONE_SHARE, 1.0}


class Machines:
    """Runs on machines that differ in speed, each of which has time for so many."""

    def __init__(self, hand, model, runs, speeds):
        self.hand, self.runs, self.speeds = hand, runs, speeds
        self.model, self.state = model, []

    def call(self, switches):
        """Search as far as the next machine has time; return the search, and if it is over."""
        machine = f"machine {len(self.speeds)}"
        speed = self.speeds.pop(0)
        evaluator = SimulatedEvaluator(lambda side: self.model(side) / speed, quiet())
        left, recorded = self.runs, list(self.state)

        def fresh(stage, side):
            nonlocal left
            if not left:
                raise self.hand.TimeIsUpError
            left -= 1
            run = self.hand.Run(evaluator.measure([side], "proof")[0], machine)
            self.state.append((stage, run))
            return run

        def run(stage, side):
            for place, (known, old) in enumerate(recorded):
                if known == stage and old.trial.settings == side:
                    return recorded.pop(place)[1]
            return fresh(stage, side)

        fresh("baseline", {})
        first = defaultdict(list)
        first[frozenset()] = [run for stage, run in self.state if stage == "baseline"]
        search = self.hand.HandSearch(simulation.space_of(switches), run, trials=first)
        try:
            search.search()
        except self.hand.TimeIsUpError:
            return search, False
        return search, True


def test_a_search_goes_on_on_machines_of_other_speeds_as_if_on_one(hand):
    model = simulation.multiplied({"one": 1.3, "two": 1.2, "slower": 0.9})
    switches = [Switch("one"), Switch("two"), Switch("slower")]
    whole, is_over = Machines(hand, model, 1000, [1.0]).call(switches)
    assert is_over
    machines, calls = Machines(hand, model, 7, [1.0, 2.0, 0.5, 1.7, 0.8, 1.1, 3.0, 0.9, 1.4]), 1
    while True:
        search, is_over = machines.call(switches)
        if is_over:
            break
        calls += 1
    assert calls > 3
    assert search.best == whole.best == {"one": True, "two": True}
    assert search.ratio(search.best) == pytest.approx(1.56)
    assert search.steps == [
        (settings, pytest.approx(gain), kept) for settings, gain, kept in whole.steps
    ]
    made = [run for stage, run in machines.state if stage != "baseline"]
    asked = {known: len(runs) for known, runs in whole.trials.items() if known}
    assert {known: len(search.trials[known]) for known in asked} == asked
    assert len(made) == sum(len(runs) for runs in whole.trials.values()) - 1  # nothing twice


def test_runs_of_a_machine_without_the_unchanged_script_say_nothing(hand):
    evaluator = SimulatedEvaluator(simulation.multiplied({"one": 1.5}), quiet())
    here, there = (hand.Run(evaluator.measure([{}], "proof")[0], name) for name in ("a", "b"))
    ones = [hand.Run(evaluator.measure([{"one": True}], "proof")[0], name) for name in ("b", "c")]
    search = search_of(hand, lambda side: 1.0, [Switch("one")])
    search.trials[frozenset()] = [here]
    search.trials[hand.key({"one": True})] = ones
    assert search.ratio({"one": True}) is None
    search.trials[frozenset()] = [here, there]
    assert search.ratio({"one": True}) == pytest.approx(1.5)


def stored(folder, studies, best):
    """Write what a search and studies left behind; return the folder."""
    searched = {"finished": True, "cut": "", "runs": 40, "seconds": 700.0, "machines": ["a", "b"]}
    searched |= {"device": "CPU", "cores": 2, "settings": best}
    (folder / "runs.json").write_text(json.dumps(searched))
    for budget, (verdict, knobs) in studies.items():
        (folder / budget).mkdir()
        about = {"budget": "505s" if budget == "rest" else budget}
        (folder / budget / "about.json").write_text(json.dumps(about))
        study = {
            "verdict": verdict, "speedup": None, "wall_s": 1.0, "best": {"knobs": knobs},
            "device": {"uuid": None, "name": "CPU"}, "environment": {"cpu_cores": 2},
        }  # fmt: skip
        (folder / budget / "study.json").write_text(json.dumps(study))
    return folder


def test_what_a_row_compares_is_run_in_each_round_once(hand, comparison, tmp_path):
    best = {"one": True, "two": True}
    studies = {"rest": ("no_gain", {"two": True}), "5m": ("faster", {"one": True})}
    folder = stored(tmp_path, studies, best)
    sides = comparison.sides(folder)
    assert list(sides) == ["by hand", "5m", "505s"]
    evaluator = SimulatedEvaluator(simulation.multiplied({"one": 1.5, "two": 1.2}), quiet())

    class Once:
        machine, device = "a", Device("cpu", 0, "CPU", cores=2)

        def run(self, stage, side):
            return hand.Run(evaluator.measure([side], "proof")[0], self.machine)

    done = list(comparison.rounds(Once(), sides))
    assert len(done) == comparison.ROUNDS
    assert len(evaluator.trials) == 1 + 4 * 3  # the unchanged script is that study's side, too
    known = comparison.result(folder, Once(), "2.11.0+cu130", sides, done)
    said = comparison.row(known)
    assert "1.80x (1.80-1.80): one=True, two=True; 40 runs in 700 s |" in said
    assert "5m: `faster`, 83%: 1.50x (1.50-1.50): one=True |" in said
    assert "505s: `no_gain`, 56%: unchanged |" in said
    assert "CPU, 2 cores, torch 2.11: 4 rounds; machines of the search: 2 | 20" in said
    assert [line.count("|") for line in comparison.HEAD.splitlines()] == [said.count("|")] * 2
    longer = {each: known["studies"][each] for each in ("505s",)}
    alone = {"by hand": known["last"]["by hand"], "505s": known["last"]["505s"]}
    assert "| not run | 505s: " in comparison.row(known | {"studies": longer, "last": alone})

    hand.written(folder / "compared.json", known)
    assert comparison.is_done(folder)
    stored_again = json.loads((folder / "runs.json").read_text()) | {"settings": {"two": True}}
    (folder / "runs.json").write_text(json.dumps(stored_again))
    assert not comparison.is_done(folder)  # the search went on


def test_rounds_that_have_no_time_are_left_out_whole(hand, comparison):
    evaluator = SimulatedEvaluator(simulation.multiplied({"one": 1.5}), quiet())

    class Short:
        left = 7

        def run(self, stage, side):
            self.left -= 1
            if self.left < 0:
                raise hand.TimeIsUpError
            return hand.Run(evaluator.measure([side], "proof")[0], "here")

    sides = {"by hand": {"one": True}}
    done = list(comparison.rounds(Short(), sides))
    assert len(done) == 3
    assert comparison.ratios(done, sides)["by hand"].ratio == pytest.approx(1.5)


@pytest.mark.parametrize(
    "lacks, said", [("runs.json", "no search by hand yet"), ("5m/study.json", "no study yet")]
)
def test_a_row_without_one_of_its_parts_is_not_made(comparison, tmp_path, lacks, said):
    folder = stored(tmp_path, {"5m": ("faster", {"one": True})}, {"one": True})
    (folder / lacks).unlink()
    with pytest.raises(UsageError, match=said):
        comparison.sides(folder)


def test_a_row_is_of_one_kind_of_device(comparison, tmp_path):
    folder = stored(tmp_path, {"5m": ("faster", {"one": True})}, {"one": True})
    comparison.check_alike(folder, Device("cpu", 0, "CPU", cores=2))
    with pytest.raises(UsageError, match="by hand was on CPU with 2 cores, and here is CPU with 8"):
        comparison.check_alike(folder, Device("cpu", 0, "CPU", cores=8))


def test_a_study_without_a_gain_proposes_the_unchanged_script(comparison):
    best = {"knobs": {"tf32": True}}
    assert comparison.proposed({"verdict": "faster_unverified", "best": best}) == {"tf32": True}
    assert comparison.proposed({"verdict": "inconclusive", "best": best}) == {}


@pytest.fixture
def kept(hand, tmp_path):
    """Return what opens the runs of a file on a machine."""
    command = Command(sys.executable, "never_run.py")

    def opened(machine, device=None, **options):
        state, device = tmp_path / "state.jsonl", device or cpu_device()
        return hand.Runs(state, command, device, machine, **options)

    return opened


def test_runs_that_a_state_file_holds_are_not_run_again(kept):
    evaluator = SimulatedEvaluator(simulation.multiplied({"one": 1.5}), quiet())
    first = kept("here")
    trials = [evaluator.measure([side], "search")[0] for side in ({}, {"one": True}, {})]
    for trial in trials:
        first._keep("alone", trial)
    with first.state.open("a") as file:
        file.write('{"stage": "alone", "tri')  # cut off
    kept("there")._keep("alone", trials[1])

    again = kept("there")
    replayed = [again.run("alone", trial.settings) for trial in [*trials, trials[1]]]
    expected = [trial.measurement for trial in [*trials, trials[1]]]
    assert [run.trial.measurement for run in replayed] == expected
    assert [run.machine for run in replayed] == ["here", "here", "here", "there"]
    assert len(again.spent) == 4


def test_what_chooses_nothing_goes_on_with_runs_of_this_machine_alone(hand, kept):
    evaluator = SimulatedEvaluator(simulation.multiplied({}), quiet())
    kept("there")._keep("last", evaluator.measure([{}], "proof")[0])
    assert kept("there", for_proof=True).run("last", {}).machine == "there"
    with pytest.raises(hand.TimeIsUpError):
        kept("here", for_proof=True, until_s=0.0).run("last", {})


def test_runs_of_another_kind_of_device_are_no_part_of_a_search(kept):
    evaluator = SimulatedEvaluator(simulation.multiplied({}), quiet())
    kept("here")._keep("alone", evaluator.measure([{}], "search")[0])
    with pytest.raises(UsageError, match=r"another device: .*, and here it is NVIDIA H200"):
        kept("there", Device("cuda", 0, "NVIDIA H200", cores=cpu_device().cores))

"""What a study may conclude: a verdict from its trials and its proof, and nothing beyond them."""

from dataclasses import replace

import pytest

from gpuadvisor.domain.knobs import Contribution, Origin
from gpuadvisor.domain.screening import Ratio, Screened, ScreenedAs
from gpuadvisor.domain.study import (
    Expectation,
    Objective,
    Speedup,
    Trial,
    TrialState,
    Verdict,
)
from gpuadvisor.tuners.proof import SMALLEST_GAIN, Proof
from gpuadvisor.tuners.search import OrderedSearch
from gpuadvisor.tuners.space import Parameter, Space
from gpuadvisor.tuners.statistics import LOOKS
from gpuadvisor.tuning.budgeting.budget import Budget
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
from gpuadvisor.tuning.budgeting.durations import LIFE_RUNS, LIFE_STEPS
from gpuadvisor.tuning.expectations import with_measured
from gpuadvisor.tuning.outcome.results import proven
from gpuadvisor.tuning.outcome.verdicts import (
    candidate,
    is_worth_a_proof,
    not_tried,
    time_needed,
    verdict_of,
)
from tests.simulation import SimulatedEvaluator, measurement
from tests.studies import NOTHING, rehearsal, study

FASTER = Speedup(1.2, 1.15, 1.25, 4)
NO_GAIN = Speedup(1.0, 0.99, 1.01, 4)
SLOWER = Speedup(0.65, 0.63, 0.67, 4)
WIDE = Speedup(1.02, 0.9, 1.15, 4)


def ran(settings, state=TrialState.COMPLETE, gain=1.0, phase="search"):
    return Trial(0, settings, phase, state, gain=gain, measurement=measurement([10.0]))


TRIED = (ran({}, phase="baseline"), ran({"tf32": True}))


def ended(**changes):
    bare = {**NOTHING, "verdict": Verdict.INCONCLUSIVE, "trials": TRIED}
    return study(**{**bare, **changes})


def proof_of(speedup, **changes):
    proven = {"speedup": speedup, "settings": {"tf32": True}, "best": measurement([10.0])}
    return ended(**{**proven, **changes})


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        (proof_of(FASTER, rehearsal=rehearsal()), Verdict.FASTER),
        (proof_of(FASTER, rehearsal=rehearsal(), untried={"compile": "no room"}), Verdict.FASTER),
        (proof_of(FASTER), Verdict.FASTER_UNVERIFIED),
        (proof_of(FASTER, rehearsal=rehearsal(covered=())), Verdict.FASTER_UNVERIFIED),
        (proof_of(NO_GAIN), Verdict.NO_GAIN),
        (proof_of(SLOWER), Verdict.NO_GAIN),
        (proof_of(NO_GAIN, untried={"workers=16": "in vain"}), Verdict.NO_GAIN),
        (proof_of(NO_GAIN, untried={"compile": "no room"}), Verdict.INCONCLUSIVE),
        (proof_of(FASTER, rehearsal=rehearsal(), interrupted="Ctrl-C"), Verdict.FASTER),
        (proof_of(NO_GAIN, interrupted="Ctrl-C"), Verdict.INCONCLUSIVE),
        (proof_of(WIDE), Verdict.INCONCLUSIVE),
        (ended(), Verdict.INCONCLUSIVE),
        (ended(settings={"tf32": True}), Verdict.INCONCLUSIVE),
        (ended(interrupted="Ctrl-C"), Verdict.INCONCLUSIVE),
        (ended(trials=TRIED[:1]), Verdict.NOT_TRIED),
        (ended(trials=TRIED[:1], interrupted="Ctrl-C"), Verdict.NOT_TRIED),
        (ended(trials=(ran({"tf32": True}, TrialState.CRASHED),)), Verdict.NOT_TRIED),
        (ended(trials=(ran({"tf32": True}, TrialState.WRONG),)), Verdict.NOT_TRIED),
        (ended(trials=(ran({"tf32": True}, TrialState.PRUNED),)), Verdict.INCONCLUSIVE),
    ],
)
def test_the_verdict(result, verdict):
    assert verdict_of(result) is verdict


class TestCandidate:
    def test_it_is_what_looked_best(self):
        trials = [ran({"a": 1}, gain=0.99), ran({"b": 1}, gain=1.004), ran({"c": 1}, gain=0.7)]
        assert candidate(trials) == {"b": 1}

    def test_wrong_results_and_other_phases_are_none(self):
        wrong = ran({"a": 1}, TrialState.WRONG, gain=3.0)
        assert candidate([wrong, ran({"b": 1}, gain=2.0, phase="proof"), ran({})]) == {}

    def test_what_a_rehearsal_refuted_is_none(self):
        trials = [ran({"a": 1, "b": 1}, gain=1.8), ran({"b": 1}, gain=1.1), ran({"c": 1})]
        assert candidate(trials, ["a"]) == {"b": 1}
        assert candidate(trials, ["a", "b"]) == {"c": 1}
        assert candidate(trials, ["a", "b", "c"]) == {}

    @pytest.mark.parametrize(
        ("gain", "untried", "worth"),
        [(1.004, [], True), (1.004, ["c"], False), (1.04, ["c"], True), (0.7, [], True)],
    )
    def test_its_proof_is_worth_the_time_where_nothing_is_left_or_it_may_gain(
        self, gain, untried, worth
    ):
        trials = [ran({"a": 1}, gain=1.8), ran({"b": 1}, gain=gain)]
        assert is_worth_a_proof(trials, ["a"], untried) is worth
        assert not is_worth_a_proof(trials, ["a", "b"], untried)

    @pytest.mark.parametrize(("gain", "untried"), [(1.2, ["c"]), (1.2, []), (0.9, [])])
    def test_but_not_where_it_would_show_neither_a_gain_nor_that_there_is_none(self, gain, untried):
        trials = [ran({"b": 1}, gain=gain)]
        least = max(gain, SMALLEST_GAIN)
        assert is_worth_a_proof(trials, [], untried, lambda settings, shown: shown >= least)
        assert not is_worth_a_proof(trials, [], untried, lambda settings, shown: shown > least)

    def test_what_was_stopped_early_is_the_last_choice(self):
        slow, done = ran({"a": 1}, TrialState.PRUNED, gain=0.9), ran({"b": 1}, gain=0.8)
        assert candidate([slow, done]) == {"b": 1}
        assert candidate([slow]) == {"a": 1}


def searched(space, evaluator):
    search = OrderedSearch(evaluator, space, measurement([10.0]))
    search.run()
    return search


def left(space, cost, budget=99, interrupted=""):
    evaluator = SimulatedEvaluator(cost, budget=budget)
    search = searched(space, evaluator)
    return not_tried(space, search, evaluator.trials, "no room", interrupted)


class TestNotTried:
    WORKERS = Parameter("workers", (2, 4, 8, 16))
    BATCH = Parameter("batch", (64, 128, 256, 512), progressive=True)

    def test_values_that_patience_spared(self):
        found = left(Space((self.WORKERS,)), lambda settings: 100.0)
        why = "the search tried 2 of its values and went on to other knobs"
        assert found == {"workers=8": why, "workers=16": why}

    def test_values_beyond_one_of_which_a_run_decided_nothing(self):
        noise = ([factor] * 8 for factor in (1.0, 1.2, 0.9, 1.05, 1.0))
        evaluator = SimulatedEvaluator(lambda s: 100.0, noise, baselines=3)
        space = Space((self.BATCH,))
        found = not_tried(space, searched(space, evaluator), evaluator.trials, "no room", "")
        assert set(found) == {"batch=128", "batch=256", "batch=512"}
        (why,) = set(found.values())
        assert why.startswith("runs differ by 14") and "did not show" in why

    def test_values_beyond_one_that_brought_little(self):
        found = left(Space((self.BATCH,)), lambda s: 97.0 if s else 100.0)
        assert set(found.values()) == {"the value before it brought 3.1%, too little to go on"}

    def test_values_beyond_one_that_did_not_pay(self):
        found = left(Space((self.BATCH,)), lambda s: 80.0 if s.get("batch", 0) == 64 else 100.0)
        why = "the value before it did not pay"
        assert found == {"batch=256": why, "batch=512": why}

    def test_knobs_and_values_without_room(self):
        compiled = Parameter("compile", ("default",))
        found = left(Space((self.WORKERS, compiled)), lambda s: 100.0, budget=2)
        assert found == {
            **{f"workers={n}": "no room" for n in (4, 8, 16)},
            "compile": "no room",
        }

    def test_a_costly_form_of_what_did_harm(self):
        compiled = Parameter("compile", (True,), excludes=frozenset({"costly"}))
        costly = Parameter("costly", (True,), excludes=frozenset({"compile"}), refines="compile")
        space = Space((compiled, costly, Parameter("tf32", (True,))))
        found = left(space, lambda s: 150.0 if "compile" in s else 80.0 if s else 100.0)
        assert found == {"costly": "compile made the script 1.50x slower"}

    def test_what_can_do_nothing_is_none_of_them(self):
        fine = Parameter("pinned", (True,), pointless=lambda best: "nothing is copied")
        useless = Parameter("threads", (1, 2))
        found = left(
            Space((fine, useless)),
            lambda s: TrialState.NO_EFFECT if s else 100.0,
        )
        assert found == {}

    def test_what_was_stopped_early_beside_others_that_used_the_machine(self):
        space, others = Space((self.WORKERS,)), "others used 1.0 of 2 CPU cores, and none was idle"
        slow = ran({"workers": 2}, TrialState.PRUNED, gain=0.3)
        search = OrderedSearch(SimulatedEvaluator(lambda s: 1.0), space, measurement([10.0]))
        disturbed = replace(slow, disturbance=others)
        assert not_tried(space, search, [disturbed], "no room", "") == {
            "workers": f"it was slow, but while {others}, which says nothing of it"
        }
        for told in (slow, ran({"workers": 4})):  # by a run on a quiet machine, or to its end
            assert "workers" not in not_tried(space, search, [disturbed, told], "no room", "")

    def test_what_an_interruption_left(self):
        space = Space((self.WORKERS,))
        search = OrderedSearch(SimulatedEvaluator(lambda s: 1.0), space, measurement([10.0]))
        found = not_tried(space, search, [ran({"workers": 2})], "no room", "Ctrl-C")
        assert found == {f"workers={n}": "the study ended early" for n in (4, 8, 16)}
        assert not_tried(space, search, [], "", "Ctrl-C") == {"workers": "the study ended early"}


class TestTimeNeeded:
    SPACE = Space((Parameter("compile", ("default",)), Parameter("tf32", (True,))))

    def needed(self, result, rehearsed=True, **known):
        budget = Budget(BudgetLimit(seconds=100.0), {})
        budget.record(replace(ran({}, phase="baseline"), wall_s=2.0))
        lived = (result.settings, {"compile": "default"}, candidate(result.trials))
        for settings in lived if rehearsed else ():
            budget.durations.record_rehearsal(settings, 0.0)
        result = replace(result, verdict=verdict_of(result))
        return time_needed(result, self.SPACE, budget, **known)

    def test_a_run_of_what_is_left_and_a_proof(self):
        needed_s = 2 + LOOKS[0] * 2 * 2
        assert self.needed(proof_of(NO_GAIN, untried={"compile": "no room"})) == needed_s

    def test_a_budget_that_is_known_to_have_room(self):
        result = proof_of(NO_GAIN, untried={"compile": "no room"}, wall_s=100.0)
        assert self.needed(result, enough_s=540.0) == 440.0

    def test_what_looked_better_needs_its_proof_and_not_what_is_left(self):
        result = ended(settings={"tf32": True}, untried={"compile": "no room"})
        assert self.needed(result, enough_s=540.0) == LOOKS[0] * 2 * 2
        life_s = LIFE_RUNS * 2 + LIFE_STEPS * 0.01
        needed_s = self.needed(result, rehearsed=False)
        assert needed_s == pytest.approx(LOOKS[0] * 2 * 2 + 3 * life_s)

    def test_a_proof_that_had_no_room(self):
        assert self.needed(ended()) == LOOKS[0] * 2 * 2

    @pytest.mark.parametrize(
        "result", [proof_of(FASTER), proof_of(NO_GAIN), ended(interrupted="Ctrl-C")]
    )
    def test_nothing_where_it_is_decided_or_can_go_on(self, result):
        assert self.needed(result) is None


LAYOUT = Expectation("layout", "warning", "in words", 5.0, 20.0, ("channels_last", "tf32"))


class TestWhatAnExpectationMeasured:
    def result(self, speedup=FASTER, **changes):
        return proof_of(speedup, objective=Objective.THROUGHPUT, **changes)

    def test_the_proof_of_its_own_knobs(self):
        found = with_measured([LAYOUT], self.result())[0]
        assert found.measured_pct == pytest.approx(100 * (1 - 1 / 1.2))
        assert found.measured_low_pct == pytest.approx(100 * (1 - 1 / 1.15))
        assert found.measured_high_pct == pytest.approx(100 * (1 - 1 / 1.25))
        assert found.settings == {"tf32": True}

    def test_what_a_proof_saved_of_the_runs_that_were_foretold_of(self):
        """Workers of a vae on an H200: 49 to 59 % of 6.7 ms, and then 8.3 ms became 3.3."""
        said = replace(LAYOUT, low_pct=49.3, high_pct=58.5)
        costs = [("baseline", {}, 6.7), ("proof", {}, 8.3), ("proof", {"tf32": True}, 3.3)]
        trials = [
            replace(ran(settings, phase=phase), measurement=measurement([cost] * 4))
            for phase, settings, cost in [*costs, ("baseline", {}, 20.0)]
        ]
        gained = Speedup(8.3 / 3.3, 1.65, 3.9, 6)
        found = with_measured([said], self.result(gained, trials=tuple(trials)))[0]
        assert found.measured_pct == pytest.approx(60.2, abs=0.1)
        assert found.of_foretold_pct == pytest.approx(50.7, abs=0.1)
        assert not found.is_met

    def test_a_proof_of_the_opposite_is_shown_too(self):
        found = with_measured([LAYOUT], self.result(SLOWER))[0]
        assert found.measured_low_pct < found.measured_pct < found.measured_high_pct < -40

    def test_an_ablation_with_an_interval(self):
        worth = (Contribution("tf32", True, 1.1, 1.05, 1.15), Contribution("compile", True, 1.2))
        best = {"tf32": True, "compile": True}
        found = with_measured([LAYOUT], self.result(contributions=worth, settings=best))[0]
        assert found.measured_pct == pytest.approx(10 / 1.2)
        assert found.measured_low_pct == pytest.approx(5 / 1.25)
        assert found.measured_high_pct == pytest.approx(15 / 1.15)
        assert found.settings == {"tf32": True}

    def test_what_cures_several_findings_is_compared_with_all_of_them(self):
        """Compiling nanoGPT on an H200 saved 20.6 %, of two findings of 5 to 11 and 0 to 14 %."""
        types = replace(LAYOUT, rule="types", low_pct=5.4, high_pct=11.0, knobs=("tf32",))
        chains = replace(LAYOUT, rule="chains", low_pct=0.0, high_pct=13.7, knobs=("a", "tf32"))
        other = replace(LAYOUT, rule="other", low_pct=50.0, high_pct=60.0, knobs=("workers",))
        compiled = self.result(Speedup(1 / (1 - 0.206), 1.21, 1.31, 6))
        *both, apart = with_measured([types, chains, other], compiled)
        assert [each.cured_too for each in both] == [("chains",), ("types",)]
        assert [each.together_pct for each in both] == 2 * [pytest.approx((5.4, 24.7))]
        assert all(each.is_met for each in both) and apart.measured_pct is None
        more, _ = with_measured([types, chains], self.result(Speedup(1.4, 1.3, 1.5, 6)))
        assert more.is_met is False, "28.6 % are more than both promised"
        little, _ = with_measured([types, chains], self.result(Speedup(1.04, 1.03, 1.05, 6)))
        assert little.is_met is False, "one of them alone promised 5.4 %"
        unknown = replace(chains, low_pct=None, high_pct=None)
        told, _ = with_measured([types, unknown], compiled)
        assert told.cured_too and told.together_pct is None and told.is_met is None

    def test_settings_of_several_findings_are_compared_with_all_of_them(self):
        best = {"tf32": True, "workers": 8}
        types = replace(LAYOUT, rule="types", knobs=("tf32",))
        loader = replace(LAYOUT, rule="loader", low_pct=10.0, high_pct=15.0, knobs=("workers",))
        found = with_measured([types, loader], self.result(settings=best))
        assert [each.settings for each in found] == [best, best]
        assert {each.together_pct for each in found} == {(10.0, 35.0)}
        alone = with_measured([types], self.result(settings=best))
        assert alone[0].measured_pct is None, "what workers brought is of no finding"

    def test_blocks_of_the_computing_alone_are_said_to_be_that(self):
        ratio, beside = Ratio(1.25, 1.2, 1.3, 4), {"channels_last": True}
        screened = [
            Screened("channels_last", True, ScreenedAs.KEPT, Ratio(2.0, 1.9, 2.1, 4)),
            Screened("tf32", True, ScreenedAs.KEPT, ratio, beside, of_computing=True),
        ]
        of_tf32 = replace(LAYOUT, knobs=("tf32",))
        best = {"tf32": True, "compile": True}
        found = with_measured([of_tf32], self.result(settings=best, screened=tuple(screened)))[0]
        assert found.measured_pct is None and found.screened_of_computing
        assert found.screened_pct[0] == pytest.approx(100 / 2.0 * (1 - 1 / 1.25))
        unknown = self.result(settings=best, screened=tuple(screened[1:]))
        assert with_measured([of_tf32], unknown)[0].screened_pct is None

    def test_figures_of_the_search_are_no_measurement(self):
        best = {"tf32": True, "compile": True}
        once = self.result(contributions=(Contribution("tf32", True, 2.6),), settings=best)
        found = with_measured([LAYOUT], once)[0]
        assert (found.measured_pct, found.settings) == (None, {})
        assert found.why == "tf32 had too few runs for an interval"

    def test_why_nothing_was_measured(self):
        bare = self.result(settings={"compile": True}, trials=())
        useless = replace(bare, no_effect={"channels_last": "no convolution"})
        assert with_measured([LAYOUT], useless)[0].why == "channels_last: no convolution"
        possible = replace(useless, untried={"tf32": "no room"})
        assert with_measured([LAYOUT], possible)[0].why == "tf32: no room"
        assert with_measured([LAYOUT], bare)[0].why == "none of its knobs was tried to its end"


class TestContributions:
    """One round of the ablation is enough where it is clear; the proof says how sure it is."""

    def proof(self, *noise):
        runs = [(ran({}, phase="proof"), ms) for ms in noise]
        side = [replace(trial, measurement=measurement([ms])) for trial, ms in runs]
        return Proof(FASTER, base=side, head=side)

    def contributions(self, proof, origin=Origin.FRESH, best=("tf32", "compile")):
        worth = (
            Contribution("tf32", True, 1.1, origin=origin),
            Contribution("compile", True, 1.2, 1.1, 1.3),
        )
        return proven(ended(), dict.fromkeys(best, True), worth, proof).contributions

    def test_the_interval_is_as_wide_as_runs_differ(self):
        quiet, _ = self.contributions(self.proof(10.0, 10.01, 9.99, 10.0))
        loud, _ = self.contributions(self.proof(10.0, 10.5, 9.5, 10.0))
        assert 1.0 < quiet.low < 1.1 < quiet.high < 1.2
        assert loud.low < 1.0 < 1.2 < loud.high

    def test_what_has_its_own_interval_keeps_it(self):
        _, own = self.contributions(self.proof(10.0, 10.5))
        assert (own.low, own.high) == (1.1, 1.3)

    def test_a_guess_gets_none(self):
        for origin in (Origin.SEARCH, Origin.LOADER, Origin.LIVE):
            guess, _ = self.contributions(self.proof(10.0, 10.01), origin)
            assert (guess.low, guess.origin) == (None, origin)

    def test_what_stood_beside_more_than_was_proven_was_not_measured(self):
        found = self.contributions(self.proof(10.0, 10.01), best=("compile", "other"))
        assert found == (Contribution("compile", True, 1.2, origin=Origin.SEARCH),)

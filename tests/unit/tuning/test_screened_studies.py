"""Studies that begin with a screening in one running script, which is only simulated."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gpuadvisor.domain.knobs import Contribution
from gpuadvisor.domain.screening import Ratio, Screened, ScreenedAs, ScreeningResult
from gpuadvisor.domain.study import Expectation, Objective, TrialState
from gpuadvisor.errors import Interrupted, ScriptError
from gpuadvisor.reports.study import wording
from gpuadvisor.reports.study.document import study_markdown
from gpuadvisor.storage.database import open_store
from gpuadvisor.tuners.knob_space import KnobSpace
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuners.space import Parameter, Space
from gpuadvisor.tuning import study
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
from gpuadvisor.tuning.expectations import with_measured
from gpuadvisor.tuning.live import screening, search_start
from gpuadvisor.tuning.trials import forking, trial_runner
from gpuadvisor.tuning.trials.trial_runner import Silent
from tests import simulation
from tests.live_simulation import LiveScript
from tests.studies import study as finished_study
from tests.unit.tuning.test_study import script, tune

__all__ = ["script"]

LIVE = ("tf32", "channels_last", "cudnn_benchmark")
TEN_MINUTES = BudgetLimit(seconds=600.0)


class Live:
    """Stands for `run_live`: a process of the simulated script whose knobs are turned."""

    def __init__(self, script):
        self.script = script
        self.requests = []
        self.raises = None
        self.fails = self.idle = frozenset()
        self.knobs = {}

    def run(self, request, live, wanted):
        self.requests.append(request)
        self.knobs = live
        if self.raises is not None:
            raise self.raises
        noise = simulation.gaussian(random.Random(1), 0.002, 0.0)
        running = LiveScript(self._step_ms, noise, idle=self.idle)
        blocks = next(wanted)
        while True:
            try:
                blocks = wanted.send([running.run(block) for block in blocks])
            except StopIteration as end:
                return end.value

    def _step_ms(self, settings):
        if self.fails & set(settings):
            return "RuntimeError: not in a running script"
        return simulation.multiplied(self.script.gains)(settings)


@pytest.fixture
def live(script, monkeypatch):
    made = Live(script)
    for name in LIVE:
        monkeypatch.setattr(type(load_knobs()[name]), "live", lambda self, target: None)
    monkeypatch.setattr(screening, "run_live", made.run)
    return made


def searched(result):
    return [dict(trial.settings) for trial in result.trials if trial.phase == "search"]


def states(result):
    return {each.knob: str(each.state) for each in result.screened}


BEST = {"tf32": True, "channels_last": True}


def test_the_first_trial_is_the_screened_best_and_the_worthless_are_not_tried(live, on_disk):
    result = tune(budget=TEN_MINUTES)
    assert searched(result)[0] == BEST
    assert all("cudnn_benchmark" not in settings for settings in searched(result))
    assert states(result) == {
        "tf32": "kept",
        "channels_last": "kept",
        "cudnn_benchmark": "worthless",
    }
    assert (result.verdict, result.settings) == ("faster", BEST)
    assert result.speedup.ratio == pytest.approx(1.8, rel=0.01)
    assert result.untried == {}
    with open_store() as store:
        assert store.load_study("train-1").screened == result.screened
    later = {each.knob: each.later and str(each.later) for each in result.screened}
    assert set(later.values()) == {None}  # of each alone, fresh processes said nothing


class Imported:
    """Stands for a process that has imported what the script does, of which runs are forked."""

    import_s = 60.0

    def serves(self, start):
        return True

    def close(self):
        pass


def test_the_script_is_forked_where_trials_are(live, monkeypatch):
    run, process = trial_runner.run_script, Imported()

    def run_script(request, *meters):
        forked = request.template is process
        return replace(run(request, *meters), forked=forked, torch_s=process.import_s)

    monkeypatch.setattr(trial_runner, "run_script", run_script)
    monkeypatch.setattr(forking, "start_template", lambda request, imports, begun: process)
    assert tune(budget=TEN_MINUTES).settings == BEST
    assert [request.template for request in live.requests] == [process]


def test_what_was_measured_live_beside_all_else_is_not_ablated_and_labelled(live):
    result = tune(budget=TEN_MINUTES)
    assert not [trial for trial in result.trials if trial.phase == "ablation"]
    tf32, layout = result.contributions
    assert (tf32.knob, layout.knob) == ("tf32", "channels_last")
    assert {str(each.origin) for each in result.contributions} == {"one_process"}
    assert tf32.low < 1.5 < tf32.high and layout.low < 1.2 < layout.high
    report = study_markdown(result)
    assert "Of single knobs, nothing is proven but what processes of their own show." in report
    assert "one process, no proof" in report
    each = Expectation("rule", "warning", "words", 5.0, 10.0, ("tf32",))
    assert with_measured([each], result)[0].measured_pct is None
    found = with_measured([each], result)[0]
    assert "one running process only" in found.why
    (beside,) = [each.beside for each in result.screened if each.knob == "tf32"]
    value, low, high = found.screened_pct
    left = 1.0 / (1.2 if "channels_last" in beside else 1.0)
    assert low <= value <= high
    assert value == pytest.approx(100 * left * (1 - 1 / 1.5), abs=1)
    assert wording.expectation_rows(replace(result, expectations=(found,)))[0][2].endswith(
        "with tf32 in one running process, no proof; not measured: tf32: compared in one running"
        " process only, which is no proof"
    )


def test_a_gain_of_the_screening_alone_is_none(live, script):
    """In fresh processes the knobs bring nothing: that counts."""
    script_gains, script.gains = script.gains, {}
    live.script = type("", (), {"gains": script_gains})
    result = tune(budget=TEN_MINUTES)
    assert result.verdict == "no_gain"
    later = {str(each.later) for each in result.screened if each.knob in result.settings}
    assert later == {"refuted"}
    assert searched(result)[0] == BEST
    assert {name for settings in searched(result)[1:] for name in settings} >= set(BEST)


def test_where_all_is_worthless_what_looks_best_is_tried_and_proven_to_be_none(live, script):
    script.gains = {}
    result = tune(budget=TEN_MINUTES)
    assert result.verdict == "no_gain"
    assert len(searched(result)) == 1
    assert result.untried == {}
    assert result.speedup.ci99_high < 1.03
    spared = "; 2 other knobs were worth less than 1 % in one running process"
    assert wording.reason(result).endswith(spared)


def test_what_is_wrong_in_a_trial_brings_back_what_was_worthless_beside_it(live, script):
    script.gains = {"tf32": 1.5, "channels_last": 1.0}
    found = tune(budget=TEN_MINUTES, only=frozenset({"tf32", "channels_last"}))
    assert {name for each in searched(found) for name in each} == {"tf32"}

    def only_together(settings):
        if "tf32" in settings:
            return 50.0
        return 95.0 if "channels_last" in settings else 100.0

    live._step_ms = only_together
    script.fail = lambda names, run: TrialState.WRONG if "tf32" in names else None
    found = tune(budget=TEN_MINUTES, only=frozenset({"tf32", "channels_last"}), study="second")
    layout = next(each for each in found.screened if each.knob == "channels_last")
    assert (layout.state, dict(layout.beside)) == (ScreenedAs.WORTHLESS, {"tf32": True})
    assert {"channels_last": True} in searched(found)


def test_what_fails_in_a_running_script_is_tried_in_fresh_ones(live):
    live.fails = {"tf32"}
    result = tune(budget=TEN_MINUTES)
    assert states(result)["tf32"] == "failed"
    assert searched(result)[0] == {"channels_last": True}
    assert result.settings == BEST


def test_what_was_timed_is_tried_in_the_order_of_what_it_brought():
    def parameter(name, *values):
        return Parameter(name, values or (True,))

    def timed(name, ratio, value=True):
        known = Ratio(ratio, ratio - 0.02, ratio + 0.02, 16)
        return Screened(name, value, ScreenedAs.UNRESOLVED, known)

    space = Space(
        (parameter("a"), parameter("workers", 2, 4), parameter("b", "x", "y"), parameter("c"))
    )
    values = (timed("a", 0.99), timed("b", 1.01, "x"), timed("b", 1.02, "y"), timed("c", 1.05))
    found = search_start.Screening(space, ScreeningResult(values)).left({})
    assert [each.name for each in found.parameters] == ["c", "workers", "b", "a"]
    assert found["b"].values == ("y", "x")
    assert found["workers"].values == (2, 4)


def test_of_the_computing_it_brings_less_to_a_step_that_waits():
    known = (Contribution("a", True, 1.4, 1.38, 1.42),)
    of_step = search_start.Screening(Space(), ScreeningResult(contributions=known))
    assert of_step.contributions(0.5) == list(known)
    of_computing = replace(of_step, result=replace(of_step.result, of_computing=True))
    (found,) = of_computing.contributions(0.25)
    # 100 ms of which 25 are waiting: without it 105 ms of computing, if nothing is waited for then.
    assert (found.ratio, found.low) == (pytest.approx(1.05), pytest.approx(1.035))
    assert of_computing.brought == {}


def test_what_found_nothing_to_change_is_told_and_not_tried(live):
    live.idle = frozenset({"cudnn_benchmark"})
    result = tune(budget=TEN_MINUTES)
    assert states(result)["cudnn_benchmark"] == "no_effect"
    assert all("cudnn_benchmark" not in settings for settings in searched(result))
    assert result.no_effect["cudnn_benchmark"] == "it found nothing to change in this script"
    assert result.untried == {}


def test_knobs_that_are_not_live_are_tried_on_top(live, monkeypatch):
    monkeypatch.delattr(type(load_knobs()["channels_last"]), "live")
    result = tune(budget=TEN_MINUTES)
    assert list(live.knobs) == ["tf32", "cudnn_benchmark"]
    assert live.knobs["tf32"] == "gpuadvisor.tuners.knobs.tf32:KNOB"
    assert searched(result)[:2] == [{"tf32": True}, BEST]
    assert result.settings == BEST
    # Without the layout, which was not there, it was measured; beside it, it was not.
    assert {str(each.origin) for each in result.contributions} == {"fresh_runs"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"budget": BudgetLimit(trials=30)}, "the budget is in trials"),
        ({"budget": BudgetLimit(seconds=90.0)}, "the budget has room for 18 s of it"),
        ({"budget": TEN_MINUTES, "objective": Objective.MEMORY}, "the objective is memory"),
    ],
)
def test_where_there_is_none_it_says_why(live, options, why):
    heard = []

    class Hearing(Silent):
        def on_message(self, sentence):
            heard.append(sentence)

    result = tune(progress=Hearing(), **options)
    assert not live.requests
    assert any(why in each for each in heard)
    assert result.screened == ()
    assert {name for settings in searched(result) for name in settings} == set(LIVE)


def test_a_script_without_enough_steps_is_searched_as_without_a_screening(live):
    live.raises = ScriptError("the script ends before 7 steps follow each other")
    result = tune(budget=TEN_MINUTES)
    assert result.settings == BEST
    assert any("before 7 steps" in note for note in result.notes)


def test_a_study_that_ends_there_has_shown_nothing(live):
    live.raises = Interrupted("interrupted")
    result = tune(budget=TEN_MINUTES)
    assert (result.verdict, result.interrupted) == ("not_tried", "interrupted")


def test_a_resumed_study_is_screened_again(live):
    live.raises = Interrupted("interrupted")
    tune(budget=TEN_MINUTES)
    live.raises = None
    result = tune(budget=TEN_MINUTES, resume=True)
    assert len(live.requests) == 2
    assert searched(result)[0] == BEST


def test_each_value_is_told_and_reported(live):
    heard = []

    class Hearing(Silent):
        def on_screened(self, screened):
            heard.append(screened.knob)

    result = tune(budget=TEN_MINUTES, progress=Hearing())
    assert set(heard) == set(LIVE)
    report = study_markdown(result)
    assert "Screened in one running process" in report
    _, _, table = report.partition("Screened in one running process")
    row = next(line for line in table.splitlines() if "cudnn_benchmark" in line)
    assert row.endswith(r"| tf32, channels\_last | worth less than 1 % |")


def test_an_expectation_tells_what_was_screened(live):
    result = tune(budget=TEN_MINUTES)
    each = Expectation("rule", "warning", "words", 5.0, 10.0, ("cudnn_benchmark",))
    told = with_measured([each], result)[0].why
    assert told.startswith("cudnn_benchmark: worth less than 1 % in one running process")
    nothing = with_measured([each], replace(result, screened=()))[0]
    assert nothing.why == "none of its knobs was tried to its end"


@pytest.mark.parametrize("computing_ms, share", [(None, 1.0), (40.0, 0.5), (100.0, 1.0)])
def test_what_was_compared_on_one_batch_is_told_of_the_whole_step(computing_ms, share):
    """A speaker network on an H200: 96 of 108 ms were computed on a batch that is there already."""
    compared = Screened("tf32", True, ScreenedAs.KEPT, Ratio(2.0, 1.6, 2.5, 3), of_computing=True)
    result = finished_study(
        baseline=simulation.measurement([80.0] * 8),
        computing_ms=computing_ms,
        screened=(compared,),
        contributions=(),
        settings={},
        speedup=None,
    )
    each = Expectation("rule", "warning", "words", 5.0, 10.0, ("tf32",))
    (found,) = with_measured([each], result)
    assert found.screened_pct == pytest.approx([share * 100 * (1 - 1 / r) for r in (2, 1.6, 2.5)])
    assert found.screened_of_computing


def grown(*values):
    """A screening that kept the last of these batch sizes."""
    ratio = Ratio(2.0, 1.8, 2.2, 3)
    states = [ScreenedAs.GAINS] * (len(values) - 1) + [ScreenedAs.KEPT]
    found = [Screened("batch_size", v, s, ratio) for v, s in zip(values, states, strict=True)]
    space = Space(
        (Parameter("batch_size", (2, 4, 8, 16), progressive=True), Parameter("tf32", (True,)))
    )
    result = ScreeningResult(tuple(found), {"batch_size": values[-1], "tf32": True})
    return search_start.Screening(space, result)


def test_smaller_batches_are_not_tried_where_a_larger_one_stands():
    begins = grown(2, 4, 8)
    assert begins.left({"batch_size": 8})["batch_size"].values == (8, 16)
    assert begins.left({})["batch_size"].values == (2, 4, 8, 16)


def test_a_batch_that_fits_no_fresh_process_leaves_room_for_a_smaller_one():
    assert grown(2, 4, 8).starts() == [
        {"batch_size": 8, "tf32": True},
        {"batch_size": 4, "tf32": True},
        {"tf32": True},
    ]
    assert grown(2).starts() == [{"batch_size": 2, "tf32": True}, {"tf32": True}]
    assert search_start.Screening().starts() == []


@pytest.mark.parametrize("fits", [8, 4, 0])
def test_a_study_begins_with_the_largest_batch_that_fits(live, script, monkeypatch, fits):
    monkeypatch.setattr(screening.Screener, "screening", lambda *_: grown(2, 4, 8))
    monkeypatch.setattr(study, "select_knobs", lambda *_: KnobSpace(grown(2, 4, 8).space, {}))

    def fail(names, run):
        sizes = [each.value for each in script.requests[-1].specification.applications
                 if each.knob == "batch_size"]  # fmt: skip
        return TrialState.OUT_OF_MEMORY if max(sizes, default=0) > fits else None

    script.fail = fail
    script.gains = {"batch_size": 2.0, "tf32": 1.2}
    result = tune(budget=TEN_MINUTES, only=frozenset({"batch_size", "tf32"}))
    begun = [trial for trial in result.trials if trial.phase == "search"]
    sizes = [trial.settings.get("batch_size", 0) for trial in begun]
    tried = [size for size in (8, 4, 0) if size >= fits]
    assert sizes[: len(tried)] == tried
    assert str(begun[len(tried) - 1].state) != "out_of_memory"

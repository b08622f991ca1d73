"""Studies of a script that waits for its loader, which is only simulated, as is the script."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace

import pytest

from gpuadvisor.domain.knobs import AppliedKnob, LoaderFacts, ScriptFacts
from gpuadvisor.domain.measurement import StepWindow, Trace
from gpuadvisor.domain.screening import BlockTime
from gpuadvisor.domain.study import TrialState
from gpuadvisor.errors import Interrupted, ScriptError
from gpuadvisor.reports.study.document import study_markdown
from gpuadvisor.storage.database import open_store
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
from gpuadvisor.tuning.live import screening, supply_timer
from gpuadvisor.tuning.trials import trial_runner
from gpuadvisor.tuning.trials.trial_runner import Silent
from tests.live_simulation import LiveScript
from tests.simulation import measurement
from tests.unit.tuning.test_screened_studies import searched
from tests.unit.tuning.test_study import RunOutcome, script, tune

__all__ = ["script"]

TEN_MINUTES = BudgetLimit(seconds=600.0)
ONLY = frozenset({"dataloader_workers", "tf32"})
BATCH_MS = 100.0


class Waiting:
    """A script whose step is computed in `rest_ms` and whose loader waits for storage."""

    def __init__(self):
        self.rest_ms = 20.0
        self.device, self.disturbance = "cuda", ""
        self.brings = {"tf32": 1.5}
        self.iterable = False
        self.asked, self.requests, self.screenings = [], [], []
        self.raises = None
        self.cached_ms = self.computing_ms
        """A step with the batch that is there already, or why there is none."""

    def computing_ms(self, settings):
        return self.rest_ms / math.prod(self.brings.get(name, 1.0) for name in settings)

    def step_ms(self, settings):
        rest_ms = self.computing_ms(settings)
        workers = settings.get("dataloader_workers", 0)
        return max(rest_ms, BATCH_MS / workers) if workers else rest_ms + BATCH_MS

    def run(self, request, read_energy_j, load):
        settings = {each.knob: each.value for each in request.specification.applications}
        ms = self.step_ms(settings)
        wait_s = (ms - self.computing_ms(settings)) / 1e3
        loader = LoaderFacts(32, settings.get("dataloader_workers", 0), False, False, None)
        measured = measurement(
            [ms] * 8,
            windows=(StepWindow(10, ms / 100, 320.0, 10 * wait_s),) * 8,
            facts=ScriptFacts(
                device=self.device,
                roots=("Net",),
                has_convolution=True,
                optimizers=("SGD",),
                loaders=(LoaderFacts(32, 0, False, False, None, iterable=self.iterable),)
                if "dataloader_workers" not in settings
                else (loader,),
            ),
            trace=Trace((1.0, 0.9, 0.8)),
            applied=tuple(AppliedKnob(name, "effective") for name in settings),
        )
        return RunOutcome(TrialState.COMPLETE, "", measured, "", 1.0, disturbance=self.disturbance)

    def supply(self, request, loader, wanted):
        self.requests.append(request)
        if self.raises is not None:
            raise self.raises
        blocks = next(wanted)
        while True:
            self.asked += [dict(block.settings) for block in blocks]
            times = [self._block(block.settings["dataloader_workers"]) for block in blocks]
            try:
                blocks = wanted.send(times)
            except StopIteration as end:
                return end.value

    def _block(self, workers):
        batch_ms = BATCH_MS / max(1, workers)
        return BlockTime(batch_ms, math.ceil(500 / batch_ms))

    def _live_ms(self, settings):
        return self.cached_ms(settings) if "cached_batch" in settings else self.step_ms(settings)

    def live(self, request, live, wanted):
        fixed = {each.knob: each.value for each in request.specification.applications}
        self.screenings.append(fixed)
        running = LiveScript(lambda settings: self._live_ms({**fixed, **settings}))
        blocks = next(wanted)
        while True:
            try:
                blocks = wanted.send([running.run(block) for block in blocks])
            except StopIteration as end:
                return end.value


@pytest.fixture
def waiting(script, monkeypatch):
    made = Waiting()
    monkeypatch.setattr(trial_runner, "run_script", made.run)
    monkeypatch.setattr(supply_timer, "run_supply", made.supply)
    monkeypatch.setattr(type(load_knobs()["tf32"]), "live", lambda self, target: None)
    monkeypatch.setattr(screening, "run_live", made.live)
    return made


def test_the_first_trial_has_the_workers_that_keep_up_and_what_waiting_would_have_hidden(
    waiting, on_disk
):
    result = tune(budget=TEN_MINUTES, only=ONLY)
    workers = [each["dataloader_workers"] for each in waiting.asked]
    assert sorted(set(workers)) == [2, 4, 8, 15]  # 15 supply faster than can be used
    assert waiting.screenings == [{}]
    assert searched(result)[0] == {"dataloader_workers": 8, "tf32": True}
    tried = {each.get("dataloader_workers") for each in searched(result)} - {None}
    assert tried <= {8, 15}
    assert result.verdict == "faster"
    assert result.settings["tf32"] is True
    tf32 = next(each for each in result.screened if each.knob == "tf32")
    assert (str(tf32.state), dict(tf32.beside), tf32.of_computing) == ("kept", {}, True)
    assert tf32.ratio.ratio == pytest.approx(1.5)
    untried = {name: why for name, why in result.untried.items() if "workers" in name}
    why = "the loader alone suggests a step of 50 ms, and 13.3 ms with 8"
    assert untried["dataloader_workers=2"] == why
    with open_store() as store:
        assert store.load_study("train-1").supply == result.supply


def test_workers_without_which_the_first_trial_could_not_be_need_no_ablation(waiting):
    result = tune(budget=TEN_MINUTES, only=ONLY)
    assert not [trial for trial in result.trials if trial.phase == "ablation"]
    worth = {each.knob: each for each in result.contributions}
    assert worth.keys() == ONLY
    workers = worth["dataloader_workers"]
    assert math.isnan(workers.ratio)
    assert (workers.low, str(workers.origin)) == (None, "loader_alone")
    assert re.search(
        r"dataloader_workers=8.*not measured.*the loader alone", study_markdown(result)
    )


def test_workers_that_brought_less_than_promised_are_ablated(waiting, monkeypatch):
    """In fresh processes, workers take the time that they save."""
    plain = waiting.step_ms

    def step_ms(settings):
        slow = 7.0 if "dataloader_workers" in settings else 1.0
        return plain(settings) * slow

    monkeypatch.setattr(waiting, "step_ms", step_ms)
    result = tune(budget=TEN_MINUTES, only=ONLY)
    assert any(trial.phase == "ablation" for trial in result.trials)
    assert "loader_alone" not in {str(each.origin) for each in result.contributions}


def test_the_report_says_that_no_gain_rests_on_it(waiting):
    result = tune(budget=TEN_MINUTES, only=ONLY)
    report = study_markdown(result)
    _, _, section = report.partition("The loader alone")
    assert "no gain rests on it" in section
    row = next(line for line in section.splitlines() if "dataloader\\_workers=4" in line
               or "dataloader_workers=4" in line)  # fmt: skip
    assert "25" in row
    assert "takes 13.3 ms with what was screened best" in section
    _, _, section = report.partition("Screened in one running process")
    assert "worth less to a step that waits for its loader" in section
    row = next(line for line in section.splitlines() if "tf32" in line)
    assert "| the computing |" in row


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"budget": BudgetLimit(trials=30)}, "the budget is in trials"),
        ({"budget": BudgetLimit(seconds=45.0)}, "the budget has"),
    ],
)
def test_where_there_is_no_room_the_workers_are_tried(waiting, change, why):
    heard = []
    hearing = SimpleNamespace(on_message=heard.append)

    class Hearing(Silent):
        on_message = hearing.on_message

    result = tune(**{"budget": TEN_MINUTES, "only": ONLY, **change}, progress=Hearing())
    assert not waiting.asked
    assert any(each.startswith("the loader was not timed alone") and why in each for each in heard)
    assert result.supply is None


def test_a_loader_that_is_not_waited_for_is_left_alone(waiting):
    waiting.rest_ms = 2000.0
    result = tune(budget=TEN_MINUTES, only=ONLY)
    assert not waiting.asked
    assert result.supply is None


def test_a_stream_is_not_timed_as_more_workers_would_repeat_it(waiting):
    waiting.iterable = True
    tune(budget=TEN_MINUTES, only=ONLY)
    assert not waiting.asked


def test_a_script_that_cannot_be_timed_alone_is_searched_as_before(waiting):
    waiting.raises = ScriptError("it has no network there")
    result = tune(budget=TEN_MINUTES, only=ONLY)
    assert result.supply is None
    assert waiting.screenings == [{}]
    assert result.settings["dataloader_workers"] in (8, 15)
    waiting.raises = Interrupted("interrupted")  # as it took too long
    assert tune(budget=TEN_MINUTES, only=ONLY, study="second").supply is None


def test_it_runs_in_a_private_view(waiting):
    tune(budget=TEN_MINUTES, only=ONLY)
    (request,) = waiting.requests
    assert request.scratch == (supply_timer.unavailable() is None)


def test_computing_that_is_faster_needs_more_workers(waiting):
    waiting.rest_ms = 25.0
    result = tune(budget=TEN_MINUTES, only=frozenset({"dataloader_workers"}))
    assert result.supply.settings == {"dataloader_workers": 4}
    result = tune(budget=TEN_MINUTES, only=ONLY, study="second")
    assert searched(result)[0] == {"dataloader_workers": 8, "tf32": True}
    assert result.supply.settings == {"dataloader_workers": 8}
    assert result.supply.rest_ms == pytest.approx(25.0)
    assert result.supply.best_rest_ms == pytest.approx(25 / 1.5)


def test_where_a_batch_cannot_be_given_again_knobs_are_screened_beside_the_workers(waiting):
    waiting.cached_ms = lambda settings: "its batches hold a Data"
    heard = []

    class Hearing(Silent):
        def on_message(self, sentence):
            heard.append(sentence)

    result = tune(budget=TEN_MINUTES, only=ONLY, progress=Hearing())
    assert "the computing cannot be timed without the loader: its batches hold a Data" in heard
    assert waiting.screenings == [{}, {"dataloader_workers": 8}]
    (tf32,) = result.screened
    assert (dict(tf32.beside), tf32.of_computing) == ({"dataloader_workers": 8}, False)
    assert searched(result)[0] == {"dataloader_workers": 8, "tf32": True}
    assert result.supply.best_rest_ms is None


THREADS = frozenset({"dataloader_workers", "cpu_threads"})


def test_threads_are_screened_on_the_batch_that_is_there(waiting):
    waiting.device, waiting.brings = "cpu", {"cpu_threads": 3.0}
    result = tune(budget=TEN_MINUTES, only=THREADS)
    kept = next(each for each in result.screened if each.knob == "cpu_threads")
    assert (str(kept.state), kept.value, kept.of_computing) == ("kept", 1, True)
    assert searched(result)[0].keys() == THREADS


def test_threads_are_not_ruled_out_where_no_batch_is_made(waiting):
    """The workers may need the cores that they leave."""
    waiting.device, waiting.brings = "cpu", {"cpu_threads": 1.001}
    result = tune(budget=TEN_MINUTES, only=THREADS)
    assert not [each for each in result.screened if each.knob == "cpu_threads"]
    assert any("cpu_threads" in each for each in searched(result))


@pytest.mark.parametrize(
    ("device", "disturbance", "rest_ms", "first"),
    [
        ("cpu", "others used 1.7 of 2 CPU cores, and none was idle", 300.0, "cpu_threads"),
        ("cpu", "", 300.0, "dataloader_workers"),
        ("cpu", "others used 1.7 of 2 CPU cores, and none was idle", 20.0, "dataloader_workers"),
    ],
)
def test_threads_come_first_where_others_use_the_cores_and_the_loader_does_not_decide(
    waiting, device, disturbance, rest_ms, first
):
    waiting.device, waiting.disturbance, waiting.rest_ms = device, disturbance, rest_ms
    waiting.brings = {"cpu_threads": 3.0}
    result = tune(budget=BudgetLimit(trials=1), only=THREADS)
    assert [list(each) for each in searched(result)] == [[first]]


def test_arguments_that_the_user_named_come_before_threads(waiting):
    waiting.device, waiting.disturbance, waiting.rest_ms = "cpu", "others used 1.7 cores", 300.0
    asked = {"arguments": {"batch-size": ("64",)}, "only": THREADS}
    result = tune(budget=BudgetLimit(trials=1), **asked)
    assert [list(each) for each in searched(result)] == [["arg:batch-size"]]


def test_what_waiting_costs_decides_what_else_is_tried(waiting):
    waiting.cached_ms = lambda settings: waiting.step_ms(settings) / 1.001
    result = tune(budget=TEN_MINUTES, only=ONLY)
    assert any("are worth about 1.00x here, at most 1.00x" in note for note in result.notes)
    ruled_out = [each for each in result.screened if each.knob == "dataloader_workers"]
    assert {(str(each.state), each.of_computing) for each in ruled_out} == {("worthless", False)}
    assert {each.knob for each in ruled_out if each.beside == {"tf32": True}}
    tried = {each.get("dataloader_workers") for each in searched(result)}
    assert 15 not in tried
    waiting.cached_ms = lambda settings: waiting.step_ms(settings) / 1.5
    result = tune(budget=TEN_MINUTES, only=ONLY, study="second")
    assert any("worth about 1.50x here, at most 1.50x" in note for note in result.notes)
    assert all(each.knob != "dataloader_workers" for each in result.screened)

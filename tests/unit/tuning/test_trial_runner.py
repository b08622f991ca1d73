"""Any two sides can be run and compared: settings of one command, or two commands."""

import random
from dataclasses import replace

import pytest

from gpuadvisor.collectors.script.request import Command, RunOutcome
from gpuadvisor.collectors.script.specification import Schedule
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.measurement import Trace
from gpuadvisor.domain.study import Objective, TrialState
from gpuadvisor.errors import Interrupted
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuners.proof import is_faster, prove
from gpuadvisor.tuning.trials import trial_runner
from gpuadvisor.tuning.trials.trial_runner import Side, Silent, TrialRunner, limits_for
from gpuadvisor.tuning.trials.validator import TrialValidator
from tests import simulation

GPU = Device("cuda", 0, "H100", memory_bytes=80 << 30, compute_capability=(9, 0), cores=16)
BASE = Side(Command("/old/bin/python", "train.py", ("--steps", "9"), folder="/base"), GPU)
HEAD = Side(
    Command("/new/bin/python", "package.train", is_module=True, folder="/head"),
    replace(GPU, index=1),
    {"allocator": "expandable_segments"},
    {"NCCL_DEBUG": "WARN"},
    (0, 1),
)


class Scripts:
    """Stands for the processes: each script's steps take as long as `step_ms` says."""

    def __init__(self):
        self.step_ms = {"train.py": 20.0, "package.train": 16.0}
        self.losses = {}
        self.requests = []
        self._noise = simulation.gaussian(random.Random(1))

    def run(self, request, read_energy_j, load):
        self.requests.append(request)
        script = request.command.script
        if script not in self.step_ms:
            return RunOutcome(TrialState.CRASHED, "it failed", None, "output", 1.0, "a.py, line 3")
        losses = self.losses.get(script, (1.0, 0.9, 0.8))
        windows = [self.step_ms[script] * each for each in next(self._noise)]
        measured = simulation.measurement(windows, trace=Trace(losses))
        return RunOutcome(TrialState.COMPLETE, "", measured, "", 1.0)


@pytest.fixture
def scripts(monkeypatch):
    made = Scripts()
    monkeypatch.setattr(trial_runner, "run_script", made.run)
    return made


def runner(**options):
    knobs = load_knobs()
    validator = TrialValidator(Objective.THROUGHPUT, Level.BALANCED, None, knobs)
    return TrialRunner(knobs, validator, Schedule(measure_s=2.0), **options)


def test_a_side_says_all_that_its_process_gets(scripts):
    made = runner(seed=3)
    made.run(BASE, "proof")
    made.run(HEAD, "proof")
    base, head = scripts.requests
    assert (base.command, base.device, base.environment) == (BASE.command, GPU, {})
    assert (base.specification.applications, base.specification.cores) == ((), ())
    assert (head.command, head.device.index) == (HEAD.command, 1)
    assert head.specification.cores == (0, 1)
    assert [each.knob for each in head.specification.applications] == ["allocator"]
    assert head.environment["NCCL_DEBUG"] == "WARN"
    assert "expandable_segments:True" in head.environment["PYTORCH_CUDA_ALLOC_CONF"]
    assert base.specification.seed == head.specification.seed == 3
    assert base.specification.schedule.measure_s == 2.0


def test_every_run_of_a_study_in_scratch_has_a_private_view(scripts):
    made = runner(scratch=True)
    made.run(BASE, "baseline")
    made.run(HEAD, "proof")
    assert [request.scratch for request in scripts.requests] == [True, True]


def test_what_is_read_is_looked_for_where_it_is_asked(scripts):
    made = runner()
    made.run(BASE, "baseline", reads_since=1000.0)
    made.run(BASE, "baseline")
    between = [request.specification.reads_between for request in scripts.requests]
    assert between[0][0] == 1000.0 < between[0][1]
    assert between[1] is None


def test_arguments_of_a_plan_replace_those_of_the_command(scripts):
    made = runner()
    made.run(BASE, "baseline")
    made.run(replace(BASE, settings={"arg:steps": "20"}), "proof")
    assert scripts.requests[1].command.args == ("--steps", "20")


def test_a_gate_compares_two_commands(scripts):
    """Base and head are two scripts under two interpreters in two folders; no study is there."""
    trials = []
    made = runner(record=trials.append)
    proof = prove(lambda side: made.run(side, "proof")[0], BASE, HEAD, Objective.THROUGHPUT)
    assert is_faster(proof.speedup)
    assert proof.speedup.ratio == pytest.approx(1.25, rel=0.01)
    assert [trial.number for trial in trials] == list(range(len(trials)))
    assert {trial.gpu for trial in proof.head} == {1}
    started = [request.command.script for request in scripts.requests[:4]]
    assert set(started) == {"train.py", "package.train"}


def test_a_side_that_fails_is_named_with_its_reason(scripts):
    del scripts.step_ms["package.train"]
    made = runner()
    proof = prove(lambda side: made.run(side, "proof")[0], BASE, HEAD, Objective.THROUGHPUT)
    assert proof.speedup is None
    assert proof.failed in proof.head
    assert (proof.failed.state, proof.failed.reason) == (
        TrialState.CRASHED,
        "it failed (a.py, line 3)",
    )


def test_results_of_a_side_are_checked_against_the_baseline(scripts):
    made = runner()
    first, _ = made.run(BASE, "baseline")
    made.validator.comparison.calibrate([first.measurement.trace] * 2)
    scripts.losses["package.train"] = (1.0, 2.0, 3.0)
    trial, outcome = made.run(HEAD, "proof")
    assert (trial.state, trial.equivalence.status) == (TrialState.WRONG, "wrong")
    assert outcome.state is TrialState.COMPLETE  # its process did end well


def test_progress_hears_of_each_run(scripts):
    starts = []

    class Heard(Silent):
        def on_trial_start(self, number, settings, phase):
            starts.append((number, dict(settings), phase))

    made = runner(progress=Heard())
    made.start_numbers_at(5)
    made.run(BASE, "baseline")
    made.run(HEAD, "search")
    assert starts == [(5, {}, "baseline"), (6, dict(HEAD.settings), "search")]


def test_a_run_that_was_cancelled_is_no_trial(scripts):
    trials = []
    with pytest.raises(Interrupted):
        runner(cancelled=lambda: True, record=trials.append).run(BASE, "proof")
    assert trials == []


@pytest.mark.parametrize(
    ("torch", "words"),
    [
        (
            None,
            "in 20 s, nor torch imported: without, the run is given up after 120 s; "
            "`gpuadvisor.step()` marks steps of its own kind",
        ),
        (
            "2.7.1",
            "in 20 s, though torch is imported: the run is given up after 120 s; "
            "`gpuadvisor.step()` marks steps of its own kind",
        ),
    ],
)
def test_a_first_step_that_takes_long_is_told(scripts, torch, words):
    said = []

    class Heard(Silent):
        def on_message(self, sentence):
            said.append(sentence)

    made = runner(progress=Heard())
    del scripts.step_ms["train.py"]  # it fails, so that the next run is the first once more
    made.run(BASE, "baseline")
    waiting = {"event": "waiting", "seconds": 20.1, "torch": torch, "limit_s": 120.0}
    scripts.requests[0].on_event(waiting)
    scripts.requests[0].on_event({"event": "few_steps", "seconds": 20.1})
    assert said == [
        f"no step was seen {words}",
        "its steps have begun, and after 20 s there are too few to tell what one takes: they are "
        "long, or it compiles or evaluates between them",
    ]
    scripts.step_ms["train.py"] = 20.0
    made.run(BASE, "baseline")
    scripts.requests[1].on_event(waiting)  # that it has steps is known now
    assert len(said) == 2


def test_the_first_run_is_waited_for_as_long_as_the_budget_lasts(scripts):
    made = runner(timeout_s=600.0, room_s=lambda settings: 90.0)
    made.run(BASE, "baseline")
    made.run(BASE, "baseline")  # from now on, the first one says what is too long
    first, second = (request.limits for request in scripts.requests)
    assert (first.startup_s, first.total_s, first.room_s, first.import_s) == (90, 90, 90, 120)
    assert second.startup_s > 60 and second.room_s > 1e6
    made.room_s = lambda settings: None
    made.run(BASE, "proof")
    second = scripts.requests[-1].limits
    made.schedule = Schedule(measure_s=900.0)
    made.run(BASE, "proof")
    assert scripts.requests[-1].limits.total_s > second.total_s + 800
    unlimited = limits_for({}, {}, None, 600.0)
    assert (unlimited.startup_s, unlimited.import_s) == (600, 120)

"""Whether a script depends on being forked is decided by what a forked run of it does."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from gpuadvisor.collectors.script.request import Command, RunOutcome
from gpuadvisor.collectors.script.run_folder import PREFIX
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Level, LoaderFacts, ScriptFacts
from gpuadvisor.domain.measurement import OutputSample, Trace
from gpuadvisor.domain.study import Objective, Trial, TrialState
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.trials import forking, trial_runner
from gpuadvisor.tuning.trials.baselines import Baselines
from gpuadvisor.tuning.trials.forking import Forker, difference
from gpuadvisor.tuning.trials.trial_runner import Side, Silent, TrialRunner
from gpuadvisor.tuning.trials.validator import TrialValidator
from tests import simulation

FACTS = ScriptFacts(training=True, data_wait_share=0.1)
PRINTED = "torch is here\nloss 0.5\n0.91 s\ncut of"
SIDE = Side(Command("python", "train.py"), Device("cpu", 0, "cpu"))


def run(step_ms=10.0, losses=(1.0, 0.5, float("nan")), printed=PRINTED, facts=FACTS, startup_s=9.0):
    outputs = (OutputSample((2, 1), (0.25, 0.5)),)
    made = simulation.measurement(
        [step_ms] * 4, trace=Trace(losses, outputs), facts=facts, startup_s=startup_s
    )
    return RunOutcome(TrialState.COMPLETE, "", made, printed, 12.0, torch_s=4.0)


def forked(**changes):
    return replace(run(startup_s=1.5, **changes), forked=True, torch_s=0.2)


FRESH = [run(), run(10.2, printed="torch is here\nloss 0.5\n1.2 s\nlater\n")]
ALIKE = [
    ("as the others", {}),
    ("fewer losses", {"losses": (1.0,)}),
    ("more losses", {"losses": (1.0, 0.5, float("nan"), 7.0)}),
    ("another time in a line of which that differs", {"printed": "torch is here\nloss 0.5\n3 s\n"}),
    ("less printed", {"printed": "torch is h"}),
    ("slower as runs are", {"step_ms": 10.6}),
    ("another wait for data", {"facts": replace(FACTS, data_wait_share=0.3)}),
]
OTHERWISE = [
    ("last bit of a loss", {"losses": (1.0, 0.5 + 2**-53)}, "loss 2 was another"),
    ("a finite loss", {"losses": (1.0, 0.5, 3.0)}, "loss 3 was another"),
    ("another word", {"printed": "torch was here\nx\n"}, "printed 'torch was here' instead of"),
    ("another number where two were the same", {"printed": "torch is here\nloss 0.6\n1\n"},
     "printed 'loss 0.6' instead of 'loss 0.5'"),
    ("another line", {"printed": "torch is here\nloss 0.5\na warning\nx"}, "printed 'a warning'"),
    ("far too much", {"printed": "a" * 60_000}, "prints more than can be compared"),
    ("slower", {"step_ms": 11.5}, "a step cost 1.14 times as much"),
    ("faster", {"step_ms": 8.8}, "a step cost 0.87 times as much"),
    ("no training", {"facts": replace(FACTS, training=False)}, "saw other training in the script"),
]  # fmt: skip


def compared(outcome):
    baselines = [each.measurement for each in FRESH]
    return difference(FRESH, baselines, [outcome], Objective.THROUGHPUT)


@pytest.mark.parametrize("changes", [case[1] for case in ALIKE], ids=[c[0] for c in ALIKE])
def test_nothing_depends_on_it(changes):
    assert compared(forked(**changes)) == ""


@pytest.mark.parametrize(("changes", "said"), [c[1:] for c in OTHERWISE])
def test_what_differs_is_told(changes, said):
    assert said in compared(forked(**changes))


TRAINED, TESTED = LoaderFacts(64, 1, True, False, 2), LoaderFacts(9, 1, True, False, 2, place=1)
SHORT = replace(FACTS, loaders=(TRAINED,), roots=("Net",), triton_kernels=("mul",))
LONG = replace(
    FACTS,
    loaders=(TESTED, TRAINED),
    roots=("Net", "Critic"),
    triton_kernels=("add", "mul"),
    varying_shapes=True,
)


@pytest.mark.parametrize(
    ("which", "fresh", "now", "steps", "said"),
    [
        ("got further", SHORT, LONG, 50, ""),
        ("got less far", LONG, SHORT, 2, ""),
        ("got as far", SHORT, LONG, 4, "saw other loaders"),
        ("got less far, and saw more", SHORT, LONG, 2, "saw other loaders"),
        ("got further, and saw less", LONG, SHORT, 50, "saw other loaders"),
        ("got further, the first loader is another", SHORT,
         replace(LONG, loaders=(replace(TRAINED, num_workers=2), TESTED)), 50, "saw other loaders"),
        ("got further, and ceased to train", SHORT, replace(LONG, training=False), 50, "training"),
        ("got further on another device", SHORT, replace(LONG, device="cuda"), 50, "device"),
    ],
)  # fmt: skip
def test_a_run_that_gets_further_may_see_more(which, fresh, now, steps, said):
    outcome = forked(facts=now)
    outcome = replace(outcome, measurement=simulation.measurement(
        [10.0] * steps, trace=outcome.measurement.trace, facts=now))  # fmt: skip
    found = difference([run(facts=fresh)] * 2, [], [outcome], Objective.THROUGHPUT)
    assert said in found if said else found == "", which


def differing(changes, printed="loss 2.093\nx", step=5):
    """A run of a script whose sums are in any order."""
    losses = tuple(2.5 - 0.01 * i + changes * (i % 3) for i in range(10))
    return run(losses=losses, printed=f"step {step}\n{printed}")


@pytest.mark.parametrize(
    ("changes", "printed", "said"),
    [
        (2e-5, {}, ""),
        (2e-5, {"printed": "loss 2.092\nx"}, ""),
        (2e-5, {"printed": "loss 2.099\nx"}, "it printed 'loss 2.099' instead of 'loss 2.093'"),
        (2e-5, {"printed": "lost 2.093\nx"}, "it printed 'lost 2.093'"),
        (2e-5, {"step": 6}, "it printed 'step 6' instead of 'step 5'"),
        (2e-2, {}, "median relative difference of the first 10 losses was 0.8"),
    ],
)
def test_results_that_differ_by_themselves_may_differ_so_far(changes, printed, said):
    fresh = [differing(0.0), differing(1e-5)]
    one = replace(differing(changes, **printed), forked=True)
    found = difference(fresh, [each.measurement for each in fresh], [one], Objective.THROUGHPUT)
    assert (found == "") if not said else found.startswith(said)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({3: 1.2504}, ""),
        ({4: 1.1003}, ""),  # both had the same there, by chance
        ({2: 1.5004}, ""),  # and here, before they parted: by as much as they are apart
        ({2: 1.502}, "loss 2 was another"),
        ({1: 3.0}, "loss 1 was another"),
        ({4: math.nan}, "a result was no finite number"),
        (dict.fromkeys(range(3, 11), 1.4), "median relative difference of the first 10 losses was"),
    ],
)
def test_losses_are_the_same_but_for_rounding_until_the_fresh_ones_part(changes, said):
    def losing(changes):
        known = {1: 2.0, 2: 1.5, 3: 1.25, **dict.fromkeys(range(4, 11), 1.1)}
        return run(losses=tuple((known | changes).values()))

    fresh = [losing({}), losing({3: 1.2502})]
    one = replace(losing(changes), forked=True)
    found = difference(fresh, [each.measurement for each in fresh], [one], Objective.THROUGHPUT)
    assert (found == "") if not said else found.startswith(said)


@pytest.mark.parametrize("late", [1.3, math.nan, math.inf])
def test_fresh_runs_that_part_by_far_allow_no_more_than_rounding_before(late):
    fresh = [run(losses=(2.0, 1.5, last)) for last in (1.0, late)]
    for again, said in ((1.5009, ""), (1.6, "loss 2 was another")):
        one = replace(run(losses=(2.0, again, 1.0)), forked=True)
        measured = [each.measurement for each in fresh]
        assert difference(fresh, measured, [one], Objective.THROUGHPUT) == said


def test_what_is_printed_as_a_run_is_ended_says_nothing():
    ended = replace(forked(), output="torch is here\nTraceback (most recent\nx", printed="torch i")
    assert compared(ended) == ""
    assert "printed 'Traceback" in compared(replace(ended, printed=None))


def test_another_output_is_told():
    outcome = forked()
    trace = replace(outcome.measurement.trace, outputs=(OutputSample((2, 1), (0.25, 0.75)),))
    changed = replace(outcome, measurement=replace(outcome.measurement, trace=trace))
    assert "output 1 was another" in compared(changed)


def test_a_run_that_failed_is_told():
    failed = RunOutcome(TrialState.CRASHED, "RuntimeError: no", None, "", 1.0, forked=True)
    assert compared(failed) == "it could not be measured (RuntimeError: no)"


class Process:
    """Stands for the template."""

    def __init__(self):
        self.import_s, self.closed = 5.0, False

    def close(self):
        self.closed = True


@pytest.fixture
def study(monkeypatch):
    """Return a function that begins to fork with this outcome, and what then is known."""
    processes, requests, messages = [], [], []

    class Told(Silent):
        def on_message(self, sentence):
            messages.append(sentence)

    def template(request, notes, begun):
        return begun or started()

    def started(*_):
        processes.append(Process())
        return processes[-1]

    def begin(*outcomes, runs=30, ahead=False, notes="[]"):
        left = [*outcomes]

        def run_script(request, *_):
            requests.append(request)
            if not request.template:
                return run()
            return left.pop(0) if len(left) > 1 else left[0]

        monkeypatch.setattr(trial_runner, "run_script", run_script)
        monkeypatch.setattr(forking, "start_template", template)
        monkeypatch.setattr(forking, "begin_template", started)
        knobs = load_knobs()
        validator = TrialValidator(Objective.THROUGHPUT, Level.BALANCED, None, knobs)
        runner = TrialRunner(knobs, validator, progress=Told())
        with Forker(runner, TuneOptions(SIDE.command)) as forker:
            first = runner.run(SIDE, "baseline")[1]
            if ahead:
                Path(runner.notes).write_text(notes)
                forker.begin_ahead(SIDE)
            again = runner.run(SIDE, "baseline")[1]
            known = Baselines(first, again, tuple(r.measurement for r in (first, again)))
            note = forker.begin(SIDE, known, runs)
            for phase in ("search", "ablation", "proof"):
                runner.run(SIDE, phase)
            runner.run(replace(SIDE, settings={"cpu_threads": 1}), "search")
        return note, forker, [bool(request.template) for request in requests], requests

    begin.processes, begin.messages = processes, messages
    return begin


def test_what_began_beside_the_second_run_is_used_and_ends(study):
    note, forker, are_forked, _ = study(forked(), ahead=True)
    assert (note, forker.result(()).why) == ("", "")
    assert (len(study.processes), study.processes[0].closed) == (1, True)
    assert are_forked[2:5] == [True, True, True]


def test_what_began_is_ended_where_the_study_goes_no_further(study, monkeypatch):
    monkeypatch.setattr(Forker, "begin", lambda *_: "")  # as the second run failed
    study(forked(), ahead=True)
    assert [process.closed for process in study.processes] == [True]


def test_trials_are_forked_where_nothing_differs_and_proofs_not_by_themselves(study):
    note, forker, are_forked, requests = study(forked())
    assert note == ""
    assert are_forked == [False, False, True, True, True, False, False]
    assert [bool(request.specification.notes) for request in requests] == [True] + 6 * [False]
    assert study.processes[0].closed
    folder = Path(requests[0].specification.notes).parent
    assert folder.name.startswith(PREFIX), "so that what a killed study leaves is removed some day"
    assert not folder.exists()
    trials = [
        Trial(number, {}, "search", TrialState.COMPLETE, start_saved_s=saved)
        for number, saved in enumerate([4.0, 7.5, None, 7.5])
    ]
    found = forker.result(trials)
    assert (found.runs, found.why) == (3, "")
    assert found.saved_s == pytest.approx(19.0 - 12.0)


def test_all_are_fresh_where_something_differs(study):
    note, forker, are_forked, _ = study(forked(step_ms=20.0))
    assert note.endswith("a step cost 2.00 times as much")
    assert are_forked == [False, False, True, True, False, False, False, False]
    assert study.processes[0].closed
    assert forker.result(()).why == "a step cost 2.00 times as much"
    assert forker.result(()).saved_s == -2 * 12


def test_what_computes_something_else_is_not_asked_again(study):
    _, _, are_forked, _ = study(forked(losses=(1.0, 0.6, float("nan")), step_ms=20.0), forked())
    assert are_forked == [False, False, True, False, False, False, False]


def test_one_slow_run_is_no_difference(study):
    note, forker, are_forked, _ = study(forked(step_ms=20.0), forked())
    assert note == ""
    assert are_forked == [False, False, True, True, True, True, False, False]
    assert forker.result(()).why == ""
    note, _, are_forked, _ = study(forked(step_ms=20.0), forked(losses=(1.0, 0.6, float("nan"))))
    assert note.endswith("loss 2 was another")
    assert are_forked[-6:] == [True, True, False, False, False, False]


def test_it_is_not_begun_where_it_would_not_pay(study):
    note, forker, are_forked, _ = study(forked(), runs=1)
    assert (note, any(are_forked), study.processes[0].closed) == ("", False, True)
    why = "it would not pay: all is imported within 5.0 s"
    assert forker.result(()).why == why
    assert study.messages == [f"each trial imports anew: {why}"]


def test_runs_that_differ_by_themselves_are_asked_twice(study):
    note, _, are_forked, _ = study(forked(step_ms=12.5), forked(step_ms=9.0))
    assert (note, are_forked[4]) == ("", True)


def test_a_difference_beyond_what_runs_differ_by_is_one(study):
    note, *_ = study(forked(step_ms=12.0), forked(step_ms=12.01))
    assert note.endswith("a step cost 1.20 times as much")

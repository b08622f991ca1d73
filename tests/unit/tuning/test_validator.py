"""What a run amounts to, and what it may be compared with."""

from dataclasses import replace

import pytest

from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import AppliedKnob, Level, ScriptFacts
from gpuadvisor.domain.measurement import StepWindow, Trace
from gpuadvisor.domain.study import Objective, TrialState
from gpuadvisor.tuners.equivalence import PARTING
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuning.arguments import ArgumentKnob
from gpuadvisor.tuning.trials.validator import PRUNE_BELOW, TrialValidator
from tests.simulation import measurement

GIB = 1 << 30
GPU = Device("cuda", 0, "H100", memory_bytes=80 * GIB)
LOSSES = (1.0, 1.0, 1.0)
ARG = {"arg:batch-size": "64"}


def run(samples=8, source="dataloader", **changes):
    known = {
        "windows": (StepWindow(10, 1.0, samples=10.0 * (samples or 0)),),
        "samples_source": source if samples else None,
        "reserved_memory_bytes": 10 * GIB,
        "trace": Trace(LOSSES),
    }
    return measurement([100.0], **{**known, **changes})


def validator(objective=Objective.THROUGHPUT, baseline=None, level=Level.AGGRESSIVE):
    knobs = {**load_knobs(), "arg:batch-size": ArgumentKnob("batch-size", ("64",), ())}
    made = TrialValidator(objective, level, None, knobs)
    validated(made, {}, baseline or run(), "baseline")
    made.comparison.calibrate([made.baseline.trace] * 2)
    return made


def validated(made, settings, measured, phase="proof"):
    outcome = RunOutcome(TrialState.COMPLETE, "", measured, "", 1.0)
    return made.validate(0, phase, settings, GPU, outcome)


def state(made, settings, measured, phase="proof"):
    trial = validated(made, settings, measured, phase)
    return trial.state, trial.reason


def test_a_run_that_failed_keeps_its_reason_and_its_place():
    outcome = RunOutcome(TrialState.CRASHED, "KeyError: 1", None, "", 1.0, "train.py, line 3")
    trial = validator().validate(7, "search", {"tf32": True}, GPU, outcome)
    assert (trial.number, trial.phase, trial.settings) == (7, "search", {"tf32": True})
    assert (trial.state, trial.reason) == (TrialState.CRASHED, "KeyError: 1 (train.py, line 3)")
    assert (trial.measurement, trial.gain) == (None, None)


def test_gains_are_relative_to_the_newest_baselines_on_the_same_gpu():
    made, other = validator(), replace(GPU, index=1)
    for ms in (100.0, 120.0, 110.0):
        validated(made, {}, measurement([ms] * 8), "baseline")
    assert validated(made, {}, measurement([55.0] * 8)).gain == pytest.approx(2.0)
    assert made.has_reference(GPU) and not made.has_reference(other)
    outcome = RunOutcome(TrialState.COMPLETE, "", run(), "", 1.0)
    assert made.validate(0, "search", {}, other, outcome).gain is None


def test_they_are_relative_to_the_median_as_one_slow_start_would_move_a_mean():
    made = validator()
    for ms in (100.0, 400.0):
        validated(made, {}, measurement([ms] * 8), "baseline")
    assert validated(made, {}, measurement([50.0] * 8)).gain == pytest.approx(2.0)


def test_a_disturbed_baseline_is_no_reference_where_there_is_another():
    made = TrialValidator(Objective.THROUGHPUT, Level.BALANCED, None, load_knobs())

    def baseline(ms, disturbance):
        outcome = RunOutcome(TrialState.COMPLETE, "", measurement([ms] * 8), "", 1.0)
        outcome = replace(outcome, disturbance=disturbance)
        assert made.validate(0, "baseline", {}, GPU, outcome).disturbance == disturbance

    baseline(300.0, "others used 2.0 of 2 CPU cores")
    assert made.has_reference(GPU)
    assert validated(made, {}, measurement([100.0] * 8)).gain == pytest.approx(3.0)
    baseline(100.0, "")
    assert validated(made, {}, measurement([100.0] * 8)).gain == pytest.approx(1.0)


def test_a_trial_is_hopeless_beside_the_slowest_reference():
    made = validator()
    assert made.slowest_ms({"tf32": True}, GPU, 1.0) == pytest.approx(100 / PRUNE_BELOW)
    assert made.slowest_ms({"tf32": True}, GPU, 2.0) == pytest.approx(50 / PRUNE_BELOW)
    assert made.slowest_ms({"tf32": True}, GPU, None) is None
    assert made.slowest_ms(ARG, GPU, 1.0) is None  # its steps may be longer
    assert validator(Objective.MEMORY).slowest_ms({"tf32": True}, GPU, 1.0) is None


class TestSamples:
    def test_an_argument_is_compared_by_samples(self):
        assert state(validator(), ARG, run(64))[0] is TrialState.COMPLETE

    @pytest.mark.parametrize("objective", [Objective.THROUGHPUT, Objective.ENERGY])
    def test_it_cannot_be_where_they_are_not_known(self, objective):
        found, reason = state(validator(objective, run(None)), ARG, run(None))
        assert found is TrialState.UNSUPPORTED
        assert "samples of a step are not known" in reason

    def test_nor_where_the_user_gave_them_for_the_unchanged_script(self):
        baseline = run(8, "user")
        assert state(validator(baseline=baseline), ARG, run(8, "user"))[0] is TrialState.UNSUPPORTED

    def test_nor_where_they_were_counted_otherwise(self):
        assert state(validator(), ARG, run(64, "root_input"))[0] is TrialState.UNSUPPORTED

    @pytest.mark.parametrize("objective", [Objective.LATENCY, Objective.MEMORY])
    def test_other_objectives_do_not_need_them(self, objective):
        assert state(validator(objective, run(None)), ARG, run(None))[0] is TrialState.COMPLETE

    @pytest.mark.parametrize(("samples", "source"), [(None, None), (32, "root_input")])
    def test_a_knob_that_hides_them_leaves_the_steps_as_they_are(self, samples, source):
        counted = validated(validator(), {"compile": "default"}, run(samples, source)).measurement
        assert (counted.samples_per_step, counted.samples_source) == (8, "dataloader")

    def test_what_the_baseline_does_not_know_is_not_counted(self):
        made = validator(baseline=run(None))
        counted = validated(made, {"compile": "default"}, run(32)).measurement
        assert counted.samples_per_step is None


class TestMemory:
    HALF, FULL, MOST = (run(reserved_memory_bytes=n * GIB) for n in (40, 73, 79))

    def test_ten_percent_stay_free(self):
        found, reason = state(validator(), {"tf32": True}, self.FULL)
        assert found is TrialState.OUT_OF_MEMORY
        assert reason == "held 91% of the GPU's memory; 10% stay free for longer runs"
        assert state(validator(), {"tf32": True}, self.HALF)[0] is TrialState.COMPLETE

    def test_a_script_that_uses_more_by_itself_may(self):
        made = validator(baseline=self.MOST)
        assert state(made, {"tf32": True}, self.FULL)[0] is TrialState.COMPLETE
        assert state(made, {"tf32": True}, self.MOST)[0] is TrialState.COMPLETE


class TestEffects:
    def test_a_knob_that_did_nothing(self):
        found = state(validator(), {"tf32": True}, run(), "search")
        assert found == (TrialState.NO_EFFECT, "tf32 found nothing to change in this script")

    def test_a_knob_that_refused(self):
        refused = run(applied=(AppliedKnob("tf32", "refused", "too old"),))
        found = state(validator(), {"tf32": True}, refused, "search")
        assert found == (TrialState.UNSUPPORTED, "tf32: too old")

    def test_what_had_an_effect_once_is_believed(self):
        made = validator()
        assert made.untried({"tf32": True, **ARG}) == {"tf32"}
        state(made, {"tf32": True}, run(applied=(AppliedKnob("tf32", "effective"),)), "search")
        assert made.untried({"tf32": True, **ARG}) == frozenset()
        assert state(made, {"tf32": True}, run(), "search")[0] is TrialState.COMPLETE


class TestResults:
    def test_other_losses_are_wrong(self):
        found, reason = state(validator(), {"tf32": True}, run(trace=Trace((1.0, 1.5, 2.0))))
        assert found is TrialState.WRONG
        assert reason.endswith("first 3 losses: 50.00%, above 2.00%")

    def test_losses_that_part_later_are_left_to_a_rehearsal_unless_data_are_read_otherwise(self):
        parted = run(trace=Trace((1.0, 1.04, 1.5)))
        for settings, status in (({"tf32": True}, "not_checked"), ({"pin_memory": True}, "wrong")):
            found = validated(validator(), settings, parted).equivalence
            assert (found.status, found.reason == PARTING) == (status, status != "wrong")

    def test_nan_is_told_in_words(self):
        found, reason = state(
            validator(), {"tf32": True}, run(trace=Trace((1.0, 1.0, float("nan"))))
        )
        assert found is TrialState.WRONG
        assert reason == "NaN or infinity in the losses, which the unchanged script has not"

    def test_what_changes_the_training_is_not_checked(self):
        trained = run(trace=Trace((9.0, 9.0, 9.0)), facts=ScriptFacts(training=True))
        for settings in (ARG, {"batch_size": 2}):
            assert validated(validator(), settings, trained).equivalence.status == "not_checked"

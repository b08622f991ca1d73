"""How long runs will take that were not made yet."""

import pytest

from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuning.budgeting.durations import LIFE_RUNS, LIFE_STEPS, LIFE_TRIALS, Durations
from tests.simulation import measurement


def test_what_was_compiled_takes_no_longer_beside_what_does_not_change_it():
    knobs = load_knobs()
    durations = Durations(knobs)
    durations.record(Trial(0, {}, "baseline", TrialState.COMPLETE, wall_s=10.0))
    compiled, workers = {"compile": "default"}, {"dataloader_workers": 4}
    unknown_s = durations.run_s(compiled)
    durations.record_compiled(compiled, 20.0)
    known_s = durations.run_s(compiled)
    assert known_s < unknown_s
    workers_s = knobs["dataloader_workers"].first_start_s
    assert durations.run_s({**workers, **compiled}) == known_s + workers_s
    assert durations.run_s({**compiled, "tf32": True}) == unknown_s, "compiled anew"


def test_a_compiler_that_was_slow_is_expected_to_be():
    durations = Durations(load_knobs())
    durations.record(Trial(0, {}, "baseline", TrialState.COMPLETE, wall_s=10.0))
    graphs, quick = {"compile_cudagraphs": "reduce-overhead"}, {"cudnn_benchmark": True}
    usual_s, quick_s = (durations.run_s(each) - 10.0 for each in (graphs, quick))
    seen = Trial(1, {"compile": "default"}, "search", TrialState.COMPLETE, wall_s=10.0 + 80.0)
    durations.record(seen)
    assert durations.run_s(graphs) == 10.0 + 2.0 * usual_s  # compile usually takes 40 s
    assert durations.run_s(quick) == 10.0 + quick_s  # which no compiler decides


def ran(wall_s, phase, step_ms=None, settings=None, saved_s=None):
    measured = measurement([step_ms] * 8) if step_ms is not None else None
    return Trial(
        0,
        settings or {},
        phase,
        TrialState.COMPLETE,
        measurement=measured,
        wall_s=wall_s,
        start_saved_s=saved_s,
    )


def test_lives_of_short_steps_take_little_longer_than_runs():
    durations = Durations(load_knobs())
    durations.record(ran(15.0, "baseline", 20.0))
    short_s = LIFE_RUNS * 15.0 + LIFE_STEPS * 0.02
    assert durations.lives_s({"tf32": True}) == pytest.approx(3 * short_s)
    assert short_s < LIFE_TRIALS * 15.0
    durations.record(ran(15.0, "baseline", 200.0))
    assert durations.lives_s({"tf32": True}) == 3 * LIFE_TRIALS * 15.0, "and of long ones at most"
    durations.record_rehearsal({"tf32": True}, 90.0)
    assert durations.life_s({}) == 30.0, "as they were seen to take"


def test_no_life_is_expected_to_take_longer_than_what_a_proof_has_shown_of_starts():
    """A first start compiles, and others find on disk what it has compiled."""
    durations, compiled = Durations(load_knobs()), {"compile": "default"}
    durations.record(ran(15.0, "baseline", 20.0))
    durations.record(ran(39.0, "search", settings=compiled, saved_s=6.0))
    before_s = durations.lives_s(compiled)
    durations.record(ran(20.0, "proof", settings=compiled))
    durations.record(ran(8.0, "proof", 20.0, saved_s=6.0))
    after_s = durations.lives_s(compiled)
    assert after_s == pytest.approx(LIFE_RUNS * (14 + 14 + 20) + 3 * LIFE_STEPS * 0.02)
    assert after_s < before_s
    assert durations.shortest_lives_s(compiled) == 14 + 14 + 20
    durations.record(ran(40.0, "proof", settings=compiled))
    assert durations.lives_s(compiled) == after_s, "it waited, or something disturbed it"

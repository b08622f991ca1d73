"""How long runs will take that were not made yet."""

from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuning.budgeting.durations import Durations


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

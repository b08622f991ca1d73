"""How long runs will take that were not made yet."""

from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuning.durations import Durations


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

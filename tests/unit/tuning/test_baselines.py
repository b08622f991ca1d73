"""What the baseline's runs warn of."""

import re
from dataclasses import replace

import pytest

from gpuadvisor.collectors.devices import Inventory
from gpuadvisor.collectors.script.request import Command, RunOutcome
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import ScriptFacts
from gpuadvisor.domain.measurement import Measurement, StepWindow
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.errors import ScriptError, UsageError
from gpuadvisor.tuning.budgeting.budget import LEAST_RUNS
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.trials import baselines
from gpuadvisor.tuning.trials.baselines import (
    Baselines,
    baseline_warnings,
    measure_first,
    measured_baseline,
)

GPU = Device("cuda", 0, "NVIDIA H100 80GB HBM3", cores=8)


def taking(step_ms: float, device: str = "cuda") -> Measurement:
    window = StepWindow(10, step_ms / 100)
    facts = ScriptFacts(device=device)
    return Measurement(
        "optimizer", (step_ms,) * 10, (window,), 4, None, 1, 1, 1.0, 2.0, facts=facts
    )


def outcome(run: Measurement, short: bool = False) -> RunOutcome:
    return RunOutcome(TrialState.COMPLETE, "", run, "", 2.0, steps=12, short=short)


CASES = [
    ("quiet", [10.0, 10.1], "cuda", False, 1, []),
    (
        "restless",
        [10.0, 14.0],
        "cuda",
        False,
        1,
        ["differ by 40%, so only large gains can be proven: it is uneven itself, or others"],
    ),
    ("on the CPU beside a GPU", [10.0], "cpu", False, 1, ["though torch can use NVIDIA H100"]),
    ("short", [10.0], "cuda", True, 1, ["ends after 12 steps"]),
    ("parallel", [10.0], "cuda", False, 2, ["had 8 CPU cores"]),
]


@pytest.mark.parametrize(("steps_ms", "device", "short", "gpus", "said"), [c[1:] for c in CASES])
def test_warnings(steps_ms, device, short, gpus, said):
    runs = [taking(step_ms, device) for step_ms in steps_ms]
    found = Baselines(outcome(runs[0], short), outcome(runs[-1]), tuple(runs))
    devices = [replace(GPU, index=index) for index in range(gpus)]
    sentences = list(baseline_warnings(found, devices))
    assert len(sentences) == len(said)
    assert all(part in sentence for part, sentence in zip(said, sentences, strict=True))


def test_where_others_were_seen_it_is_they_that_runs_differ_by():
    runs = taking(10.0), taking(14.0)
    again = replace(outcome(runs[1]), disturbance="others used 1.7 of 2 CPU cores")
    (sentence,) = baseline_warnings(Baselines(outcome(runs[0]), again, runs), [GPU])
    assert sentence.endswith("can be proven: others used 1.7 of 2 CPU cores")


@pytest.mark.parametrize("others", [(False, False), (True, False), (True, True)])
def test_others_that_use_the_machine_all_the_time_are_told(others):
    """Runs agree then, and still say less than on a quiet machine."""
    seen = "others used 1.0 of 2 CPU cores"
    runs = taking(10.0), taking(10.1)
    first, again = (
        replace(outcome(run), disturbance=seen if other else "")
        for run, other in zip(runs, others, strict=True)
    )
    sentences = list(baseline_warnings(Baselines(first, again, runs), [GPU]))
    assert len(sentences) == all(others)
    told = f"while the unchanged script was measured, {seen}: what needs more of the machine"
    assert all(each.startswith(told) for each in sentences)


@pytest.mark.parametrize(
    ("again_ms", "said"),
    [(10.1, "measured, its limit was used up: more CPU"), (14.0, "proven: its limit was used up")],
)
def test_a_limit_of_its_own_is_told(again_ms, said):
    runs = taking(10.0), taking(again_ms)
    first = replace(outcome(runs[0]), limit="its limit was used up")
    (sentence,) = baseline_warnings(Baselines(first, outcome(runs[1]), runs), [GPU])
    assert said in sentence


@pytest.mark.parametrize("steps", [0, 1])
def test_a_run_that_took_all_the_budget_is_told_with_a_budget_for_twice_as_much(steps):
    """As `--budget` is given: a study of the least size has room for runs of 480 s in it."""
    ended = RunOutcome(TrialState.PRUNED, "too long", None, "", 240.0, steps=steps)
    with pytest.raises(ScriptError) as told:
        measured_baseline(ended, Command("python", "train.py"))
    (minutes,) = re.findall(r"--budget (\d+)m has room for runs of twice", str(told.value))
    assert 60 * int(minutes) >= LEAST_RUNS * 480


def test_a_failure_of_gpuadvisor_is_told_as_its_own():
    own = "gpuadvisor.collectors.script.child.trace, line 124"
    reason = f"gpuadvisor failed as it watched the script, in {own}: RuntimeError: CUDA error"
    ended = RunOutcome(TrialState.CRASHED, reason, None, "", 9.0, "train.py, line 3", own)
    with pytest.raises(ScriptError) as told:
        measured_baseline(ended, Command("python", "train.py"))
    said = str(told.value)
    assert said.startswith(
        f"train.py cannot be measured: {reason} at train.py, line 3; most likely"
    )
    assert "fault of gpuadvisor, so please report it" in said
    assert "it is if the script fails by itself, with CUDA_LAUNCH_BLOCKING=1" in said
    assert "it has to run by itself" not in said


def test_a_loader_may_be_why_runs_differ_where_the_script_has_one():
    runs = [replace(taking(step_ms), samples_source="dataloader") for step_ms in (10.0, 14.0)]
    found = Baselines(outcome(runs[0]), outcome(runs[1]), tuple(runs))
    (sentence,) = baseline_warnings(found, [GPU])
    assert sentence.endswith("its loader is uneven, or others use this machine")


def test_a_script_that_resumes_is_noticed():
    run = taking(10.0)
    found = Baselines(outcome(run), outcome(run), (run, run), ("runs/last.pt", "runs/epoch.txt"))
    (sentence,) = baseline_warnings(found, [GPU])
    assert sentence == (
        "the unchanged script read runs/last.pt and 1 more, which its earlier run wrote: if "
        "that is a checkpoint, trials do not start alike; --scratch lets each start as the first "
        "did"
    )


@pytest.mark.parametrize(("first", "said"), [("GPU-0", 0), ("GPU-1", 1), (None, 1)])
def test_a_script_that_chooses_its_gpu_is_noticed_where_that_is_another(monkeypatch, first, said):
    seen = (replace(GPU, uuid=first),) if first else ()
    monkeypatch.setattr(baselines, "inventory", lambda environ: Inventory(seen))
    run = taking(10.0)
    run = replace(run, facts=replace(run.facts, own_gpus="1"))
    shown = Baselines(outcome(run), outcome(run), (run, run))
    sentences = list(baseline_warnings(shown, [replace(GPU, uuid="GPU-0")]))
    assert len(sentences) == said
    assert all("sets CUDA_VISIBLE_DEVICES=1 itself" in each for each in sentences)


def test_it_is_not_run_side_by_side():
    run = taking(10.0)
    run = replace(run, facts=replace(run.facts, own_gpus="0"))

    class Evaluator:
        def measure_baseline(self, reads_since):
            return outcome(run)

    options = TuneOptions(Command("python", "train.py"), jobs=2)
    with pytest.raises(UsageError, match="--jobs 2: the script sets CUDA_VISIBLE_DEVICES=0 itself"):
        measure_first(Evaluator(), options)
    assert measure_first(Evaluator(), replace(options, jobs=1)).measurement is run


@pytest.mark.parametrize(
    ("disturbed", "wall_s", "seconds", "has_room"),
    [
        ((False, False), 6.0, 300.0, True),
        ((False, False), 30.0, 300.0, False),
        ((True, False), 30.0, 300.0, True),
        ((True, True), 30.0, 300.0, False),
        ((True, True), 6.0, 300.0, True),
        ((False, False), 30.0, None, True),
    ],
    ids=["short", "long", "one disturbed", "all disturbed", "short, disturbed", "trials"],
)
def test_a_third_run_is_made_where_it_is_cheap_or_saves_pairs(disturbed, wall_s, seconds, has_room):
    trials = [
        Trial(
            n, {}, "baseline", TrialState.COMPLETE, taking(10.0),
            wall_s=wall_s, disturbance="others" * each,
        )
        for n, each in enumerate(disturbed)
    ]  # fmt: skip
    limit = BudgetLimit(seconds=seconds, trials=None if seconds else 30)
    assert baselines._has_room_for_third(trials, limit) is has_room

"""The look that `tune` takes at the unchanged script, with the real profiler on the CPU."""

import os
import sys
from dataclasses import replace

import pytest

from gpuadvisor.collectors.devices import cpu_device
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.knobs import Level, LoaderFacts, ScriptFacts
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.domain.study import Objective
from gpuadvisor.domain.unprofiled import unprofiled_steps
from gpuadvisor.errors import ScriptError
from gpuadvisor.profiling.diagnosing import diagnose_target, profile_baseline
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit, schedule_for
from gpuadvisor.tuning.trials.trial_runner import Recording, Side, TrialRunner
from gpuadvisor.tuning.trials.validator import TrialValidator
from tests.integration import program
from tests.simulation import measurement

pytest.importorskip("torch")

CORE = max(os.sched_getaffinity(0))
SCRIPT = """
import os, pathlib, time
pathlib.Path("cores.txt").write_text(str(os.sched_getaffinity(0)))
import torch
from torch.utils.data import DataLoader

def slowly(rows):
    time.sleep(0.02)  # much more than the rest of a step, also on a slow machine
    return torch.stack(rows)

model = torch.nn.Linear(8, 1)
for batch in DataLoader(torch.ones(4000, 8), batch_size=2, collate_fn=slowly):
    model(batch).mean().backward()
    model.zero_grad()
"""


def command(folder, text):
    (folder / "train.py").write_text(text)
    return Command(sys.executable, "train.py", folder=str(folder))


@pytest.fixture(scope="module", autouse=True)
def quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", program.QUICK)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profiled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUADVISOR_HOME", str(folder / "home"))
        yield folder


@pytest.fixture(scope="module")
def diagnosis(folder):
    measured = measurement(
        [10.0] * 8,
        windows=(StepWindow(100, 1.0, data_wait_s=0.5),),
        facts=ScriptFacts(loaders=(LoaderFacts(2, 0, False, False, None),)),
    )
    return profile_baseline(command(folder, SCRIPT), measured, cpu_device(), (CORE,))


def test_it_says_what_the_profile_and_the_harness_saw(diagnosis):
    assert diagnosis.failed == ()
    assert "input_bound" in {finding.rule for finding in diagnosis.shown}
    assert {each.rule for each in diagnosis.not_measured} >= {"tf32_off", "power_capped"}


def test_the_profile_is_stored(diagnosis):
    assert diagnosis.profile == "train"
    assert diagnose_target("train", ()).profile.facts.operators


def test_a_store_that_cannot_be_used_is_no_matter(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "file" / "home"))
    (tmp_path / "file").write_text("no folder")
    profile = profile_baseline(command(tmp_path, SCRIPT), measurement([10.0] * 8), cpu_device())
    assert profile.failed == () and profile.profile == ""


def test_it_keeps_to_the_cores_that_it_is_given(diagnosis, folder):
    assert (folder / "cores.txt").read_text() == str({CORE})


def test_a_script_that_cannot_be_profiled_is_a_script_error(tmp_path):
    with pytest.raises(ScriptError, match=r"train.py cannot be profiled"):
        profile_baseline(command(tmp_path, "print('done')"), measurement([10.0] * 8), cpu_device())


def test_a_trace_from_the_end_of_a_run_tells_as_much(tmp_path, monkeypatch):
    """As the second baseline of a study on a GPU makes one, so that no run is made for it."""
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))
    knobs, recording = load_knobs(), Recording(tmp_path / "trace.json", 3)
    side = Side(command(tmp_path, SCRIPT.replace("4000", "4000000")), cpu_device())
    validator = TrialValidator(Objective.THROUGHPUT, Level.BALANCED, None, knobs)
    runner = TrialRunner(knobs, validator, schedule_for(BudgetLimit(seconds=60.0)))
    _, first = runner.run(side, "baseline")
    runner.beside = (recording.application,)
    _, again = runner.run(side, "baseline")
    assert first.measurement is not None and again.measurement is not None
    facts = [replace(each.measurement.facts, data_wait_share=None) for each in (first, again)]
    assert facts[0] == facts[1]
    told = profile_baseline(side.command, again.measurement, cpu_device(), (), recording.file)
    assert told.failed == ()
    assert "input_bound" in {finding.rule for finding in told.shown}
    stored = diagnose_target(told.profile, ()).profile
    steps = unprofiled_steps(stored.facts.profile.header.facts)
    assert steps.mean_ns == pytest.approx(1e6 * again.measurement.mean_step_ms, abs=1)
    # What the recording took is not part of how long a run takes.
    assert again.wall_s < again.measurement.wall_s

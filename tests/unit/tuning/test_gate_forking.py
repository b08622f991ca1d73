"""Gates whose runs are forked: only where that is shown to be no matter, and of both versions."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpuadvisor import cli
from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.collectors.script import start_line
from gpuadvisor.collectors.script.templates import NoTemplateError, in_common
from gpuadvisor.domain.measurement import StepWindow, Trace
from gpuadvisor.domain.study import TrialState
from gpuadvisor.tuning import preparation
from gpuadvisor.tuning.gate import comparison, forking, setting_up
from gpuadvisor.tuning.trials import in_turns, trial_runner
from tests.simulation import measurement
from tests.unit.tuning.test_gate import GPU, Machine, commit, git, write


class Process:
    """Stands for the process from which runs are forked."""

    begun = closed = 0

    def __init__(self, phases=()):
        Process.begun += 1
        self.phases = phases

    def close(self):
        Process.closed += 1


def common_process(requests, phases, begun=None):
    if begun is not None and begun.phases == phases:
        return begun
    if begun is not None:
        begun.close()
    return Process(phases)


class Forking(Machine):
    """Its runs note what they import; a forked one may do something else."""

    def __init__(self):
        super().__init__()
        self.forked, self.measured_s = [], []
        self.first = self.made = None
        """What the first run measures, and each, where its text does not say it."""
        self.losses = {"base": (1.0, 0.5), "head": (1.0, 0.5)}
        self.imports = {"base": ["torch"], "head": ["torch"]}
        self.does = lambda number, side, outcome: outcome
        """What becomes of a forked run, by its number and side."""
        self.heard = lambda side: None
        """Told of the side of each run."""

    def run(self, request, *meters):
        outcome = super().run(request, *meters)
        side = "base" if "base" in request.command.folder else "head"
        self.heard(side)
        if request.specification.notes:
            modules = [(name, f"/site-packages/{name}.py") for name in self.imports[side]]
            phase = {"modules": modules, "path": [], "main": "train.py", "changed": {}}
            Path(request.specification.notes).write_text(json.dumps([phase]))
        self.forked.append(request.template is not None)
        self.measured_s.append(request.specification.schedule.measure_s)
        if outcome.measurement is None:
            return outcome
        made = self.first if len(self.forked) == 1 else None
        made = made or self.made or outcome.measurement
        changed = replace(made, trace=Trace(self.losses[side]))
        outcome = replace(outcome, measurement=changed, forked=self.forked[-1])
        return self.does(sum(self.forked), side, outcome) if outcome.forked else outcome


@pytest.fixture
def machine(tmp_path, monkeypatch):
    made = Forking()
    (tmp_path / "repo").mkdir()
    monkeypatch.chdir(tmp_path / "repo")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    git("init", "--quiet", "-b", "main")
    python = TargetPython("/usr/bin/python", "3.12.3", torch="2.9.0")
    monkeypatch.setattr(trial_runner, "run_script", made.run)
    for module in (comparison, setting_up):
        monkeypatch.setattr(module, "target_python", lambda command: python)
    monkeypatch.setattr(comparison, "devices_for", lambda python, jobs: [GPU])
    monkeypatch.setattr(comparison, "reserved", lambda devices, checked: checked)
    monkeypatch.setattr(preparation, "other_processes", lambda device: [])
    monkeypatch.setattr(in_turns, "free_memory_bytes", lambda device: 1 << 40)
    monkeypatch.setattr(start_line, "PATIENCE_S", 3600.0)  # however busy the machine is
    monkeypatch.setattr(forking, "begin_template", lambda request, phases: Process(phases))
    monkeypatch.setattr(forking, "start_common_template", common_process)
    Process.begun = Process.closed = 0
    commit("100 1000")
    return made


@pytest.fixture
def gated(machine, capsys):
    """Gate a head that takes so long; returns the status and the document."""

    def gated(*words, head="100.1 1000"):
        write(head)
        status = cli.main(["gate", "--base", "HEAD", "--json", *words, "train.py"])
        assert git("worktree", "list").count("\n") == 0
        return status, json.loads(capsys.readouterr().out)

    return gated


@pytest.mark.parametrize(("head", "status", "count"), [("100.1 1000", 0, 10), ("300 1000", 4, 6)])
def test_all_but_the_runs_they_are_compared_with_are_forked(machine, gated, head, status, count):
    found, document = gated(head=head)
    assert (found, len(machine.forked)) == (status, count)
    assert machine.forked == [False] * 2 + [True] * (count - 2)
    assert Process.closed == 1
    (note,) = [note for note in document["notes"] if "forked" in note]
    assert ("compared with fresh ones" in note) is (count == 10)
    assert "startup" in [each["metric"] for each in document["unmeasured"]]


def test_start_up_is_that_of_fresh_processes(machine, gated):
    status, document = gated("--metric", "startup")
    assert status == 0
    assert not any(machine.forked)
    assert "startup" in [each["metric"] for each in document["metrics"]]


def slower(times, sides=("base", "head"), until=99):
    def does(number, side, outcome):
        if side not in sides or number > until:
            return outcome
        taken = measurement([100 * times] * 8, trace=outcome.measurement.trace)
        return replace(outcome, measurement=taken)

    return does


def other_losses(number, side, outcome):
    other = replace(outcome.measurement, trace=Trace((1.0, 0.25)))
    return replace(outcome, measurement=other) if side == "head" else outcome


def crash(number, side, outcome):
    return replace(outcome, state=TrialState.CRASHED, reason="CUDA", measurement=None)


@pytest.mark.parametrize(
    ("does", "why", "forks"),
    [
        (slower(1.1), "a step cost 1.10 times as much", 3),
        (other_losses, "loss 2 was another", None),
        (crash, "the base could not be measured (CUDA)", 1),
        (lambda *each: replace(each[2], forked=False), "the process from which runs were", 1),
    ],
)
def test_where_it_matters_all_pairs_are_fresh(machine, gated, does, why, forks):
    machine.does = does
    status, document = gated()
    assert status == 0
    assert machine.forked[-8:] == [False] * 8
    assert forks is None or sum(machine.forked) == forks
    assert Process.closed == 1
    assert [note for note in document["notes"] if "each run imports anew" in note and why in note]
    assert "startup" in [each["metric"] for each in document["metrics"]]


def test_a_head_that_fails_late_fails_in_so_many_runs_and_not_by_forking(
    machine, gated, monkeypatch
):
    """Once while it takes turns, once more as it is forked, and then afresh."""
    run, ended = machine.run, {"base": 0, "head": 0}

    def failing(request, *meters):
        outcome = run(request, *meters)
        side = "base" if "base" in request.command.folder else "head"
        ended[side] += 1
        if side == "base" or ended[side] in (1, 3):
            return outcome
        reason = "ValueError: the loss is nan"
        return replace(outcome, state=TrialState.CRASHED, reason=reason, measurement=None)

    monkeypatch.setattr(trial_runner, "run_script", failing)
    status, document = gated("--no-turns")
    assert status == 4
    heads = [each["state"] for each in document["runs"] if each["side"] == "head"]
    assert document["reason"] == (
        f"the work tree fails in {heads.count('crashed')} of {len(heads)} runs where HEAD runs: "
        "crashed: ValueError: the loss is nan"
    )
    assert heads == ["complete", "crashed", "complete", "crashed", "crashed"]
    assert sum(ended.values()) == len(document["runs"])
    assert not [note for note in document["notes"] if "imports anew" in note or "--link" in note]


def test_that_a_version_fails_now_and_then_is_told_also_where_it_passes(machine, gated):
    machine.does = crash
    status, document = gated()
    assert status == 0
    (told,) = [note for note in document["notes"] if "do not count" in note]
    count = len([run for run in document["runs"] if run["side"] == "base"])
    assert told == f"HEAD fails in 1 of {count} runs, which do not count: crashed: CUDA"
    (told,) = [note for note in document["notes"] if "imports anew" in note]
    assert told.endswith("the base could not be measured (CUDA), and afresh it could")


def test_one_slow_run_is_no_difference(machine, gated):
    machine.does = slower(1.1, until=1)
    status, _ = gated("--no-turns")
    assert (status, machine.forked) == (0, [False] * 2 + [True] * 9)


def test_first_runs_that_found_caches_empty_are_no_measure_of_forked_ones(machine, gated):
    machine.first = measurement([130.0] * 8, trace=Trace((1.0, 0.5)))
    status, document = gated("--no-turns")
    assert (status, machine.forked[:6]) == (0, [False] * 2 + [True] * 2 + [False, True])
    assert [note for note in document["notes"] if "compared with fresh ones" in note]


def test_where_versions_compute_something_else_the_base_is_run_afresh_twice(machine, gated):
    machine.losses = {"base": (1.0, 0.5), "head": (1.0, 0.25)}
    status, document = gated()
    assert (status, machine.forked) == (0, [False] * 3 + [True] * 7)
    assert [note for note in document["notes"] if "compared with fresh ones" in note]


def test_costs_are_not_compared_beside_other_work(machine, gated):
    machine.disturbance = "others used 1.7 of 2 CPU cores"
    machine.does = slower(1.1, sides=("base",), until=1)
    _, document = gated("--no-turns")
    assert machine.forked[:4] == [False] * 3 + [True]
    (note,) = [note for note in document["notes"] if "forked" in note]
    assert "what a step costs was not compared, as beside the base's runs others used 1.7" in note


@pytest.mark.parametrize(
    ("head", "begun"), [(["torch"], 1), (["torch", "numpy"], 2), (["numpy", "torch"], 1)]
)
def test_it_imports_beside_the_heads_first_run_what_the_base_did(machine, gated, head, begun):
    machine.imports["head"] = head
    had = []
    machine.heard = lambda side: had.append((side, Process.begun))
    assert gated()[0] == 0
    assert had[:3] == [("base", 0), ("head", 1), ("base", begun)]
    assert (Process.begun, Process.closed) == (begun, begun)


def test_a_head_that_is_broken_leaves_no_process(machine, gated):
    status, _ = gated(head="fails crashed")
    assert (status, Process.begun, Process.closed) == (4, 1, 1)


def test_versions_that_import_other_libraries(machine, gated):
    machine.imports["head"] = ["os_settings", "torch"]
    status, document = gated()
    assert (status, any(machine.forked)) == (0, False)
    assert "each run imports anew: both versions do not import the same" in document["notes"][-1]


def windowed(*ms, steps=10):
    """A run of these windows, by the times of their steps."""
    windows = tuple(StepWindow(steps, steps * each / 1e3) for each in ms)
    return replace(measurement([50] * 80), windows=windows, step_ms=(50.0,) * steps * len(ms))


STEADY = [50, 50.1, 49.9, 50, 50.1, 49.9, 50, 50]


@pytest.mark.parametrize(
    ("run", "words", "measured"),
    [
        (windowed(*STEADY), (), {2.0}),
        (windowed(*STEADY), ("--measure", "3"), {3.0}),
        (windowed(*STEADY), ("--metric", "startup"), {4.0}),
        (windowed(*STEADY[:4]), (), {4.0}),
        (windowed(*STEADY[:-1], 51), (), {4.0}),
        (replace(windowed(*STEADY), step_ms=(15.0,) * 250), (), {4.0}),
        (replace(windowed(*STEADY), step_ms=(5.0,) * 800), (), {2.0}),
    ],
)
def test_runs_whose_windows_hardly_differ_are_measured_for_less(
    machine, gated, run, words, measured
):
    machine.made = run
    assert gated(*words)[0] == 0
    assert machine.measured_s[:2] == [1.0, 0.2]
    assert set(machine.measured_s[3:]) == measured


CALM, RESTLESS = (50, 50.03, 49.98, 50, 50.02, 49.97, 50), (50, 50, 51, 50, 49, 50, 50)


@pytest.mark.parametrize(
    ("first", "others", "words", "measured"),
    [
        (CALM, CALM, (), [1.0] * 8),
        (CALM, CALM, ("--tolerance", "0.1"), [4.0] * 8),
        (RESTLESS, CALM, (), [4.0, *[2.0] * 7]),
        (CALM, RESTLESS, (), [1.0, *[4.0] * 7]),
        (CALM[:5], CALM, (), [4.0, *[2.0] * 7]),
    ],
)
def test_the_bases_first_run_says_whether_a_second_is_enough(
    machine, gated, first, others, words, measured
):
    machine.first, machine.made = windowed(*first, steps=3), windowed(*others, steps=3)
    assert gated("--no-turns", *words)[0] == 0
    assert machine.measured_s[2:10] == measured


def noted(*modules, changed=None):
    return {"modules": [[*each] for each in modules], "changed": changed or {}, "path": ["/x"]}


TORCH, NUMPY, OTHER = (
    (name, f"/usr/site-packages/{name}.py") for name in ("torch", "numpy", "other")
)
OWN = ("package", "/tree/head/site-packages/package.py")
COMMON = [
    ("the same", [[noted(TORCH), noted(NUMPY)]] * 2, [[TORCH], [NUMPY]], [[], []]),
    ("more after torch", [[noted(TORCH), noted(NUMPY)], [noted(TORCH), noted(NUMPY, OTHER)]],
     [[TORCH], [NUMPY]], [[], ["other"]]),
    ("another order", [[noted(TORCH), noted(NUMPY, OTHER)], [noted(TORCH), noted(OTHER, NUMPY)]],
     [[TORCH], []], [[], ["numpy", "other"]]),
    ("what one sets later", [[noted(TORCH), noted(NUMPY)],
     [noted(TORCH), noted(NUMPY, changed={"$A": "1"})]], [[TORCH]], [[]]),
    ("its own package", [[noted(OWN, TORCH)], [noted(OWN, TORCH)]], [[TORCH]], [["package"]]),
    ("an own one instead", [[noted(NUMPY, TORCH)], [noted(TORCH)]], None, None),
    ("what one sets first", [[noted(TORCH)], [noted(TORCH, changed={"$A": "1"})]], None, None),
]  # fmt: skip


@pytest.mark.parametrize(("notes", "modules", "never"), [c[1:] for c in COMMON])
def test_what_both_import_until_the_first_difference_is_imported_ahead(notes, modules, never):
    if modules is None:
        with pytest.raises(NoTemplateError):
            in_common(notes, ["/tree/base", "/tree/head"])
        return
    phases = in_common(notes, ["/tree/base", "/tree/head"])
    assert [each["modules"] for each in phases] == modules
    assert [each["never"] for each in phases] == never

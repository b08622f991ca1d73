"""Whole gates on scripts that are only simulated, in real repositories: what is said, and how."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from select import select
from tempfile import TemporaryDirectory

import psutil
import pytest

from gpuadvisor import cli
from gpuadvisor.collectors.energy import ComputeProcess
from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.collectors.script import start_line
from gpuadvisor.collectors.script.child.turns import WARM
from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.collectors.script.start_line import Starter
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.study import TrialState
from gpuadvisor.profiling import recording
from gpuadvisor.tuners.gate.metric import PROFILER
from gpuadvisor.tuning import preparation
from gpuadvisor.tuning.gate import comparison, setting_up
from gpuadvisor.tuning.gate.lengths import COUNTS
from gpuadvisor.tuning.trials import in_turns, trial_runner
from tests.json_page import documented, leaves
from tests.simulation import measurement

GPU = Device("cuda", 0, "NVIDIA H100", "GPU-1", 80 << 30)
CPU = Device("cpu", 0, "a CPU", memory_bytes=1 << 40, cores=2)


def git(*words):
    line = ["git", "-c", "user.name=n", "-c", "user.email=n@n", *words]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()


def write(text, name="train.py"):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)


def commit(text, name="train.py"):
    write(text, name)
    git("add", "--all")
    git("commit", "--quiet", "-m", "change")


def started(place):
    """Wait at the line where runs start side by side; return whether one is to be measured."""
    with TemporaryDirectory() as folder:
        orders = os.open(place.pipe(Path(folder)), os.O_RDONLY | os.O_NONBLOCK)
        try:
            place.take({"event": WARM, "workers": 0})
            while not select([orders], [], [], 0.02)[0]:
                if place.is_abandoned:
                    return False
            return True
        finally:
            os.close(orders)


class Machine:
    """Stands for the machine: a script's text says what its runs take, in ms and in MiB."""

    def __init__(self):
        self.requests = []
        self.profiled = []
        self.disturbance = self.limit = ""
        self.spread = 0.001
        self.random = random.Random(1)

    def profile(self, request, load=None):
        """Run a script under the profiler: a step is one operator that the script calls."""
        self.profiled.append(request)
        text = (Path(request.command.folder) / request.command.script).read_text()
        (asked,) = [each for each in request.specification.applications if each.knob == "profile"]
        step_us = 1e3 * float(text.split()[0])
        rows = [("python_function", "train.py(0): <module>", -1.0, 9 * step_us)]
        for number in range(3):
            times = number * step_us, step_us
            rows.append(("user_annotation", f"ProfilerStep#{number}", *times))
            rows.append(("python_function", "train.py(7): step", *times))
            rows.append(("cpu_op", "aten::mm", *times))
        keys = ("cat", "name", "ts", "dur")
        events = [dict(zip(keys, row, strict=True), ph="X", pid=1, tid=1, args={}) for row in rows]
        trace = {"schemaVersion": 1, "traceEvents": events}
        Path(json.loads(asked.value)["file"]).write_text(json.dumps(trace))
        report = json.dumps({"steps": 3, "with_gpu": False, "why": ""})
        request.on_event(
            {"event": "knob", "knob": "profile", "state": "effective", "detail": report}
        )
        return RunOutcome(TrialState.COMPLETE, "", None, "", 8.0, steps=3)

    def run(self, request, *meters):
        text = (Path(request.command.folder) / request.command.script).read_text()
        waits = isinstance(request.seat, Starter) and not text.startswith("fails")
        if waits and not started(request.seat):
            return RunOutcome(TrialState.PRUNED, "stopped", None, "", 1.0)
        self.requests.append(request)
        if text.startswith("fails"):
            state = TrialState(text.split()[1])
            return RunOutcome(
                state, "it raised ValueError", None, "Traceback ...", 1.0, "t.py, line 1"
            )
        counts = [a for a in request.specification.applications if a.knob == PROFILER]
        if counts and text.endswith("no profiler"):
            request.on_event({"event": "measured", "steps": 100})
            return RunOutcome(TrialState.CRASHED, "killed by SIGSEGV", None, "", 8.0)
        cost_ms, memory_mib = map(float, text.split()[:2])
        factor = float(request.environment.get("TIMES", 1)) * (1 + len(request.command.args))
        factor *= 2 if "slow" in request.command.python else 1
        factor /= 1 + len(request.specification.applications) - len(counts)
        factor *= 1 + self.random.gauss(0, self.spread)
        measured = measurement(
            [cost_ms * factor] * 8,
            peak_memory_bytes=int(memory_mib * 2**20),
            counts={"graph_breaks": {"print": (int([*text.split(), "1"][2]),)}},
            compiles=1,
        )
        beside = {"disturbance": self.disturbance, "limit": self.limit}
        return RunOutcome(TrialState.COMPLETE, "", measured, "", 8.0, **beside)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    made = Machine()
    folder = tmp_path / "repo"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("PYTHONPATH", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    git("init", "--quiet", "-b", "main")

    def python(command):
        return TargetPython(command.python, "3.12.3", torch="2.9.0", editable=(str(folder),))

    monkeypatch.setattr(trial_runner, "run_script", made.run)
    monkeypatch.setattr(recording, "run_script", made.profile)
    for module in (comparison, setting_up):
        monkeypatch.setattr(module, "target_python", python)
    monkeypatch.setattr(comparison, "devices_for", lambda python, jobs: [GPU])
    monkeypatch.setattr(comparison, "reserved", lambda devices, checked: checked)
    monkeypatch.setattr(preparation, "other_processes", lambda device: [])
    monkeypatch.setattr(in_turns, "free_memory_bytes", lambda device: 1 << 40)
    monkeypatch.setattr(start_line, "PATIENCE_S", 3600.0)  # however busy the machine is
    return made


@pytest.fixture
def gated(machine, capsys, monkeypatch):
    """Run the command; returns its status, and what it printed on both streams."""
    own = Path(sys.executable).parent  # where only `python3` is installed, `python` is there
    monkeypatch.setenv("PATH", f"{own}{os.pathsep}{os.environ['PATH']}")

    def gated(*words, script="train.py"):
        status = cli.main(["gate", *words, *filter(None, [script])])
        return status, *capsys.readouterr()

    return gated


@pytest.mark.parametrize(
    ("head", "status", "words"),
    [
        ("100 1000", 0, "Pass: compared with HEAD, step time is"),
        ("90 1000", 0, "Pass: compared with HEAD, step time is -10"),
        ("105 1000", 4, "Fail: compared with HEAD, step time is +4.9%"),
        ("200 1000", 4, "Fail: compared with HEAD, step time is +100%"),
        ("100 1200", 4, "peak memory is +20% (+20% to +20%), more than the 6.4% that is tolerated"),
        (
            "fails crashed",
            4,
            "the work tree is broken where HEAD runs: crashed: it raised ValueError",
        ),
        ("fails hung", 4, "the work tree is broken where HEAD runs: hung:"),
        ("fails out_of_memory", 4, "the work tree is broken where HEAD runs: out of memory:"),
    ],
)
def test_the_work_tree_beside_its_commit(gated, head, status, words):
    commit("100 1000")
    write(head)
    found, out, _ = gated("--base", "HEAD")
    assert found == status
    assert words in " ".join(out.split())
    assert git("worktree", "list").count("\n") == 0
    assert Path("train.py").read_text() == head


@pytest.fixture
def vanishing(machine, monkeypatch):
    """Have a run find that something was removed, from the given one on; it fails without."""

    def vanishing(number, remove, needs):
        def run(request, *meters):
            if len(machine.requests) == number:
                remove(Path(request.command.folder))
            if (Path(request.command.folder) / needs).exists():
                return machine.run(request, *meters)
            machine.requests.append(request)
            why = f"ModuleNotFoundError: No module named '{needs}'"
            return RunOutcome(TrialState.CRASHED, why, None, "Traceback ...", 1.0)

        monkeypatch.setattr(trial_runner, "run_script", run)

    return vanishing


@pytest.mark.parametrize("number", [2, 7])
def test_a_file_that_vanished_from_one_version_is_not_that_versions_doing(gated, vanishing, number):
    commit("", "helper.py")
    commit("100 1000")
    write("101 1000")
    vanishing(number, lambda folder: (folder / "helper.py").unlink(), "helper.py")
    status, out, err = gated("--base", "HEAD", "--no-turns")
    assert status == 7, (out, err)
    assert "but helper.py of its folder is gone since the gate began" in " ".join(err.split())
    assert git("worktree", "list").count("\n") == 0


@pytest.mark.parametrize("number", [2, 7])
def test_what_vanished_for_both_is_neither_versions_doing(gated, vanishing, tmp_path, number):
    shared = tmp_path / "shared.py"
    shared.touch()
    commit("100 1000")
    write("101 1000")
    vanishing(number, lambda folder: shared.unlink(missing_ok=True), shared)
    status, out, err = gated("--base", "HEAD", "--no-turns")
    assert status in (3, 7), (out, err)
    told = " ".join(err.split())
    assert "something besides the versions has changed" in told or "fails in both" in told
    assert "broken" not in told


@pytest.mark.parametrize("left", ["out", "out/log.txt"])
def test_a_script_that_fails_by_what_its_own_runs_left_is_told_so(
    machine, gated, monkeypatch, left
):
    commit("100 1000")

    def run(request, *meters):
        path = Path(request.command.folder) / left
        if (path.parent if "." in left else path).exists():
            why = "FileExistsError: [Errno 17] File exists: 'out'"
            return RunOutcome(TrialState.CRASHED, why, None, "Traceback ...", 1.0)
        if "." in left:
            path.parent.mkdir()
            path.touch()
        else:
            path.mkdir()
        return machine.run(request, *meters)

    monkeypatch.setattr(trial_runner, "run_script", run)
    status, _, err = gated("--base", "HEAD", "--no-turns")
    told = " ".join(err.split())
    assert status == 7
    assert "or the script fails by what its earlier runs left behind" in told
    assert ("such as out/log.txt" in told) == ("." in left)


def test_a_benchmark_that_is_younger_than_both_versions(machine, gated):
    commit("old", "module.py")
    commit("new", "module.py")
    write("100 1000", "bench.py")
    words = ("--base", "HEAD~1", "--head", "HEAD")
    status, _, err = gated(*words, script="bench.py")
    assert status == 2
    assert "give it to both with --link bench.py" in " ".join(err.split())
    seen = {}
    run = machine.run

    def looking(request, *meters):
        folder = Path(request.command.folder)
        # Of a link Python would look for `module` where it leads.
        seen[folder.name] = (folder / "bench.py").resolve().with_name("module.py").read_text()
        return run(request, *meters)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial_runner, "run_script", looking)
        status, out, _ = gated(*words, "--link", "bench.py", script="bench.py")
    assert status == 0
    assert seen == {"base": "old", "head": "new"}
    assert "Pass: compared with HEAD~1" in out


def test_a_base_that_fails_from_its_second_run_on(machine, gated, monkeypatch):
    commit("100 1000")
    write("101 1000")
    run = machine.run

    def failing(request, *meters):
        outcome = run(request, *meters)
        is_broken = Path(request.command.folder).name == "base" and len(machine.requests) > 2
        crashed = RunOutcome(TrialState.CRASHED, "it raised OSError", None, "", 1.0)
        return crashed if is_broken else outcome

    monkeypatch.setattr(trial_runner, "run_script", failing)
    status, out, _ = gated("--base", "HEAD")
    assert status == 6
    assert "HEAD fails in 2 of 3 runs, so there is nothing to compare with" in " ".join(out.split())
    assert len(machine.requests) == 5  # both once, the base twice, and the head still runs


def test_what_a_script_removes_itself_is_no_excuse(machine, gated, monkeypatch):
    commit("", "scratch.txt")
    commit("100 1000")
    write("fails crashed")
    run = machine.run

    def removing(request, *meters):
        (Path(request.command.folder) / "scratch.txt").unlink(missing_ok=True)
        return run(request, *meters)

    monkeypatch.setattr(trial_runner, "run_script", removing)
    status, out, _ = gated("--base", "HEAD")
    assert status == 4
    assert "the work tree is broken where HEAD runs" in " ".join(out.split())
    sides = [Path(each.command.folder).name for each in machine.requests]
    # It fails beside the base and alone, and the base still runs where it ran.
    assert sides == ["head", "base", "head", "base"]


def side_by_side(machine):
    return [isinstance(each.seat, Starter) for each in machine.requests]


def test_first_runs_start_side_by_side(machine, gated):
    commit("100 1000")
    write("101 1000")
    _, out, err = gated("--base", "HEAD", "--json")
    assert side_by_side(machine) == [True] * 2 + [False] * 8
    runs = [(each["side"], each["place"]) for each in json.loads(out)["runs"]]
    assert runs[:3] == [("base", "first"), ("head", "first"), ("base", "known")]
    assert "side by side" not in err


@pytest.mark.parametrize(
    ("change", "beside"),
    [
        (lambda patch: patch.setattr(in_turns, "free_memory_bytes", lambda device: None), 0),
        (lambda patch: patch.setattr(comparison, "devices_for", lambda *each: [CPU]), 0),
        (lambda patch: patch.setattr(in_turns, "free_memory_bytes", filling(80, 40, 39)), 1),
    ],
)
def test_where_they_do_not_they_start_alone(machine, gated, monkeypatch, change, beside):
    commit("100 1000")
    write("101 1000")
    change(monkeypatch)
    status, _, err = gated("--base", "HEAD", "--no-turns")
    assert (status, sum(side_by_side(machine))) == (0, beside)
    assert len(machine.requests) == 10
    told = "the head starts anew, alone: side by side they took 41.0 of the 80.0 GiB"
    assert (told in " ".join(err.split())) is bool(beside)


def filling(*gib):
    """Memory of which so much is free each time that somebody asks, and then as the last time."""
    left = list(gib)
    return lambda device: (left.pop(0) if left[1:] else left[0]) << 30 if device.is_gpu else 1 << 40


def test_two_versions_in_one_folder_start_one_after_the_other(machine, gated):
    write("100 1000")
    gated("--base-cmd", "A=1 python train.py", "--head-cmd", "A=2 python train.py", script="")
    assert not any(side_by_side(machine))


def test_it_takes_ten_runs_where_that_is_enough(machine, gated):
    commit("100 1000")
    write("101 1000")
    gated("--base", "HEAD")
    assert len(machine.requests) == 10


def test_a_script_that_fails_with_the_profiler_is_gated_without(machine, gated):
    commit("100 1000 1 no profiler")
    write("101 1000 1 no profiler")
    status, out, _ = gated("--base", "HEAD", "--json")
    why = {each["metric"]: each["reason"] for each in json.loads(out)["unmeasured"]}
    assert status == 0
    assert why["kernels"] == "with torch's profiler the script fails: killed by SIGSEGV"
    counted = [bool(each.specification.applications) for each in machine.requests]
    # Beside the other version, alone, that again without, and nine more.
    assert counted == [True] * 2 + [False] * 10


def test_a_count_that_fails_is_told_before_anything_is_timed(machine, gated):
    commit("100 1000 1")
    write("100 1000 2")
    status, out, _ = gated("--base", "HEAD")
    words = " ".join(out.split())
    assert (status, len(machine.requests)) == (4, 7)
    assert "Fail: compared with HEAD, graph breaks: 2 instead of 1 (+1 print)." in words
    assert "step time, peak memory" in words
    assert "(a count had failed before: --metric step_time has times compared, too)" in words
    assert gated("--base", "HEAD", "--metric", "step_time")[0] == 4
    assert len(machine.requests) == 7 + 7 + 6


@pytest.mark.parametrize(("head", "status", "starts"), [("1", 0, 4), ("0", 0, 4), ("2", 4, 7)])
def test_counts_alone_are_compared_in_the_same_steps_of_few_starts(
    machine, gated, head, status, starts
):
    commit("100 1000 1")
    write(f"300 9000 {head}")
    machine.disturbance = "others used 3.0 of 4 CPU cores, and none was idle"
    found, out, _ = gated("--base", "HEAD", "--only", "graph_breaks,recompilations")
    assert (found, len(machine.requests)) == (status, starts)
    assert {each.specification.schedule for each in machine.requests} == {COUNTS}
    words = " ".join(out.split())
    assert "Graph breaks" in words and "Recompilations" in words
    assert not re.search("Step time|Peak memory|used the machine|Not measured", words)


def test_what_a_configuration_has_compared_only(machine, gated):
    only = 'measure = 9\nonly = ["graph_breaks"]'
    write(CONFIGURATION.replace("measure = 2", only), "pyproject.toml")
    commit("100 1000 1")
    assert gated("--base", "HEAD", "--json", script="small")[0] == 0
    schedules = {each.specification.schedule for each in machine.requests}
    assert {each.measure_s for each in schedules} == {9}
    assert len(machine.requests) == 4
    assert gated("--base", "HEAD", "--only", "step_time", script="small")[0] == 0
    assert len(machine.requests) == 4 + 10


def test_a_commit_beside_another(gated):
    commit("100 1000")
    commit("200 1000")
    commit("100 1000")
    assert gated("--base", "HEAD~2", "--head", "HEAD~1")[0] == 4
    assert gated("--base", "HEAD~2", "--head", "HEAD")[0] == 0


def test_names_are_written_as_they_are_also_where_a_note_begins(gated):
    commit("100 1000")
    git("checkout", "--quiet", "-b", "change")
    commit("100 1000 1 ")
    git("checkout", "--quiet", "main")
    commit("50 1000")
    status, out, _ = gated("--base", "main", "--head", "change")
    assert status == 0
    assert "where change left main, which went on since." in " ".join(out.split())


def test_a_head_that_is_older_than_its_base_is_told_how_to_be_compared(gated):
    commit("100 1000")
    commit("200 1000")
    status, _, err = gated("--base", "HEAD", "--head", "HEAD~1")
    told = " ".join(err.split())
    assert (status, "what differs is noise; to compare HEAD~1 with HEAD, which" in told) == (
        0,
        True,
    )
    assert "give --base-folder and --head-folder" in told


def test_runs_that_differ_much_are_inconclusive(machine, gated):
    commit("100 1000")
    machine.spread = 0.2
    status, out, err = gated("--base", "HEAD")
    assert status == 6
    assert "both are commit" in err
    words = " ".join(out.split())
    assert "Runs of one version differ by" in words
    assert "A quieter machine" not in words  # which says less


def test_an_old_version_that_is_broken_is_no_regression(gated):
    commit("fails crashed")
    write("100 1000")
    status, _, err = gated("--base", "HEAD")
    assert status == 6
    assert "HEAD is broken, so there is nothing to compare with" in err


def test_both_broken(gated):
    commit("fails crashed")
    write("fails hung")
    status, _, err = gated("--base", "HEAD")
    assert status == 3
    assert "  | Traceback ..." in err
    assert "the script fails in both versions" in err
    assert "--link" not in err


@pytest.mark.parametrize("folders", [False, True])
def test_of_a_file_that_new_work_trees_lack_it_is_told_how_to_give_it(
    gated, vanishing, tmp_path, folders
):
    commit("100 1000")
    vanishing(0, lambda folder: None, "data")
    both = ("--base-folder", str(Path.cwd()), "--head-folder", str(Path.cwd()))
    status, _, err = gated(*(both if folders else ("--base", "HEAD")))
    assert status == 3
    told = "what it reads that git ignores can be given with --link" in " ".join(err.split())
    assert told is not folders


@pytest.mark.parametrize(
    ("disturbance", "status"),
    [
        ("the GPU was held down by its temperature", 7),
        ("another process used the GPU (4711)", 7),
        ("others used 3.0 of 4 CPU cores, and none was idle", 0),
    ],
)
def test_a_machine_that_others_use(machine, gated, disturbance, status):
    commit("100 1000")
    machine.disturbance = disturbance
    found, out, err = gated("--base", "HEAD")
    assert found == status
    assert disturbance in " ".join((err if status else out).split())
    assert git("worktree", "list").count("\n") == 0


def test_a_limit_of_cpu_time_that_was_used_up_is_told(machine, gated):
    machine.limit = "the container's CPU limit of 2 cores was used up in 40 of 100 periods"
    commit("100 1000")
    status, out, _ = gated("--base", "HEAD")
    assert status == 0
    assert f"While the base was measured, {machine.limit}" in " ".join(out.split())


def test_a_busy_gpu_is_refused_before_anything_runs(machine, gated, monkeypatch):
    commit("100 1000")
    other = ComputeProcess(1, "python", None)
    monkeypatch.setattr(preparation, "other_processes", lambda device: [other])
    assert gated("--base", "HEAD")[0] == 7
    assert machine.requests == []


def test_packages_that_are_installed_from_the_folder_are_those_of_each_version(machine, gated):
    Path("src").mkdir()
    write("", "src/package.py")
    commit("100 1000")
    gated("--base", "HEAD")
    for request in machine.requests:
        root = Path(request.command.folder)
        assert request.environment["PYTHONPATH"] == str(root / "src")
        assert not root.is_relative_to(Path.cwd())


def test_a_script_in_a_folder_and_data_that_git_ignores(machine, gated, monkeypatch):
    write("data", ".gitignore")
    commit("100 1000", "examples/train.py")
    monkeypatch.chdir("examples")
    Path("data").mkdir()
    seen = []
    run = machine.run

    def look(request, *meters):
        seen.append((Path(request.command.folder) / "data").resolve())
        return run(request)

    monkeypatch.setattr(trial_runner, "run_script", look)
    assert gated("--base", "HEAD", "--link", "data")[0] == 0
    assert set(seen) == {Path("data").resolve()}


@pytest.mark.parametrize("target", ["../elsewhere.py", "lib.py"])
def test_a_link_by_which_both_versions_run_the_same_file_is_told(machine, gated, target):
    write("100 1000", target)
    file = Path(target).resolve()
    Path("train.py").symlink_to(file if target.startswith("..") else target)
    commit("", "notes")
    _, out, _ = gated("--base", "HEAD")
    told = f"leadsto{file}inbothversions,outsideofthem" in "".join(out.split())
    assert told is target.startswith("..")


@pytest.mark.parametrize(
    ("file", "words", "told"),
    [
        ("requirements.txt", (), True),
        ("sub/uv.lock", (), True),
        ("notes.txt", (), False),
        ("requirements.txt", ("--setup-cmd", "true"), False),
    ],
)
def test_other_packages_that_only_the_files_name_are_told(machine, gated, file, words, told):
    commit("a==1", file)
    commit("100 1000")
    write("a==2", file)
    _, out, _ = gated("--base", "HEAD", *words)
    sentence = f"Both versions run with the same packages, though {file} is not the same in them"
    assert (sentence in " ".join(out.split())) is told


def test_two_folders_without_git(gated, tmp_path):
    write("100 1000", tmp_path / "old" / "train.py")
    write("200 1000", tmp_path / "new" / "train.py")
    folders = ("--base-folder", f"{tmp_path}/old", "--head-folder")
    assert gated(*folders, f"{tmp_path}/new")[0] == 4
    assert gated(*folders, f"{tmp_path}/old")[0] == 0


@pytest.fixture
def slow(tmp_path):
    """An interpreter with which the machine is half as fast."""
    path = tmp_path / "slow" / "python"
    path.parent.mkdir()
    path.touch(0o755)
    return str(path)


@pytest.fixture
def plan(tmp_path):
    """A plan with which the machine is twice as fast."""
    path = tmp_path / "fast.plan.toml"
    head = 'format = 2\nscript = "train.py"\nlevel = "balanced"\nobjective = "throughput"\n'
    path.write_text(f"[plan]\n{head}[knobs]\ntf32 = true\n")
    return str(path)


def test_two_interpreters_on_the_same_script(gated, slow):
    write("100 1000")
    status, out, err = gated("--head-python", slow)
    assert status == 4
    assert f"compared with {sys.executable}, step time is +100%" in " ".join(out.split())
    assert f"{slow} is Python 3.12.3 with torch 2.9.0" in err
    assert gated("--base-python", slow)[0] == 0


def test_one_interpreter_cannot_use_the_device(gated, slow, monkeypatch):
    def devices(python, jobs):
        return [Device("cpu", 0, "CPU") if "slow" in python.executable else GPU]

    monkeypatch.setattr(comparison, "devices_for", devices)
    write("100 1000")
    status, _, err = gated("--head-python", slow)
    assert status == 2
    assert f"both sides run on one device, but {slow} can use no GPU" in err


def test_a_plan_and_the_unchanged_script(gated, plan):
    write("100 1000")
    status, out, _ = gated("--head-plan", plan)
    assert status == 0
    assert "compared with the unchanged script, step time is -50%" in " ".join(out.split())
    assert gated("--base-plan", plan)[0] == 4
    status, _, err = gated("--base-plan", plan, "--head-plan", plan)
    assert status == 0
    assert "both sides are the same" in err


def test_a_plan_that_changes_what_a_step_is(gated, plan):
    write("100 1000")
    Path(plan).write_text(Path(plan).read_text() + '"arg:batch-size" = 64\n')
    status, _, err = gated("--head-plan", plan)
    assert status == 2
    assert "the samples of a step are not known" in err


def test_any_two_commands(machine, gated):
    write("100 1000")
    base, head = f"{sys.executable} train.py", f"A=b TIMES=3 {sys.executable} -O ./train.py"
    status, out, _ = gated("--base-cmd", base, "--head-cmd", head, script=None)
    assert status == 4
    assert f"compared with {base}, step time is +200%" in " ".join(out.split())
    given = {"A": "b", "TIMES": "3", "PYTHONOPTIMIZE": "1"}
    assert [request.environment for request in machine.requests[:2]] == [{}, given]
    _, out, _ = gated("--base-cmd", head, "--json")
    assert json.loads(out)["base"]["variables"] == ["A=b", "TIMES=3", "PYTHONOPTIMIZE=1"]


def test_commands_and_plans_in_two_commits(gated, plan):
    commit("100 1000", "old.py")
    git("mv", "old.py", "new.py")
    commit("100 1000", "new.py")
    python = sys.executable
    lines = ("--base-cmd", f"{python} old.py", "--head-cmd", f"{python} new.py --more")
    assert gated("--base", "HEAD~1", *lines, script=None)[0] == 4
    status, out, _ = gated("--base", "HEAD~1", *lines, "--head-plan", plan, "--json", script=None)
    assert status == 0
    assert json.loads(out)["head"]["name"] == f"HEAD, {python} new.py --more, {plan}"
    assert git("worktree", "list").count("\n") == 0


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("torchrun train.py", "torchrun starts several processes"),
        ("python -m torch.distributed.run train.py", "torch.distributed.run starts several"),
        ("make bench", "--head-cmd: make is not Python"),
        ("./train.py", "train.py is not Python, .* such as `python ./train.py`"),
        ("A=1", "nothing is not Python"),
        ("python", "Python without a script cannot be measured"),
        ("python -X dev train.py", "Python's option -X cannot be measured"),
        ("python 'train.py", "--head-cmd .*: no closing quotation"),
        ("python train.py | tee log", "no shell runs it, so '\\|' means nothing"),
        ("python9.9 train.py", "the Python python9.9 does not exist"),
        ("CUDA_VISIBLE_DEVICES=1 python train.py", "both sides run on one device"),
        (f"{sys.executable} lost.py", "there is no script lost.py in"),
    ],
)
def test_a_command_that_cannot_be_measured_is_one_sentence(gated, machine, line, sentence):
    write("100 1000")
    status, _, err = gated("--head-cmd", line)
    assert (status, machine.requests) == (2, [])
    assert re.match(f"gpuadvisor: .*{sentence}.*\n$", err)


CONFIGURATION = """
[tool.gpuadvisor.gate]
measure = 2
tolerance = 5
limit = 10

[[tool.gpuadvisor.gate.benchmark]]
name = "small"
script = "train.py"
setup-cmd = "echo >> set-up"

[[tool.gpuadvisor.gate.benchmark]]
name = "large"
script = "large.py"
args = ["--more"]
tolerance = 1
limit = 3
link = ["data"]
setup-cmd = "echo >> set-up"
"""


def test_benchmarks_of_a_project_in_the_same_checkouts(machine, gated, monkeypatch):
    write(CONFIGURATION, "pyproject.toml")
    write("data", ".gitignore")
    write("100 1000", "large.py")
    commit("100 1000")
    write("103 1000")
    write("104 1000", "large.py")
    Path("data").mkdir()
    sets = []
    run = machine.run

    def look(request, *meters):
        sets.append((Path(request.command.folder) / "set-up").read_text())
        return run(request)

    monkeypatch.setattr(trial_runner, "run_script", look)
    status, out, err = gated("--base", "HEAD", "--json", script=None)
    assert status == 4
    assert "gpuadvisor: large: regression: " in err
    documents = json.loads(out)["benchmarks"]
    assert [(d["name"], d["verdict"]) for d in documents] == [("small", "pass"), ("large", "fail")]
    assert {request.specification.schedule.measure_s for request in machine.requests[2:10]} == {2}
    assert len({request.command.folder for request in machine.requests}) == 2
    assert set(sets) == {"\n"}
    assert git("worktree", "list").count("\n") == 0
    assert gated("--base", "HEAD", script="small")[0] == 0
    assert (
        gated("--base", "HEAD", "--tolerance", "6", script="large")[0] == 2
    )  # not below its limit


def test_the_worst_of_several_benchmarks_is_told_and_none_keeps_others_from_running(gated):
    write(CONFIGURATION, "pyproject.toml")
    write("100 1000", "large.py")
    write("", "data")
    commit("fails crashed")
    status, out, err = gated("--base", "HEAD", script=None)
    assert status == 3
    assert "small: the script fails in both versions" in err
    assert "Error: the script fails in both versions" in " ".join(out.split())
    assert "large\n" in out and "Pass: compared with HEAD" in " ".join(out.split())


def test_benchmarks_share_the_error_of_one_gate(machine, gated):
    write(CONFIGURATION, "pyproject.toml")
    write("100 1000", "large.py")
    write("", "data")
    commit("100 1000")

    def low(name):
        machine.random = random.Random(1)
        words = ("--base", "HEAD", "--json", "--tolerance", "1", "--limit", "3")
        return json.loads(gated(*words, script=name)[1])["metrics"][0]["low"]

    assert low("small") < low("train.py") < 1


def test_its_json_is_documented_and_has_every_run(machine, gated):
    commit("100 1000")
    write("200 1000")
    status, out, _ = gated("--base", "HEAD", "--json")
    document = json.loads(out, parse_constant=pytest.fail)
    assert (status, document["verdict"]) == (4, "fail")
    assert len(document["runs"]) == len(machine.requests)
    fields = documented("A gate as JSON").keys()
    # The simulated head has no findings of its own.
    known = {each for each in fields if not each.startswith("explanation.findings[]")}
    assert dict(leaves(document)).keys() == known


def test_a_time_that_fails_is_explained(machine, gated):
    commit("100 1000")
    write("200 1000")
    status, out, _ = gated("--base", "HEAD")
    assert status == 4
    words = " ".join(out.split())
    assert "a step takes 200 ms instead of 100 ms, +100 ms; without it +1" in words
    assert re.search(r"train\.py:7 in step +100 ms +200 ms +\+100 ms +100%", words)
    folders = [Path(each.command.folder) for each in machine.profiled]
    assert len(set(folders)) == 2
    assert not any(each.exists() for each in folders)


def test_what_is_explained_runs_as_its_side(machine, gated):
    commit("100 1000")
    line = "TIMES=2 python train.py --more"
    gated("--base", "HEAD", "--head-cmd", line)
    base, head, again, last = machine.profiled
    assert ("TIMES" in base.environment, head.environment["TIMES"]) == (False, "2")
    assert (base.command.args, head.command.args) == ((), ("--more",))
    assert (again.command, last.command) == (head.command, base.command)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("100 1000", []),  # it passes
        ("100 1200", []),  # memory fails
        ("fails crashed", []),
        ("200 1000", ["--no-explain"]),
    ],
)
def test_nothing_else_is_profiled(machine, gated, head, words):
    commit("100 1000")
    write(head)
    gated("--base", "HEAD", *words)
    assert machine.profiled == []


def test_a_profile_that_fails_leaves_the_verdict(machine, gated, monkeypatch):
    def crash(request, load=None):
        return RunOutcome(TrialState.CRASHED, "it raised ValueError", None, "", 1.0, steps=3)

    monkeypatch.setattr(recording, "run_script", crash)
    commit("100 1000")
    write("200 1000")
    status, out, _ = gated("--base", "HEAD")
    assert status == 4
    words = " ".join(out.split())
    assert "it was not profiled: train.py cannot be profiled: it raised ValueError." in words


@pytest.mark.parametrize(
    ("words", "script", "sentence"),
    [
        (["--base", "v9"], "train.py", "there is no commit v9 in"),
        (["--base", "HEAD"], "lost.py", "there is no script lost.py"),
        (["--base", "HEAD"], "lost", "there is no script lost"),
        (["--base", "HEAD"], None, "name a script, or describe benchmarks in [tool.gpuadvisor"),
        (["--base", "HEAD"], "ignored.py", "`git add --force ignored.py`"),
        (["--base", "HEAD", "--head", "HEAD"], "new.py", "new.py is neither in HEAD nor in HEAD: "),
        (["--base-folder", "a", "--head-folder", "."], "train.py", "there is no folder a"),
        (["--base", "HEAD"], "trian", "there is no script trian in"),
        (["--base", "HEAD", "--base-cmd", "python new.py"], "train.py", "new.py is not in HEAD"),
        (["--base", "HEAD", "--only", "x"], "train.py", "there is no metric 'x': choose from"),
        (["--base", "HEAD", "--link", "x"], "train.py", "--link x: there is no"),
        (["--base", "HEAD", "--limit", "1"], "train.py", "(1) has to be smaller than --limit (1)"),
        (["--base", "HEAD", "--base-folder", "."], "train.py", "give --base-folder and --head-f"),
        (["--base-folder", "."], "train.py", "give --base-folder and --head-folder together"),
        ([], "train.py", "say what to compare with: --base origin/main"),
        ([], "lost.py", "there is no script lost.py"),
        (["main"], "train.py", "to compare with main, `gpuadvisor gate --base main train.py`"),
        (
            ["--base", "HEAD", "--link", "data", "extra"],
            "train.py",
            "`gpuadvisor gate --base HEAD --link data --link extra train.py`",
        ),
        (["--head", "HEAD"], "train.py", "say what to compare with: --base origin/main"),
        (["--head-plan", "lost.toml"], "train.py", "cannot read a plan lost.toml"),
        (["--head-plan", "x", "--link", "y"], "train.py", "--link is for work trees"),
        (["--base-cmd", "a", "--head-cmd", "b"], "train.py", "give the script or both"),
        (["--base-cmd", "a"], None, "name the script, or both commands"),
        (["--head-plan", "x", "--setup-cmd", "y"], "train.py", "--setup-cmd is run in a folder"),
        (["--base-cmd", "a", "--base-python", "b"], "train.py", "name the interpreter in --b"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(gated, machine, words, script, sentence):
    write("ignored.py", ".gitignore")
    commit("100 1000")
    write("100 1000", "new.py")
    write("100 1000", "ignored.py")
    status, out, err = gated(*words, script=script)
    (line,) = err.splitlines()
    assert (status, out, machine.requests) == (2, "", [])
    assert re.match(f"gpuadvisor: .*{re.escape(sentence)}", line)
    assert git("worktree", "list").count("\n") == 0


def test_a_missing_script_is_named_also_where_there_is_no_repository(gated, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, err = gated("--base", "HEAD", script="lost.py")
    assert status == 2
    assert "there is no script lost.py in" in err


@pytest.mark.parametrize(
    ("head", "status", "reason"),
    [
        ("100 1000", 0, "new.py is new, HEAD lacks it, so that there is nothing to compare it"),
        ("fails crashed", 4, "and in the work tree it does not run: crashed: it raised ValueError"),
    ],
)
def test_a_script_that_only_the_head_has_needs_to_run(machine, gated, head, status, reason):
    commit("100 1000")
    write(head, "new.py")
    found, out, _ = gated("--base", "HEAD", "--json", script="new.py")
    document = json.loads(out)
    assert (found, len(machine.requests), document["metrics"]) == (status, 1, [])
    assert document["broken"] == ("head" if status else None)
    assert reason in document["reason"]


def test_a_script_that_the_head_has_lost_is_a_failure(machine, gated):
    write(CONFIGURATION, "pyproject.toml")
    write("100 1000", "large.py")
    write("", "data")
    commit("100 1000")
    Path("large.py").unlink()
    status, out, err = gated("--base", "HEAD", script=None)
    assert status == 4
    assert "large: failure: the work tree lacks large.py, which HEAD has" in err
    assert "Pass: compared with HEAD, step time" in " ".join(out.split())
    assert "--link" not in out


@pytest.mark.parametrize("asked", ["benches/new.py", "old.py"])
def test_a_script_that_git_finds_under_another_name_is_compared_with_that(machine, gated, asked):
    commit("100 1000", "old.py")
    Path("benches").mkdir()
    git("mv", "old.py", "benches/new.py")
    commit("100 1000", "benches/new.py")
    status, out, _ = gated("--base", "HEAD~1", "--head", "HEAD", "--json", script=asked)
    document = json.loads(out)
    assert (status, document["pairs"]) == (0, 3)
    commands = [document[side]["command"][-1] for side in ("base", "head")]
    assert commands == ["old.py", "benches/new.py"]
    assert ": these two are compared" in document["notes"][0]


def test_of_two_folders_too_one_may_have_a_new_script(gated, tmp_path):
    write("100 1000", tmp_path / "old" / "train.py")
    write("100 1000", tmp_path / "new" / "new.py")
    folders = ("--base-folder", f"{tmp_path}/old", "--head-folder", f"{tmp_path}/new")
    assert gated(*folders, script="new.py")[0] == 0
    assert gated(*folders)[0] == 4
    status, _, err = gated(*folders, script="lost.py")
    assert (status, f"there is no script lost.py in {tmp_path}/new" in err) == (2, True)


def test_sides_are_named_by_what_differs(gated, slow, plan, tmp_path):
    for name in ("old", "new"):
        write("100 1000", tmp_path / name / "train.py")
    words = ("--base-folder", f"{tmp_path}/old", "--head-folder", f"{tmp_path}/new", "--json")
    words += ("--base-python", slow, "--head-python", slow, "--head-plan", plan)
    _, out, _ = gated(*words)
    base, head = (json.loads(out)[side] for side in ("base", "head"))
    assert base["name"] == f"{tmp_path}/old, the unchanged script"
    assert (head["name"], head["plan"], base["plan"]) == (f"{tmp_path}/new, {plan}", plan, None)


def test_a_set_up_is_of_each_version_and_has_an_environment_of_its_own(machine, gated):
    commit("100 1000")
    line = 'test "$(which python)" = "$VIRTUAL_ENV/bin/python" && echo 1 > $VIRTUAL_ENV/built'
    line += "; echo 100 2000 > train.py; which pip; python -c 'import pytest'"
    assert gated("--base", "HEAD", "--setup-cmd", line)[0] == 0
    base, head = (Path(request.command.python) for request in machine.requests[:2])
    assert base != head
    assert {r.command.python for r in machine.requests} == {str(base), str(head)}
    assert not base.parents[2].exists()
    assert machine.requests[0].command.folder != machine.requests[1].command.folder
    assert Path("train.py").read_text() == "100 1000"


@pytest.mark.parametrize(
    ("base", "head", "status", "words"),
    [
        ("yes", "no", 4, "the work tree is broken where HEAD runs: set-up failed: `cat"),
        ("no", "no", 3, "the script fails in both versions (set-up failed: `cat"),
    ],
)
def test_a_set_up_that_fails_is_that_versions_failure(gated, base, head, status, words):
    commit("100 1000")
    commit(base, "builds")
    write(head, "builds")
    write("change", "other.py")
    found, out, err = gated("--base", "HEAD", "--setup-cmd", "cat builds && grep -q yes builds")
    assert found == status
    assert words in " ".join(err.split())
    assert "\n  no\n" in out or "  | no\n" in err
    assert git("worktree", "list").count("\n") == 0


def test_a_set_up_takes_too_long(gated, monkeypatch):
    monkeypatch.setattr(setting_up, "TIMEOUT_S", 0.3)
    commit("100 1000")
    status, _, err = gated("--base", "HEAD", "--setup-cmd", "sleep 71")
    assert status == 3
    assert "`sleep 71` took more than" in err


def test_ctrl_c_in_a_set_up_leaves_nothing(machine, gated):
    commit("100 1000")
    line = "setsid sleep 7177 & kill -INT $PPID; sleep 7177"
    status, _, err = gated("--base", "HEAD", "--setup-cmd", line)
    assert (status, machine.requests) == (130, [])
    assert err.endswith("gpuadvisor: interrupted\n")
    lines = [each.info["cmdline"] for each in psutil.process_iter(["cmdline"])]
    assert ["sleep", "7177"] not in lines
    assert git("worktree", "list").count("\n") == 0


@pytest.fixture
def interrupted(machine, monkeypatch):
    """A function that has the command end as by `kill` while the run of this number is made."""

    def interrupted(number):
        def run(request, *meters):
            if len(machine.requests) + 1 == number:
                os.kill(os.getpid(), signal.SIGTERM)
            return machine.run(request, *meters)

        monkeypatch.setattr(trial_runner, "run_script", run)

    return interrupted


def test_what_an_interrupted_gate_has_shown_is_told(gated, interrupted):
    commit("100 1000")
    write("190 1000")
    interrupted(10)  # after four runs before the pairs, of which two are complete then
    status, out, err = gated("--base", "HEAD", "--no-turns")
    assert (status, out) == (143, "")
    told = " ".join(err.split()).partition("gpuadvisor: ")[2]
    assert re.fullmatch(
        r"interrupted after 2 pairs of runs, too early for a verdict; in them a step of the work "
        r"tree took 1\.\d\d times as long as one of HEAD \(median; 1\.\d\d to 1\.\d\d\)",
        told,
    )
    assert git("worktree", "list").count("\n") == 0


def test_before_a_pair_is_complete_nothing_is_told(gated, interrupted):
    commit("100 1000")
    write("190 1000")
    interrupted(6)
    status, _, err = gated("--base", "HEAD", "--no-turns")
    assert status == 143
    assert err.endswith("gpuadvisor: interrupted before anything was compared\n")


def test_benchmarks_that_had_ended_are_told_where_another_is_interrupted(gated, interrupted):
    write(CONFIGURATION, "pyproject.toml")
    write("100 1000", "large.py")
    write("", "data")
    commit("100 1000")
    write("100.1 1000")
    interrupted(15)
    status, out, err = gated("--base", "HEAD", script=None)
    assert status == 143
    assert "small\n" in out and "Pass: compared with HEAD" in " ".join(out.split())
    assert "large" not in out
    assert "gpuadvisor: large: interrupted" in err


@pytest.fixture
def library(tmp_path):
    """A submodule `library` of the user's, with two commits, in a repository without a network."""
    commit("100 1000")
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    for folder in (inner, outer):
        git("init", "--quiet", str(folder))
    (inner / "deep.txt").write_text("1")
    git("-C", str(inner), "add", "--all")
    git("-C", str(inner), "commit", "--quiet", "-m", "first")
    add = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add")
    git("-C", str(outer), *add, str(inner), "deep")
    git("-C", str(outer), "commit", "--quiet", "-m", "first")
    git(*add, str(outer), "library")
    git(
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "update",
        "--init",
        "--recursive",
    )
    commit("100 1000", "library.txt")
    shutil.rmtree(inner)
    shutil.rmtree(outer)


def test_submodules_are_those_of_each_version(machine, gated, library, monkeypatch):
    before = Path(".git/config").read_text()
    write("2", "library/new.txt")
    git("-C", "library", "add", "--all")
    git("-C", "library", "commit", "--quiet", "-m", "second")
    seen = set()
    run = machine.run

    def look(request, *meters):
        library = Path(request.command.folder) / "library"
        seen.add(((library / "new.txt").exists(), (library / "deep/deep.txt").read_text()))
        return run(request)

    monkeypatch.setattr(trial_runner, "run_script", look)
    assert gated("--base", "HEAD")[0] == 0
    assert seen == {(False, "1"), (True, "1")}
    assert Path(".git/config").read_text() == before
    assert git("worktree", "list").count("\n") == 0


def test_submodules_that_are_not_here(gated, library):
    git("submodule", "--quiet", "deinit", "--all", "--force")
    status, _, err = gated("--base", "HEAD")
    assert status == 0, err  # their objects are kept
    shutil.rmtree(".git/modules")
    status, _, err = gated("--base", "HEAD")
    assert status == 2
    assert "the submodule library is at " in err
    assert "get it with `git submodule update --init --recursive`" in err
    assert git("worktree", "list").count("\n") == 0


def test_changes_in_a_submodule_that_are_not_committed(gated, library):
    write("2", "library/deep/deep.txt")
    status, _, err = gated("--base", "HEAD")
    assert status == 2
    assert "the submodule library has changes that are not committed" in err


def test_files_of_which_git_lfs_has_only_the_pointer(gated):
    write("*.bin filter=lfs", ".gitattributes")
    write("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "w.bin")
    write("is whole", "other.bin")
    commit("100 1000")
    status, out, err = gated("--base", "HEAD")
    assert status == 0
    assert "of w.bin there is only the pointer of Git LFS, not the content" in err
    assert "Of w.bin there is only the pointer" in out

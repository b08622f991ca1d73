"""`gpuadvisor gate init`: a workflow from a script that was measured, and nothing overwritten."""

import re
import shlex
import subprocess
import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml

from gpuadvisor import cli
from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.domain.device import Device
from gpuadvisor.tuning import preparation, trial_runner
from gpuadvisor.tuning.gate import trying
from gpuadvisor.tuning.gate.configuration import find_configuration
from tests.unit.tuning.test_gate import GPU, Machine, commit, git

WORKFLOW = Path(".github/workflows/gpuadvisor-gate.yml")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    made = Machine()
    made.device = GPU
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    git("init", "--quiet", "-b", "main")
    commit("100 1000")
    python = TargetPython("/usr/bin/python", "3.12.3", torch="2.9.0")
    monkeypatch.setattr(trial_runner, "run_script", made.run)
    monkeypatch.setattr(trying, "target_python", lambda command: python)
    monkeypatch.setattr(trying, "devices_for", lambda python, jobs: [made.device])
    monkeypatch.setattr(trying, "reserved", lambda devices: nullcontext())
    monkeypatch.setattr(preparation, "other_processes", lambda device: [])
    return made


@pytest.fixture
def init(machine, capsys):
    def init(*words):
        status = cli.main(["gate", "init", *words])
        return status, *capsys.readouterr()

    return init


def command_in(lines):
    """The arguments of the one gate that is run, as gpuadvisor's own parser has them."""
    (line,) = (each for each in lines if "gpuadvisor gate" in each)
    words = shlex.split(line.partition("gpuadvisor ")[2].partition("|| [")[0])
    return cli.build_parser().parse_args(words)


def test_it_measures_twice_elsewhere_and_tells_what_a_gate_costs(machine, init):
    status, out, err = init("train.py", "--", "--epochs", "1")
    assert status == 0
    assert len(machine.requests) == 2
    assert not any(Path(r.command.folder).is_relative_to(Path.cwd()) for r in machine.requests)
    told = " ".join(err.split())
    assert re.search(
        r"train.py takes [\d.]+ ms a step on NVIDIA H100, 0.977 GiB, and 3.0 s to", told
    )
    assert "12 starts and about 1 min 36 s where nothing got worse" in told
    assert f"wrote {WORKFLOW.absolute()}" in out
    assert git("worktree", "list").count("\n") == 0


def test_the_workflow_gates_what_was_measured(machine, init):
    Path("requirements.txt").write_text("torch")
    init("train.py", "--tolerance", "2", "--limit", "5", "--", "--name", 'a "b" \\ é')
    (benchmark,) = find_configuration(Path.cwd()).benchmarks
    assert (benchmark.name, benchmark.script) == ("train", "train.py")
    assert benchmark.args == ("--name", 'a "b" \\ é')
    assert benchmark.values == {"tolerance": 2, "limit": 5}
    job = yaml.safe_load(WORKFLOW.read_text())["jobs"]["gate"]
    assert job["runs-on"] == ["self-hosted", "linux", "gpu"]
    steps = [each["run"] for each in job["steps"] if "run" in each]
    parsed = command_in(steps)
    assert (parsed.script, parsed.base) == (None, "origin/$TARGET")
    assert steps[0].endswith("-r requirements.txt")
    assert job["steps"][0]["with"]["fetch-depth"] == 0


def test_without_a_gpu_it_asks_for_none(machine, init):
    machine.device = Device("cpu", 0, "AMD EPYC")
    _, _, err = init("train.py")
    assert yaml.safe_load(WORKFLOW.read_text())["jobs"]["gate"]["runs-on"] == "ubuntu-latest"
    assert 'only = ["operators", "allocated_bytes"]' in " ".join(err.split())


def test_a_script_in_a_folder_is_started_there(init, monkeypatch):
    commit("100 1000", "examples/train.py")
    monkeypatch.chdir("examples")
    init("train.py")
    job = yaml.safe_load((Path("..") / WORKFLOW).read_text())["jobs"]["gate"]
    (line,) = (each["run"] for each in job["steps"] if "gate" in each.get("run", ""))
    assert line.startswith("cd examples && gpuadvisor gate ")
    assert find_configuration(Path.cwd()).benchmarks[0].script == "train.py"
    assert job["steps"][-1]["with"]["path"] == "examples/gpuadvisor-gate.*"


@pytest.mark.parametrize(
    ("prepare", "ci"),
    [
        ("touch .gitlab-ci.yml", "gitlab"),
        ("mkdir .github", "github"),
        ("git remote add origin git@gitlab.com:a/b.git", "gitlab"),
        ("git remote add origin https://github.com/a/gitlab.git", "github"),
        ("true", "github"),
    ],
)
def test_whose_workflow_it_is_the_repository_shows(init, prepare, ci):
    subprocess.run(shlex.split(prepare), check=True)
    init("train.py")
    assert Path(".gitlab/gpuadvisor-gate.yml").exists() == (ci == "gitlab")
    assert WORKFLOW.exists() == (ci == "github")


def test_a_job_for_gitlab_is_included_by_the_user(init):
    Path(".gitlab-ci.yml").write_text("stages: [test]\n")
    _, _, err = init("train.py")
    assert "include: [{ local: .gitlab/gpuadvisor-gate.yml }]" in err
    assert Path(".gitlab-ci.yml").read_text() == "stages: [test]\n"
    job = yaml.safe_load(Path(".gitlab/gpuadvisor-gate.yml").read_text())["gpuadvisor-gate"]
    parsed = command_in(job["script"])
    assert {f"{job['artifacts']['reports'][k]}" for k in ("junit", "metrics")} <= {
        each.partition("=")[2] for each in parsed.output
    }


def test_nothing_is_overwritten_unless_it_shall_be(machine, init):
    WORKFLOW.parent.mkdir(parents=True)
    WORKFLOW.write_text("mine")
    status, _, err = init("train.py")
    assert (status, machine.requests) == (2, [])
    assert f"{WORKFLOW} is there already" in err
    _, out, _ = init("--print", "train.py")
    assert WORKFLOW.read_text() == "mine"
    init("--force", "train.py")
    config = Path("gpuadvisor.toml").read_text()
    assert out == f"# gpuadvisor.toml\n{config}\n# {WORKFLOW}\n{WORKFLOW.read_text()}"
    _, _, err = init("train.py")
    assert "[gate] in gpuadvisor.toml and " in err


PROJECT = """# mine
[project]
name = "x"  # a comment

[tool.gpuadvisor.gate]
tolerance = 2

[[tool.gpuadvisor.gate.benchmark]]
name = "old"
script = "old.py"

[tool.ruff]
line-length = 100
"""


def test_a_project_keeps_what_it_has(init):
    Path("pyproject.toml").write_text(PROJECT)
    status, _, err = init("train.py")
    assert status == 2
    assert "[tool.gpuadvisor.gate] in pyproject.toml is there already" in err
    init("--force", "train.py")
    text = Path("pyproject.toml").read_text()
    assert [each.name for each in find_configuration(Path.cwd()).benchmarks] == ["train"]
    assert text.startswith('# mine\n[project]\nname = "x"  # a comment\n\n[tool.ruff]\n')
    assert tomllib.loads(text)["tool"]["ruff"] == {"line-length": 100}
    assert not Path("gpuadvisor.toml").exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[tool.gpuadvisor]\ngate = {}\n", "in a way that cannot be replaced"),
        ("x = [\n", "cannot read pyproject.toml: "),
    ],
)
def test_a_project_that_cannot_be_changed_stays_as_it_is(machine, init, text, sentence):
    Path("pyproject.toml").write_text(text)
    status, _, err = init("--force", "train.py")
    assert (status, machine.requests) == (2, [])
    assert sentence in err
    assert Path("pyproject.toml").read_text() == text
    assert not WORKFLOW.exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["lost.py"], "there is no script lost.py"),
        (["train.py", "--", "a\nb"], "'a\\nb' cannot be written into the files"),
        (["--limit", "1", "train.py"], "--tolerance (1) has to be smaller than --limit (1)"),
        (["--link", "data", "train.py"], "--link data: there is no"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(machine, init, words, sentence):
    status, _, err = init(*words)
    assert (status, machine.requests, len(err.splitlines())) == (2, [], 1)
    assert sentence in err
    assert not WORKFLOW.exists()


def test_a_script_that_does_not_run_gets_no_workflow(machine, init):
    commit("fails crashed")
    status, _, err = init("train.py")
    assert status == 3
    assert "Traceback ..." in err
    assert "what it reads that git ignores can be given with --link" in err
    assert not WORKFLOW.exists()

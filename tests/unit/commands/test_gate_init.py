"""`gpuadvisor gate init`: a workflow from a script that was measured, and nothing overwritten."""

import json
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from gpuadvisor import cli
from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.domain.device import Device
from gpuadvisor.tuning import preparation
from gpuadvisor.tuning.gate import trying
from gpuadvisor.tuning.gate.configuration import find_configuration
from gpuadvisor.tuning.trials import trial_runner
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
    monkeypatch.setattr(trying, "reserved", lambda devices, checked: checked)
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
    assert "10 starts and about 1 min 20 s where nothing got worse" in told
    assert "1 base what it takes" in told
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


@pytest.mark.parametrize(
    ("requirements", "project", "installs"),
    [
        (None, None, "torch"),
        ("torch>=2\n", None, "-r requirements.txt"),
        ("torch-geometric\n", None, "-r requirements.txt torch"),
        (None, '[project]\nname = "x"\ndependencies = ["numpy"]\n', "-e . torch"),
        (None, '[project]\nname = "x"\ndependencies = ["torch>=2"]\n', "-e ."),
        ("numpy\n", '[project]\nname = "x"\n', "-r requirements.txt -e . torch"),
    ],
)
def test_the_job_installs_torch_whatever_the_project_lists(init, requirements, project, installs):
    if requirements is not None:
        Path("requirements.txt").write_text(requirements)
    if project is not None:
        Path("pyproject.toml").write_text(project)
    init("train.py")
    steps = yaml.safe_load(WORKFLOW.read_text())["jobs"]["gate"]["steps"]
    (line,) = (each["run"] for each in steps if "pip install" in each.get("run", ""))
    assert line == f'python -m pip install "$GPUADVISOR" {installs}'


@pytest.fixture
def installed(tmp_path_factory, monkeypatch):
    """Have gpuadvisor be installed from somewhere else, as pip notes it (PEP 610)."""

    def installed(direct_url):
        site = tmp_path_factory.mktemp("site")
        told = site / "gpuadvisor-0.1.0.dist-info"
        told.mkdir()
        (told / "METADATA").write_text("Metadata-Version: 2.1\nName: gpuadvisor\nVersion: 0.1.0\n")
        if direct_url:
            (told / "direct_url.json").write_text(json.dumps(direct_url))
        monkeypatch.syspath_prepend(site)

    return installed


def requirement():
    job = yaml.safe_load(WORKFLOW.read_text())["jobs"]["gate"]
    return job["env"]["GPUADVISOR"]


URL = "https://code.example/a/gpuadvisor"
VCS = {"url": URL, "vcs_info": {"vcs": "git", "commit_id": "ab12"}}


@pytest.mark.parametrize(
    ("direct_url", "installs", "assumes"),
    [
        (None, "gpuadvisor==0.1.0", "from a package index"),
        (VCS, f"gpuadvisor @ git+{URL}@ab12", f"from {URL}, as here: it has to reach that"),
        (
            {**VCS, "subdirectory": "tools/it"},
            f"gpuadvisor @ git+{URL}@ab12#subdirectory=tools/it",
            f"from {URL}",
        ),
        ({"url": f"{URL}.whl", "archive_info": {}}, f"gpuadvisor @ {URL}.whl", f"from {URL}.whl"),
        (
            {"url": "file:///opt/gpu%20advisor.whl", "archive_info": {}},
            "gpuadvisor @ file:///opt/gpu%20advisor.whl",
            "which only a runner on this machine has",
        ),
    ],
)
def test_the_job_gets_gpuadvisor_where_this_one_came_from(
    init, installed, direct_url, installs, assumes
):
    installed(direct_url)
    _, _, err = init("train.py")
    assert requirement() == installs
    assert assumes in " ".join(err.split())
    assert assumes in WORKFLOW.read_text()


@pytest.mark.parametrize(
    ("remote", "clones"),
    [
        (f"{URL}.git", f"{URL}.git"),
        ("https://me:secret@code.example/a/gpuadvisor", URL),
        ("git@code.example:a/gpuadvisor.git", f"{URL}.git"),
        ("ssh://git@code.example:2222/a/gpuadvisor", URL),
        ("/srv/git/gpuadvisor", None),
    ],
)
def test_the_job_clones_what_a_folder_here_is_a_clone_of(
    init, installed, tmp_path_factory, remote, clones
):
    clone = tmp_path_factory.mktemp("clone")

    def run(*words):
        who = ("-c", "user.name=A", "-c", "user.email=a@b")
        done = subprocess.run(["git", *who, *words], cwd=clone, check=True, capture_output=True)
        return done.stdout.decode().strip()

    run("init", "--quiet")
    run("commit", "--quiet", "--allow-empty", "-m", "one")
    run("remote", "add", "origin", remote)
    commit = run("rev-parse", "HEAD")
    installed({"url": clone.as_uri(), "dir_info": {"editable": True}})
    _, _, err = init("train.py")
    told = " ".join(err.split())
    if clones is None:
        assert requirement() == f"gpuadvisor @ {clone.as_uri()}"
        return
    assert requirement() == f"gpuadvisor @ git+{clones}@{commit}"
    assert f"push commit {commit[:12]} first" in told
    assert "secret" not in told
    run("update-ref", "refs/remotes/origin/main", commit)
    (clone / "new").touch()
    _, _, err = init("--force", "train.py")
    told = " ".join(err.split())
    assert "push commit" not in told
    assert f"what is not committed in {clone} is not in it" in told


def test_a_gpuadvisor_within_the_repository_is_installed_from_there(init, installed, tmp_path):
    installed({"url": (tmp_path / "wheels" / "gpuadvisor.whl").as_uri(), "archive_info": {}})
    init("train.py")
    assert requirement() == "./wheels/gpuadvisor.whl"


@pytest.mark.parametrize("ci", ["github", "gitlab"])
def test_variables_that_the_script_needs_are_in_the_job(machine, init, tmp_path, monkeypatch, ci):
    folders = [tmp_path / "my src", "lib", "/elsewhere"]
    monkeypatch.setenv("PYTHONPATH", ":".join(map(str, folders)))
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setenv("MKL_NUM_THREADS", "2")
    _, _, err = init("--ci", ci, "--env", "A=it's $B", "--env", "OMP_NUM_THREADS", "train.py")
    told = " ".join(err.split())
    assert "not in the workflow: /elsewhere of PYTHONPATH" in told
    (left,) = re.findall(r"this machine's own: (.*): --env", told)
    assert "MKL_NUM_THREADS" in left.split(", ")
    assert not {"OMP_NUM_THREADS", "PYTHONPATH", "A"} & set(left.split(", "))
    for request in machine.requests:
        assert request.environment["A"] == "it's $B"
        assert request.environment["PYTHONPATH"].endswith("lib:/elsewhere")
    path = WORKFLOW if ci == "github" else Path(".gitlab/gpuadvisor-gate.yml")
    parsed = yaml.safe_load(path.read_text())
    lines = (
        [each.get("run", "") for each in parsed["jobs"]["gate"]["steps"]]
        if ci == "github"
        else parsed["gpuadvisor-gate"]["script"]
    )
    (script,) = (each for each in lines if "gpuadvisor gate" in each)
    script = script.replace("gpuadvisor gate", "env #")
    top = "GITHUB_WORKSPACE" if ci == "github" else "CI_PROJECT_DIR"
    done = subprocess.run(
        ["bash", "-ec", script], env={"PATH": os.environ["PATH"], top: "/w"}, capture_output=True
    )
    has = dict(line.split("=", 1) for line in done.stdout.decode().splitlines() if "=" in line)
    assert has["PYTHONPATH"] == "/w/my src:/w/lib"
    assert (has["A"], has["OMP_NUM_THREADS"]) == ("it's $B", "4")
    assert "MKL_NUM_THREADS" not in has


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
        ("x = [\n", "pyproject.toml is not a configuration: it is not valid TOML "),
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
        (["--env", "1=2", "train.py"], "--env 1=2: give NAME or NAME=VALUE"),
        (["--env", "NOT_SET_HERE", "train.py"], "--env NOT_SET_HERE: that is not set here"),
        (["--env", "HF_TOKEN=x", "train.py"], "give it to the job as a secret of your CI"),
        (["--env", "A=${{ b }}", "train.py"], "--env A: its value cannot be written"),
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

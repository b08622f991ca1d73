"""The GitHub Action and the examples for CI: what they ask for exists, and does what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpuadvisor.cli import build_parser
from gpuadvisor.reports.gate.outcome import WORST

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
INSTALL, GATE, UPLOAD = ACTION["runs"]["steps"]
WORKFLOWS = {path.name: path for path in (ROOT / "examples" / "ci").glob("github-*.yml")}
GITLAB = (ROOT / "examples" / "ci" / "gitlab.yml").read_text("utf-8")
USED = re.compile(r"(?<![\w-])--[a-z-]+")


def gate_options():
    """The options of `gpuadvisor gate`."""
    parser = build_parser("gate")._subparsers._group_actions[0].choices["gate"]
    return {name for each in parser._actions for name in each.option_strings}


@pytest.fixture
def act(tmp_path):
    """Run the step that compares, with a program that writes down its arguments."""
    programs = tmp_path / "gpuadvisor" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to(sys.executable)
    stub = programs / "gpuadvisor"
    stub.write_text('#!/bin/bash\nprintf "%s\\n" "$@" > "$RUNNER_TEMP/words"\nexit "$STATUS"\n')
    stub.chmod(0o755)

    def act(status=0, **given):
        inputs = {name: each.get("default", "") for name, each in ACTION["inputs"].items()}
        inputs |= {"script": "train.py"} | given
        variables = {
            name: inputs.get(text.removeprefix("${{ inputs.").removesuffix(" }}"), "")
            for name, text in GATE["env"].items()
        }
        variables |= {name: text for name, text in given.items() if name.isupper()}
        ours = {"RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(tmp_path / "output")}
        bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", GATE["run"]]
        environment = {"PATH": os.environ["PATH"], "STATUS": str(status), **ours, **variables}
        done = subprocess.run(bash, env=environment, cwd=tmp_path, capture_output=True, text=True)
        words = (tmp_path / "words").read_text().splitlines()
        told = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
        return done.returncode, words, told["verdict"]

    return act


def test_the_action_gives_only_options_that_there_are():
    assert set(USED.findall(GATE["run"])) <= gate_options()
    assert set(USED.findall(GITLAB)) - {"--quiet", "--epochs"} <= gate_options()


def test_every_input_of_the_action_is_used():
    used = set(re.findall(r"inputs\.([a-z-]+)", (ROOT / "action.yml").read_text("utf-8")))
    assert used == set(ACTION["inputs"])
    for name in set(WORST) - {"pass"}:
        assert name in ACTION["inputs"]["allow"]["description"]


def test_the_action_passes_on_words_as_they_are(act):
    status, words, verdict = act(
        args="--epochs 1 --name 'a b' \"$(x)\"", options="--link 'my data'", base="$(touch x)"
    )
    parsed = build_parser().parse_args(words[: words.index("--")])
    assert (status, verdict) == (0, "pass")
    assert words[words.index("--") + 1 :] == ["--epochs", "1", "--name", "a b", "$(x)"]
    assert (parsed.base, parsed.link, parsed.script) == ("$(touch x)", ["my data"], "train.py")


@pytest.mark.parametrize(
    ("variables", "base"),
    [
        ({"TARGET": "main"}, "origin/main"),
        ({"BEFORE": "ab12"}, "ab12"),
        ({"BEFORE": "0" * 40}, "HEAD~1"),
        ({"TARGET": "main", "base": "v1"}, "v1"),
    ],
)
def test_what_the_action_compares_with(act, variables, base):
    _, words, _ = act(**variables)
    assert words[words.index("--base") + 1] == base


@pytest.mark.parametrize(
    ("status", "allow", "expected", "verdict"),
    [
        (4, "inconclusive", 4, "fail"),
        (6, "inconclusive", 0, "inconclusive"),
        (6, "", 6, "inconclusive"),
        (7, "inconclusive refused", 0, "refused"),
        (2, "inconclusive refused", 2, "error"),
    ],
)
def test_what_lets_the_job_pass(act, status, allow, expected, verdict):
    found, _, told = act(status=status, allow=allow)
    assert (found, told) == (expected, verdict)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_gives_the_action_inputs_that_it_has(name):
    jobs = yaml.safe_load(WORKFLOWS[name].read_text("utf-8"))["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    for step in steps:
        if step.get("uses", "").startswith("OWNER/gpuadvisor@"):
            assert set(step["with"]) <= set(ACTION["inputs"])
        assert "${{" not in step.get("run", "")  # a branch may be called anything


def test_the_comment_is_that_of_the_artifact():
    gate = yaml.safe_load(WORKFLOWS["github-gpu.yml"].read_text("utf-8"))
    comment = yaml.safe_load(WORKFLOWS["github-comment.yml"].read_text("utf-8"))
    assert comment[True]["workflow_run"]["workflows"] == [gate["name"]]  # YAML's `on` is true
    download, _ = comment["jobs"]["comment"]["steps"]
    assert download["with"]["name"] == ACTION["inputs"]["artifact"]["default"]


@pytest.mark.parametrize(
    ("variables", "script", "tolerance", "rest"),
    [
        ({}, None, None, []),
        ({"SCRIPT": "a b.py", "ARGS": "--n 1", "TOLERANCE": "2"}, "a b.py", 2, ["--n", "1"]),
    ],
)
def test_the_template_for_gitlab_parses(tmp_path, variables, script, tolerance, rest):
    job = yaml.safe_load(GITLAB)[".gpuadvisor-gate"]
    (line,) = (each for each in job["script"] if " gate" in each and "--base" in each)
    program = tmp_path / "gpuadvisor-1" / "bin" / "gpuadvisor"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    ours = {"CI_BUILDS_DIR": str(tmp_path), "CI_JOB_ID": "1", "PATH": os.environ["PATH"]}
    environment = {**job["variables"], **variables, **ours}
    done = subprocess.run(["sh", "-ec", line], env=environment, capture_output=True, text=True)
    words = done.stdout.splitlines()
    cut = words.index("--") if "--" in words else len(words)
    parsed = build_parser().parse_args(words[:cut])
    assert (parsed.script, words[cut + 1 :]) == (script, rest)
    assert ("--tolerance" in words) == (tolerance is not None)
    files = {each.partition("=")[2] for each in parsed.output}
    assert {job["artifacts"]["reports"][kind] for kind in ("junit", "metrics")} <= files

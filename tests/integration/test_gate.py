"""`gpuadvisor gate` with the real program and real work trees: what it tells by its exit status."""

import json
import re
import shutil
import signal
import subprocess
import time

import pytest

from tests.integration import program


@pytest.fixture
def repo(tmp_path):
    folder = tmp_path / "repo"
    folder.mkdir()
    shutil.copy(program.SCRIPTS / "paced.py", folder / "train.py")
    git(folder, "init", "--quiet", "-b", "main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def git(folder, *words):
    line = ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=n@n", *words]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


def change(repo, old, new):
    script = repo / "train.py"
    script.write_text(script.read_text("utf-8").replace(old, new), "utf-8")


def gated(repo, *words):
    line = ("gate", "--base", "HEAD", "--measure", "1", *words, "train.py")
    answer = program.run(repo.parent, *line, folder=repo)
    assert git(repo, "worktree", "list").count("\n") == 1
    return answer


def test_a_script_that_is_broken_in_both(repo):
    change(repo, "import torch", "raise ValueError('no')")
    git(repo, "commit", "--quiet", "--all", "-m", "second")
    answer = gated(repo)
    assert answer.status == 3
    assert "the script fails in both versions (crashed: ValueError: no" in answer.err


@pytest.mark.slow
def test_half_the_speed_fails(repo):
    change(repo, "default=0.06", "default=0.12")
    answer = gated(repo, "--json")
    found = json.loads(answer.out)
    assert (answer.status, found["verdict"]) == (4, "fail")
    time_ = next(each for each in found["metrics"] if each["metric"] == "step_time")
    # Beside its pause a step takes 0.2 ms. Its processes cannot take turns: the pause goes on.
    assert 1.95 < time_["low"] < time_["high"] < 2.05


@pytest.mark.slow
def test_the_same_code_never_fails(repo):
    assert gated(repo).status in (0, 6)


@pytest.mark.slow
def test_a_new_version_that_is_broken(repo):
    change(repo, "import torch", "raise ValueError('no')")
    answer = gated(repo)
    assert answer.status == 4
    assert "the work tree is broken where HEAD runs: crashed: ValueError: no" in answer.err


@pytest.mark.slow
@pytest.mark.parametrize("begun", ["base  does it run", "pair 1"])
def test_ctrl_c_leaves_nothing(repo, begun):
    running = program.Running(repo.parent, "gate", "--base", "HEAD", "train.py", folder=repo)
    running.wait_for(begun)
    time.sleep(1.0)
    children = running.children()
    assert children
    running.process.send_signal(signal.SIGINT)
    answer = running.end()
    assert answer.status == 130
    last = answer.err.splitlines()[-1]
    # Runs of a pair end together where they take turns, and one after the other where not.
    assert re.match(r"gpuadvisor: interrupted (before anything was compared|after 1 pair)", last)
    assert not [child for child in children if child.is_running()]
    assert git(repo, "worktree", "list").count("\n") == 1
    assert not list((repo / ".git").glob("worktrees/*"))


@pytest.mark.slow
def test_what_was_recorded_is_shown_and_another_way_to_measure_is_refused(tmp_path):
    shutil.copy(program.SCRIPTS / "paced.py", tmp_path / "train.py")
    words = ("--name", "train", "--store", "perf/gate.jsonl")
    measured = ("--runs", "2", "--measure", "0.5", "train.py")
    recorded = program.run(tmp_path, "gate", "record", *words, *measured, folder=tmp_path)
    assert recorded.status == 0
    assert "in 2 runs, 1 day of this level; a check needs 5" in recorded.out
    history = program.run(tmp_path, "gate", "history", *words, folder=tmp_path)
    assert history.status == 0
    assert "1 day (●) counts; 4 more are needed for a check." in history.out
    check = program.run(tmp_path, "gate", "check", *words, "train.py", folder=tmp_path)
    assert check.status == 7
    assert "measured for is 4 s, and was 0.5 s" in check.sentence

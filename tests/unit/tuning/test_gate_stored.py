"""Recordings and what is checked against them, on scripts that are only simulated."""

import json
import os
import re
import signal
from dataclasses import replace
from datetime import timedelta

import pytest

from gpuadvisor import cli
from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.domain.device import Environment
from gpuadvisor.storage.gate import add_to_baselines, read_baselines
from gpuadvisor.tuning import preparation
from gpuadvisor.tuning.gate import comparison, stored
from gpuadvisor.tuning.trials import trial_runner
from tests.json_page import documented, leaves
from tests.unit.tuning.test_gate import GPU, Machine, commit, git, write
from tests.unit.tuning.test_gate_unfinished import EARLY

PYTHON = TargetPython("/usr/bin/python", "3.12.3", torch="2.9.0")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    made = Machine()
    made.here = Environment(
        GPU, "3.12.3", "2.9.0", "12.8", None, "580.95", "Linux", "1", power_limit_w=700.0
    )
    (tmp_path / "repo").mkdir()
    monkeypatch.chdir(tmp_path / "repo")
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(trial_runner, "run_script", made.run)
    for module in (stored, comparison):
        monkeypatch.setattr(module, "target_python", lambda command: PYTHON)
        monkeypatch.setattr(module, "devices_for", lambda python, jobs: [GPU])
        monkeypatch.setattr(module, "reserved", lambda devices, checked: checked)
    monkeypatch.setattr(preparation, "other_processes", lambda device: [])
    monkeypatch.setattr(stored, "environment", lambda *of: made.here)
    write("100 1000")
    return made


@pytest.fixture
def gate(machine, capsys):
    """Run a command of two words; returns its status, and what it printed on both streams."""

    def gate(*words):
        status = cli.main(["gate", *words])
        return status, *capsys.readouterr()

    return gate


@pytest.fixture
def check(gate):
    return lambda *words: gate("check", "--name", "main", "--store", "gate.jsonl", *words)


@pytest.fixture
def recorded(gate):
    """Record the script as on earlier days."""

    def recorded(*days):
        """`days` ago; a single number is of so many days until yesterday."""
        for ago in days if len(days) > 1 else range(days[0], 0, -1):
            file = stored.Path("today.jsonl")
            assert gate("record", "--name", "main", "--store", str(file), "train.py")[0] == 0
            (today,) = read_baselines(file).recordings
            file.unlink()
            earlier = replace(today, at=today.at - timedelta(days=ago))
            add_to_baselines(stored.Path("gate.jsonl"), earlier)

    return recorded


@pytest.mark.parametrize(
    ("now", "status", "words"),
    [
        ("100 1000", 0, "Pass: compared with 5 days of main, step time is"),
        ("120 1000", 4, "Fail: compared with 5 days of main, step time is +20%"),
        ("100 1300", 4, "peak memory is +30%"),
        ("fails crashed", 4, "the script is broken, and ran when it was recorded: crashed: it"),
    ],
)
def test_a_script_beside_five_recorded_days(recorded, check, machine, now, status, words):
    recorded(5)
    write(now)
    machine.requests.clear()
    found, out, _ = check("train.py")
    assert found == status
    assert words in " ".join(out.split())
    assert len(machine.requests) == (1 if "crashed" in now else 6)


def stored_as(name, **key):
    """Have the file's first recording in it once more, under another name and key."""
    file = stored.Path("gate.jsonl")
    one = read_baselines(file).recordings[0]
    add_to_baselines(file, replace(one, name=name, key={**one.key, **key}))


@pytest.mark.parametrize(
    ("name", "words", "meant"),
    [
        ("mian", ("train.py",), "main"),  # a slip, whatever it is
        ("mian", ("train.py", "--", "--batch", "64"), "main"),
        ("Main", ("train.py",), "main"),
        ("training", ("train.py",), "main"),  # the same script
        ("serving", ("train.py", "--", "--serve"), "server"),
    ],
)
def test_a_name_that_nobody_recorded_is_wrong_usage_where_another_is_meant(
    recorded, gate, machine, name, words, meant
):
    recorded(1)
    stored_as("server", script="train.py --serve")
    machine.requests.clear()
    status, out, err = gate("check", "--name", name, "--store", "gate.jsonl", *words)
    assert (status, out, machine.requests) == (2, "", [])
    (line,) = err.splitlines()
    assert f"there is no recording of {name} in gate.jsonl: did you mean --name {meant}? " in line
    assert f"a new name begins with `gpuadvisor gate record --name {name}`" in line


@pytest.mark.parametrize("name", ["serving", "main2"])
def test_a_name_that_is_new_has_no_baseline_yet(recorded, gate, name):
    """Another script under another name, or a name that has another number, is no slip."""
    words = ("check", "--name", name, "--store", "gate.jsonl", "train.py", "--", "--serve")
    status, _, err = gate(*words)
    assert status == 6
    assert f"there is no recording of {name} in gate.jsonl, which has none" in err
    recorded(1)
    status, _, err = gate(*words)
    assert status == 6
    assert f"there is no recording of {name} in gate.jsonl, which has main: `gpu" in err


DATE = r"\d\d\d\d-\d\d-\d\d"
OLD = (
    f"the newest recording is of {DATE}, {{}} days ago, where they usually come every {{}}: what "
    "else changed since then counts as the script's, until `gpuadvisor gate record` adds new days"
)
GAP = f"nothing was recorded from {DATE} to {DATE}, for {{}} days, where they usually come"


@pytest.mark.parametrize(
    ("days", "told"),
    [
        ((204, 203, 202, 201, 200), OLD.format(200, "day")),
        ((228, 221, 214, 207, 200), OLD.format(200, "7 days")),
        ((204, 203, 202, 201, 200, 2, 1), GAP.format(198)),
        # The age of all of them says more.
        ((604, 603, 602, 601, 600, 400, 399), OLD.format(399, "day")),
        ((11, 10, 9, 8, 5, 4, 3), ""),  # a weekend, and a few days since
        ((200, 150, 100, 60), ""),  # too few to say what is usual
        ((420, 360, 280, 200, 100), ""),  # they are rare
    ],
)
def test_that_a_baseline_is_old_is_told_where_that_is_unusual(recorded, check, gate, days, told):
    recorded(*days)
    for words in (check("train.py")[1], gate("history", "--store", "gate.jsonl")[1]):
        said = " ".join(words.split())
        assert (
            bool(re.search(told, said, re.IGNORECASE))
            if told
            else not (re.search("newest recording|nothing was recorded", said, re.IGNORECASE))
        )


def test_days_that_differ_much_are_inconclusive(recorded, check, machine):
    machine.spread = 0.1
    recorded(5)
    status, out, _ = check("train.py")
    assert status == 6
    assert "neither a regression of more than 1% nor that it is below 3% is shown" in " ".join(
        out.split()
    )


def test_fewer_than_five_days_say_how_many_are_needed_and_run_nothing(recorded, check, machine):
    assert "there is no recording of main in gate.jsonl" in check("train.py")[2]
    recorded(3)
    machine.requests.clear()
    status, _, err = check("train.py")
    assert (status, machine.requests) == (6, [])
    assert "main was recorded on 3 days, and how much days differ is known from 5: record" in err
    assert "it on 2 more, 20 hours apart or more" in err


def test_many_recordings_of_one_day_are_one(gate, machine):
    for _ in range(3):
        status, out, _ = gate("record", "--name", "main", "train.py")
        assert status == 0
    assert "1 day of this level; a check needs 5" in out
    assert "in 5 runs" in out


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"driver": "590.1"}, "driver is 590, and was 580"),
        ({"torch": "2.10.0"}, "torch is 2.10.0, and was 2.9.0"),
        ({"power_limit_w": 500.0}, "power limit is 500 W, and was 700 W"),
        ({"device": replace(GPU, name="NVIDIA H200")}, "GPU is NVIDIA H200, and was NVIDIA H100"),
        ({"python": "3.13.0"}, "Python is 3.13, and was 3.12"),
    ],
)
def test_another_machine_is_refused_and_not_compared(recorded, check, machine, change, sentence):
    recorded(5)
    machine.requests.clear()
    machine.here = replace(machine.here, **change)
    status, _, err = check("train.py")
    assert (status, machine.requests) == (7, [])
    assert sentence in err
    assert "check it where it was recorded, or record it here" in err


def test_a_metric_that_is_not_recorded_is_no_pass(recorded, check):
    recorded(5)
    status, out, _ = check("--metric", "p95", "train.py")
    assert status == 6
    assert "p95 (not every recording has it)" in " ".join(out.split())


def test_other_arguments_are_another_script(recorded, check):
    recorded(5)
    status, _, err = check("train.py", "--", "--batch", "64")
    assert status == 7
    assert "script is train.py --batch 64, and was train.py" in err
    assert "check it as it was recorded (script, arguments, --measure), or record it so" in err
    assert check(str(stored.Path("train.py").absolute()))[0] == 0
    assert check("--measure", "2", "train.py")[0] == 7


def test_clocks_that_are_set_differently_are_refused(recorded, check, monkeypatch):
    monkeypatch.setattr("gpuadvisor.collectors.clocks.ClockSampler.end", lambda self: 1980.0)
    recorded(5)
    monkeypatch.setattr("gpuadvisor.collectors.clocks.ClockSampler.end", lambda self: 1500.0)
    status, _, err = check("train.py")
    assert status == 7
    assert "the SM clock was 1500 MHz, and 1980 to 1980 MHz when it was recorded" in err


def test_a_gpu_that_others_use_is_refused(recorded, check, machine, gate):
    recorded(5)
    machine.disturbance = "another process used the GPU (4711)"
    assert check("train.py")[0] == gate("record", "--name", "main", "train.py")[0] == 7


def test_a_script_that_fails_is_not_recorded(gate):
    write("fails crashed")
    status, _, err = gate("record", "--name", "main", "--store", "gate.jsonl", "train.py")
    assert status == 3
    assert "the script fails (crashed: it raised ValueError" in " ".join(err.split())
    assert not stored.Path("gate.jsonl").exists()


def test_a_new_level_is_accepted_with_who_when_and_why(recorded, check, gate, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTOR", "octocat")
    recorded(6)
    words = ("--name", "main", "--store", "gate.jsonl")
    assert gate("accept", *words, "--why", "a larger model")[0] == 0
    status, _, err = check("train.py")
    assert status == 6
    assert "main was recorded on 0 days since a new level was accepted on" in err
    status, out, _ = gate("history", *words)
    assert status == 0
    assert "accepted by octocat: a larger model" in out


def test_after_a_change_of_level_only_the_days_since_count(recorded, check, gate):
    recorded(1)
    file = stored.Path("gate.jsonl")
    (newest,) = read_baselines(file).recordings
    file.unlink()
    for ago in range(24, 0, -1):
        factor = (1.0 if ago > 12 else 1.1) * (1 + 0.001 * (7 * ago % 5 - 2))
        runs = [
            replace(run, windows=tuple(replace(w, seconds=factor * w.seconds) for w in run.windows))
            for run in newest.runs
        ]
        at = newest.at - timedelta(days=ago)
        add_to_baselines(file, replace(newest, at=at, runs=tuple(runs)))
    write("110 1000")
    status, out, _ = check("train.py")
    said = " ".join(out.split())
    assert status == 0
    assert "compared with 12 days of main" in said
    since = newest.at - timedelta(days=12)
    assert f"Only days since {since:%Y-%m-%d} count, when step time changed by +1" in said
    _, out, _ = gate("history", "--store", "gate.jsonl")
    lines = out.splitlines()
    (change,) = [place for place, line in enumerate(lines) if "step time changed by +1" in line]
    assert "○" in lines[change - 1]
    assert "●" in lines[change + 1]
    assert "12 days (●) count." in out
    fields = set()
    for _ in range(2):
        history = gate("history", "--store", "gate.jsonl", "--json")[1]
        fields |= dict(leaves(json.loads(history, parse_constant=pytest.fail))).keys()
        gate("accept", "--name", "main", "--store", "gate.jsonl", "--why", "new")
    assert fields == documented("Recordings of a gate as JSON").keys()


def test_json_of_a_check_is_that_of_a_gate(recorded, check):
    recorded(5)
    document = json.loads(check("--json", "train.py")[1], parse_constant=pytest.fail)
    assert (document["verdict"], document["pairs"], len(document["runs"])) == ("pass", 0, 6)
    assert dict(leaves(document)).keys() <= documented("A gate as JSON").keys()


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["record", "train.py"], 2, "the following arguments are required: --name"),
        (["record", "--name", " ", "train.py"], 2, "--name: give the baseline a name"),
        (["record", "--name", "x", "lost.py"], 2, "there is no script lost.py"),
        (["record", "--name", "x", "--runs", "1", "train.py"], 2, "--runs 1: a single run says"),
        (["record", "--name", "x", "--store", ".", "train.py"], 5, "cannot be read"),
        (["record", "--name", "x", "--epochs", "9", "train.py"], 2, "gate record has no --epochs"),
        (["accept", "--name", "x", "--why", "y"], 2, "there is no recording of x in"),
        (["accept", "--name", "x", "--why", ""], 2, "--why: say why"),
        (["history", "--name", "x"], 2, "there is no recording of x in"),
        (["check", "--name", "x", "--limit", "1", "train.py"], 2, "has to be smaller than"),
        (["check", "--name", "x", "--metric", "y", "train.py"], 2, "there is no metric 'y'"),
        (["bisect", "v1", "train.py"], 2, "v1: give two commits as GOOD..BAD"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(gate, machine, words, status, sentence):
    found, out, err = gate(*words)
    (line,) = err.splitlines()
    assert (found, out, machine.requests) == (status, "", [])
    assert sentence in line


@pytest.fixture
def interrupted(machine, monkeypatch):
    """A function that has the command end as by Ctrl-C while the run of this number is made."""

    def interrupted(number):
        machine.requests.clear()

        def run(request, *meters):
            if len(machine.requests) + 1 == number:
                os.kill(os.getpid(), signal.SIGINT)
            return machine.run(request, *meters)

        monkeypatch.setattr(trial_runner, "run_script", run)

    return interrupted


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (1, r"interrupted before anything was measured; nothing was recorded"),
        (3, r"interrupted after 1 of 5 runs, in which a step took 100 ms; nothing was recorded"),
        (
            5,
            r"interrupted after 3 of 5 runs, in which a step took 100 ms \(median; 99\.\d to "
            r"100(\.\d)?\); nothing was recorded",
        ),
    ],
)
def test_what_an_interrupted_recording_had_measured_is_told(gate, interrupted, number, told):
    interrupted(number)
    status, out, err = gate("record", "--name", "main", "--store", "gate.jsonl", "train.py")
    assert (status, out) == (130, "")
    assert re.fullmatch(told, err.splitlines()[-1].removeprefix("gpuadvisor: "))
    assert not stored.Path("gate.jsonl").exists()


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (1, "interrupted before anything was compared"),
        (3, f"interrupted after 1 of 5 runs, {EARLY}; in it a step took 1.90 times as long as on 5 "
            "days of main"),
        (4, f"interrupted after 2 of 5 runs, {EARLY}; in them a step took 1.90 times as long as on "
            "5 days of main (median; 1.90 to 1.90)"),
    ],
)  # fmt: skip
def test_what_an_interrupted_check_has_shown_is_told(recorded, check, interrupted, number, told):
    recorded(5)
    before = stored.Path("gate.jsonl").read_text()
    write("190 1000")
    interrupted(number)
    status, out, err = check("--output", "markdown=gate.md", "train.py")
    assert (status, out) == (130, "")
    assert err.splitlines()[-1] == f"gpuadvisor: {told}"
    assert stored.Path("gate.jsonl").read_text() == before
    assert not stored.Path("gate.md").exists()


@pytest.fixture
def history(machine):
    """Commits of the repository's script, each with what its runs take; returns their hashes."""

    def history(*texts):
        git("init", "--quiet", "-b", "main")
        found = []
        for number, text in enumerate(texts):
            write(str(number), "number")
            commit(text)
            found.append(git("rev-parse", "HEAD"))
        return found

    return history


def test_the_commit_that_made_it_slower(history, gate):
    first_bad = 3
    commits = history(*("104 1000" if n >= first_bad else "100 1000" for n in range(5)))
    status, out, err = gate("bisect", f"{commits[0]}..HEAD", "--json", "train.py")
    document = json.loads(out)
    assert status == 0
    assert [each["commit"] for each in document["first_bad"]] == [commits[first_bad]]
    assert len(document["steps"]) == 3
    assert "4 commits: one gate shows whether HEAD is worse, and 2 more find where" in err
    assert "step time is +" in document["reason"]
    assert git("worktree", "list").count("\n") == 0
    assert dict(leaves(document)).keys() == documented("A bisection as JSON").keys()


def test_commits_that_are_broken_are_passed_by(history, gate):
    texts = ["100 1000", "100 1000", "fails crashed", "110 1000", "fails crashed", "110 1000"]
    commits = history(*texts)
    status, out, err = gate("bisect", f"{commits[0]}..", "train.py")
    assert status == 6
    assert "2 commits cannot be told apart: the first bad one is among them" in err
    said = " ".join(out.split())
    assert f"The first bad commit is one of 2: {commits[2][:7]} (change), {commits[2]}" in said
    assert commits[3] in said


def test_the_commit_that_broke_it(history, gate):
    commits = history("100 1000", "100 1000", "fails crashed", "fails crashed")
    status, out, _ = gate("bisect", f"{commits[0]}..", "train.py")
    assert status == 0
    assert f"First bad commit: {commits[2][:7]} (change)" in " ".join(out.split())


def test_a_merge_counts_as_one(history, gate):
    commits = history("100 1000", "100 1000")
    git("checkout", "--quiet", "-b", "branch")
    for text in ("100 1000\n", "105 1000\n", "105 1000"):
        commit(text)
    git("checkout", "--quiet", "main")
    write("x", "other")
    commit("100 1000")
    git("merge", "--quiet", "--no-ff", "--no-edit", "branch")
    _, out, _ = gate("bisect", f"{commits[0]}..", "train.py")
    assert git("rev-parse", "HEAD") in out


@pytest.mark.parametrize(
    ("span", "status", "sentence"),
    [
        ("HEAD~1..HEAD", 6, "HEAD is not worse than HEAD~1, so there is nothing to look for"),
        ("HEAD..HEAD", 2, "HEAD and HEAD are the same commit"),
        ("HEAD..HEAD~1", 2, "HEAD~1 does not come after HEAD"),
        ("v9..HEAD", 2, "there is no commit v9 in"),
        ("HEAD...HEAD", 2, "give two commits as GOOD..BAD"),
    ],
)
def test_where_there_is_nothing_to_find(history, gate, span, status, sentence):
    history("100 1000", "100 1000")
    found, _, err = gate("bisect", span, "train.py")
    assert found == status
    assert sentence in err.splitlines()[-1]
    assert git("worktree", "list").count("\n") == 0

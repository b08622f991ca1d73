"""`gpuadvisor profile script.py` on scripts that nobody edits."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import psutil
import pytest

from tests.integration.program import CLOCK, SCRIPTS, Running, run

pytest.importorskip("torch")

STEPS = """
import sys, time, torch
model = torch.nn.Linear(8, 1)
for number in range({steps}):
    model(torch.ones(4, 8)).mean().backward()
    time.sleep(0.02)
    {each}
{after}
"""
"""Without an optimizer, whose first use imports half as much as torch itself."""


def script(folder: Path, each: str = "pass", after: str = "", steps: int = 1000) -> str:
    (folder / "train.py").write_text(STEPS.format(steps=steps, each=each, after=after))
    return "train.py"


def marked_steps(trace: Path) -> list[str]:
    data = trace.read_bytes()
    data = gzip.decompress(data) if trace.suffix == ".gz" else data
    events = json.loads(data)["traceEvents"]
    marks = [event for event in events if event.get("cat") == "user_annotation"]
    return [event["name"] for event in marks if event["name"].startswith("ProfilerStep#")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("workers.py", []),  # batches come from forked and spawned processes
        ("inference.py", ["eager"]),
    ],
)
def test_each_of_the_steps_that_were_asked_for_is_marked(tmp_path, here, name, args):
    trace, script = tmp_path / "trace.json", str(SCRIPTS / name)
    words = ["profile", script, "--steps", "3", "--json", "--output", str(trace), "--", *args]
    answer = here(tmp_path, *words)
    assert answer.status == 0, answer.err
    told = json.loads(answer.out)
    assert told["steps"] == 3
    assert told["notes"] == []
    assert marked_steps(trace) == ["ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3"]


@pytest.mark.slow
def test_what_it_prints_leads_on_to_the_diagnosis(tmp_path):
    answer = run(tmp_path, "profile", script(tmp_path), "--name", "before")
    assert answer.status == 0, answer.err
    assert answer.out.splitlines()[0] == "before"
    assert "5 steps, " in answer.out
    assert "operators that take most of the host's time, with what they call:" in answer.out
    assert answer.out.splitlines()[-1] == "Next: gpuadvisor diagnose before"
    again = run(tmp_path, "profile", "train.py", "--name", "before")
    assert again.status == 2
    assert "before" in again.sentence


def test_the_json_has_all_that_is_promised(tmp_path, here):
    trace = tmp_path / "kept.json.gz"
    words = ["profile", script(tmp_path), "--json", "--stacks", "--output", str(trace)]
    told = json.loads(here(tmp_path, *words).out)
    assert set(told) == {
        "version", "tool", "steps", "warmup_steps", "profile", "time", "finding", "notes", "output"
    }  # fmt: skip
    assert (told["version"], told["tool"], told["steps"]) == (1, "torch", 5)
    assert told["warmup_steps"] >= 4
    assert told["output"] == str(trace)
    assert told["profile"]["name"] == "train"
    assert told["profile"]["path"] == str(trace)
    assert told["profile"]["size_bytes"] == trace.stat().st_size
    assert told["profile"]["rows"]["operators"] > 0
    assert told["time"]["steps"]["count"] == 5
    assert told["time"]["steps"]["median_ms"] > 20  # it sleeps for so long
    assert {"name", "time_ms", "share"} == set(told["time"]["operators"][0])
    assert 0 < told["time"]["operators"][0]["share"] < 1
    assert len(marked_steps(trace)) == 5


@pytest.mark.slow
def test_a_script_that_ends_early_leaves_what_there_is(tmp_path):
    trace = tmp_path / "trace.json"
    words = ["profile", script(tmp_path, steps=5), "--json", "--output", str(trace)]
    answer = run(tmp_path, *words)
    assert answer.status == 0, answer.err
    told = json.loads(answer.out)
    assert told["steps"] == len(marked_steps(trace)) == 3  # of 5, one warms up, one switches on
    assert told["notes"] == ["3 of 5 steps were recorded: the script ended"]


@pytest.mark.slow
def test_it_can_go_on_to_its_own_end(tmp_path):
    script(tmp_path, after="print('trained'); sys.exit(0)", steps=90)
    answer = run(tmp_path, "profile", "train.py", "--keep-running", "--steps", "2")
    assert answer.status == 0, answer.err
    assert answer.out.splitlines()[-1] == "trained"
    assert "Next: gpuadvisor diagnose train" in answer.out


@pytest.mark.slow
def test_a_script_that_fails_later_is_profiled_and_its_failure_is_told(tmp_path):
    script(tmp_path, after="raise ValueError('too late')", steps=90)
    answer = run(tmp_path, "profile", "train.py", "--keep-running", "--steps", "2")
    assert answer.status == 3
    assert "Next: gpuadvisor diagnose train" in answer.out
    (stored,) = json.loads(run(tmp_path, "import", "--list", "--json").out)["profiles"]
    assert stored["path"] is None, "the trace was not kept"
    assert "the script failed after that: ValueError: too late (train.py, line 8)" in answer.err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise ValueError('no data')", "ValueError: no data (train.py, line 1)"),
        ("print('nothing')", "did not import torch, whose profiler records the steps"),
        ("import gpuadvisor\nwhile True: gpuadvisor.step()", "its steps run without torch"),
        pytest.param(
            "import os, torch; os.kill(os.getpid(), 11)",
            "killed by SIGSEGV",
            marks=pytest.mark.slow,
        ),
        (
            STEPS.format(steps=1, each="pass", after=""),
            "it ended after 1 step, too few to profile one whole step: let it make more",
        ),
        (
            "import torch\ntorch.profiler.profile().start()\n"
            + STEPS.format(steps=90, each="pass", after=""),
            "the script uses torch.profiler itself, and a process can have one profiler at a time",
        ),
        pytest.param(
            STEPS.format(
                steps=1000,
                each="torch.profiler.profile(schedule=torch.profiler.schedule(wait=0, warmup=1, "
                "active=1)).start() if number == 60 else None",
                after="",
            ),
            "the script uses torch.profiler itself, and a process can have one profiler at a time",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["crash", "no torch", "steps without torch", "signal", "one step", "profiler", "late"],
)  # fmt: skip
def test_what_cannot_be_profiled_is_said_in_a_sentence(tmp_path, here, text, reason):
    (tmp_path / "train.py").write_text(text)
    words = ["profile", "train.py"] + (["--steps", "500"] if "number == 60" in text else [])
    answer = here(tmp_path, *words)
    assert answer.status == 3
    assert answer.out == ""
    sentence = answer.err.splitlines()[-1]
    assert sentence.startswith("gpuadvisor: train.py cannot be profiled: ")
    assert reason in sentence


def test_a_script_that_makes_no_step_is_ended(tmp_path):
    marker = "93.7"
    (tmp_path / "train.py").write_text(f"import time\ntime.sleep({marker})")
    answer = run(tmp_path, "profile", "train.py", "--timeout", "2")
    assert answer.status == 3
    assert "no step within 2 s" in answer.sentence
    assert not [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(tmp_path)]


@pytest.mark.slow
def test_ctrl_c_leaves_no_process(tmp_path):
    script(tmp_path, each="open('begun', 'w')")
    running = Running(tmp_path, "profile", "train.py", "--steps", "100000")
    while not (tmp_path / "begun").exists() and running.process.poll() is None:
        time.sleep(0.01)
    children = running.children()
    running.process.send_signal(2)
    answer = running.end()
    assert answer.status == 130
    assert answer.sentence == "interrupted: nothing was recorded"
    assert children
    assert not [child for child in children if child.is_running()]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "name the script to profile, or a process with --attach PID"),
        (["--", "./a.out"], "any other program needs --nsys or --ncu"),
        (["missing.py"], "there is no script missing.py in "),
        (["train.py", "--steps", "0"], "--steps 0: give a number above zero"),
        (["train.py", "--attach", "1"], "name no script or program"),
        (["train.py", "--output", "none/t.json"], "there is no folder none; name a file"),
        (["train.py", "--nsys", "--stacks"], "--stacks is for the torch profiler"),
        (["train.py", "--seconds", "3"], "--seconds is for --attach and --nsys"),
        (["train.py", "--ncu", "--keep-running"], "--keep-running is for scripts under the torch"),
        (["train.py", "--epochs", "3"], "put the script's own arguments after --"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(tmp_path, here, words, sentence):
    (tmp_path / "train.py").write_text("open('ran', 'w')")
    answer = here(tmp_path, "profile", *words)
    assert answer.status == 2
    assert sentence in answer.sentence
    assert not (tmp_path / "ran").exists()


KINDS = {
    "grow": ("0.02 * 1.02**number", "got longer by themselves"),
    "shrink": ("0.5 * 0.98**number", "got shorter by themselves"),
    "steady": ("0.02", None),
    "lengths": ("0.01 * (2, 3, 4, 3)[number % 4]", None),
    "long_ones": ("0.02 * (1 + 9 * (number % 60 == 40))", None),
}
"""How long steps take, in seconds; and what is said of them where they do not keep to it."""


@pytest.mark.parametrize(
    "kind",
    ["grow", *(pytest.param(each, marks=pytest.mark.slow) for each in KINDS if each != "grow")],
)
def test_what_steps_took_before_tells_nothing_where_they_grow_or_shrink(tmp_path, here, kind):
    takes, why = KINDS[kind]
    file = tmp_path / script(tmp_path, each=f"fake_clock.spend({takes})")
    text = file.read_text().replace("time.sleep(0.02)", "import fake_clock")
    file.write_text(f"import torch; torch.set_num_threads(1)\n{text}")
    answer = here(tmp_path, "diagnose", file.name, "--json", PYTHONPATH=CLOCK)
    assert answer.status == 0, answer.err
    told = json.loads(answer.out)
    assert told["unprofiled_step_ms"] > 9
    assert (why or "") in (told["unprofiled_not_used"] or "")
    assert (told["unprofiled_not_used"] is None) is (why is None)

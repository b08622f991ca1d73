"""Benchmarks that wait for GPUs: they start with what they name, and end when they should."""

import ast
import json
import re
import shlex
import sys
import tarfile
import time
from pathlib import Path

import pytest

from tests.benchmark_files import loaded

module, examples = loaded("gpu_sessions"), loaded("kernel_examples")
smoke = loaded("gpu_smoke")
Job, Session, Turn, Turns, run, sessions = (
    module.Job, module.Session, module.Turn, module.Turns, module.run, module.sessions,
)  # fmt: skip
ROOT = module.ROOT


@pytest.mark.parametrize("session", sessions().values(), ids=lambda each: each.name)
def test_what_a_session_runs_is_there(session):
    words = [word for job in session.jobs for word in shlex.split(job.command)]
    named = [word for word in words if word.startswith(("benchmarks/", "tests"))]
    named = [word for word in named if not word.endswith(".jsonl")]  # tables begin with a session
    assert named
    for name in named:
        assert (ROOT / name.removesuffix(";").partition("::")[0]).exists(), name


def lines():
    """Return each command line of the sessions and of the smoke, once: without its numbers."""
    asked = {"python": sys.executable, "scripts": "vae,gin"}
    asked |= {"budgets": "rest,5m", "search_seconds": "1500"}
    found = [
        (each.name, job.command.format(**module.places(job, 1, 100.0, Path("KEPT")), **asked))
        for each in sessions().values()
        for job in each.jobs
    ]
    for step in smoke.STEPS:
        words = [each.format(python=sys.executable, folder="KEPT") for each in step.words]
        found.append((step.name, shlex.join(words)))
    numbers = r"_\d\b|\b\d/\d|--kernel \w+|\w+\.py$|rows_\w+|--part \w+|(?<=written)2"
    alike = {re.sub(numbers, "", line): (name, line) for name, line in found}
    return list(alike.values())


@pytest.mark.parametrize(
    "line", [pytest.param(line, id=name) for name, line in lines() if "pytest" not in line]
)
def test_programs_take_the_command_lines(line, tmp_path):
    line = line.replace(str(Path("KEPT").absolute()), str(tmp_path)).replace("KEPT", str(tmp_path))
    assert module.refused(line, tmp_path) == ""


def test_the_tests_that_are_named_are_there():
    words = [word for _, line in lines() if "pytest" in line for word in re.split(r"[ ;]+", line)]
    named = {word for word in words if word.startswith("tests/")}
    assert len(named) > 20
    gone = [each for each in named if not is_there(*each.partition("[")[0].split("::"))]
    assert gone == []
    assert not is_there("tests/unit/test_docs.py", "test_nothing_of_this_name")


def is_there(file, *names):
    """Whether a file has a class or a test of these names, one within the other."""
    if not names:
        return (ROOT / file).exists()
    within = ast.parse((ROOT / file).read_text("utf-8"))
    for name in names:
        found = [each for each in within.body if getattr(each, "name", "") == name]
        if not found:
            return False
        (within,) = found
    return True


@pytest.mark.parametrize(
    "line, said",
    [
        ("{} benchmarks/kernel_examples.py --kernel softmax --serach 5", "--serach 5"),
        ("{} benchmarks/nothing_there.py", "nothing_there.py"),
        ("{} -m pytest -q -m gpu -p no:cacheprovider tests/unit/test_names.py::gone", "gone"),
        ("{} benchmarks/harness_overhead.py --pairs 4; true; false", "status 1"),
    ],
)
def test_a_command_line_that_no_program_takes_is_told(line, said, tmp_path):
    assert said in module.refused(line.format(sys.executable), tmp_path)


def test_a_session_is_read_without_a_gpu_and_leaves_nothing(tmp_path, capsys):
    line = "{python} benchmarks/harness_overhead.py --pairs 4 --kept {kept}"
    session = Session("made", "", (Job("good", "{python} -c 'pass'"), Job("bad", line)))
    given = {"python": sys.executable}
    assert module.dry(session, tmp_path / "kept", 400.0, given, 1) == ["bad"]
    said = capsys.readouterr().out
    assert (
        "good: 1 of 1 GPUs, at 0 s for 200 s" in said and "unrecognized arguments: --kept" in said
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "jobs, gpus, left, cut, seconds",
    [
        ([1, 1, 1, 1], 4, 560, 0, 560),
        ([1, 1, 1, 1], 2, 560, 0, 280),
        ([3, 1], 4, 560, 0, 560),
        ([3, 1], 2, 560, 0, 280),
        ([1] * 8, 4, 560, 0, 280),
        ([1] * 8, 1, 560, 0, 180),  # its least: an eighth would hardly start
        ([1] * 8, 1, 100, 0, 100),
        ([1] * 8, 1, 1600, 0, 200),
        ([1] * 8, 1, 1600, 250, 500),  # 250 were too few
    ],
)
def test_a_turn_is_a_fair_share_but_not_too_little(jobs, gpus, left, cut, seconds):
    jobs = [Job(str(place), "true", count) for place, count in enumerate(jobs)]
    assert module.share(jobs, gpus, left, Turn(cut=cut)) == seconds


@pytest.mark.parametrize("gpus, cores", [(1, 16), (2, 32), (4, 64), (3, 16), (4, 2), (2, 1)])
def test_gpus_share_cores_only_where_there_are_fewer(gpus, cores):
    found = [module.cores_of(gpu, gpus, range(cores)) for gpu in range(gpus)]
    assert all(len(each) == max(1, cores // gpus) for each in found)
    if cores >= gpus:
        assert len({core for each in found for core in each}) == gpus * (cores // gpus)


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_jobs_are_spread_over_the_gpus_there_are(gpus, tmp_path):
    line = "echo $CUDA_VISIBLE_DEVICES {gpus} >> {kept}/{name}"
    jobs = [Job(f"j{n}", line.replace("{name}", f"j{n}")) for n in range(5)]
    jobs.append(Job("wide", line.replace("{name}", "wide"), 3, at_least=1))
    jobs.append(Job("two", line.replace("{name}", "two"), 2))
    names = [str(n) for n in range(gpus)]
    assert run(Session("made", "", tuple(jobs)), tmp_path, tmp_path / "out", 300.0, {}, names) == 0
    for job in jobs[:5]:
        assert (tmp_path / job.name).read_text().split()[0] in names
    assert (tmp_path / "wide").read_text().split()[1] == str(min(3, gpus))
    assert (tmp_path / "two").exists() == (gpus > 1)


def test_what_has_no_time_in_a_call_is_in_the_next(tmp_path, capsys):
    jobs = [Job(str(n), "{python} -c 'pass'") for n in range(5)]
    session, given = Session("made", "", tuple(jobs)), {"python": sys.executable}
    assert module.dry(session, tmp_path / "kept", 400.0, given, 1) == []
    said = re.findall(
        r"^(\d|in the next).*?(?: at (\d+) s for (\d+) s)?$", capsys.readouterr().out, re.M
    )
    next_call = ("in the next", "", "")
    assert said == [
        ("0", "0", "180"), ("1", "180", "180"), next_call,
        ("2", "0", "180"), ("3", "180", "180"), next_call, ("4", "0", "400"),
    ]  # fmt: skip


def test_whose_turn_is_next_follows_from_what_they_had(tmp_path):
    done, failed, cut, new = jobs = [Job(name, "true") for name in ("a", "b", "c", "d")]
    turns = Turns(tmp_path, "made")
    turns.add(done, 5.0, False, 0)
    turns.add(failed, 3.0, False, 1)
    turns.add(cut, 200.0, True, 1)
    again = Turns(tmp_path, "made")
    assert again.order(jobs) == [new, failed, cut, done]
    assert again.of(cut) == Turn(200.0, 200.0, False)
    again.add(cut, 90.0, False, 0)
    assert Turns(tmp_path, "made").of(cut) == Turn(290.0, 0.0, True)
    assert Turns(tmp_path, "other").of(cut) == Turn()


def test_a_job_that_fails_keeps_no_other_from_its_turn(tmp_path):
    jobs = Job("bad", "exit 3"), Job("good", "touch {kept}/good")
    assert run(Session("made", "", jobs), tmp_path, tmp_path / "out", 300.0, {}) == 1
    assert (tmp_path / "good").exists()


def test_jobs_go_on_where_they_were(tmp_path, capsys):
    kept, out = tmp_path / "kept", tmp_path / "out"
    line = "echo $CUDA_VISIBLE_DEVICES {word} >> {kept}/done; echo said"
    session = Session("made", "", (Job("one", line), Job("two", line)))
    for _ in range(2):
        assert run(session, kept, out, 300.0, {"word": "x"}, ["1"]) == 0
    assert (kept / "done").read_text() == 4 * "1 x\n"
    assert re.search(r"== two: status 0 after \d s\nsaid\nsaid", capsys.readouterr().out)


def test_what_a_kernel_has_a_row_of_is_not_done_again(tmp_path):
    kernel, other = {"kernel": "softmax", "device": "H200"}, {"kernel": "softmax", "device": "H100"}
    rows = [
        {**kernel, "what": "brute_force", "points": 8, "evaluated": 5},
        {**kernel, "what": "search", "seed": 1},
        {**other, "what": "beside"},
        {**other, "what": "brute_force", "points": 8, "evaluated": 8},
    ]
    file = tmp_path / "rows.jsonl"
    assert examples._done(file, kernel) == set()
    file.write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    assert examples._done(file, kernel) == {"search 1"}
    assert examples._done(file, other) == {"beside", "brute_force"}


def test_what_was_kept_is_packed_in_parts_without_stores(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PART_BYTES", 100)
    kept, out = tmp_path / "kept", tmp_path / "kept" / "out"
    line = (
        "mkdir -p {kept}/home-x {kept}/a/home {kept}/a/b; echo 1 | tee {kept}/a/b/c {kept}/home-x/d"
    )
    run(Session("made", "", (Job("one", line),)), kept, out, 60.0, {})
    parts = sorted(out.glob("made.tar.gz.*"))
    assert len(parts) > 1
    whole = tmp_path / "whole"
    whole.write_bytes(b"".join(each.read_bytes() for each in parts))
    with tarfile.open(whole) as archive:
        assert archive.getnames() == ["a", "a/b", "a/b/c", "turns.json"]


def test_tables_are_packed_before_stores_and_what_has_no_room_is_named(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(module, "MOST_BYTES", 20_000)
    kept, out = tmp_path / "kept", tmp_path / "out"
    line = (
        "mkdir {kept}/a; head -c 90000 /dev/urandom > {kept}/a/store; echo 1 > {kept}/table.jsonl"
    )
    run(Session("made", "", (Job("one", line),)), kept, out, 60.0, {})
    with tarfile.open(out / "made.tar.gz.00") as archive:
        assert archive.getnames() == ["table.jsonl", "turns.json"]
    assert "no room: a\n" in capsys.readouterr().out


def test_a_job_that_fails_is_counted_and_told(tmp_path, capsys):
    jobs = Job("bad", "echo because; exit 3"), Job("good", "true")
    assert run(Session("made", "", jobs), tmp_path / "kept", tmp_path / "out", 300.0, {}) == 1
    assert re.search(r"== bad: status 3 after \d+ s\nbecause", capsys.readouterr().out)


def test_what_is_not_done_ends_with_the_time_and_its_children_too(tmp_path):
    session = Session("made", "", (Job("slow", "sleep 60 & echo $! > {kept}/child; wait"),))
    run(session, tmp_path / "kept", tmp_path, 3.0, {})
    child = int((tmp_path / "kept" / "child").read_text())
    until_s = time.monotonic() + 60.0  # it was killed: the kernel takes it down when it comes to it
    while is_running(child) and time.monotonic() < until_s:
        time.sleep(0.02)
    assert not is_running(child)


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False

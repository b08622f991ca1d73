"""Benchmarks that wait for GPUs: they start with what they name, and end when they should."""

import importlib.util
import json
import shlex
import sys
import tarfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st


def loaded(name):
    file = Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, file)
    sys.modules[name] = found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


module, examples = loaded("gpu_sessions"), loaded("kernel_examples")
Job, Session, run, sessions, shares = (
    module.Job, module.Session, module.run, module.sessions, module.shares,
)  # fmt: skip
ROOT = module.ROOT


@pytest.mark.parametrize("session", sessions().values(), ids=lambda each: each.name)
def test_what_a_session_runs_is_there(session):
    words = [word for job in session.jobs for word in shlex.split(job.command)]
    named = [word for word in words if word.startswith(("benchmarks/", "tests"))]
    named = [word for word in named if not word.endswith(".jsonl")]  # tables begin with a session
    assert named
    for name in (*named, *session.starts_from):
        assert (ROOT / name.removesuffix(";").partition("::")[0]).exists(), name


@pytest.mark.parametrize("session", sessions().values(), ids=lambda each: each.name)
def test_a_gpu_belongs_to_one_job(session):
    gpus = [gpu for job in session.jobs for gpu in job.gpus]
    assert sorted(set(gpus)) == sorted(gpus) == list(range(session.gpus))


@given(st.lists(st.integers(1, 64), min_size=1, max_size=6), st.integers(1, 130))
def test_jobs_share_cores_only_where_there_are_fewer_than_jobs(wanted, count):
    jobs = [Job(str(number), "true", cores) for number, cores in enumerate(wanted)]
    found = shares(jobs, range(count))
    assert all(1 <= len(cores) <= job.cores for job, cores in zip(jobs, found, strict=True))
    if count >= sum(wanted):
        assert [len(cores) for cores in found] == wanted
        assert len({core for cores in found for core in cores}) == sum(wanted)


def test_jobs_go_on_where_they_were(tmp_path, capsys):
    kept, out = tmp_path / "kept", tmp_path / "out"
    line = "echo $CUDA_VISIBLE_DEVICES {word} >> {kept}/done; echo said"
    session = Session("made", "", (Job("one", line, 1, (1,)), Job("two", line, 1, (0,))))
    for _ in range(2):
        assert run(session, kept, out, 60.0, {"word": "x"}) == 0
    assert sorted((kept / "done").read_text().split("\n")) == ["", "0 x", "0 x", "1 x", "1 x"]
    assert "== two: status 0\nsaid\nsaid" in capsys.readouterr().out


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
    run(Session("made", "", (Job("one", line, 1),)), kept, out, 60.0, {})
    parts = sorted(out.glob("made.tar.gz.*"))
    assert len(parts) > 1
    whole = tmp_path / "whole"
    whole.write_bytes(b"".join(each.read_bytes() for each in parts))
    with tarfile.open(whole) as archive:
        assert archive.getnames() == ["a", "a/b", "a/b/c"]


def test_tables_are_packed_before_stores_and_what_has_no_room_is_named(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(module, "MOST_BYTES", 20_000)
    kept, out = tmp_path / "kept", tmp_path / "out"
    line = (
        "mkdir {kept}/a; head -c 90000 /dev/urandom > {kept}/a/store; echo 1 > {kept}/table.jsonl"
    )
    run(Session("made", "", (Job("one", line, 1),)), kept, out, 60.0, {})
    with tarfile.open(out / "made.tar.gz.00") as archive:
        assert archive.getnames() == ["table.jsonl"]
    assert "no room: a\n" in capsys.readouterr().out


def test_a_job_that_fails_is_counted_and_told(tmp_path, capsys):
    jobs = Job("bad", "echo because; exit 3", 1), Job("good", "true", 1)
    assert run(Session("made", "", jobs), tmp_path / "kept", tmp_path / "out", 60.0, {}) == 1
    assert "== bad: status 3\nbecause" in capsys.readouterr().out
    assert not list((tmp_path / "out").glob("*.gz*"))  # nothing was kept


def test_what_is_not_done_ends_with_the_time_and_its_children_too(tmp_path):
    session = Session("made", "", (Job("slow", "sleep 60 & echo $! > {kept}/child; wait", 1),))
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

"""Benchmarks that wait for GPUs: they start with what they name, and end when they should."""

import importlib.util
import shlex
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

FILE = Path(__file__).parents[2] / "benchmarks" / "gpu_sessions.py"
LOADED = importlib.util.spec_from_file_location("gpu_sessions", FILE)
sys.modules["gpu_sessions"] = module = importlib.util.module_from_spec(LOADED)
LOADED.loader.exec_module(module)
Job, Session, run, sessions, shares = (
    module.Job, module.Session, module.run, module.sessions, module.shares,
)  # fmt: skip
ROOT = module.ROOT


@pytest.mark.parametrize("session", sessions().values(), ids=lambda each: each.name)
def test_what_a_session_runs_is_there(session):
    words = [word for job in session.jobs for word in shlex.split(job.command)]
    named = [word for word in words if word.startswith(("benchmarks/", "tests"))]
    assert named
    for name in (*named, *session.starts_from):
        assert (ROOT / name.removesuffix(";")).exists(), name


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


def test_jobs_go_on_where_they_were_and_end_with_the_time(tmp_path, capsys):
    kept, out = tmp_path / "kept", tmp_path / "out"
    line = "echo $CUDA_VISIBLE_DEVICES {word} >> {kept}/done; "
    session = Session(
        "made",
        "",
        (Job("quick", line, 1, (1,)), Job("slow", line + "sleep 60 & echo $!; wait", 1, (0,))),
    )
    began = time.monotonic()
    for _ in range(2):
        run(session, kept, out, 1.0, {"word": "x", "python": sys.executable})
    assert time.monotonic() - began < 30
    assert sorted((out / "done").read_text().split("\n")) == ["", "0 x", "0 x", "1 x", "1 x"]
    for child in (out / "slow.log").read_text().split():
        assert not is_running(int(child))
    assert "== slow: status" in capsys.readouterr().out


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False

"""Several processes in one database, and processes that are killed."""

import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager
from threading import Timer

import pytest

from gpuadvisor.errors import UsageError
from gpuadvisor.storage.database import open_store

WRITER = """
import sys
from pathlib import Path
from gpuadvisor.domain.device import Device, Environment
from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.measurement import Measurement, StepWindow
from gpuadvisor.domain.study import Objective, Trial, TrialState
from gpuadvisor.storage.database import open_store

path, study, trials = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
environment = Environment(Device("cpu", 0, "CPU"), "3.12", None, None, None, None, "Linux", "0.1")
windows = tuple(StepWindow(5, 0.05, 160.0) for _ in range(20))
measured = Measurement("optimizer", (10.0,) * 100, windows, 3, None, 1, 1, 1.0, 2.0)
sys.stdin.readline()
with open_store(path) as store:
    args = (), environment, Level.BALANCED, Objective.THROUGHPUT
    study = store.create_study(study or None, "train.py", *args)
    with store.lock_study(study):
        for number in range(trials):
            store.add_trial(study, Trial(number, {}, "search", TrialState.COMPLETE,
                                         measurement=measured))
            print(number, flush=True)
"""


@contextmanager
def writers(path, *studies, trials):
    """Start writers that open the database at the same moment."""
    argv = [sys.executable, "-c", WRITER, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started = [
        subprocess.Popen([*argv, study, str(trials)], text=True, **pipes) for study in studies
    ]
    try:
        for process in started:
            process.stdin.write("go\n")
            process.stdin.flush()
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_two_studies_and_a_reader_side_by_side(tmp_path):
    path = tmp_path / "gpuadvisor.db"
    seen = []
    with writers(path, "a", "b", trials=25) as processes, open_store(path) as store:
        while any(process.poll() is None for process in processes):
            seen.append(sum(len(store.trials(name)) for name in store.study_names()))
            time.sleep(0.05)  # each look takes a hundredth of a second
        assert [process.communicate()[1] for process in processes] == ["", ""]
        assert seen == sorted(seen)
        assert [len(store.trials(name)) for name in ("a", "b")] == [25, 25]


def test_a_file_that_another_process_is_creating_is_waited_for(tmp_path):
    path = tmp_path / "gpuadvisor.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")  # SQLite does not wait for it when the journal changes
    end = Timer(0.1, other.execute, ["COMMIT"])
    end.start()
    with open_store(path) as store:
        assert store.study_names() == []
    end.join()
    other.close()


def test_studies_that_start_at_once_get_different_names(tmp_path):
    path = tmp_path / "gpuadvisor.db"
    with writers(path, "", "", trials=1) as processes:
        assert [process.communicate()[1] for process in processes] == ["", ""]
    with open_store(path) as store:
        assert sorted(store.study_names()) == ["train-1", "train-2"]


def test_a_killed_process_loses_no_trial_that_it_was_told_is_stored(tmp_path):
    path = tmp_path / "gpuadvisor.db"
    with writers(path, "a", trials=1_000_000) as (process,), open_store(path) as store:
        acknowledged = [int(process.stdout.readline()) for _ in range(25)]
        with pytest.raises(UsageError, match=f"being tuned by process {process.pid}"):
            store.lock_study("a").__enter__()
        process.kill()
        # `communicate` would miss the lines that reading 25 of them has buffered
        acknowledged += [int(line) for line in process.stdout.read().split()]
        assert process.stderr.read() == ""
        stored = [trial.number for trial in store.trials("a")]
        assert stored[: len(acknowledged)] == acknowledged
        assert len(stored) - len(acknowledged) in (0, 1), "one may have been on its way"
        with store.lock_study("a"):  # free again, for --resume
            pass
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()

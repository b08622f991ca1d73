"""`gpuadvisor gate record` and what reads recordings, with the real program and real processes."""

import shutil

import pytest

from tests.integration import program


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

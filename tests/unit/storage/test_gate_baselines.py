"""The file of recordings: written by several, merged by git, mended by hand."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from gpuadvisor.domain.baseline import Acceptance, RecordedRun, Recording
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.errors import StoreError
from gpuadvisor.storage.gate import (
    Baselines,
    add_to_baselines,
    baselines_file,
    check_writable,
    read_baselines,
)

MONDAY = datetime(2026, 11, 23, 3, tzinfo=UTC)
RUN = RecordedRun((StepWindow(10, 0.5, 40.0, 0.01, 2.5),), "dataloader", 1 << 30, 3.2, 1980.0)


def recording(day=0, name="main"):
    at = MONDAY + timedelta(days=day)
    return Recording(name, at, {"device": "H100"}, (RUN, RUN), "c0ffee", False)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "perf" / "gate.jsonl"


def test_what_is_written_is_read_in_order_of_time(file):
    accepted = Acceptance("main", MONDAY, "me", 'the "new" loader\nis slower')
    for entry in (recording(2), accepted, recording(1), recording(1, "other")):
        add_to_baselines(file, entry)
    found = read_baselines(file)
    assert found.recordings_of("main") == [recording(1), recording(2)]
    assert (found.accepted("main"), found.accepted("other")) == (accepted, None)
    assert found.names == ["main", "other"]
    assert len(file.read_text("utf-8").splitlines()) == 4


def test_there_is_nothing_at_first(file):
    assert read_baselines(file) == Baselines()


def test_it_is_in_the_folder_of_gpuadvisor_unless_chosen(file, tmp_path, monkeypatch):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path))
    assert baselines_file(None) == tmp_path / "gate.jsonl"
    assert baselines_file(file) == file


def test_a_merge_that_doubles_lines_and_a_last_line_without_an_end(file):
    add_to_baselines(file, recording(1))
    text = file.read_text("utf-8")
    file.write_text(text + "\n" + text.strip(), "utf-8")
    add_to_baselines(file, recording(2))
    assert read_baselines(file).recordings == (recording(1), recording(2))


def test_several_write_at_once(file):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda day: add_to_baselines(file, recording(day)), range(24)))
    assert len(read_baselines(file).recordings) == 24


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("<<<<<<< HEAD", "line 2: a merge was left half done: keep the lines of both sides"),
        ("{", "line 2 is no recording of a gate"),
        ("[]", "line 2 is no recording of a gate"),
        ('{"version": 1}', "line 2 is no recording of a gate"),
        ('{"version": 1, "recording": null}', "line 2 is no recording of a gate"),
        (None, "line 2 is no recording of a gate (it lacks its time or its figures)"),
    ],
)
def test_a_damaged_line_is_named(file, line, sentence):
    add_to_baselines(file, recording())
    good = file.read_text("utf-8")
    damaged = good.replace('"seconds":0.5', '"seconds":0.0')
    file.write_text(good + (line or damaged), "utf-8")
    with pytest.raises(StoreError) as raised:
        read_baselines(file)
    assert sentence in str(raised.value)


@pytest.mark.parametrize("named", ['"recording"', '"measured"'])
def test_a_newer_version(file, named):
    add_to_baselines(file, recording())
    newer = file.read_text("utf-8").replace('"version":1', '"version":2')
    file.write_text(newer.replace('"recording"', named), "utf-8")
    with pytest.raises(StoreError, match="line 1 is of a newer gpuadvisor"):
        read_baselines(file)


def test_a_file_that_cannot_be_written_is_said_before_anything_runs(file, tmp_path):
    check_writable(file)
    (tmp_path / "note").write_text("", "utf-8")
    for path in (tmp_path, tmp_path / "note" / "gate.jsonl"):
        with pytest.raises(StoreError, match="cannot be written: choose another"):
            check_writable(path)
        with pytest.raises(StoreError, match="--store"):
            add_to_baselines(path, recording())
    with pytest.raises(StoreError, match="cannot be read"):
        read_baselines(tmp_path)

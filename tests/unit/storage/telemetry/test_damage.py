"""Files of the telemetry store that are damaged: set aside, said, and no reason to stop."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from gpuadvisor.daemon.store import Backlog
from gpuadvisor.domain.telemetry import Event, GpuProcess
from gpuadvisor.errors import StoreError
from gpuadvisor.storage.telemetry.reader import TelemetryReader
from gpuadvisor.storage.telemetry.retention import Retention
from gpuadvisor.storage.telemetry.writer import TelemetryWriter
from tests.telemetry import START_S, frame, h100, sample
from tests.telemetry_store import Clock, stored

DAY_S = 86400.0


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "telemetry"


def spoil(path, how):
    content = bytearray(path.read_bytes())
    begin = {"header": 0, "tables": 4096}[how]
    content[begin:] = b"\xff" * (len(content) - begin)
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["header", "tables"])
@pytest.mark.parametrize("name", ["index.db", "samples-20231114.db"])
def test_a_damaged_file_is_set_aside_and_the_daemon_goes_on(folder, name, how):
    stored(folder, frame(0, sample()))
    spoil(folder / name, how)
    with TelemetryWriter(folder, clock=Clock()) as writer:
        backlog = Backlog(writer)
        backlog.add(frame(61, sample()), [])
        (said,) = backlog.finish(START_S + 61, [])
        writer.append([], [said])
    assert said.message.startswith(f"{folder / name} is damaged and was set aside: ")
    (aside,) = folder.glob("*.damaged-*")
    assert f"sqlite3 {aside} .recover" in said.message
    reader = TelemetryReader(folder)
    kept = [0, 61] if name == "index.db" else [61]
    assert [f.time_s - START_S for f in reader.frames(0)] == kept
    assert reader.gpus() == (h100(0),)
    assert reader.events(0) == [said]
    assert len(rolled_rows(folder)) == (name == "index.db")


def rolled_rows(folder):
    return list(TelemetryReader(folder).table(0, 2e9, "minute").rows)


def test_processes_that_are_damaged_are_not_said_to_be_none(folder):
    processes = tuple(GpuProcess("GPU-0", pid, "compute", 1, "python") for pid in (7, 8))
    stored(folder, replace(frame(0, sample()), processes=processes))
    (path,) = folder.glob("processes-*")
    spoil(path, "header")
    with TelemetryWriter(folder, clock=Clock()) as writer:
        writer.append([replace(frame(5, sample()), processes=processes)])
        writer.append([replace(frame(10, sample()), processes=())])
        assert list(writer.take_damaged()) == [path.name]
    found = list(TelemetryReader(folder).frames(0))
    assert [each.processes for each in found] == [None, processes, ()]


def test_damage_that_is_found_while_the_daemon_runs_costs_no_other_row(folder):
    """Yesterday's rows are damaged, which the roll-up of what a killed writer left finds."""
    with TelemetryWriter(folder, clock=Clock()) as writer:
        writer.append([frame(at - DAY_S, *[sample()] * 8) for at in range(0, 600, 5)])
    with closing(sqlite3.connect(folder / "index.db")) as connection, connection:
        connection.execute("DELETE FROM gpu_minutes")
        connection.execute("DELETE FROM host_minutes")
    connection.close()
    yesterday = folder / "samples-20231113.db"
    content = bytearray(yesterday.read_bytes())
    content[len(content) // 2 :] = b"\xff" * (len(content) - len(content) // 2)
    yesterday.write_bytes(content)
    with TelemetryWriter(folder, clock=Clock()) as writer:
        for at in range(120):
            writer.append([frame(at, sample())])
        writer.tend()
        assert list(writer.take_damaged()) == [yesterday.name]
        assert writer.take_damaged() == {}
    assert len(list(TelemetryReader(folder).frames(0))) == 120


def test_an_index_that_is_found_damaged_while_the_daemon_runs_is_made_anew(folder):
    lasting = Event("throttling", START_S, "power", gpu="GPU-0")
    with TelemetryWriter(folder, clock=Clock()) as writer:
        writer.append([frame(at, sample(), sample()) for at in range(0, 300, 10)])
        writer._index.connection.execute("PRAGMA cache_size = 0")
        writer._index.empty_log()
        spoil(folder / "index.db", "tables")
        writer._index.connection.execute("PRAGMA shrink_memory")
        writer.append([replace(frame(300, sample(), sample()), gpus=None)], [lasting])
        writer.tend()
        assert list(writer.take_damaged()) == ["index.db"]
    reader = TelemetryReader(folder)
    assert len(list(reader.frames(0))) == 31
    assert (reader.gpus(), reader.events(0)) == ((h100(0), h100(1)), [lasting])
    assert len(rolled_rows(folder)) == 2 * 5


def test_damaged_days_go_with_the_others(folder):
    stored(folder, frame(0, sample()))
    spoil(folder / "samples-20231114.db", "header")
    clock = Clock(START_S + DAY_S)
    with TelemetryWriter(folder, clock=clock, kept=Retention(raw_s=DAY_S)) as writer:
        writer.append([frame(DAY_S, sample())])
        assert list(folder.glob("*.damaged-*"))
        clock.now_s += 2 * DAY_S
        writer.tend()
    assert not list(folder.glob("*.damaged-*"))


@pytest.mark.parametrize("how", ["the file alone", "with its log", "removed"])
@pytest.mark.parametrize("name", ["index.db", "samples-20231114.db"])
def test_a_file_that_is_moved_away_under_the_daemon_costs_nothing_that_comes_after(
    folder, name, how
):
    """As `db check` advises for another schema; SQLite would write on into the moved file."""
    with TelemetryWriter(folder, clock=Clock()) as writer:
        writer.append([frame(0, sample())])
        for path in list(folder.glob(f"{name}*" if how == "with its log" else name)):
            path.unlink() if how == "removed" else path.rename(folder / f"old-{path.name}")
        event = Event("xid", START_S + 1, "Xid 79", gpu="GPU-0", ended_s=START_S + 1)
        writer.append([frame(1, sample())], [event])
        (said,) = writer.take_damaged().values()
        writer.append([frame(2, sample())])
        assert writer.take_damaged() == {}
    assert said.startswith(f"{folder / name} was moved away or removed while it was written")
    reader = TelemetryReader(folder)
    is_index = name == "index.db"
    assert [f.time_s - START_S for f in reader.frames(0)] == [0, 1, 2][not is_index :]
    assert (reader.gpus(), reader.events(0)) == ((h100(0),), [event])


def test_a_store_that_is_removed_under_the_daemon_is_said(folder):
    with TelemetryWriter(folder, clock=Clock()) as writer:
        writer.append([frame(0, sample())])
        shutil.rmtree(folder)
        for at in (1, 2):
            with pytest.raises(StoreError, match=r"index\.db cannot be opened"):
                writer.append([frame(at, sample())])
        folder.mkdir()
        writer.append([frame(3, sample())])
    assert [f.time_s - START_S for f in TelemetryReader(folder).frames(0)] == [3]

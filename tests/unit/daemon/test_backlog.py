"""What waits for the store: it waits alone, is bounded, and nothing of it is lost."""

import sqlite3
import time
from contextlib import closing

import pytest

from gpuadvisor.daemon import store
from gpuadvisor.daemon.store import MAX_FULL_FRAMES, Backlog
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, Frame
from gpuadvisor.storage.telemetry import written
from gpuadvisor.storage.telemetry.reader import TelemetryReader
from gpuadvisor.storage.telemetry.retention import DiskSpace
from gpuadvisor.storage.telemetry.writer import TelemetryWriter
from tests.telemetry import START_S, frame, sample

PATIENCE_S = 60.0


def locked(folder, name="samples-20231114.db"):
    """Hold the lock that a database browser with an open transaction holds."""
    other = sqlite3.connect(folder / name, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return closing(other)


def until(see):
    deadline = time.monotonic() + PATIENCE_S
    while not (seen := see()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return seen


def seconds(folder):
    return [f.time_s - START_S for f in TelemetryReader(folder).frames(0)]


def test_a_lock_on_the_days_file_holds_up_nobody_but_the_writer(tmp_path, monkeypatch):
    monkeypatch.setattr(written, "PATIENCE_S", 3.0)
    with TelemetryWriter(tmp_path) as writer:
        writer.append([frame(0, sample())])
        backlog, told = Backlog(writer), []
        with locked(tmp_path):
            began_s = time.monotonic()
            for at in range(1, 30):
                backlog.add(frame(at, sample()), [Event("xid", START_S + at, "Xid 79")])
                told += backlog.store(START_S + at)
            assert time.monotonic() - began_s < written.PATIENCE_S
            until(lambda: told.extend(backlog.store(START_S + 30)) or told)
            assert backlog.waiting == 29
            assert seconds(tmp_path) == [0]
        until(lambda: told.extend(backlog.store(START_S + 31)) or told[1:])
        until(lambda: backlog.store(START_S + 32) or not backlog.waiting)
        backlog.finish(START_S + 33, [])
    began, over = told
    assert "stayed locked by another program" in began.message
    assert (began.identity, over.data) == (over.identity, {"seconds_lost": 0})
    assert over.ended_s >= began.began_s > START_S
    assert seconds(tmp_path) == list(range(30))
    assert len(TelemetryReader(tmp_path).events(0)) == 29 + 1


def test_what_waits_is_bounded_and_what_is_lost_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(written, "PATIENCE_S", 0.05)
    more = MAX_FULL_FRAMES + 200
    with TelemetryWriter(tmp_path) as writer:
        writer.append([frame(0, sample())])
        backlog, told = Backlog(writer), []
        with locked(tmp_path):
            backlog.add(frame(0.5, sample()), [])
            until(lambda: told.extend(backlog.store(START_S)) or told)
            for at in range(1, more):
                backlog.add(Frame(START_S + at - 0.5, {"GPU-0": sample()}, full=False), [])
                backlog.add(frame(at, sample()), [])
        until(lambda: told.extend(backlog.store(START_S + more)) or told[1:])
        backlog.finish(START_S + more, [])
    kept = [f for f in TelemetryReader(tmp_path).frames(0) if f.full]
    assert told[1].data["seconds_lost"] == more + 1 - len(kept) > 0
    assert [f.time_s for f in kept][-MAX_FULL_FRAMES:] == [
        START_S + at for at in range(more - MAX_FULL_FRAMES, more)
    ]


def test_the_end_waits_for_the_last_write_but_not_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(written, "PATIENCE_S", 3.0)
    monkeypatch.setattr(store, "FINISH_S", 0.1)
    with TelemetryWriter(tmp_path) as writer:
        writer.append([frame(0, sample())])
        backlog = Backlog(writer)
        backlog.add(frame(1, sample()), [])
        with locked(tmp_path):
            (said,) = backlog.finish(START_S + 1, [])
        assert said.message == "1 frames are not stored, as the disk takes too long."
        until(lambda: not backlog._thread.is_alive())


def test_what_goes_wrong_in_the_thread_is_raised_where_it_is_seen(tmp_path):
    with TelemetryWriter(tmp_path) as writer:
        backlog = Backlog(writer)
        backlog.add(None, [])  # a bug
        backlog.store(START_S)
        backlog._thread.join(PATIENCE_S)
        with pytest.raises(AttributeError):
            backlog.store(START_S)


def test_a_store_in_trouble_is_one_event_that_grows_whatever_is_wrong_meanwhile(
    tmp_path, monkeypatch
):
    """Nearly full, then not to be written either, then nearly full again, and at last all well."""
    monkeypatch.setattr(written, "PATIENCE_S", 0.05)
    clock, told = iter(range(10_000)), []

    def step(number):
        """Have the next second stored, with an event, until so much has been told."""

        def see():
            at = next(clock)
            backlog.add(frame(at, sample()), [Event("xid", START_S + at, "Xid 79")])
            told.extend(backlog.store(START_S + at))
            return told[number - 1 :]

        until(see)

    with TelemetryWriter(tmp_path, spare_bytes=1 << 60) as writer:
        backlog = Backlog(writer)
        step(1)
        with locked(tmp_path, "index.db"):
            step(2)
        step(3)
        writer._space = DiskSpace(tmp_path, spare_bytes=0)
        step(4)
        backlog.finish(START_S + next(clock), [])
    words = ("MiB left", "stayed locked", "MiB left", "MiB left")
    assert [word in each.message for word, each in zip(words, told, strict=True)] == [True] * 4
    assert [each.severity for each in told] == [Severity.WARNING, *[Severity.ERROR] * 3]
    assert len({each.identity for each in told}) == 1
    assert [each.ended_s is None for each in told] == [True, True, True, False]
    stored = [event for event in TelemetryReader(tmp_path).events(0) if event.kind == "store"]
    assert stored == told[-1:]
    assert stored[0].data == {"seconds_lost": 0}

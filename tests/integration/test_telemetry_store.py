"""The telemetry store among others: readers, a study, kills, full disks, folders of others."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gpuadvisor.domain.telemetry import HOST, Event, Frame, Gpu, GpuProcess, Sample
from gpuadvisor.domain.timeline import TimelineRequest
from gpuadvisor.errors import UsageError
from gpuadvisor.storage import sqlite_file
from gpuadvisor.storage.telemetry import schema, tables
from gpuadvisor.storage.telemetry.reader import TelemetryReader
from gpuadvisor.storage.telemetry.writer import TelemetryWriter
from tests.telemetry import START_S, frame, h100, sample

ROOT = Path(__file__).parents[2]
MIDNIGHT = 86400 - START_S % 86400
"""From the start until the day is over."""
PATIENCE_S = 120
"""Ends what hangs."""
MINUTE_BEGIN = 60 - START_S % 60
"""From the start until the first whole minute."""


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "telemetry"


def stored(folder, *written, events=()):
    with TelemetryWriter(folder, clock=lambda: written[-1].time_s) as writer:
        writer.append(written, events)
        writer.tend()
    return TelemetryReader(folder)


def started(script, *words, wrapped=()):
    """Start a script that has our helpers at hand."""
    return subprocess.Popen(
        [*wrapped, sys.executable, "-c", textwrap.dedent(script), *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def answer(process):
    """Return what a script has printed once it has ended well."""
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, "")
    return out


# -- beside readers and a study ----------------------------------------------------------------

READERS = """
    import os
    import sys
    import time
    from pathlib import Path
    from tests.telemetry import START_S
    from gpuadvisor.domain.timeline import TimelineRequest
    from gpuadvisor.storage.telemetry.reader import TelemetryReader

    folder, stop = map(Path, sys.argv[1:])
    others = []
    while len(others) < 7 and (child := os.fork()):  # so that one imports for all
        others.append(child)
    if len(others) < 7:
        others = []
    reader, seen = TelemetryReader(folder), []
    follower, is_last = reader.follow(0), False
    os.write(1, b"ready\\n")  # whole lines, among those of the others
    while not is_last:
        is_last = stop.exists()
        for each in follower.read():
            if each.full:
                assert len(each.samples) == 9, each
                seen.append(round(each.time_s - START_S))
        newest_s = reader.newest_s() or START_S
        list(reader.frames(newest_s - 5))
        for span_s in (60, 3600, 86400):
            asked = TimelineRequest("power_w", None, newest_s - span_s, newest_s + 1, 240)
            reader.timelines(asked)
        for resolution in ("raw", "minute", "hour"):
            list(reader.table(newest_s - 60, newest_s + 1, resolution).rows)
        reader.events(newest_s - 60)
        time.sleep(0.02)  # eight that never rest would only wait for a core
    os.write(1, " ".join([*map(str, seen), "\\n"]).encode())
    assert not any(os.waitpid(each, 0)[1] for each in others)
"""
STUDY = """
    import sys
    from pathlib import Path
    from gpuadvisor.domain.knobs import Level
    from gpuadvisor.domain.study import Objective, Trial, TrialState
    from gpuadvisor.storage.database import open_store
    from tests.studies import environment

    path, stop = map(Path, sys.argv[1:])
    with open_store(path) as store:
        store.create_study(
            "a", "train.py", (), environment(), Level.BALANCED, Objective.THROUGHPUT
        )
        number = 0
        print("ready", flush=True)
        while number < 3 or not stop.exists():
            store.add_trial("a", Trial(number, {}, "search", TrialState.COMPLETE))
            number += 1
        assert len(store.trials("a")) == number
"""


def test_eight_readers_and_a_study_beside_a_writer(folder):
    stop = folder.with_name("stop")
    readers = started(READERS, folder, stop)
    study = started(STUDY, folder.with_name("gpuadvisor.db"), stop)
    try:
        for process in [readers] * 8 + [study]:
            assert process.stdout.readline() == "ready\n"
        seconds = range(round(MIDNIGHT) - 20, round(MIDNIGHT) + 21)
        now_s = START_S
        with TelemetryWriter(folder, clock=lambda: now_s) as writer:
            for at in seconds:
                now_s = START_S + at
                quick = Frame(now_s - 0.5, {"GPU-0": sample()}, full=False)
                event = Event("xid", now_s, "Xid 79", gpu="GPU-1", ended_s=now_s)
                writer.append([quick, frame(at, *[sample()] * 8)], [event])
                if at % 20 == 0:
                    writer.tend()
        stop.touch()
        found = [list(map(int, line.split())) for line in answer(readers).splitlines()]
        assert found == [list(seconds)] * 8
        answer(study)
    finally:
        stop.touch()  # the readers that were forked end by themselves
        for process in (readers, study):
            process.kill()
            process.communicate()


# -- what comes between two statements of a reader ---------------------------------------------


def between(monkeypatch, module, table, act):
    """Have `act` done once, as the reader is about to read this table."""
    ask, done = module.present, []

    def asked(connection, asked_for):
        if asked_for.name == table and not done:
            done.append(True)
            act()
        return ask(connection, asked_for)

    monkeypatch.setattr(module, "present", asked)


def test_a_frame_that_is_written_meanwhile_is_read_whole(folder, monkeypatch):
    process = GpuProcess("GPU-0", 7, "compute", 1 << 30, "python")
    with TelemetryWriter(folder, clock=lambda: START_S) as writer:
        writer.append([frame(0, sample())])
        later = replace(frame(1, sample()), processes=(process,))
        between(monkeypatch, schema, "host_samples", lambda: writer.append([later]))
        follower = TelemetryReader(folder).follow(0)
        found = [*follower.read(), *follower.read()]
    assert [each.time_s - START_S for each in found] == [0, 1]
    assert found[1] == replace(later, gpus=None)


def as_it_asks(monkeypatch, words, act):
    """Have `act` done once, as a reader begins a statement with these words in it."""
    opened, done = sqlite_file._opened, []

    def trace(statement):
        if words in statement and not done:
            done.append(True)
            act()

    def traced(path, mode):
        connection = opened(path, mode)
        connection.set_trace_callback(trace)
        return connection

    monkeypatch.setattr(sqlite_file, "_opened", traced)


def test_frames_that_come_while_the_next_one_is_looked_for(folder, monkeypatch):
    """The last table that is asked has only the second."""
    with TelemetryWriter(folder, clock=lambda: START_S) as writer:
        writer.append([frame(0, sample())])
        later = [frame(1, sample()), replace(frame(2, sample()), processes=())]
        follower = TelemetryReader(folder).follow(START_S + 0.5)
        as_it_asks(monkeypatch, "MIN(ts) FROM listings", lambda: writer.append(later))
        found = [*follower.read(), *follower.read()]
    assert [each.time_s - START_S for each in found] == [1, 2]


@pytest.mark.parametrize("words", ["MAX(ts) FROM gpu_minutes", "* polls"])
def test_a_minute_that_is_rolled_up_meanwhile_is_in_a_chart_once(folder, monkeypatch, words):
    begin_s = START_S + MINUTE_BEGIN
    with TelemetryWriter(folder, clock=lambda: START_S) as writer:
        for at in range(0, 121, 10):
            writer.append([frame(MINUTE_BEGIN + at, sample(power_w=float(at)))])
        last = [frame(MINUTE_BEGIN + 130, sample(power_w=130.0))]
        as_it_asks(monkeypatch, words, lambda: writer.append(last))
        reader = TelemetryReader(folder)
        wanted = TimelineRequest("power_w", None, begin_s, begin_s + 180, 3)
        found = reader.timelines(wanted)["GPU-0"]
    assert (found.begin_s, found.step_s) == (begin_s, 60)
    assert [column.mean for column in found.columns] == [25, 85, 125]


def test_frames_that_come_while_a_follower_takes_its_time(folder):
    with TelemetryWriter(folder, clock=lambda: START_S) as writer:
        writer.append([frame(0, sample())])
        follower = TelemetryReader(folder).follow(0)
        found = []
        for each in follower.read():
            if not found:
                writer.append([frame(at, sample()) for at in (30, 70)])
            found.append(each.time_s - START_S)
    assert found == [0, 30, 70]


@pytest.mark.parametrize("module", [schema, tables])
def test_a_gpu_that_comes_while_a_reader_reads(folder, monkeypatch, module):
    made = Gpu("MIG-1", 1, "NVIDIA H100 80GB HBM3 MIG 1g.10gb")
    newer = Frame(START_S + 1, {"MIG-1": sample(), HOST: Sample({})}, gpus=(h100(0), made))
    with TelemetryWriter(folder, clock=lambda: START_S) as writer:
        writer.append([frame(0, sample())])
        between(monkeypatch, module, "gpu_samples", lambda: writer.append([newer]))
        reader = TelemetryReader(folder)
        if module is schema:
            devices = {device for each in reader.frames(0) for device in each.samples}
            assert devices == {"GPU-0", "MIG-1", HOST}
        else:
            rows = reader.table(START_S, START_S + 9, "raw").rows
            assert [row[1] for row in rows] == ["GPU-0", "MIG-1"]


def test_a_day_that_is_removed_as_it_is_opened_is_no_failure(folder, monkeypatch):
    reader = stored(folder, frame(0, sample()))
    opened = sqlite_file._opened

    def removed_first(path, mode):
        if path.name != "index.db":
            path.unlink(missing_ok=True)
        return opened(path, mode)

    monkeypatch.setattr(sqlite_file, "_opened", removed_first)
    assert list(reader.frames(0)) == []
    assert reader.newest_s() is None
    assert not list(folder.glob("samples-*"))  # nor does it come back, empty


# -- roll-ups of writers that were killed ------------------------------------------------------


def minutes_of(folder):
    """Return the polls of GPU-0 in each minute, by its number from the first full one on."""
    with closing(sqlite3.connect(folder / "index.db")) as connection, connection:
        rows = connection.execute(
            "SELECT ts, polls FROM gpu_minutes JOIN gpus ON gpus.id = gpu AND uuid = 'GPU-0'"
        ).fetchall()
    connection.close()
    return {round((ts - START_S - MINUTE_BEGIN) / 60): polls for ts, polls in rows}


def test_a_writer_that_ends_before_it_tends_does_not_hide_what_is_to_be_rolled_up(folder):
    """The next one goes on after the last minute that is rolled up."""
    for seconds in ((0, 10), (110, 120, 121)):
        with TelemetryWriter(folder, clock=lambda: START_S) as writer:
            for at in seconds:
                writer.append([frame(MINUTE_BEGIN + at, sample())])
    stored(folder, frame(MINUTE_BEGIN + 300, sample()))
    assert minutes_of(folder) == {0: 2, 1: 1, 2: 2}


def test_a_writer_that_ends_after_the_clock_was_set_back(folder):
    """The last minute that is rolled up says nothing of those before it then."""
    with TelemetryWriter(folder, clock=lambda: START_S) as writer:
        for at in (3600, 3660, 3720, 60, 70):
            writer.append([frame(MINUTE_BEGIN + at, sample())])
    stored(folder, frame(MINUTE_BEGIN + 180, sample()))
    assert minutes_of(folder) == {1: 2, 60: 1, 61: 1, 62: 1}


def test_minutes_without_their_polls_stay_as_the_clock_is_set_back(folder):
    """As on a disk that was nearly full; what is rolled up again has fewer polls then."""
    full = {"clock": lambda: START_S, "spare_bytes": 1 << 60}
    with TelemetryWriter(folder, **full) as writer:
        for at in (0, 10, 70):
            writer.append([frame(MINUTE_BEGIN + at, sample(power_w=100.0))])
    stored(folder, frame(MINUTE_BEGIN + 20, sample()), frame(MINUTE_BEGIN + 120, sample()))
    assert minutes_of(folder) == {0: 2, 1: 1}


def test_a_store_whose_index_was_moved_away_goes_on(folder):
    times = [MINUTE_BEGIN + at for at in (0, 10, 70)]
    stored(folder, *(frame(at, sample(), sample()) for at in times))
    for path in folder.glob("index.db*"):
        path.unlink()
    reader = stored(folder, *(frame(at, sample()) for at in (MINUTE_BEGIN + 80, 1000)))
    assert [set(each.samples) for each in reader.frames(0)] == [
        *[{"GPU-0", "GPU-1", HOST}] * 3,
        *[{"GPU-0", HOST}] * 2,
    ]
    assert [row[1] for row in reader.table(0, 2e9, "raw").rows].count("GPU-1") == 3
    assert minutes_of(folder) == {0: 2, 1: 2}


# -- what a machine does to a writer -----------------------------------------------------------

WRITER = """
    import sys
    from pathlib import Path
    from tests.telemetry import frame, sample
    from gpuadvisor.storage.telemetry.writer import TelemetryWriter

    at = 0
    with TelemetryWriter(Path(sys.argv[1])) as writer:
        while True:
            at += 1
            writer.append([frame(at, *[sample()] * 8)])
            print(at, flush=True)
"""


def test_a_writer_that_is_suspended_loses_nothing_and_keeps_the_store(folder):
    process = started(WRITER, folder)
    try:
        for _ in range(20):
            process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        with pytest.raises(UsageError, match=f"written by process {process.pid}"):
            TelemetryWriter(folder)
        assert len(list(TelemetryReader(folder).frames(0))) >= 20
        process.send_signal(signal.SIGCONT)
        said = [process.stdout.readline() for _ in range(200)]
    finally:
        process.kill()
        said = [*said, *process.communicate()[0].splitlines(keepends=True)]
    last = int([line for line in said if line.endswith("\n")][-1])
    found = {round(each.time_s - START_S) for each in TelemetryReader(folder).frames(0)}
    assert found >= set(range(1, last + 1))


FULL = """
    import json, os, resource, sqlite3, sys
    from pathlib import Path
    from tests.telemetry import START_S, frame, sample
    from gpuadvisor.domain.telemetry import Event
    from gpuadvisor.errors import StoreError
    from gpuadvisor.storage.telemetry.reader import TelemetryReader
    from gpuadvisor.storage.telemetry.writer import TelemetryWriter

    disk, is_real = Path(sys.argv[1]), sys.argv[2] == "tmpfs"
    ballast, folder = disk / "ballast", disk / "telemetry"
    at, said, now_s = 0, [], START_S

    def append():
        global now_s
        now_s = START_S + at
        event = Event("xid", now_s, "Xid 79", gpu="GPU-1", ended_s=now_s)
        writer.append([frame(at, *[sample(power_w=at + 0.5)] * 8)], [event])
        if at % 10 == 0:
            writer.tend()

    with TelemetryWriter(folder, clock=lambda: now_s, spare_bytes=0) as writer:
        while at < 50:
            append()
            at += 1
        if is_real:
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            ballast.write_bytes(bytes(free - 200_000))
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        while not said:
            try:
                append()
                at += 1
            except StoreError as error:
                said.append(str(error))
        for _ in range(3):
            try:
                append()
            except StoreError as error:
                said.append(str(error))
        found_while_full = [round(f.time_s - START_S) for f in TelemetryReader(folder).frames(0)]
        if is_real:
            ballast.unlink()
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
        acknowledged_while_full = at
        while at < 400:
            append()
            at += 1
    reader = TelemetryReader(folder)
    whole = []
    for path in folder.glob("*.db"):
        connection = sqlite3.connect(path)
        whole += connection.execute("PRAGMA integrity_check").fetchone()
        connection.close()
    print(json.dumps({
        "said": said,
        "lost": [n for n in range(acknowledged_while_full) if n not in found_while_full],
        "found": [round(f.samples["GPU-7"].values["power_w"] - 0.5) for f in reader.frames(0)],
        "events": [round(event.began_s - START_S) for event in reader.events(0)],
        "integrity": sorted(set(whole)),
    }))
"""


def small_disk(path):
    """Return the words before a command that give it a file system of 8 MiB there, or skip.

    The command alone sees it, so that nothing is left of it afterwards.
    """
    if not shutil.which("unshare"):
        pytest.skip("there is no `unshare`")
    mount = 'mount -t tmpfs -o size=8m none "$0" && exec "$@"'
    wrapped = ["unshare", "--mount", "--map-root-user", "sh", "-c", mount, str(path)]
    tried = subprocess.run([*wrapped, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no file system can be mounted: {tried.stderr.strip()}")
    return wrapped


@pytest.mark.parametrize("kind", ["tmpfs", "limit"])
def test_a_full_disk_is_a_sentence_and_loses_nothing(tmp_path, kind):
    wrapped = small_disk(tmp_path) if kind == "tmpfs" else ()
    told = json.loads(answer(started(FULL, tmp_path, kind, wrapped=wrapped)))
    words = "is full, and nothing stored before is lost" if kind == "tmpfs" else "and your quota"
    assert all(words in each and len(each.splitlines()) == 1 for each in told["said"])
    assert told["lost"] == []
    assert told["found"] == told["events"] == list(range(400))
    assert told["integrity"] == ["ok"]


NEARLY_FULL = """
    import os, sys
    from pathlib import Path
    from tests.telemetry import START_S, frame, sample
    from gpuadvisor.domain.telemetry import Event
    from gpuadvisor.storage.telemetry.reader import TelemetryReader
    from gpuadvisor.storage.telemetry.writer import TelemetryWriter

    disk, now_s = Path(sys.argv[1]), START_S
    folder = disk / "telemetry"
    (disk / "ballast").write_bytes(bytes(5 << 20))
    with TelemetryWriter(folder, clock=lambda: now_s) as writer:
        for at in range(0, 12000, 10):
            now_s = START_S + at
            event = Event("xid", now_s, "Xid 79", gpu="GPU-1", ended_s=now_s)
            writer.append([frame(at, *[sample()] * 8)], [event])
            writer.tend()
        print(writer.paused)
    reader = TelemetryReader(folder)
    minutes = {row[0] for row in reader.table(0, 2e9, "minute", metrics=["power_w"]).rows}
    print(len(minutes), len(reader.events(0)))
"""


def test_on_a_disk_that_fills_up_minutes_and_events_go_on(tmp_path):
    said, numbers = answer(
        started(NEARLY_FULL, tmp_path, wrapped=small_disk(tmp_path))
    ).splitlines()
    assert "single sweeps are not stored until" in said
    assert numbers == "201 1200"  # the last was under way


FILLING = """
    import itertools, json, sys, time
    from pathlib import Path
    from tests.telemetry import START_S, frame, sample
    from gpuadvisor.daemon.store import Backlog
    from gpuadvisor.domain.telemetry import Event
    from gpuadvisor.storage.telemetry.reader import TelemetryReader
    from gpuadvisor.storage.telemetry.writer import TelemetryWriter

    disk, clock, told = Path(sys.argv[1]), itertools.count(), []

    def until(see):
        while not see():
            at = next(clock)
            event = Event("xid", START_S + at, "Xid 79" * 50)
            backlog.add(frame(at, sample()), [event])
            told.extend(backlog.store(START_S + at, tend=True))
            time.sleep(0.01)

    with TelemetryWriter(disk / "telemetry") as writer:
        backlog = Backlog(writer)
        until(lambda: next(clock) > 10)
        with (disk / "ballast").open("wb", buffering=0) as ballast:
            while not told:
                ballast.write(bytes(1 << 16))
                until(lambda at=next(clock): next(clock) > at + 4)
            ballast.write(bytes(1 << 24))
        until(lambda: len(told) == 2)
        (disk / "ballast").unlink()
        until(lambda: told[-1].ended_s)
        backlog.finish(START_S + next(clock), [])
    events = [e for e in TelemetryReader(disk / "telemetry").events(0) if e.kind == "store"]
    print(json.dumps([[str(e.severity), e.message] for e in told]))
    print(json.dumps([len(events), len({e.identity for e in [*told, *events]})]))
"""


def test_a_disk_that_fills_up_is_one_event_that_grows(tmp_path):
    told, counts = answer(started(FILLING, tmp_path, wrapped=small_disk(tmp_path))).splitlines()
    assert [severity for severity, _ in json.loads(told)] == ["warning", "error", "error"]
    assert ["MiB left" in said for _, said in json.loads(told)] == [True, False, False]
    assert json.loads(counts) == [1, 1]


OTHERS = """
    import os, sys
    from pathlib import Path
    from tests.telemetry import START_S, frame, sample
    from gpuadvisor.errors import StoreError
    from gpuadvisor.storage.telemetry.reader import TelemetryReader
    from gpuadvisor.storage.telemetry.writer import TelemetryWriter

    folder, mode, state = Path(sys.argv[1]), int(sys.argv[2], 8), sys.argv[3]
    reader, written = TelemetryReader(folder), [frame(at, sample()) for at in range(3)]
    writer = TelemetryWriter(folder, clock=lambda: START_S)
    writer.append(written)
    if state != "live":
        writer.close()
    assert len(list(reader.frames(0))) == 3
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(mode)
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)  # nobody: root may write everywhere
    try:
        TelemetryWriter(folder)
    except StoreError as error:
        print(error)
    try:
        times = [each.time_s - START_S for each in reader.frames(0)]
        print(times, reader.gpus()[0].uuid, reader.newest_s() - START_S)
    except StoreError as error:
        print(error)
    sys.stdout.flush()
    os._exit(0)  # what a live writer has open is not ours to close any more
"""


@pytest.fixture
def open_folder():
    """A folder that anybody may look into, as those of tests are not."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path / "telemetry"
        if (path / "telemetry").exists():
            (path / "telemetry").chmod(0o755)


@pytest.mark.parametrize("state", ["closed", "live"])
def test_a_folder_of_others_is_a_sentence_to_writers_and_can_be_read(open_folder, state):
    said, read = answer(started(OTHERS, open_folder, "555", state)).splitlines()
    assert said.startswith(f"The folder {open_folder} cannot be written: ")
    assert read == "[0.0, 1.0, 2.0] GPU-0 2.0"


def test_a_folder_that_may_not_be_looked_into_is_a_sentence(open_folder):
    said, read = answer(started(OTHERS, open_folder, "000", "closed")).splitlines()
    assert said.startswith(f"The folder {open_folder} cannot be written: ")
    assert read.startswith(f"{open_folder}/index.db cannot be opened: ")

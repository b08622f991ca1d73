"""The telemetry store: what is written comes back, and nothing that was taken is lost."""

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuadvisor.domain.metrics import GPU_METRICS, SamplingInterval
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import (
    Event,
    Frame,
    GpuProcess,
    Sample,
    State,
    Unavailable,
)
from gpuadvisor.domain.timeline import TimelineRequest
from gpuadvisor.errors import StoreError, UsageError
from gpuadvisor.storage.telemetry.files import PROCESSES, day_paths
from gpuadvisor.storage.telemetry.lock import writer_process
from gpuadvisor.storage.telemetry.reader import TelemetryReader
from gpuadvisor.storage.telemetry.writer import TelemetryWriter
from tests.telemetry import START_S, all_in, frame, h100, sample
from tests.telemetry_store import Clock, stored

DAY_S = 86400.0
MIDNIGHT_S = START_S // DAY_S * DAY_S + DAY_S


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "telemetry"


def fast(at_s, **values):
    return Frame(START_S + at_s, {h100(0).uuid: Sample(values)}, full=False)


NOT_SUPPORTED = Unavailable(State.NOT_SUPPORTED, START_S, "the driver has no such field")


def test_frames_come_back_as_they_were(folder):
    troubled = {"fan_pct": NOT_SUPPORTED}
    process = GpuProcess("GPU-1", 77, "compute", 5 << 30, "python", "ann", "python train.py")
    frames = [
        frame(0, sample(troubled), sample(troubled, power_w=None)),
        fast(0.5, power_w=640.0, gpu_utilization_pct=93),
        frame(1, sample(troubled), all_in(State.LOST, START_S + 1, "it fell off the bus")),
        frame(2, sample(), sample()),
    ]
    frames[2] = replace(frames[2], processes=(process, replace(process, gpu="GPU-0")))
    frames[3] = replace(frames[3], processes=())
    first, *later = stored(folder, *frames).frames(0)
    assert first == frames[0]
    assert later == [replace(each, gpus=None) for each in frames[1:]]


def test_the_gpus_come_with_the_first_frame_from_wherever_it_is_read(folder):
    reader = stored(folder, *(frame(at, sample(), sample()) for at in range(5)))
    found = list(reader.frames(START_S + 2, START_S + 4))
    assert [each.time_s - START_S for each in found] == [2, 3]
    assert [each.gpus for each in found] == [(h100(0), h100(1)), None]
    assert reader.gpus() == (h100(0), h100(1))
    assert reader.newest_s() == START_S + 4


def test_states_hold_until_they_change_also_over_a_new_start(folder):
    stale = Unavailable(State.STALE, START_S, "no answer")
    stored(folder, frame(0, sample({"power_w": stale})))
    assert index_count(folder, "states") == 1
    stored(folder, frame(10, sample({"power_w": stale})), frame(11, sample()))
    reader = TelemetryReader(folder)
    unavailable = [each.samples["GPU-0"].unavailable for each in reader.frames(START_S + 5)]
    assert unavailable == [{"power_w": stale}, {}]
    assert index_count(folder, "states") == 2


def index_count(folder, table):
    with closing(sqlite3.connect(folder / "index.db")) as connection, connection:
        return connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]


def test_a_problem_is_told_until_it_is_over(folder):
    said = "The GPUs cannot be read: the driver was unloaded."
    frames = [
        frame(0, sample()),
        frame(1, problem=said),
        frame(2, problem=said),
        frame(3, sample()),
    ]
    assert [f.problem for f in stored(folder, *frames).frames(0)] == [None, said, said, None]


def test_a_gpu_that_is_gone_leaves_the_list_and_keeps_its_rows(folder):
    reader = stored(
        folder,
        frame(0, sample(), sample()),
        frame(1, sample(), gpus=(h100(0),)),
        frame(2, sample()),
    )
    assert reader.gpus() == (h100(0),)
    assert set(reader.all_gpus()) == {h100(0), h100(1)}
    asked = TimelineRequest("power_w", None, START_S, START_S + 9, 9)
    (first, *_) = reader.timelines(asked)["GPU-1"].columns
    assert first.mean == 652.3


def test_each_days_file_is_whole_without_an_index_and_beside_a_new_one(folder):
    """Rows had another GPU's UUID where the new index numbered the GPUs in another order."""
    process = GpuProcess("GPU-1", 77, "compute", 5 << 30, "python")
    before = [frame(at, sample(power_w=0.0), sample(power_w=1.0)) for at in range(0, 90, 10)]
    before[3] = replace(before[3], processes=(process,))
    reader = stored(folder, *before)
    for path in folder.glob("index.db*"):
        path.unlink()
    assert list(reader.frames(0)) == [before[0], *(replace(f, gpus=None) for f in before[1:])]
    assert reader.gpus() == reader.all_gpus() == (h100(0), h100(1))

    swapped = Frame(START_S + 180, {"GPU-1": sample(power_w=1.0)}, gpus=(h100(1),))
    stored(folder, swapped, replace(swapped, time_s=START_S + 240, gpus=(h100(1), h100(0))))
    for resolution, many in (("raw", 9 + 9 + 2), ("minute", 2 * 2 + 1)):
        table = reader.table(0, 2e9, resolution, metrics=["power_w"])
        found = [(gpu, power) for _, gpu, power, *_ in table.rows]
        assert len(found) == many
        assert {(gpu, gpu == "GPU-1") for gpu, _ in found} == {(g, bool(p)) for g, p in found}
    assert [row[1] for row in reader.processes(0, 2e9).rows] == ["GPU-1"]
    assert set(reader.all_gpus()) == {h100(0), h100(1)}


# -- events ------------------------------------------------------------------------------------


def test_an_event_that_comes_again_is_the_same_event(folder):
    throttling = Event("throttling", START_S, "power", Severity.WARNING, "GPU-0", key="power")
    xid = Event(
        "xid", START_S + 1, "Xid 79", Severity.ERROR, "GPU-0", START_S + 1, data={"xid": 79}
    )
    over = replace(throttling, ended_s=START_S + 9, message="power, over")
    with TelemetryWriter(folder, clock=Clock()) as writer:
        writer.append([frame(0, sample())], [throttling, throttling])
        reader = TelemetryReader(folder)
        assert reader.events(0) == [throttling]
        writer.append([frame(1, sample(), events=(xid,))], [over, xid])
        assert reader.events(0) == [over, xid]
    assert reader.events(START_S + 5) == [over]
    assert reader.events(0, limit=1) == [xid]
    assert reader.events(0, until_s=START_S + 1) == [over]
    # What conditions see they see again; what only the collector saw comes with the frames.
    assert [each.events for each in reader.frames(0)] == [(), (xid,)]


def test_a_follower_gets_what_came_since_and_each_frame_once(folder):
    lasting = Event("sampler", START_S + 1, "replaced")
    with TelemetryWriter(folder, clock=Clock()) as writer:
        writer.append([frame(0, sample()), frame(1, sample())])
        follower = TelemetryReader(folder).follow(START_S)
        assert [f.time_s - START_S for f in follower.read()] == [0, 1]
        assert list(follower.read()) == []
        writer.append([frame(2, sample(), events=(lasting,))], [lasting])
        (second,) = follower.read()
        assert (second.gpus, second.events) == (None, (lasting,))
        over = replace(lasting, ended_s=START_S + 3)
        writer.append([frame(3, sample(), sample(), events=(over,))], [over])
        (third,) = follower.read()
        assert (third.gpus, third.events) == ((h100(0), h100(1)), (over,))


# -- time --------------------------------------------------------------------------------------


def test_each_day_has_its_file(folder):
    times = [MIDNIGHT_S - START_S + shift for shift in (-1.0, 0.0, 1.0)]
    reader = stored(folder, *(frame(at, sample()) for at in times))
    assert len(list(folder.glob("samples-*.db"))) == 2
    assert [f.time_s - MIDNIGHT_S for f in reader.frames(0)] == [-1, 0, 1]
    assert [f.time_s - MIDNIGHT_S for f in reader.frames(MIDNIGHT_S)] == [0, 1]


def test_a_clock_that_is_set_back_by_an_hour_loses_nothing(folder):
    clock = Clock()
    with TelemetryWriter(folder, clock=clock) as writer:
        for begin in (0, -3600, -1800):
            for at in range(0, 3600, 10):
                clock.now_s = START_S + begin + at
                writer.append([frame(begin + at, sample(power_w=float(begin)))])
                if at % 60 == 0:
                    writer.tend()
    found = list(TelemetryReader(folder).frames(0))
    assert len(found) == 3 * 360
    assert sorted({f.samples["GPU-0"].values["power_w"] for f in found}) == [-3600, -1800, 0]
    twice_s = START_S // 60 * 60 - 900
    (row,) = rolled(folder, "minute", twice_s)
    assert row["power_w"] == pytest.approx((-3600 - 1800) / 2)  # both passes are in it
    assert (row["min_power_w"], row["max_power_w"]) == (-3600, -1800)


def test_what_the_same_key_has_is_kept_beside(folder):
    reader = stored(folder, frame(0, sample(power_w=1.0)))
    stored(folder, frame(0, sample(power_w=2.0)))
    stored(folder, frame(0, sample(power_w=2.0)))  # the same again is a second attempt
    found = [f.samples["GPU-0"].values["power_w"] for f in reader.frames(0)]
    assert found == [1.0, 2.0]


# -- roll-ups ----------------------------------------------------------------------------------


def rolled(folder, resolution, begin_s):
    table = TelemetryReader(folder).table(begin_s, begin_s + 1, resolution)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_a_minute_has_mean_extremes_and_percentile_of_its_polls(folder):
    begin = 60 - START_S % 60
    frames = [
        frame(begin + at, sample(power_w=float(at), energy_j=at, throttle_reasons=1 << at % 3))
        for at in range(60)
    ]
    stored(folder, *frames, frame(begin + 60, sample()))
    (row,) = rolled(folder, "minute", START_S + begin)
    assert (row["power_w"], row["min_power_w"], row["max_power_w"]) == (29.5, 0, 59)
    assert row["p95_power_w"] == 56  # 57 of 60 values are not above it
    assert (row["first_energy_j"], row["energy_j"]) == (0, 59)
    assert row["throttle_reasons"] == 7
    assert row["fan_pct"] is None


def test_an_hour_is_made_of_its_minutes_with_the_percentile_of_its_seconds(folder):
    begin = 3600 - START_S % 3600
    clock = Clock()
    with TelemetryWriter(folder, clock=clock) as writer:
        for at in range(0, 3700, 10):
            clock.now_s = START_S + begin + at
            writer.append([frame(begin + at, sample(power_w=float(at), energy_j=float(at)))])
            if at % 60 == 0:
                writer.tend()
    (row,) = rolled(folder, "hour", START_S + begin)
    assert (row["power_w"], row["min_power_w"], row["max_power_w"]) == (1795, 0, 3590)
    assert row["p95_power_w"] == 3410
    assert (row["first_energy_j"], row["energy_j"]) == (0, 3590)


def test_a_minute_that_two_writers_saw_has_the_polls_of_both(folder):
    begin = 60 - START_S % 60
    stored(folder, *(frame(begin + at, sample(power_w=0.0)) for at in range(30)))
    stored(folder, *(frame(begin + at, sample(power_w=1.0)) for at in range(30, 61)))
    (row,) = rolled(folder, "minute", START_S + begin)
    assert row["power_w"] == 0.5


def test_minutes_that_a_killed_writer_left_are_rolled_up_by_the_next(folder):
    with TelemetryWriter(folder, clock=Clock()) as writer:
        writer.append([frame(at, sample()) for at in range(0, 600, 5)])  # and never tends
    shutil.copytree(folder, killed := folder.with_name("killed"))
    with closing(sqlite3.connect(killed / "index.db")) as connection, connection:
        connection.execute("DELETE FROM gpu_minutes")
        connection.execute("DELETE FROM host_minutes")
    connection.close()
    stored(killed, frame(700, sample()))
    since_s = START_S - 60
    rows = TelemetryReader(killed).table(since_s, START_S + 600, "minute").rows
    assert len(list(rows)) == 11  # it began in the middle of a minute


whole_values = st.lists(st.integers(0, 100), min_size=1, max_size=60)


@settings(max_examples=20, deadline=None)
@given(whole_values)
def test_statistics_are_within_the_values(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("store")
    begin = 60 - START_S % 60
    frames = [frame(begin + at, sample(temperature_c=v)) for at, v in enumerate(values)]
    stored(folder, *frames, frame(begin + 61, sample()))
    (row,) = rolled(folder, "minute", START_S + begin)
    assert row["temperature_c"] == pytest.approx(sum(values) / len(values))
    assert (row["min_temperature_c"], row["max_temperature_c"]) == (min(values), max(values))
    assert row["p95_temperature_c"] in values
    above = sum(v > row["p95_temperature_c"] for v in values)
    assert above <= 0.05 * len(values)


# -- tables ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three_hours(tmp_path_factory):
    folder = tmp_path_factory.mktemp("three_hours")
    clock = Clock()
    with TelemetryWriter(folder, clock=clock) as writer:
        for at in range(0, 3 * 3600, 10):
            clock.now_s = START_S + at
            pair = sample(power_w=float(at % 600)), sample(power_w=100.0)
            writer.append([frame(at, *pair)])
            if at % 60 == 0:
                writer.tend()
    return TelemetryReader(folder)


@pytest.mark.parametrize(("span_s", "resolution"), [(3600, "raw"), (3 * 3600, "minute")])
def test_a_table_is_as_fine_as_its_length_allows(three_hours, span_s, resolution):
    until_s = START_S + 3 * 3600
    table = three_hours.table(until_s - span_s, until_s, metrics=["power_w"], gpus=["GPU-1"])
    assert table.resolution == resolution
    assert table.columns[:3] == ("time_s", "gpu", "power_w")
    rows = list(table.rows)
    expected = span_s / (10 if resolution == "raw" else 60)
    assert abs(len(rows) - expected) <= 2
    assert {row[1:3] for row in rows} == {("GPU-1", 100.0)}


def test_a_long_table_comes_whole(three_hours, monkeypatch):
    monkeypatch.setattr("gpuadvisor.storage.telemetry.tables.CHUNK_VALUES", 7 * 200)
    rows = list(three_hours.table(START_S, START_S + 3600, "raw").rows)
    assert len(rows) == len({row[:2] for row in rows}) == 2 * 360


# -- space -------------------------------------------------------------------------------------


def test_on_a_disk_that_is_nearly_full_minutes_go_on_and_it_is_said(folder):
    clock = Clock()
    frames = [frame(at, sample(power_w=float(at))) for at in range(0, 200, 10)]
    with TelemetryWriter(folder, clock=clock, spare_bytes=1 << 60) as writer:
        writer.append(frames[:1])
        said = writer.paused
        writer.append(frames[1:])
    reader = TelemetryReader(folder)
    assert "MiB left: single sweeps are not stored until" in said
    assert len(said.splitlines()) == 1
    assert list(reader.frames(0)) == []
    rows = list(reader.table(0, 2e9, "minute", metrics=["power_w"]).rows)
    assert sum(row[2] for row in rows) > 0
    assert len(rows) == 4


def test_what_a_full_disk_held_up_is_stored_once_there_is_room(folder):
    with TelemetryWriter(folder, clock=Clock(), spare_bytes=1 << 60) as writer:
        writer.append([frame(at, sample(power_w=1.0)) for at in range(400)])
        writer._space._spare_bytes = 0
        writer.append([frame(400, sample(power_w=1.0))])
        writer.append([frame(401, sample(power_w=1.0))])
    times = [each.time_s - START_S for each in TelemetryReader(folder).frames(0)]
    assert times == list(range(100, 402))


# -- failures ----------------------------------------------------------------------------------


def test_a_failed_append_is_made_again_without_a_second_row(folder):
    """The index fails after the rows were written: as a disk that fills up between the two."""
    event = Event("gap", START_S, "x", ended_s=START_S)
    with TelemetryWriter(folder, clock=Clock()) as writer:
        writer.append([frame(0, sample())])
        other = sqlite3.connect(folder / "index.db", isolation_level=None)
        other.execute("PRAGMA user_version")
        writer._index.connection.execute("PRAGMA query_only = ON")
        with pytest.raises(StoreError, match="read-only"):
            writer.append([frame(1, sample())], [event])
        writer._index.connection.execute("PRAGMA query_only = OFF")
        writer.append([frame(1, sample())], [event])
        other.close()
    reader = TelemetryReader(folder)
    assert [f.time_s - START_S for f in reader.frames(0)] == [0, 1]
    assert reader.events(0) == [event]


def test_a_new_store_is_private_with_the_folders_above_it(tmp_path):
    folder = tmp_path / "home" / "telemetry"
    stored(folder, frame(0, sample()))
    assert {stat.S_IMODE(each.stat().st_mode) for each in (folder, folder.parent)} == {0o700}


def test_a_second_writer_is_refused_with_the_firsts_number(folder):
    with TelemetryWriter(folder):
        assert writer_process(folder) == os.getpid()
        with pytest.raises(UsageError, match=f"being written by process {os.getpid()}: "):
            TelemetryWriter(folder)
    assert writer_process(folder) is None
    with TelemetryWriter(folder):
        pass


def test_a_folder_that_may_not_be_written_is_a_sentence_and_can_be_read(folder):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    stored(folder, frame(0, sample()))
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)
    try:
        with pytest.raises(StoreError, match="cannot be written"):
            TelemetryWriter(folder)
        assert len(list(TelemetryReader(folder).frames(0))) == 1
    finally:
        folder.chmod(0o755)


def test_what_is_no_store_is_empty_or_a_sentence(tmp_path):
    reader = TelemetryReader(tmp_path / "none")
    assert (reader.gpus(), reader.newest_s(), reader.events(0)) == ((), None, [])
    assert list(reader.frames(0)) == []
    assert reader.timelines(TimelineRequest("power_w", None, 0, 1, 80)) == {}
    assert list(reader.table(0, 1).rows) == []
    (tmp_path / "index.db").write_text("not a database, and long enough to be taken for one" * 20)
    with pytest.raises(StoreError, match="is not a SQLite database"):
        TelemetryReader(tmp_path).gpus()


@pytest.mark.parametrize("name", ["index.db", "samples-20231114.db"])
def test_a_newer_store_is_refused_and_left_alone(folder, name):
    stored(folder, frame(0, sample()))
    with closing(sqlite3.connect(folder / name)) as connection, connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match=f"{name} was written by a newer gpuadvisor"):
        stored(folder, frame(1, sample()))
    with pytest.raises(StoreError, match="upgrade gpuadvisor"):
        list(TelemetryReader(folder).frames(0))


KILLED = """
    import sys, time
    from pathlib import Path
    from tests.telemetry import frame, sample
    from gpuadvisor.storage.telemetry.writer import TelemetryWriter
    with TelemetryWriter(Path(sys.argv[1])) as writer:
        at = 0
        while True:
            at += 1
            writer.append([frame(at, *[sample()] * 8)])
            print(at, flush=True)
"""


def test_what_was_acknowledged_survives_a_kill(folder):
    """Some of these kills meet the middle of a transaction; 50 of them are in benchmarks/."""
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(KILLED), folder],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        )
        for _ in range(25):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        last = [int(line) for line in process.communicate()[0].split()][-1:] or [25]
        times = {f.time_s - START_S for f in TelemetryReader(folder).frames(0)}
        assert times >= set(range(1, last[0] + 1))
        for path in folder.glob("*.db"):
            with closing(sqlite3.connect(path)) as connection, connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            connection.close()
        shutil.rmtree(folder)


# -- older files -------------------------------------------------------------------------------


def test_a_file_without_a_newer_metric_is_read_and_gets_its_column(folder):
    stored(folder, frame(0, sample()))
    with closing(sqlite3.connect(folder / "samples-20231114.db")) as connection, connection:
        connection.execute("ALTER TABLE gpu_samples DROP COLUMN power_w")
    connection.close()
    reader = TelemetryReader(folder)
    (old,) = reader.frames(0)
    assert "power_w" not in old.samples["GPU-0"].values
    table = reader.table(0, 2e9, "raw", metrics=["power_w", "temperature_c"])
    assert [row[2:] for row in table.rows] == [(None, 67)]
    asked = TimelineRequest("power_w", None, START_S, START_S + 60, 60)
    assert reader.timelines(asked)["GPU-0"].is_empty
    stored(folder, frame(1, sample()))
    assert [f.samples["GPU-0"].values.get("power_w") for f in reader.frames(0)] == [None, 652.3]


def test_every_fast_metric_has_its_column(folder):
    values = {
        m.name: 1 if m.whole else 1.0 for m in GPU_METRICS if m.interval is SamplingInterval.FAST
    }
    reader = stored(folder, frame(0, sample()), fast(0.1, **values))
    assert list(reader.frames(0))[1].samples["GPU-0"].values == values


def test_a_number_beyond_sqlites_is_left_out_and_the_rest_is_stored(folder):
    reader = stored(folder, frame(0, sample(memory_used_bytes=2**64 - 1)))
    (found,) = reader.frames(0)
    assert "memory_used_bytes" not in found.samples["GPU-0"].values
    assert found.samples["GPU-0"].values["power_w"] == 652.3


def test_processes_of_a_file_from_before_a_column_are_read_and_gone_on_with(tmp_path):
    process = GpuProcess("GPU-0", 77, "compute", 5 << 30, "python", children_cpu_pct=40.0)
    full = replace(frame(0.0, sample()), processes=(process,))
    stored(tmp_path, full)
    (path,) = day_paths(tmp_path, kind=PROCESSES)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE processes DROP COLUMN children_cpu_pct")
        connection.execute("ALTER TABLE programs DROP COLUMN by_gpuadvisor")
    connection.close()
    (read,) = TelemetryReader(tmp_path).frames(0)
    assert read.processes == (replace(process, children_cpu_pct=None),)
    stored(tmp_path, replace(full, time_s=full.time_s + 1))
    assert [each.processes[0].children_cpu_pct for each in TelemetryReader(tmp_path).frames(0)] == [
        None,
        40.0,
    ]

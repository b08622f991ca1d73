"""The machine and recordings as sources of frames."""

import math
import time
from dataclasses import replace

import psutil
import pytest

from gpuadvisor.collectors.telemetry.host import HostCollector
from gpuadvisor.collectors.telemetry.recording import Recorder
from gpuadvisor.daemon.background import read_status
from gpuadvisor.daemon.sources import (
    BEFORE_S,
    LONGEST_PAUSE_S,
    SILENT_S,
    FromStore,
    Replay,
    choose,
)
from gpuadvisor.domain.metrics import HOST_METRICS
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, Frame, Sample, State
from gpuadvisor.errors import UsageError
from gpuadvisor.storage.telemetry.writer import TelemetryWriter
from tests.telemetry import START_S, frame, h100, sample

NAMES = {metric.name for metric in HOST_METRICS}
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 total=1\n"


MEMINFO = (
    "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\nSwapTotal: 90 kB\nSwapFree: 80 kB\n"
)
STAT = "cpu  {user} 0 50 800 100 10 10 20 500 0\ncpu0 1 1 1 1 1 1 1 1 1 1\nintr 5\n"
DISKSTATS = (
    "   7       0 loop0 9 0 9 9 9 0 9 9 0 9 9 0 0 0 0 0 0\n"
    " 259       0 nvme0n1 1 0 {read} 1 1 0 {write} 1 0 {busy} 1 0 0 0 0 0 0\n"
    " 259       1 nvme0n1p1 1 0 {read} 1 1 0 {write} 1 0 {busy} 1 0 0 0 0 0 0\n"
    " 253       0 dm-0 1 0 {read} 1 1 0 {write} 1 0 {busy} 1 0 0 0 0 0 0\n"
)
NET = (
    "Inter-|   Receive       |  Transmit\n face |bytes packets errs drop fifo frame compressed "
    "multicast|bytes packets\n    lo: 77 1 0 0 0 0 0 0 77 1\n"
    "  eth0:{received} 1 0 0 0 0 0 0 {sent} 1\n"
)


def kernel_says(folder, *, user=0, read=0, write=0, busy=0, received=0, sent=0, waited_us=0):
    for name, text in {
        "meminfo": MEMINFO,
        "stat": STAT.format(user=user),
        "diskstats": DISKSTATS.format(read=read, write=write, busy=busy),
        "net/dev": NET.format(received=received, sent=sent),
        **{f"pressure/{kind}": PRESSURE.format(waited_us) for kind in ("cpu", "io", "memory")},
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def collector(tmp_path, times):
    return HostCollector(clock=iter(times).__next__, proc=tmp_path)


def test_the_first_sample_has_no_rates_and_the_second_has_all(tmp_path):
    kernel_says(tmp_path)
    host = collector(tmp_path, [0, 0, 10])
    levels = host.sample().values
    assert set(levels) == {
        "load_1m", "host_memory_used_bytes", "host_memory_total_bytes", "swap_used_bytes"
    }  # fmt: skip
    # Of guests' 500 ticks and of partitions nothing is counted twice.
    kernel_says(
        tmp_path, user=100, read=20, write=40, busy=5000, received=70, sent=90, waited_us=2_500_000
    )
    second = host.sample()
    assert set(second.values) == NAMES
    assert {name: value for name, value in second.values.items() if name != "load_1m"} == {
        "host_memory_used_bytes": 600 << 10,
        "host_memory_total_bytes": 1000 << 10,
        "swap_used_bytes": 10 << 10,
        "cpu_pct": 100.0,
        "iowait_pct": 0.0,
        "disk_read_bytes_per_s": 1024.0,
        "disk_write_bytes_per_s": 2048.0,
        "disk_busy_pct": 50.0,
        "network_receive_bytes_per_s": 7.0,
        "network_transmit_bytes_per_s": 9.0,
        "cpu_stall_pct": 25.0,
        "io_stall_pct": 25.0,
        "memory_stall_pct": 25.0,
    }
    assert not second.unavailable


def test_this_machine_is_seen_as_psutil_sees_it():
    memory, cards = psutil.virtual_memory(), psutil.net_io_counters(pernic=True)
    host = HostCollector()
    first = host.sample()
    assert first.values["host_memory_total_bytes"] == memory.total
    assert abs(first.values["host_memory_used_bytes"] - memory.total + memory.available) < 1 << 30
    received = sum(card.bytes_recv for name, card in cards.items() if name != "lo")
    assert host._network()["network_receive_bytes_per_s"] >= received
    time.sleep(0.05)
    assert {"cpu_pct", "disk_read_bytes_per_s"} <= set(host.sample().values)


def test_a_kernel_that_counts_no_pressure_is_not_a_machine_without(tmp_path):
    sample = collector(tmp_path, [5, 6]).sample()
    absence = sample.unavailable["memory_stall_pct"]
    assert (absence.state, absence.since_s) == (State.NOT_SUPPORTED, 5)
    assert set(sample.values) == {"load_1m"}


def test_a_clock_that_was_set_back_gives_no_rates(tmp_path):
    kernel_says(tmp_path)
    host = collector(tmp_path, [100, 100, 50])
    host.sample()
    assert "cpu_pct" not in host.sample().values


@pytest.fixture
def recording(tmp_path):
    frames = [Frame(t, {"GPU-1": Sample({"power_w": t})}) for t in (10.0, 11.0, 13.0, 1000.0, 5.0)]
    with Recorder(tmp_path / "run.gpr", "1.0") as recorder:
        for frame in frames:
            recorder.write(frame)
    return recorder.path, frames


def test_a_recording_is_replayed_in_its_rhythm(recording):
    path, frames = recording
    pauses = []
    source = Replay(path, speed=2.0, wait=pauses.append)
    assert list(source.frames()) == frames
    assert pauses == [0.5, 1.0, LONGEST_PAUSE_S / 2]
    assert source.label == "run.gpr"


def test_a_recording_can_be_read_at_once(recording):
    path, frames = recording
    assert list(Replay(path, speed=math.inf).frames()) == frames


def test_a_replay_ends_when_it_is_closed(recording):
    source = Replay(recording[0])
    seen = []
    for each in source.frames():
        seen.append(each)
        source.close()
    assert len(seen) == 1


def test_what_is_no_recording_is_refused_at_once(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(UsageError, match="not a recording"):
        Replay(path)


class Clock:
    now_s = START_S + BEFORE_S

    def __call__(self):
        return self.now_s


def test_a_daemons_rows_come_from_two_minutes_ago_on_and_then_as_they_are_written(tmp_path):
    clock = Clock()
    with TelemetryWriter(tmp_path, clock=clock) as writer:
        writer.append([frame(at, sample()) for at in (-1, 0, BEFORE_S - 1)])
        source = FromStore(tmp_path, clock=clock)
        frames = source.frames()
        assert [next(frames).time_s - START_S for _ in range(2)] == [0, BEFORE_S - 1]
        writer.append([frame(BEFORE_S, sample())])
        assert next(frames).time_s == START_S + BEFORE_S
        clock.now_s += SILENT_S
        assert "has stored nothing for 5 s" in next(frames).problem
        writer.append([frame(BEFORE_S + SILENT_S, sample())])
        assert next(frames).problem is None
    clock.now_s += SILENT_S
    silent = next(frames)
    assert silent.problem.startswith("The daemon has stopped")
    assert (silent.time_s, silent.samples) == (clock.now_s, {})
    source.close()
    assert list(frames) == []


def test_a_daemons_frames_have_the_events_that_it_made_of_them(tmp_path):
    clock = Clock()
    before = Event("throttling", START_S - 3600, "Held.", Severity.WARNING, "GPU-0", key="hw")
    begun = Event("memory_full", START_S + 1, "Full.", Severity.WARNING, "GPU-0")
    with TelemetryWriter(tmp_path, clock=clock) as writer:
        writer.append([frame(0, sample())], [before])
        source = FromStore(tmp_path, clock=clock)
        frames = source.frames()
        assert next(frames).events == (before,)
        writer.append([frame(1, sample())], [begun])
        assert next(frames).events == (begun,)
        over = replace(begun, ended_s=START_S + 2)
        writer.append([frame(2, sample())], [over])
        assert next(frames).events == (over,)
        source.close()


def test_a_daemons_rows_go_on_after_the_clock_was_set_back(tmp_path):
    clock = Clock()
    with TelemetryWriter(tmp_path, clock=clock) as writer:
        writer.append([frame(BEFORE_S, sample())])
        source = FromStore(tmp_path, clock=clock)
        frames = source.frames()
        assert next(frames).gpus == (h100(0),)
        clock.now_s -= 3600
        writer.append([frame(BEFORE_S - 3600 + SILENT_S, sample())])
        clock.now_s += SILENT_S
        found = next(frames)
        while found.problem:
            found = next(frames)
        assert found.time_s == clock.now_s
        source.close()


def test_an_event_ends_for_who_watches_also_after_the_clock_was_set_back(tmp_path):
    clock = Clock()
    hot = Event("temperature", START_S, "GPU 0 is hot.", Severity.WARNING, "GPU-0")
    with TelemetryWriter(tmp_path, clock=clock) as writer:
        writer.append([frame(BEFORE_S, sample())], [hot])
        source = FromStore(tmp_path, clock=clock)
        frames = source.frames()
        assert next(frames).events == (hot,)
        clock.now_s -= 3600
        over = replace(hot, ended_s=START_S)
        to_come = replace(hot, began_s=START_S - 1800)
        writer.append([frame(BEFORE_S - 3600 + SILENT_S, sample())], [over, to_come])
        clock.now_s += SILENT_S
        found = next(frames)
        while found.problem:
            found = next(frames)
        assert found.events == (over,)
        source.close()


def test_rows_from_before_the_clock_was_set_back_are_not_those_of_now(tmp_path):
    clock = Clock()
    now = clock.now_s - START_S
    with TelemetryWriter(tmp_path, clock=clock) as writer:
        writer.append([frame(now + 3600, sample(power_w=111.0)), frame(now, sample(power_w=222.0))])
        source = FromStore(tmp_path, clock=clock)
        frames = source.frames()
        assert next(frames).samples["GPU-0"].values["power_w"] == 222.0
        clock.now_s += SILENT_S
        status = read_status(tmp_path, clock.now_s)
        assert (status["newest_row_age_s"], status["gpus"][0]["power_w"]) == (SILENT_S, 222.0)
        assert next(frames).problem
        source.close()


def test_the_status_of_a_daemon_that_is_stopped_has_no_values_of_now(tmp_path):
    clock = Clock()
    with TelemetryWriter(tmp_path, clock=clock) as writer:
        writer.append([frame(clock.now_s - START_S, sample(power_w=222.0))])
    (now,) = read_status(tmp_path, clock.now_s + SILENT_S)["gpus"]
    (later,) = read_status(tmp_path, clock.now_s + SILENT_S + 1)["gpus"]
    assert (now["state"], now["power_w"]) == ("ok", 222.0)
    assert (later["state"], later["power_w"]) == ("stale", None)


def test_a_daemon_is_chosen_where_one_writes_and_a_recording_before_it(
    tmp_path, recording, monkeypatch
):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))
    with TelemetryWriter(tmp_path / "home" / "telemetry"):
        assert choose().label == "daemon"
        assert choose(recording=recording[0]).label == "run.gpr"
    alone = choose()
    assert alone.label == "live"
    alone.close()

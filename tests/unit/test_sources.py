"""The machine and recordings as sources of frames."""

import math

import pytest

from gpuadvisor.collectors.telemetry.host import HostCollector
from gpuadvisor.collectors.telemetry.recording import Recorder
from gpuadvisor.domain.metrics import HOST_METRICS
from gpuadvisor.domain.telemetry import Frame, Sample, State
from gpuadvisor.errors import UsageError
from gpuadvisor.monitoring.sources import LONGEST_PAUSE_S, Replay

NAMES = {metric.name for metric in HOST_METRICS}
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 total=1\n"


def collector(tmp_path, times):
    return HostCollector(clock=iter(times).__next__, pressure=tmp_path)


def test_the_first_sample_has_no_rates_and_the_second_has_all(tmp_path):
    for kind in ("cpu", "io", "memory"):
        (tmp_path / kind).write_text(PRESSURE.format(0))
    host = collector(tmp_path, [0, 0, 1e6])
    first = host.sample()
    assert {"host_memory_used_bytes", "load_1m"} <= set(first.values)
    assert not {name for name in first.values if name.endswith("per_s")}
    second = host.sample()
    assert set(second.values) <= NAMES
    assert {"disk_read_bytes_per_s", "network_receive_bytes_per_s"} <= set(second.values)
    assert not second.troubles


def test_a_stall_is_the_share_of_the_time_that_passed(tmp_path):
    (tmp_path / "io").write_text(PRESSURE.format(1_000_000))
    host = collector(tmp_path, [0, 0, 10])
    host.sample()
    (tmp_path / "io").write_text(PRESSURE.format(3_500_000))
    assert host.sample().values["io_stall_pct"] == pytest.approx(25.0)


def test_a_kernel_that_counts_no_pressure_is_not_a_machine_without(tmp_path):
    sample = collector(tmp_path, [5, 6]).sample()
    trouble = sample.troubles["memory_stall_pct"]
    assert (trouble.state, trouble.since_s) == (State.NOT_SUPPORTED, 5)
    assert "memory_stall_pct" not in sample.values


def test_a_clock_that_was_set_back_gives_no_rates(tmp_path):
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
    for frame in source.frames():
        seen.append(frame)
        source.close()
    assert len(seen) == 1


def test_what_is_no_recording_is_refused_at_once(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(UsageError, match="not a recording"):
        Replay(path)

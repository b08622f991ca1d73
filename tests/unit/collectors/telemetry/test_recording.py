"""Recordings: what was written is there, up to wherever the file ends."""

import gzip
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuadvisor.collectors.telemetry.recording import FORMAT, KIND, Recorder, read_recording
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Frame, Gpu, Sample
from gpuadvisor.errors import UsageError
from gpuadvisor.printable import duration
from gpuadvisor.rules.conditions import Conditions

FRAMES = [
    Frame(100.0, gpus=(Gpu("GPU-1", 0, "NVIDIA H100 80GB HBM3"),)),
    *(
        Frame(101.0 + i, {"GPU-1": Sample({"gpu_utilization_pct": i, "power_w": 70.5 + i})})
        for i in range(20)
    ),
]


class Clock:
    """Goes on a second with each look, so that every frame is flushed."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        self.now_s += 1
        return self.now_s


@pytest.fixture
def path(tmp_path):
    with Recorder(tmp_path / "run.gpr", "1.0", clock=Clock()) as recorder:
        for frame in FRAMES:
            recorder.write(frame)
    return recorder.path


def test_what_was_recorded_is_read(path):
    recording = read_recording(path)
    assert recording.version == "1.0"
    assert list(recording.frames()) == FRAMES
    assert list(recording.frames()) == FRAMES  # and once more


def test_what_is_cut_off_is_read_up_to_the_cut(path):
    whole = path.read_bytes()
    lengths = []
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        try:
            read = list(read_recording(path).frames())
        except UsageError as error:
            assert "is not a recording" in str(error)
            continue
        assert read == FRAMES[: len(read)]
        lengths.append(len(read))
    assert lengths == sorted(lengths)
    assert lengths[-1] >= len(FRAMES) - 2


def damaged(path, place, length=60):
    content = bytearray(path.read_bytes())
    content[place : place + length] = bytes(b ^ 0xA5 for b in content[place : place + length])
    path.write_bytes(content)


@pytest.fixture
def minutes(tmp_path):
    """A recording of twenty minutes, a frame a second, and what was written."""
    written = [
        Frame(float(at), {f"GPU-{gpu}": Sample({"power_w": at * 1.7 + gpu}) for gpu in range(8)})
        for at in range(1, 1201)
    ]
    seconds = iter(range(10**9))
    with Recorder(tmp_path / "run.gpr", "1.0", clock=lambda: next(seconds)) as recorder:
        for frame in written:
            recorder.write(frame)
    return recorder.path, written


@pytest.mark.parametrize("part", [0.06, 0.5, 0.9])
def test_damage_in_the_middle_costs_a_minute_and_is_said(minutes, part):
    """All that came later was lost, and before that without a word."""
    path, written = minutes
    damaged(path, int(path.stat().st_size * part))
    frames = list(read_recording(path).frames())
    (place,) = (i for i, frame in enumerate(frames) if frame.events)
    (event,) = frames[place].events
    assert (event.kind, event.key, event.severity) == ("gap", "damaged", Severity.ERROR)
    assert frames[:place] == written[:place]
    assert [replace(frame, events=()) for frame in frames[place:]] == written[place - len(frames) :]
    lost = len(written) - len(frames)
    assert 0 < lost <= 60
    assert (event.began_s, event.ended_s) == (frames[place - 1].time_s, frames[place].time_s)
    assert event.ended_s - event.began_s == lost + 1
    assert 0 < event.data["bytes"] < path.stat().st_size / 10
    assert event.message == (
        f"The recording is damaged here: {event.data['bytes'] / 1e3:.1f} kB of it cannot be read,"
        f" {duration(lost + 1)} are missing."
    )
    assert shown(frames) == [event]


def shown(frames):
    """Return the events of a recording as it is shown."""
    conditions = Conditions()
    return [event for frame in frames for event in conditions.observe(frame)]


def test_damage_twice_is_said_twice_and_at_the_end_how_much(minutes):
    path, _ = minutes
    size = path.stat().st_size
    for part in (0.4, 0.6, 0.999):
        damaged(path, int(size * part))
    frames = list(read_recording(path).frames())
    first, second, last = (event for frame in frames for event in frame.events)
    assert first.ended_s < second.began_s < last.began_s == last.ended_s == frames[-1].time_s
    assert last.message.endswith("kB of it cannot be read, all that was recorded later.")
    assert size * 0.0005 < last.data["bytes"] < size / 10


def test_a_value_that_is_not_the_one_that_was_written_is_not_passed_over(minutes):
    """A bit of a stored block: all can be read, and the checksum at the end is wrong."""
    path, written = minutes
    content = gzip.decompress(path.read_bytes())
    with gzip.open(path, "wb", compresslevel=0) as file:
        file.write(content)
    stored = bytearray(path.read_bytes())
    place = stored.find(b'"power_w":', len(stored) // 2) + len('"power_w":')
    stored[place] = ord("9") if stored[place] != ord("9") else ord("8")
    path.write_bytes(stored)
    *frames, last = read_recording(path).frames()
    assert len(frames) == len(written)
    (event,) = last.events
    assert "its checksum is wrong" in event.message


RECORD_FOR_EVER = """
import sys
from pathlib import Path
from gpuadvisor.collectors.telemetry.recording import Recorder
from gpuadvisor.domain.telemetry import Frame
recorder = Recorder(Path(sys.argv[1]), "1.0", clock=iter(range(10**9)).__next__)
for number in range(10**9):
    recorder.write(Frame(float(number)))
    print(number, flush=True)
"""


def test_a_killed_recorder_loses_what_was_not_flushed_only(tmp_path):
    path = tmp_path / "run.gpr"
    argv = [sys.executable, "-c", RECORD_FOR_EVER, str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as recorder:
        written = [int(recorder.stdout.readline()) for _ in range(50)]
        recorder.send_signal(signal.SIGKILL)
    times = [frame.time_s for frame in read_recording(path).frames()]
    assert times[: len(written) - 1] == written[:-1]


NO_RECORDINGS = {
    "an empty file": b"",
    "a table": b"time,power\n1,2\n",
    "a compressed list": gzip.compress(b"[1, 2]\n"),
    "something else's header": gzip.compress(b'{"kind": "another"}\n'),
    "deep brackets": gzip.compress(b"[" * 100_000 + b"\n"),
}


@pytest.mark.parametrize("name", NO_RECORDINGS)
def test_what_is_no_recording_is_refused(tmp_path, name):
    path = tmp_path / "run.gpr"
    path.write_bytes(NO_RECORDINGS[name])
    with pytest.raises(UsageError, match="is not a recording of gpuadvisor"):
        read_recording(path)


def test_a_newer_format_is_refused(tmp_path):
    path = tmp_path / "run.gpr"
    header = {"kind": KIND, "format": FORMAT + 1, "gpuadvisor": "9.0"}
    path.write_bytes(gzip.compress(json.dumps(header).encode() + b"\n"))
    with pytest.raises(UsageError, match=r"recorded by gpuadvisor 9\.0 .* upgrade gpuadvisor"):
        read_recording(path)


def test_a_missing_file_and_a_missing_folder(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_recording(tmp_path / "run.gpr")
    with pytest.raises(UsageError, match="cannot be written"):
        Recorder(tmp_path / "missing" / "run.gpr", "1.0")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_full_disk_is_said(tmp_path):
    path = tmp_path / "full.gpr"
    path.symlink_to("/dev/full")
    with pytest.raises(UsageError, match="No space left"):
        recorder = Recorder(path, "1.0", clock=Clock())
        for frame in FRAMES:
            recorder.write(frame)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(place=st.integers(0, 400), byte=st.integers(0, 255))
def test_damage_is_survived(path, place, byte):
    whole = path.read_bytes()
    damaged = path.with_name("damaged.gpr")
    damaged.write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
    try:
        read = list(read_recording(damaged).frames())
    except UsageError:
        return
    assert all(isinstance(frame, Frame) for frame in read)

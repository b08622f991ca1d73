"""Recordings: what was written is there, up to wherever the file ends."""

import gzip
import json
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuadvisor.collectors.telemetry.recording import FORMAT, KIND, Recorder, read_recording
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Frame, Gpu, Sample
from gpuadvisor.errors import UsageError

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


@pytest.mark.parametrize("part", [0.3, 0.5, 0.9])
def test_damage_in_the_middle_is_said_after_the_last_good_frame(tmp_path, part):
    """It was cut there without a word."""
    path = tmp_path / "run.gpr"
    written = [
        Frame(float(at), {f"GPU-{gpu}": Sample({"power_w": at * 1.7 + gpu}) for gpu in range(8)})
        for at in range(3000)
    ]
    with Recorder(path, "1.0", clock=iter(range(10**9)).__next__) as recorder:
        for frame in written:
            recorder.write(frame)
    content = bytearray(path.read_bytes())
    place = int(len(content) * part)
    content[place : place + 60] = bytes(b ^ 0xA5 for b in content[place : place + 60])
    path.write_bytes(content)
    *frames, last = read_recording(path).frames()
    assert frames == written[: len(frames)]
    assert 300 < len(frames) < 3000
    (event,) = last.events
    assert (event.kind, event.severity, event.began_s) == ("gap", Severity.ERROR, last.time_s)
    assert last.time_s == frames[-1].time_s
    assert "damaged" in event.message


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

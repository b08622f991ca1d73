"""What is recorded, until when, and what becomes of a command that runs meanwhile."""

import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from gpuadvisor.collectors.telemetry.recording import read_recording
from gpuadvisor.daemon.sources import capture
from gpuadvisor.domain.telemetry import SILENT, STARTING, Frame, Gpu, Sample
from gpuadvisor.errors import AdvisorError, SilentError, UsageError

GPUS = (Gpu("GPU-1", 0, "NVIDIA H100 80GB HBM3"), Gpu("GPU-2", 1, "NVIDIA H100 80GB HBM3"))


class Hand:
    """A source that gives what it holds, and then the last frame again and again."""

    label = "by hand"

    def __init__(self, *frames):
        self._frames = frames
        self.closed = threading.Event()

    def frames(self):
        yield from self._frames
        while not self.closed.wait(0.01):
            yield self._frames[-1]

    def close(self):
        self.closed.set()


def good():
    values = {"GPU-1": Sample({"power_w": 70})}
    return Hand(Frame(1.0, problem=STARTING), Frame(2.0, values, gpus=GPUS), Frame(3.0, values))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.gpr"


def python(program):
    return [sys.executable, "-c", program]


def test_it_ends_when_the_time_is_over(path):
    source = good()
    done = capture(source, path, duration_s=0.3)
    assert (done.gpus, done.status) == (2, 0)
    frames = list(read_recording(path).frames())
    assert (frames[0].gpus, len(frames)) == (GPUS, done.frames)
    assert source.closed.is_set()
    assert done.size_bytes == path.stat().st_size


def test_it_ends_when_it_is_asked_to(path):
    asked = iter([0, 0, signal.SIGINT, signal.SIGINT])
    assert capture(good(), path, stopped_by=lambda: next(asked)).status == 0


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("pass", 0),
        ("raise SystemExit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", 128 + 9),
    ],
)
def test_it_ends_with_the_command_and_has_its_status(path, program, status):
    done = capture(good(), path, command=python(program))
    assert done.status == status
    assert done.frames >= 2


class Failing(Hand):
    """A source that fails while the command runs."""

    def frames(self):
        yield from self._frames
        raise RuntimeError("dictionary changed size")


def test_a_command_outlives_a_source_that_fails(path):
    said, told = [], path.with_name("told")
    waits = f"import os, time\nwhile not os.path.exists({str(told)!r}): time.sleep(0.01)"
    command = python(f"{waits}\nraise SystemExit(7)")
    source = Failing(*good()._frames)
    warn = lambda sentence: (said.append(sentence), told.touch())  # noqa: E731
    done = capture(source, path, command=command, warn=warn)
    assert (done.status, done.frames) == (7, 2)
    assert said == ["the recording ended early and the command goes on: dictionary changed size"]
    assert len(list(read_recording(path).frames())) == 2
    assert source.closed.is_set()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_command_outlives_a_full_disk(path):
    path.symlink_to("/dev/full")
    said, told = [], path.with_name("told")

    def warn(sentence):
        said.append(sentence)
        told.touch()

    waits = f"import os, time\nwhile not os.path.exists({str(told)!r}): time.sleep(0.01)"
    done = capture(good(), path, command=python(f"{waits}\nraise SystemExit(7)"), warn=warn)
    assert done.status == 7
    (sentence,) = said
    assert sentence.startswith("the recording ended early and the command goes on: ")
    assert "No space left on device" in sentence


def test_without_a_command_a_full_disk_is_an_error(path):
    path.symlink_to("/dev/full")
    with pytest.raises(UsageError, match="No space left"):
        capture(good(), path, duration_s=0.1)


def test_a_recording_that_is_removed_costs_a_command_nothing(path):
    command = python(f"import os, time; time.sleep(0.1); os.remove({str(path)!r}); exit(7)")
    done = capture(good(), path, command=command)
    assert (done.status, done.size_bytes) == (7, 0)


def test_sigterm_reaches_a_command_that_is_not_recorded_any_more(path):
    said = []
    done = capture(
        Failing(*good()._frames),
        path,
        command=python("import time; time.sleep(600)"),
        stopped_by=lambda: signal.SIGTERM if said else 0,
        warn=said.append,
    )
    assert done.status == 128 + signal.SIGTERM


def test_sigterm_reaches_the_command(path):
    began = time.monotonic()
    stopped_by = lambda: signal.SIGTERM if time.monotonic() - began > 0.5 else 0  # noqa: E731
    done = capture(
        good(), path, command=python("import time; time.sleep(600)"), stopped_by=stopped_by
    )
    assert done.status == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    "source",
    [
        Hand(Frame(1.0, problem=STARTING), Frame(2.0, problem="No NVIDIA driver is installed.")),
        Hand(Frame(1.0, problem="No NVIDIA driver is installed.")),
    ],
)
def test_without_a_gpu_nothing_is_written(path, source):
    with pytest.raises(AdvisorError, match="nothing to record: No NVIDIA driver"):
        capture(source, path)
    assert not path.exists()
    assert source.closed.is_set()


HANGING = Hand(Frame(1.0, problem=STARTING), Frame(2.0, problem=SILENT))


def test_a_driver_that_hangs_is_said_with_the_way_out(path):
    with pytest.raises(SilentError, match=r"has not answered for 5 s: .* reboot"):
        capture(HANGING, path)
    assert not path.exists()


class Late(Hand):
    """A driver that answers once the command has written a file."""

    def __init__(self, written, *frames):
        super().__init__(*frames)
        self._written = written

    def frames(self):
        yield Frame(1.0, problem=SILENT)
        while not self._written.exists():
            time.sleep(0.01)
            yield Frame(1.0, problem=SILENT)
        yield from super().frames()


def test_a_command_does_not_wait_for_the_driver(path, tmp_path):
    written, said = tmp_path / "written", []
    program = f"""
import os, time
open({str(written)!r}, 'w').close()
while not os.path.exists({str(path)!r}): time.sleep(0.01)  # the recording has begun
raise SystemExit(7)"""
    done = capture(Late(written, *good()._frames), path, command=python(program), warn=said.append)
    assert (done.status, done.gpus) == (7, 2)
    assert next(read_recording(path).frames()).gpus == GPUS
    (sentence,) = said
    assert sentence.startswith("nothing is recorded until it answers: the NVIDIA driver has not")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (Hand(Frame(1.0, problem="No NVIDIA driver is installed.")), "No NVIDIA driver"),
        (Hand(Frame(1.0, problem=STARTING)), "the NVIDIA driver is starting"),
    ],
)
def test_a_command_runs_where_there_is_nothing_to_record(path, source, words):
    said = []
    done = capture(source, path, command=python("raise SystemExit(7)"), warn=said.append)
    assert (done.status, done.frames) == (7, 0)
    (sentence,) = said
    assert sentence.startswith("nothing is recorded")
    assert words.lower() in sentence.lower()
    assert not path.exists()


def test_a_command_is_not_begun_where_it_cannot_be_recorded(tmp_path):
    written = tmp_path / "written"
    with pytest.raises(UsageError, match="cannot be written"):
        capture(good(), tmp_path / "none" / "run.gpr", command=["touch", str(written)])
    assert not written.exists()


def test_a_command_that_does_not_exist_is_said(path):
    source = good()
    with pytest.raises(UsageError, match="cannot start no-such-program"):
        capture(source, path, command=["no-such-program"])
    assert source.closed.is_set()

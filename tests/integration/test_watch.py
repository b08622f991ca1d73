"""`gpuadvisor watch` with the real program: the fake NVML library, recordings, and a terminal."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import psutil
import pytest

from gpuadvisor.collectors.telemetry.recording import Recorder
from gpuadvisor.domain.metrics import GPU_METRICS
from tests.telemetry import START_S, frame, sample

PATIENCE_S = 120.0
ALTERNATE_SCREEN, PRIMARY_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"
SHOWN_CURSOR = b"\x1b[?25h"
TEXTUAL = b"\x1b[?1000h"
"""It asks for the mouse first."""


@pytest.fixture
def environ(nvml_environ, tmp_path):
    inherited = {k: v for k, v in nvml_environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    home = str(tmp_path / "home")
    return {**inherited, "GPUADVISOR_HOME": home, "TERM": "xterm-256color", "TZ": "UTC"}


@pytest.fixture
def watch(environ, tmp_path):
    """A function that runs `gpuadvisor watch words...` without a terminal."""

    def run(*words, **settings):
        return subprocess.run(
            [sys.executable, "-m", "gpuadvisor", "watch", *words],
            cwd=tmp_path,
            env={**environ, **settings},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    return run


@pytest.fixture
def recording(tmp_path):
    """The name of a recording of 20 seconds, in which a GPU comes to its power limit."""
    with Recorder(tmp_path / "run.gpr", "1.0") as recorder:
        for at_s in range(20):
            capped = 0x4 if at_s >= 9 else 0
            recorder.write(
                frame(at_s, sample(gpu_utilization_pct=at_s, throttle_reasons=capped), sample())
            )
    return "run.gpr"


class Terminal:
    """The program on a terminal of 80 by 24."""

    def __init__(self, words, folder, environ, controls=False):
        self.output = b""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpuadvisor", "watch", *words],
            cwd=folder,
            env=environ,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if controls else None,
        )
        os.set_blocking(self._master, False)

    def read(self):
        try:
            self.output += os.read(self._master, 1 << 16)
        except BlockingIOError:
            time.sleep(0.02)

    def until(self, text):
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.output:
            assert time.monotonic() < deadline, self.output[-2000:]
            assert self.process.poll() is None or text in self.output, self.output[-2000:]
            self.read()

    def press(self, key):
        os.write(self._master, key)

    def ended(self):
        """Return the exit status; what it writes must be read, or it waits."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.output[-2000:]
            self.read()
        for _ in range(10):
            self.read()
        return self.process.returncode

    def is_clean(self):
        """Whether the terminal is as it was: its settings, its screen and its cursor."""
        left = self.output.rpartition(ALTERNATE_SCREEN)[2]
        is_back = PRIMARY_SCREEN in left and left.rfind(SHOWN_CURSOR) >= 0
        return is_back and termios.tcgetattr(self._slave) == self.before

    def hang_up(self):
        """Take the terminal away, and return the exit status."""
        os.close(self._slave)
        os.close(self._master)
        self._slave = self._master = None
        return self.process.wait(PATIENCE_S)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._master is not None:
            os.close(self._master)
            os.close(self._slave)


@pytest.fixture
def terminal(environ, tmp_path):
    """A function that starts `gpuadvisor watch words...` on a terminal."""
    opened = []

    def start(*words, controls=False, **settings):
        opened.append(Terminal(words, tmp_path, {**environ, **settings}, controls))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def test_once_prints_a_line_for_each_gpu(watch):
    done = watch("--once", FAKE_NVML_MODELS="h100,t4", FAKE_NVML_LOAD="busy")
    assert (done.returncode, done.stderr) == (0, "")
    heading, _, titles, first, second = done.stdout.splitlines()[:5]
    assert "  live  " in heading
    assert "  2 GPUs" in heading
    assert titles.split()[:4] == ["GPU", "name", "util", "mem"]
    assert first.split()[:3] == ["0", "H100", "100%"]
    assert " 90% " in first
    assert second.split()[:4] == ["1", "Tesla", "T4", "95%"]
    assert " n/a " in second


def test_an_instance_has_a_line_with_what_the_driver_tells_of_it(watch):
    told = watch("--once", FAKE_NVML_MODELS="h100", FAKE_NVML_MIG="@0=2", FAKE_NVML_LOAD="busy")
    lines = {words[0]: words[1:] for line in told.stdout.splitlines() if (words := line.split())}
    assert [label for label in lines if label[0].isdigit()] == ["0", "0/1", "0/2"]
    assert lines["0/1"][:3] == ["MIG", "1g.10gb", "n/a"]  # and not 0 %
    assert "6.0/10" in lines["0/1"]
    assert "in use; the driver tells no utilization" in " ".join(lines["0/2"])
    assert "in MIG mode: the driver tells no utilization" in " ".join(lines["0"])


def test_once_as_json_has_every_metric_with_its_state(watch):
    done = watch("--once", "--json", FAKE_NVML_MODELS="t4", FAKE_NVML_LOAD="busy")
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert (said["version"], said["source"], said["problem"]) == (1, "live", None)
    (gpu,) = said["gpus"]
    assert set(gpu["metrics"]) == {metric.name for metric in GPU_METRICS}
    assert gpu["metrics"]["gpu_utilization_pct"] == {"value": 100, "state": "ok"}
    assert gpu["metrics"]["sm_active_pct"]["value"] is None
    assert gpu["metrics"]["sm_active_pct"]["state"] == "not_supported"
    assert said["host"]["cpu_pct"]["state"] == "ok"


@pytest.mark.slow
def test_once_waits_for_each_gpu_that_the_driver_wakes(watch):
    waking = "nvmlDeviceGetHandleByIndex_v2=2500000"
    done = watch("--once", FAKE_NVML_MODELS="h100,h100,h100", FAKE_NVML_DELAY_US=waking)
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 GPUs" in done.stdout


@pytest.mark.slow
def test_once_says_after_five_seconds_that_the_driver_hangs(watch):
    began_s = time.monotonic()
    done = watch("--once", FAKE_NVML_HANG="nvmlDeviceGetHandleByIndex_v2#1")
    assert (done.returncode, done.stdout) == (7, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpuadvisor: the NVIDIA driver has not answered for 5 s: ")
    assert 4 < time.monotonic() - began_s < 60


def test_json_is_a_line_for_each_whole_frame(watch, recording):
    done = watch("--json", "--replay", recording, "--speed", "inf")
    assert (done.returncode, done.stderr) == (0, "")
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["time_s"] - START_S for each in said] == list(range(20))
    assert {each["source"] for each in said} == {"run.gpr"}
    told = [e["kind"] for each in said for e in each["events"]]
    assert told == ["throttling"]


def test_a_recording_once_is_its_end_and_its_events_without_any_gpu(watch, recording):
    done = watch("--once", "--replay", recording, FAKE_NVML_FAULTS="nvmlInitWithFlags=9")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "run.gpr  22:13:39  2 GPUs" in lines[0]
    assert lines[3].split()[2] == "19%"
    assert lines[-1].startswith(
        "22:13:29 warning GPU 0   GPU 0 began to be held at 1755 of 1980 MHz"
    )


def test_the_h100_that_comes_with_the_project(watch):
    """It is idle, trains, waits for its data, and multiplies at the power limit."""
    example = Path(__file__).parents[2] / "examples" / "h100.gpr"
    done = watch("--json", "--replay", str(example), "--speed", "inf")
    assert (done.returncode, done.stderr) == (0, "")
    said = [json.loads(line) for line in done.stdout.splitlines()]
    (gpu,) = said[-1]["gpus"]
    assert gpu["name"] == "NVIDIA H100 80GB HBM3"
    told = [event["message"] for each in said for event in each["events"]]
    assert told == ["GPU 0 began to be held at 1335 of 1980 MHz by its power limit (700 W)."]

    def seen(metric):
        return [each["gpus"][0]["metrics"][metric]["value"] or 0 for each in said]

    working = [
        (u, t) for u, t in zip(seen("sm_active_pct"), seen("tensor_active_pct"), strict=True)
    ]
    assert min(working) == (0, 0)
    assert any(u > 40 and t < 20 for u, t in working)
    assert any(0 < u < 5 for u, _ in working)
    assert any(t > 90 for _, t in working)
    assert max(seen("power_w")) > 690


@pytest.mark.parametrize("words", [[], ["--once"], ["--json"], ["--once", "--json"]])
def test_without_a_driver_it_says_so_in_one_sentence(watch, words):
    done = watch(*words, FAKE_NVML_FAULTS="nvmlInitWithFlags=9")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpuadvisor: there is nothing to watch: ")
    assert "driver is not loaded" in line


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--speed", "2"], "--speed is for a recording: add --replay FILE"),
        (["--replay", "run.gpr", "--speed", "0"], "--speed takes a number above 0, not 0.0"),
        (["--replay", "run.gpr", "--speed", "nan"], "--speed takes a number above 0, not nan"),
        (["--replay", "none.gpr"], "none.gpr cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_refused(tmp_path, here, recording, words, sentence):
    answer = here(tmp_path, "watch", *words)
    assert (answer.status, answer.out) == (2, "")
    assert answer.sentence == sentence


def test_once_loads_no_textual(environ, tmp_path, recording):
    program = (
        "import sys; from gpuadvisor.cli import main; "
        f"status = main(['watch', '--once', '--replay', '{recording}']); "
        "heavy = {'textual', 'rich', 'pandas', 'sqlalchemy'} & set(sys.modules); "
        "sys.exit(f'{status} {heavy}' if status or heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "Ctrl-C"])
def test_a_key_ends_the_page_and_leaves_nothing(terminal, key):
    page = terminal(FAKE_NVML_LOAD="busy")
    page.until(b"100%")
    family = psutil.Process(page.process.pid).children(recursive=True)
    page.press(key)
    assert page.ended() == 0
    assert page.is_clean()
    assert family
    assert not [child for child in family if child.is_running()]


def test_q_ends_the_page_while_the_driver_hangs_from_the_start(terminal):
    page = terminal(FAKE_NVML_HANG="nvmlInitWithFlags")
    page.until(b"awaited")
    page.press(b"q")
    assert page.ended() == 0
    assert page.is_clean()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_page_and_leaves_a_clean_terminal(terminal, recording, number):
    page = terminal("--replay", recording)
    page.until(b"run.gpr")  # on the first page: Textual is being loaded
    page.process.send_signal(number)
    assert page.ended() == 128 + number
    assert page.is_clean()


@pytest.mark.parametrize("controls", [True, False], ids=["with SIGHUP", "without SIGHUP"])
def test_no_process_is_left_when_the_terminal_goes(terminal, recording, controls):
    page = terminal("--replay", recording, controls=controls)
    page.until(b"processes")
    assert page.hang_up() == 128 + signal.SIGHUP


def test_the_page_without_a_driver_ends_with_one_sentence(terminal):
    page = terminal(FAKE_NVML_FAULTS="nvmlInitWithFlags=9")
    assert page.ended() == 1
    assert page.is_clean()
    said = page.output.rpartition(PRIMARY_SCREEN)[2]
    assert b"gpuadvisor: there is nothing to watch: " in said
    assert b"driver is not loaded" in said


def test_the_first_values_are_drawn_before_textual_is_loaded(terminal, recording):
    page = terminal("--replay", recording, "--theme", "dark", COLORTERM="truecolor")
    page.until(TEXTUAL)
    first = page.output.partition(TEXTUAL)[0]
    assert b"\x1b[0;38;2;230;230;230;48;2;16;20;24mrun.gpr" in first.replace(b" ", b"")


def test_a_recording_is_shown_to_its_end(terminal, recording):
    page = terminal("--replay", recording, "--speed", "inf")
    page.until(b"end of the recording")
    assert b"power cap" in page.output
    page.press(b"q")
    assert page.ended() == 0


def test_nothing_is_sent_while_nothing_moves(terminal, recording):
    page = terminal("--replay", recording, "--speed", "inf")
    page.until(b"end of the recording")
    deadline = time.monotonic() + PATIENCE_S
    sent = -1
    while sent != len(page.output):  # what the last value brought
        assert time.monotonic() < deadline
        sent = len(page.output)
        for _ in range(60):
            page.read()
    page.press(b"q")
    assert page.ended() == 0
    assert page.is_clean()


def test_the_page_goes_on_when_a_gpu_is_lost_and_the_driver_hangs(terminal, tmp_path):
    control = tmp_path / "scene"
    control.write_text("MODELS=h100,h100\nLOAD=busy\n")
    page = terminal(FAKE_NVML_CONTROL=str(control))
    page.until(b"95%")
    control.write_text("MODELS=h100,h100\nLOAD=busy\nFAULTS=*@1=15\n")
    page.until(b"lost")
    control.write_text("MODELS=h100,h100\nLOAD=busy\nHANG=nvmlDeviceGetPowerUsage\n")
    page.until(b"does not answer")
    page.press(b"2")
    page.until(b"[2 processes]")
    page.press(b"q")
    assert page.ended() == 0
    assert page.is_clean()
    assert b"Traceback" not in page.output

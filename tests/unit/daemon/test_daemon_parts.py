"""The daemon's small parts: its unit, its log, what it tells systemd, and what status says."""

import configparser
import os
import shlex
import socket
import subprocess
import sys

import pytest

from gpuadvisor.daemon import systemd
from gpuadvisor.daemon.background import format_status
from gpuadvisor.daemon.endpoint.exposition import self_metrics
from gpuadvisor.daemon.log import FILE_BYTES
from gpuadvisor.daemon.systemd import Notifier
from gpuadvisor.errors import UsageError

# -- the unit ----------------------------------------------------------------------------------


def unit(system, monkeypatch, options=(), home=None):
    if home is None:
        monkeypatch.delenv("GPUADVISOR_HOME", raising=False)
    else:
        monkeypatch.setenv("GPUADVISOR_HOME", home)
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read_string(systemd.unit(system=system, options=list(options)))
    return parser


@pytest.mark.parametrize("system", [False, True])
def test_the_unit_runs_the_daemon_and_leaves_it_the_gpus(system, monkeypatch):
    service = unit(system, monkeypatch, ["--fast"])["Service"]
    words = shlex.split(service["ExecStart"])
    assert words[0] == sys.executable
    assert words[-4:] == ["daemon", "run", "--wait-for-gpu", "--fast"]
    assert service["Type"] == "notify"
    assert service["Restart"] == "on-failure"
    assert int(service["WatchdogSec"]) > 0
    assert not {"PrivateDevices", "DevicePolicy", "PrivateNetwork", "ProtectProc"} & set(service)


def test_the_systems_unit_has_a_store_that_it_may_write(monkeypatch):
    service = unit(True, monkeypatch)["Service"]
    assert service["StateDirectory"] == service["RuntimeDirectory"] == "gpuadvisor"
    assert service["StateDirectoryMode"] == "0710"
    assert service["Environment"] == "GPUADVISOR_HOME=/var/lib/gpuadvisor"
    own = unit(True, monkeypatch, home="/data/gpu store")["Service"]
    assert own["ReadWritePaths"] == '"/data/gpu store"'
    assert own["Environment"] == '"GPUADVISOR_HOME=/data/gpu store"'


QUOTED = {
    "/plain/path-1.toml": "/plain/path-1.toml",
    "/a b": '"/a b"',
    "100%": '"100%%"',
    "$HOME": '"$$HOME"',
    'say "x"': '"say \\"x\\""',
    "back\\slash": '"back\\\\slash"',
}


@pytest.mark.parametrize(("word", "quoted"), QUOTED.items())
def test_words_are_quoted_as_units_have_them(word, quoted, monkeypatch):
    command = unit(False, monkeypatch, ["--config", word])["Service"]["ExecStart"]
    assert command.endswith(f"--config {quoted}")


def test_systemd_itself_finds_nothing_wrong(tmp_path):
    path = tmp_path / systemd.UNIT
    path.write_text(systemd.unit(system=True, options=[]))
    try:
        done = subprocess.run(
            ["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=60
        )
    except FileNotFoundError:
        pytest.skip("needs systemd-analyze")
    assert (done.returncode, done.stderr) == (0, "")


# -- the log -----------------------------------------------------------------------------------

LOGGING = """
import logging, sys
from pathlib import Path
from gpuadvisor.daemon import log
log.set_up("info", Path(sys.argv[1]) if sys.argv[1:] else None)
LOG = logging.getLogger("gpuadvisor.test")
"""


def logged(program, *words, **environ):
    return subprocess.run(
        [sys.executable, "-c", LOGGING + program, *words],
        env={**os.environ, **environ},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    ).stderr


def test_lines_on_a_terminal_have_time_and_level():
    (line,) = logged("LOG.debug('unseen'); LOG.warning('hot\\x1b[31m')").splitlines()
    assert line.endswith(" WARNING hot?[31m")


def test_lines_for_the_journal_have_a_priority():
    program = (
        "import os; s = os.fstat(2); os.environ['JOURNAL_STREAM'] = f'{s.st_dev}:{s.st_ino}'\n"
        "log.set_up('info')\n"
        "LOG.info('fine'); LOG.error('two\\nlines')"
    )
    assert logged(program).splitlines() == ["<6>fine", "<3>two", "<3>lines"]
    assert "<6>" not in logged("LOG.info('fine')", JOURNAL_STREAM="1:2")


def test_the_log_file_is_bounded_and_has_tracebacks_too(tmp_path):
    path = tmp_path / "daemon.log"
    program = "for _ in range(300): LOG.info('x' * 10_000)\nprint('boo', file=sys.stderr)"
    logged(program, str(path))
    sizes = {each.name: each.stat().st_size for each in tmp_path.iterdir()}
    assert set(sizes) == {"daemon.log", "daemon.log.1"}
    assert max(sizes.values()) < FILE_BYTES + 20_000
    assert path.read_text().endswith("boo\n")


# -- systemd's socket --------------------------------------------------------------------------


def test_states_are_told(tmp_path):
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd_socket:
        systemd_socket.bind(address)
        systemd_socket.settimeout(60)
        notifier = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"})
        notifier.ready("two\nlines")
        notifier.alive()
        notifier.reloading()
        told = [systemd_socket.recv(4096).decode() for _ in range(3)]
    assert told[0] == f"READY=1\nMAINPID={os.getpid()}\nSTATUS=two lines"
    assert told[1] == "WATCHDOG=1"
    assert told[2].startswith("RELOADING=1\nMONOTONIC_USEC=")


def test_nobody_who_listens_is_fine(tmp_path):
    Notifier({}).ready("fine")
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready("fine")


def test_the_watchdog_of_another_process_is_left_alone(tmp_path):
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd_socket:
        systemd_socket.bind(address)
        systemd_socket.setblocking(False)
        environ = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}
        Notifier(environ).alive()
        with pytest.raises(BlockingIOError):
            systemd_socket.recv(4096)


# -- status ------------------------------------------------------------------------------------

RUNNING = {
    "running": True,
    "fresh": True,
    "pid": 42,
    "began_s": 1000.0,
    "endpoint": "http://127.0.0.1:9465/metrics",
    "configuration": None,
    "store": "/store",
    "store_bytes": 12_300_000,
    "newest_row_age_s": 1.0,
    "gpus": [
        {"index": 0, "name": "H100", "state": "ok", "gpu_utilization_pct": 97, "power_w": 650.4},
        {"index": 1, "name": "H100", "state": "lost"},
    ],
    "open_events": [{"severity": "error", "message": "GPU 1 is lost."}],
}


def test_what_status_says():
    assert format_status(RUNNING, now_s=1090.0).splitlines() == [
        "The daemon runs since 1 min 30 s (process 42).",
        "  store     /store, 12.3 MB, newest row 1 s old",
        "  endpoint  http://127.0.0.1:9465/metrics",
        "  settings  defaults",
        "  GPU 0     H100: 97 % busy, 650 W",
        "  GPU 1     H100: lost",
        "  error     GPU 1 is lost.",
    ]


def test_a_daemon_that_stores_nothing_is_not_fine():
    stalled = {**RUNNING, "fresh": False, "newest_row_age_s": 700.0}
    assert "But it stores nothing now (newest row 11 min 40 s old)" in format_status(stalled)


def test_no_daemon():
    stopped = {**RUNNING, "running": False, "fresh": False, "newest_row_age_s": None}
    assert format_status(stopped).splitlines() == [
        "No daemon runs on this store: `gpuadvisor daemon start` begins one.",
        "  store     /store, 12.3 MB, no row yet",
    ]


def test_self_metrics_are_that_of_this_process():
    mine, *_ = self_metrics()
    assert mine.process == "daemon"
    assert mine.cpu_s > 0
    assert mine.resident_bytes > 10_000_000


@pytest.mark.parametrize("address", ["9465", "127.0.0.1:", "host.example:1", "1.2.3.4:70000"])
def test_an_address_that_is_none(address):
    from gpuadvisor.commands.daemon import _address

    with pytest.raises(UsageError, match="--prometheus must be"):
        _address(address)

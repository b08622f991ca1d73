"""The daemon as a process in the background: begun, found, asked and ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuadvisor.daemon.daemon import already
from gpuadvisor.daemon.service import STATE_FILE
from gpuadvisor.daemon.store import running, store_folder
from gpuadvisor.errors import AdvisorError, UsageError

LOG_FILE = "daemon.log"
START_S = 60.0
"""For a daemon to be ready: a driver's first answer may take 10 s, and a disk longer."""
STOP_S = 30.0
"""For it to stop: a second for the frame under way, five for alerts, and what the disk takes."""
LOOK_S = 0.05


@dataclass(frozen=True)
class Started:
    """A daemon that is ready."""

    pid: int
    log: Path


def start(options: Sequence[str]) -> Started:
    """Begin `daemon run` with these options, and return once it is ready.

    AdvisorError with its own sentence where it ends before.
    """
    folder = _made(store_folder())
    if (process := running(folder)) is not None:
        raise UsageError(already(process))
    file = folder / LOG_FILE
    command = [sys.executable, "-P", "-m", "gpuadvisor", "daemon", "run", *options]
    with _listener() as (channel, address), file.open("ab") as output:
        begin = output.tell()
        process_ = subprocess.Popen(
            [*command, "--log-file", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",  # it must not keep a disk from being unmounted
            env={**_environment(), "NOTIFY_SOCKET": address},
            start_new_session=True,
        )
        _wait_ready(process_, channel, file, begin)
    return Started(process_.pid, file)


def stop() -> int | None:
    """End the daemon and return what its process was; None where none runs."""
    folder = store_folder()
    process = running(folder)
    if process is None:
        return None
    _signal(process, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while running(folder) == process or _is_alive(process):
        if time.monotonic() > deadline:
            raise AdvisorError(
                f"The daemon (process {process}) does not stop within {STOP_S:.0f} s: its log says"
                f" why, and `kill -9 {process}` ends it without loss of what is stored."
            )
        time.sleep(LOOK_S)
    return process


def reload() -> int:
    """Have the daemon read its configuration again; return its process."""
    process = running(store_folder())
    if process is None:
        raise AdvisorError("No daemon runs on this store: `gpuadvisor daemon start` begins one.")
    _signal(process, signal.SIGHUP)
    return process


def state(folder: Path, process: int) -> dict[str, object]:
    """Return what the daemon wrote about itself; empty where that is of another one."""
    try:
        told = json.loads((folder / STATE_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) and told.get("pid") == process else {}


def _made(folder: Path) -> Path:
    from gpuadvisor.storage.home import writable_folder

    return writable_folder(folder)


def _environment() -> dict[str, str]:
    """Return the environment without what told our own starter about us."""
    ours = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "JOURNAL_STREAM")
    return {name: value for name, value in os.environ.items() if name not in ours}


@contextlib.contextmanager
def _listener() -> Iterator[tuple[socket.socket, str]]:
    """A socket as systemd has it, with an address that needs no file (unix(7), abstract)."""
    name = f"gpuadvisor-{os.getpid()}-{os.urandom(8).hex()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(f"\0{name}")
        channel.settimeout(LOOK_S)
        yield channel, f"@{name}"


def _wait_ready(
    process: subprocess.Popen[bytes], channel: socket.socket, file: Path, begin: int
) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with contextlib.suppress(TimeoutError):
            if b"READY=1" in channel.recv(4096).split(b"\n"):
                return
        if (status := process.poll()) is not None:
            raise _failure(status, file, begin)
    process.terminate()
    raise AdvisorError(
        f"The daemon was not ready within {START_S:.0f} s and was ended: {file} says what it did."
    )


def _failure(status: int, file: Path, begin: int) -> AdvisorError:
    """Return the daemon's own error, with its status."""
    with file.open("rb") as log:
        log.seek(begin)
        lines = log.read().decode("utf-8", "replace").split("\n")
    said = [line.partition("gpuadvisor: ")[2] for line in lines if line.startswith("gpuadvisor: ")]
    if said:
        error = AdvisorError(said[-1])
        error.exit_code = max(status, 1)  # negative: a signal ended it
        return error
    return AdvisorError(f"The daemon ended with status {status}: {file} says what it did.")


def _is_alive(process: int) -> bool:
    import psutil

    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(process: int, number: signal.Signals) -> None:
    try:
        os.kill(process, number)
    except ProcessLookupError:  # it has just ended
        pass
    except PermissionError:
        raise AdvisorError(
            f"The daemon (process {process}) is another user's: ask with the rights of that user."
        ) from None

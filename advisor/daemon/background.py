"""The daemon as a process in the background: begun, asked for its status, reloaded and ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuadvisor.daemon.daemon import DANGLING_S, STATE_FILE, already
from gpuadvisor.daemon.sources import SILENT_S
from gpuadvisor.daemon.store import running, store_folder
from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.telemetry import Event, Gpu, State
from gpuadvisor.errors import AdvisorError, UsageError
from gpuadvisor.printable import duration

LOG_FILE = "daemon.log"
START_S = 60.0
"""Seconds for a daemon to be ready: a driver's first answer may take 10 s, and a disk longer."""
STOP_S = 30.0
"""Seconds for a daemon to stop: one for its frame, five for alerts, and what the disk takes."""
LOOK_S = 0.05
VERSION = 1
"""The version of the JSON of `daemon status`."""
FRESH_S = 10.0
"""A daemon whose newest row is older does not do its work."""
OF_STATE_FILE = ("began_s", "endpoint", "configuration", "fast_period_s")
OF_SYSTEMD = (
    "JOURNAL_STREAM",
    "NOTIFY_SOCKET",
    "RUNTIME_DIRECTORY",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
)
"""Variables that systemd sets for one process alone, which a daemon must not inherit."""
LOOK_AHEAD_S = 1.0
"""A row that is newer than now by more is from before the clock was set back."""
LOOK_BACK_S = 90.0
"""Rows that are read for the newest values: the rarest are read once a minute."""
SHOWN = {
    "gpu_utilization_pct": ("{:.0f} % busy", 1.0),
    "sm_active_pct": ("{:.0f} % of SMs active", 1.0),
    "memory_used_bytes": ("{:.1f} GiB used", 2.0**-30),
    "power_w": ("{:.0f} W", 1.0),
    "temperature_c": ("{:.0f} C", 1.0),
}
"""The metrics of `daemon status`, each with its words for people and the factor to their unit."""


@dataclass(frozen=True)
class Started:
    """A daemon that is ready."""

    pid: int
    log: Path
    remark: str | None = None
    """What is odd all the same, in a sentence."""


def start(options: Sequence[str]) -> Started:
    """Begin `daemon run` with these options in the background, and return once it is ready.

    AdvisorError with its own sentence where it ends before.
    """
    from gpuadvisor.storage.home import PRIVATE_FILE, writable_folder

    folder = writable_folder(store_folder())
    if (process := running(folder)) is not None:
        raise UsageError(already(process))
    file = folder / LOG_FILE
    command = [sys.executable, "-P", "-m", "gpuadvisor", "daemon", "run", *options]
    environment = {name: text for name, text in os.environ.items() if name not in OF_SYSTEMD}
    private = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    with _listener() as (channel, address), os.fdopen(private, "ab") as output:
        begin = output.tell()
        process_ = subprocess.Popen(
            [*command, "--log-file", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",  # it must not keep a disk from being unmounted
            env={**environment, "NOTIFY_SOCKET": address},
            start_new_session=True,
        )
        remark = _wait_ready(process_, channel, file, begin)
    return Started(process_.pid, file, remark)


def stop() -> int | None:
    """End the daemon and return its process number; None where none runs."""
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
    """Have the daemon read its configuration again; return its process number."""
    process = running(store_folder())
    if process is None:
        raise AdvisorError("No daemon runs on this store: `gpuadvisor daemon start` begins one.")
    _signal(process, signal.SIGHUP)
    return process


def state(folder: Path, process: int) -> dict[str, object]:
    """Return what the daemon wrote into its state file; empty where another process wrote that."""
    try:
        written = json.loads((folder / STATE_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return written if isinstance(written, dict) and written.get("pid") == process else {}


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
) -> str | None:
    """Return what the daemon remarked before it was ready, None where it is as it should be."""
    deadline = time.monotonic() + START_S
    remark = None
    while time.monotonic() < deadline:
        with contextlib.suppress(TimeoutError):
            said = channel.recv(4096).decode("utf-8", "replace")
            if "READY=1" in said.split("\n"):
                return remark
            remark = said.removeprefix("STATUS=")
        if (status := process.poll()) is not None:
            raise _failure(status, file, begin)
    process.terminate()
    raise AdvisorError(
        f"The daemon was not ready within {START_S:.0f} s and was ended: {file} says what it did."
    )


def _failure(status: int, file: Path, begin: int) -> AdvisorError:
    """Return the error of a daemon that ended too early: its own words and exit status."""
    with file.open("rb") as log:
        log.seek(begin)
        lines = log.read().decode("utf-8", "replace").split("\n")
    errors = [
        line.partition("gpuadvisor: ")[2] for line in lines if line.startswith("gpuadvisor: ")
    ]
    if errors:
        error = AdvisorError(errors[-1])
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


def read_status(folder: Path, now_s: float | None = None) -> dict[str, Any]:
    """Return the state of the daemon that writes this store, as JSON has it."""
    from gpuadvisor.storage.telemetry.reader import TelemetryReader

    now_s = time.time() if now_s is None else now_s
    process = running(folder)
    own: Mapping[str, Any] = state(folder, process) if process else {}
    latest, events, newest_s = Latest(), list[Event](), None
    if folder.is_dir():
        reader = TelemetryReader(folder)
        newest_s = reader.newest_s()
        if newest_s is not None:
            events = [e for e in reader.events(now_s - DANGLING_S) if e.ended_s is None]
            latest.listed = reader.gpus()
            # Rows of the future are from before the clock was set back.
            for frame in reader.frames(min(newest_s, now_s) - LOOK_BACK_S, now_s + LOOK_AHEAD_S):
                latest.add(frame)
            newest_s = latest.time_s or None
    age_s = None if newest_s is None else max(now_s - newest_s, 0.0)
    return {
        "version": VERSION,
        "running": process is not None,
        "fresh": process is not None and age_s is not None and age_s <= FRESH_S,
        "pid": process,
        **{name: own.get(name) for name in OF_STATE_FILE},
        "store": str(folder),
        "store_bytes": _size(folder),
        "newest_row_age_s": age_s,
        "gpus": [_gpu(gpu, latest, now_s) for gpu in latest.gpus],
        "open_events": [_event(event) for event in events] if process else [],
    }


def _size(folder: Path) -> int:
    total = 0
    for path in folder.iterdir() if folder.is_dir() else ():
        try:
            total += path.stat().st_size
        except OSError:  # a day's file that has just been removed
            continue
    return total


def _gpu(gpu: Gpu, latest: Latest, now_s: float) -> dict[str, Any]:
    """Return a GPU as of the newest row, or where that is too old as of now: stale."""
    at_s = now_s if now_s - latest.time_s > SILENT_S else latest.time_s
    readings = {name: latest.reading(gpu.uuid, name, at_s) for name in SHOWN}
    known = {name: reading for name, reading in readings.items() if reading}
    lost = any(reading.state is State.LOST for reading in known.values())
    stale = known and all(reading.state is State.STALE for reading in known.values())
    return {
        "uuid": gpu.uuid,
        "index": gpu.index,
        "name": gpu.name,
        "state": "lost" if lost else "stale" if stale else "ok" if known else "unknown",
        "memory_total_bytes": gpu.memory_total_bytes,
        **{name: reading.value if reading.is_ok else None for name, reading in known.items()},
    }


def _event(event: Event) -> dict[str, Any]:
    return {
        "kind": event.kind,
        "gpu": event.gpu,
        "severity": str(event.severity),
        "began_s": event.began_s,
        "message": event.message,
    }


def format_status(status: Mapping[str, Any], now_s: float | None = None) -> str:
    """Return the status as lines for people."""
    return "\n".join(_lines(status, time.time() if now_s is None else now_s))


def _lines(status: Mapping[str, Any], now_s: float) -> Iterator[str]:
    age_s = status["newest_row_age_s"]
    newest = "no row yet" if age_s is None else f"newest row {duration(age_s)} old"
    if status["running"]:
        since = f" since {duration(now_s - status['began_s'])}" if status["began_s"] else ""
        yield f"The daemon runs{since} (process {status['pid']})."
        if not status["fresh"]:
            yield f"But it stores nothing now ({newest}): its log says why."
    else:
        yield "No daemon runs on this store: `gpuadvisor daemon start` begins one."
    yield f"  store     {status['store']}, {status['store_bytes'] / 1e6:.1f} MB, {newest}"
    if status["running"]:
        yield f"  endpoint  {status['endpoint'] or 'off'}"
        yield f"  settings  {status['configuration'] or 'defaults'}"
        for gpu in status["gpus"]:
            yield f"  GPU {gpu['index']}     {gpu['name']}: {_state(gpu)}"
        for event in status["open_events"]:
            yield f"  {event['severity']:9} {event['message']}"


def _state(gpu: Mapping[str, Any]) -> str:
    if gpu["state"] != "ok":
        return str(gpu["state"])
    parts = [
        text.format(gpu[name] * factor)
        for name, (text, factor) in SHOWN.items()
        if gpu.get(name) is not None
    ]
    return ", ".join(parts) or "no value now"

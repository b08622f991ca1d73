"""What `gpuadvisor daemon status` says."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuadvisor.daemon import background
from gpuadvisor.daemon.daemon import DANGLING_S
from gpuadvisor.daemon.episodes import duration
from gpuadvisor.daemon.store import running
from gpuadvisor.domain.latest import Latest
from gpuadvisor.domain.telemetry import Event, Gpu, State

VERSION = 1
"""Of the JSON."""
FRESH_S = 10.0
"""A daemon whose newest row is older does not do its work."""
LOOK_BACK_S = 90.0
"""Rows that are read for the newest values: the rarest are read once a minute."""


def gather(folder: Path, now_s: float | None = None) -> dict[str, Any]:
    """Return the state of the daemon that writes this store, as JSON has it."""
    from gpuadvisor.storage.telemetry.reader import TelemetryReader

    now_s = time.time() if now_s is None else now_s
    process = running(folder)
    told: Mapping[str, Any] = background.state(folder, process) if process else {}
    latest, events, newest_s = Latest(), list[Event](), None
    if folder.is_dir():
        reader = TelemetryReader(folder)
        newest_s = reader.newest_s()
        if newest_s is not None:
            events = [e for e in reader.events(now_s - DANGLING_S) if e.ended_s is None]
            latest.gpus = reader.gpus()
            for frame in reader.frames(newest_s - LOOK_BACK_S):
                latest.update(frame)
    age_s = None if newest_s is None else max(now_s - newest_s, 0.0)
    return {
        "version": VERSION,
        "running": process is not None,
        "fresh": process is not None and age_s is not None and age_s <= FRESH_S,
        "pid": process,
        "began_s": told.get("began_s"),
        "endpoint": told.get("endpoint"),
        "configuration": told.get("configuration"),
        "fast_period_s": told.get("fast_period_s"),
        "store": str(folder),
        "store_bytes": _size(folder),
        "newest_row_age_s": age_s,
        "gpus": [_gpu(gpu, latest) for gpu in latest.gpus],
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


SHOWN = (
    "gpu_utilization_pct",
    "sm_active_pct",
    "memory_used_bytes",
    "power_w",
    "temperature_c",
)


def _gpu(gpu: Gpu, latest: Latest) -> dict[str, Any]:
    readings = {name: latest.reading(gpu.uuid, name) for name in SHOWN}
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


def as_text(told: Mapping[str, Any], now_s: float | None = None) -> str:
    """Return it for people."""
    return "\n".join(_lines(told, time.time() if now_s is None else now_s))


def _lines(told: Mapping[str, Any], now_s: float) -> Iterator[str]:
    age_s = told["newest_row_age_s"]
    newest = "no row yet" if age_s is None else f"newest row {duration(age_s)} old"
    if told["running"]:
        since = f" since {duration(now_s - told['began_s'])}" if told["began_s"] else ""
        yield f"The daemon runs{since} (process {told['pid']})."
        if not told["fresh"]:
            yield f"But it stores nothing now ({newest}): its log says why."
    else:
        yield "No daemon runs on this store: `gpuadvisor daemon start` begins one."
    yield f"  store     {told['store']}, {told['store_bytes'] / 1e6:.1f} MB, {newest}"
    if told["running"]:
        yield f"  endpoint  {told['endpoint'] or 'off'}"
        yield f"  settings  {told['configuration'] or 'defaults'}"
        for gpu in told["gpus"]:
            yield f"  GPU {gpu['index']}     {gpu['name']}: {_state(gpu)}"
        for event in told["open_events"]:
            yield f"  {event['severity']:9} {event['message']}"


def _state(gpu: Mapping[str, Any]) -> str:
    if gpu["state"] != "ok":
        return str(gpu["state"])
    parts = []
    for name, text, factor in (
        ("gpu_utilization_pct", "{:.0f} % busy", 1.0),
        ("sm_active_pct", "{:.0f} % of SMs active", 1.0),
        ("memory_used_bytes", "{:.1f} GiB used", 2.0**-30),
        ("power_w", "{:.0f} W", 1.0),
        ("temperature_c", "{:.0f} C", 1.0),
    ):
        if gpu.get(name) is not None:
            parts.append(text.format(gpu[name] * factor))
    return ", ".join(parts) or "no value now"

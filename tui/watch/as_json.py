"""What is known now as an object for programs; docs/watch.md describes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpuadvisor.domain.metrics import GPU_METRICS, HOST_METRICS, Metric
from gpuadvisor.domain.telemetry import HOST, Event, Gpu
from gpuadvisor.tui.watch.board import Board

VERSION = 1
"""Raised when a program that reads it must be changed; keys may be added without."""
UNREAD = "unread"
"""The state of what was not read yet."""


def document(board: Board, events: Iterable[Event]) -> dict[str, Any]:
    """Return the object; `events` are those that are told with it."""
    return {
        "version": VERSION,
        "time_s": board.latest.time_s,
        "source": board.label,
        "problem": board.latest.problem,
        "gpus": [_gpu(board, gpu) for gpu in board.gpus],
        "host": _metrics(board, HOST, HOST_METRICS),
        "events": [_event(event) for event in events],
    }


def _gpu(board: Board, gpu: Gpu) -> dict[str, Any]:
    return {
        "uuid": gpu.uuid,
        "index": gpu.index,
        "name": gpu.name,
        "parent_uuid": gpu.parent_uuid,
        "metrics": _metrics(board, gpu.uuid, GPU_METRICS),
    }


def _metrics(board: Board, device: str, metrics: Iterable[Metric]) -> dict[str, Any]:
    return {metric.name: _reading(board, device, metric.name) for metric in metrics}


def _reading(board: Board, device: str, metric: str) -> dict[str, Any]:
    """Return a value that is good, or null and why; the last one known is told apart."""
    reading = board.reading(device, metric)
    if reading is None:
        return {"value": None, "state": UNREAD}
    if reading.is_ok:
        return {"value": reading.value, "state": str(reading.state)}
    why: dict[str, Any] = {
        "value": None,
        "state": str(reading.state),
        "since_s": reading.since_s,
        "reason": reading.reason,
    }
    return why if reading.value is None else {**why, "last_value": reading.value}


def _event(event: Event) -> dict[str, Any]:
    return {
        "kind": event.kind,
        "gpu": event.gpu,
        "key": event.key,
        "severity": str(event.severity),
        "began_s": event.began_s,
        "ended_s": event.ended_s,
        "message": event.message,
        "data": dict(event.data),
    }

"""A frame as one line of JSON, for the pipe from the sampler and for recordings; see `decoding`.

Only what differs from a default is written, as eight GPUs send ten lines a second. The standard
library writes it: the sampler, which reads nothing, then has no msgspec to carry all day (1.3 MB).
"""

from __future__ import annotations

import json
from dataclasses import MISSING, Field, fields
from typing import Any

from gpuadvisor.domain.telemetry import Event, Frame, Gpu, GpuProcess, Sample

_ENCODER = json.JSONEncoder(
    ensure_ascii=False,
    allow_nan=False,
    separators=(",", ":"),
    default=dict,  # mappings that are no dict
)


def encode(frame: Frame) -> bytes:
    """Return the frame as JSON without a line break; ValueError for NaN and infinities."""
    line: dict[str, Any] = {"t": frame.time_s}
    if frame.samples:
        line["s"] = {device: _as_list(sample) for device, sample in frame.samples.items()}
    if not frame.full:
        line["fast"] = True
    if frame.gpus is not None:
        line["gpus"] = [_differing(gpu) for gpu in frame.gpus]
    if frame.processes is not None:
        line["processes"] = [_differing(process) for process in frame.processes]
    if frame.events:
        line["events"] = [_differing(event) for event in frame.events]
    if frame.problem is not None:
        line["problem"] = frame.problem
    # A command line need not be UTF-8: what is not becomes `?`.
    return _ENCODER.encode(line).encode("utf-8", "replace")


def _as_list(sample: Sample) -> list[Any]:
    if not sample.unavailable:
        return [sample.values]
    unavailable = {
        name: (absence.state, absence.since_s, absence.reason)
        for name, absence in sample.unavailable.items()
    }
    return [sample.values, unavailable]


def _differing(thing: Gpu | GpuProcess | Event) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults."""
    return {
        name: value
        for name, default in _DEFAULTS[type(thing)]
        if (value := getattr(thing, name)) != default
    }


def _default(field: Field[Any]) -> object:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


_DEFAULTS: dict[type[Any], list[tuple[str, object]]] = {
    kind: [(field.name, _default(field)) for field in fields(kind)]
    for kind in (Gpu, GpuProcess, Event)
}

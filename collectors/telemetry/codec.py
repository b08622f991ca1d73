"""A frame as one line of JSON, for the pipe from the sampler and for recordings.

Only what differs from a default is written, as eight GPUs send ten lines a second. What a newer
gpuadvisor adds is ignored, so that older ones read its recordings.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, Field, fields
from math import isfinite
from typing import Any

import msgspec

from gpuadvisor.domain.severity import EVENT_SEVERITIES
from gpuadvisor.domain.telemetry import (
    Event,
    Frame,
    Gpu,
    GpuProcess,
    Number,
    Sample,
    State,
    Unavailable,
)


class _Sample(msgspec.Struct, array_like=True):
    """A sample of one device: the values, and what is unavailable where anything is."""

    values: dict[str, Number] = {}
    unavailable: dict[str, tuple[State, Number, str]] = {}
    """State, Unix time since when, and reason of each metric without a value."""


class _Line(msgspec.Struct):
    """A line of the pipe or of a recording, as a JSON object."""

    t: Number
    s: dict[str, _Sample] = {}
    fast: bool = False
    gpus: tuple[Gpu, ...] | None = None
    processes: tuple[GpuProcess, ...] | None = None
    events: tuple[Event, ...] = ()
    problem: str | None = None


_ENCODER = msgspec.json.Encoder(enc_hook=dict)  # mappings that are no dict
_DECODER = msgspec.json.Decoder(_Line)


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
    _refuse_infinite(frame)
    try:
        return _ENCODER.encode(line)
    except UnicodeEncodeError:  # a command line need not be UTF-8: what is not becomes `?`
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":"), default=dict)
        return text.encode("utf-8", "replace")


def decode(line: bytes | str) -> Frame:
    """Return the frame of a line; ValueError, and nothing else, where it is none."""
    try:
        read = _DECODER.decode(line)
    except RecursionError as error:
        raise ValueError(f"not a frame: {error}") from error
    for event in read.events:
        if event.severity not in EVENT_SEVERITIES:
            raise ValueError(f"not a frame: the severity {event.severity} is that of a finding")
    samples = {
        device: Sample(
            sample.values, {name: Unavailable(*found) for name, found in sample.unavailable.items()}
        )
        for device, sample in read.s.items()
    }
    return Frame(
        read.t, samples, not read.fast, read.gpus, read.processes, read.events, read.problem
    )


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
    found = ((field, getattr(thing, field.name)) for field in fields(thing))
    return {field.name: value for field, value in found if value != _default(field)}


def _default(field: Field[Any]) -> object:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def _refuse_infinite(frame: Frame) -> None:
    """Raise ValueError for NaN and infinities, which msgspec would write as null."""
    found: list[object] = [frame.time_s]
    for sample in frame.samples.values():
        found += sample.values.values()
        found += [absence.since_s for absence in sample.unavailable.values()]
    for process in frame.processes or ():
        found += vars(process).values()
    for event in frame.events:
        found += (*vars(event).values(), *event.data.values())
    for value in found:
        if type(value) is float and not isfinite(value):
            raise ValueError(f"{value} is not JSON compliant")

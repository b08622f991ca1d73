"""A frame as one line of JSON, for the pipe from the sampler and for recordings.

Only what differs from a default is written, as eight GPUs send ten lines a second. What a newer
gpuadvisor adds is ignored, so that older ones read its recordings.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

from gpuadvisor.domain.telemetry import (
    Event,
    Frame,
    Gpu,
    GpuProcess,
    Number,
    Sample,
    Severity,
    State,
    Trouble,
)

T = TypeVar("T")


def encode(frame: Frame) -> str:
    """Return the frame as JSON without a line break; ValueError for NaN and infinities."""
    line: dict[str, Any] = {"t": frame.time_s}
    if frame.samples:
        line["s"] = {device: _sample(sample) for device, sample in frame.samples.items()}
    if not frame.whole:
        line["fast"] = True
    if frame.gpus is not None:
        line["gpus"] = [_short(gpu) for gpu in frame.gpus]
    if frame.processes is not None:
        line["processes"] = [_short(process) for process in frame.processes]
    if frame.events:
        line["events"] = [_short(event) for event in frame.events]
    if frame.problem is not None:
        line["problem"] = frame.problem
    return json.dumps(line, separators=(",", ":"), allow_nan=False)


def decode(line: str) -> Frame:
    """Return the frame of a line; ValueError, and nothing else, where it is none."""
    try:
        read = json.loads(line, parse_constant=_refuse)
        return Frame(
            time_s=_number(read["t"]),
            samples={str(k): _read_sample(v) for k, v in read.get("s", {}).items()},
            whole=not read.get("fast", False),
            gpus=_all(_gpu, read.get("gpus")),
            processes=_all(_process, read.get("processes")),
            events=_all(_event, read.get("events")) or (),
            problem=_text_or_none(read.get("problem")),
        )
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"not a frame: {error!r}") from error


def _sample(sample: Sample) -> list[Any]:
    if not sample.troubles:
        return [dict(sample.values)]
    troubles = {
        name: [str(trouble.state), trouble.since_s, trouble.reason]
        for name, trouble in sample.troubles.items()
    }
    return [dict(sample.values), troubles]


def _read_sample(read: list[Any]) -> Sample:
    values = read[0] if read else {}
    for value in values.values():
        _number(value)  # the names are texts already: they are keys of JSON
    troubles = read[1] if len(read) > 1 else {}
    return Sample(
        values,
        {
            str(name): Trouble(State(state), _number(since_s), str(reason))
            for name, (state, since_s, reason) in troubles.items()
        },
    )


def _short(thing: Gpu | GpuProcess | Event) -> dict[str, Any]:
    """Return the fields that differ from their defaults."""
    found = {}
    for field in fields(thing):
        value = getattr(thing, field.name)
        if isinstance(value, Severity):
            value = str(value)
        if value != _default(field):
            found[field.name] = dict(value) if isinstance(value, Mapping) else value
    return found


def _default(field: Field[Any]) -> object:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def _gpu(read: Mapping[str, Any]) -> Gpu:
    known = _known(Gpu, read)
    capability = known.pop("compute_capability", None)
    if capability is not None:
        major, minor = capability
        known["compute_capability"] = (int(major), int(minor))
    return Gpu(**known)


def _process(read: Mapping[str, Any]) -> GpuProcess:
    return GpuProcess(**{"memory_bytes": None, "name": None, **_known(GpuProcess, read)})


def _event(read: Mapping[str, Any]) -> Event:
    known = _known(Event, read)
    severity = Severity(known.pop("severity", Severity.INFO))
    data = {str(name): value for name, value in known.pop("data", {}).items()}
    return Event(
        **{**known, "severity": severity, "data": data, "began_s": _number(known["began_s"])}
    )


def _known(kind: type[Gpu | GpuProcess | Event], read: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in read.items() if name in names}


def _all(make: Any, read: Iterable[Any] | None) -> tuple[Any, ...] | None:
    return None if read is None else tuple(make(each) for each in read)


def _number(value: Any) -> Number:
    # By its exact type: JSON makes no others, and isinstance takes True for a whole number.
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        number: Number = value
        return number
    raise ValueError(f"not a number: {value!r}")


def _text_or_none(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"not a text: {value!r}")
    return value


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no value")

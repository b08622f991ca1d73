"""Reads a frame from a line of JSON, as `encoding` writes it.

What a newer gpuadvisor adds is ignored, so that older ones read its recordings.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

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
    unavailable: msgspec.Raw = msgspec.Raw(b"{}")
    """What `_unavailable` reads."""


class _Line(msgspec.Struct):
    """A line of the pipe or of a recording, as a JSON object."""

    t: Number
    s: dict[str, _Sample] = {}
    fast: bool = False
    gpus: tuple[Gpu, ...] | None = None
    processes: tuple[GpuProcess, ...] | None = None
    events: tuple[Event, ...] = ()
    problem: str | None = None


_DECODER = msgspec.json.Decoder(_Line)
_ABSENCES = msgspec.json.Decoder(dict[str, tuple[State, Number, str]])
"""State, Unix time since when, and reason of each metric without a value."""
DEVICES = 256
"""Devices of which what is unavailable is kept, of some kB: it is the same in nearly every frame,
and each frame then has the same objects, which are equal at a glance."""


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
        device: Sample(sample.values, _unavailable(bytes(sample.unavailable)))
        for device, sample in read.s.items()
    }
    return Frame(
        read.t, samples, not read.fast, read.gpus, read.processes, read.events, read.problem
    )


@lru_cache(DEVICES)
def _unavailable(written: bytes) -> Mapping[str, Unavailable]:
    """Return what is unavailable of a device; ValueError where it is not that."""
    return {name: Unavailable(*found) for name, found in _ABSENCES.decode(written).items()}

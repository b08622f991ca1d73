"""JSON to records: whole batches at once, and one by one where a batch has something unfit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from gpuadvisor.collectors.kineto.records import Event, ExactEvent

AnyEvent: TypeAlias = Event | ExactEvent
Record = TypeVar("Record")

EXACT_UNTIL_US = 2.0**43
"""Below it a float tells every nanosecond (its neighbours are less than 1 ns apart). Some
versions wrote the time since 1970 with three decimals, 1.7e15 us, where floats are 250 ns apart."""

_UNFIT = (msgspec.DecodeError, UnicodeError, RecursionError, ValueError, OverflowError)
_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*+"|[-+]?\b(?:nan|inf(?:inity)?)\b', re.IGNORECASE)
"""A string, or what C++ prints for a float that is no number."""

_fast = msgspec.json.Decoder(list[Event])
_exact = msgspec.json.Decoder(list[ExactEvent])
_one = msgspec.json.Decoder(ExactEvent)
_raw = attrgetter("args")
_SAMPLES = 64
"""Events of a batch that tell whether times have decimals. One of four floats loses them all, so
that the text of a few events must tell as well, for batches of few."""
_DECIMALS = re.compile(rb'"ts"\s*:\s*\d+\.')
_HEAD_BYTES = 1 << 13


def events_of(array: bytes) -> Sequence[AnyEvent] | None:
    """Return the events of a JSON array; None where any of them is unfit."""
    events = _decoded(_fast.decode, array)
    if events is not None and _is_exact(events, array):
        return events
    exact = _decoded(_exact.decode, array)
    return None if exact is None or any(map(_is_trap, exact)) else exact


def event_of(element: bytes) -> AnyEvent | None:
    """Return what can be made of one element; None where it is no event."""
    event = _decoded(_one.decode, element)
    if event is None and (repaired := _repaired(element)) is not None:
        event = _decoded(_one.decode, repaired)
    return None if event is None or _is_trap(event) else event


def normal_json(value: bytes) -> str:
    """Return a JSON value as a text, spaced as Kineto does; what is no JSON as it is."""
    if not value:
        return ""
    repaired = _repaired(value)
    return (value if repaired is None else repaired).decode("utf-8", "replace")


class Arguments(Generic[Record]):
    """Decodes the `args` of one kind of event."""

    def __init__(self, record: type[Record]) -> None:
        self._all = msgspec.json.Decoder(list[record])  # type: ignore[valid-type]
        self._one = msgspec.json.Decoder(record)

    def of(self, events: Sequence[AnyEvent]) -> tuple[Sequence[AnyEvent], Sequence[Record]]:
        """Return the events whose `args` are as they should be, and these."""
        joined = b"".join((b"[", b",".join(map(_raw, events)), b"]"))
        records = _decoded(self._all.decode, joined)
        if records is not None:
            return events, records
        pairs = [(event, self._single(event.args)) for event in events]
        kept = [(event, record) for event, record in pairs if record is not None]
        return [event for event, _ in kept], [record for _, record in kept]

    def _single(self, args: Raw) -> Record | None:
        record: Record | None = _decoded(self._one.decode, bytes(args))
        if record is None and (repaired := _repaired(bytes(args))) is not None:
            record = _decoded(self._one.decode, repaired)
        return record


def _decoded(decode: Callable[[bytes], Record], data: bytes) -> Record | None:
    try:
        return decode(data)
    except _UNFIT:
        return None


def _is_exact(events: Sequence[Event], array: bytes) -> bool:
    """Tell whether floats hold all that the file says of times."""
    few = events[:: max(1, len(events) // _SAMPLES)]
    late = [event.ts for event in few if event.ts > EXACT_UNTIL_US]
    if not late:
        return True
    return all(time.is_integer() for time in late) and not _DECIMALS.search(array, 0, _HEAD_BYTES)


def _is_trap(event: ExactEvent) -> bool:
    """Tell whether a time is a signalling NaN, with which nothing can be computed."""
    return event.ts.is_snan() or event.dur.is_snan()


def _repaired(value: bytes) -> bytes | None:
    """Return a value as valid JSON and UTF-8: null for NaN and infinity, `?` for what is no text.

    None where it is no JSON even so.
    """
    text = value.decode("utf-8", "replace")
    try:
        plain = json.loads(_LITERAL.sub(_without_literals, text), strict=False)
        return json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace")
    except _UNFIT:
        return None


def _without_literals(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else "null"

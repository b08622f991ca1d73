"""Which GPUs `CUDA_VISIBLE_DEVICES` leaves visible, by the rules of CUDA and torch."""

from __future__ import annotations

import re
from collections.abc import Sequence

_LEADING_NUMBER = re.compile(r"[+-]?\d+")


def select(uuids: Sequence[str | None], value: str) -> tuple[int | str, ...]:
    """Return what a value of `CUDA_VISIBLE_DEVICES` selects among the GPUs with these UUIDs.

    Each item is a position in `uuids`, or the UUID of a MIG instance. As in CUDA, the first entry
    that names no GPU ends the list, and an entry that comes twice empties it
    (`_parse_visible_devices` in torch/cuda/__init__.py).
    """
    if value.startswith("MIG-"):
        return (value.split(",")[0].strip(),)  # CUDA gives a process one instance at most
    chosen: list[int] = []
    for entry in value.split(","):
        position = _by_uuid(uuids, entry) if value.startswith("GPU-") else _by_number(entry)
        if position in chosen:
            return ()
        if not 0 <= position < len(uuids):
            break
        chosen.append(position)
    return tuple(chosen)


def counts_positions(value: str) -> bool:
    """Say whether the value numbers GPUs, so that it depends on the order of the GPUs."""
    return _LEADING_NUMBER.match(value.strip()) is not None


def _by_uuid(uuids: Sequence[str | None], prefix: str) -> int:
    """Return the only GPU whose UUID starts so, or -1."""
    found = [position for position, uuid in enumerate(uuids) if (uuid or "").startswith(prefix)]
    return found[0] if prefix.startswith("GPU-") and len(found) == 1 else -1


def _by_number(entry: str) -> int:
    """Return the number that the entry starts with, as C's `strtoul` reads it, or -1."""
    number = _LEADING_NUMBER.match(entry.strip())
    return int(number.group()) if number else -1

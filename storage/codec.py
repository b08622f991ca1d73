"""The domain's dataclasses as JSON and back.

A newer gpuadvisor may have added a field or removed one: what is unknown is left out, what is
missing has the dataclass's default. So a small structure can change without a migration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints


def dumps(value: object) -> str:
    """Return JSON (with Python's NaN and Infinity), the same text for the same value."""
    return json.dumps(value, default=_plain, separators=(",", ":"))


def loads(kind: Any, text: str) -> Any:
    """Return the value of the type `kind` (`Equivalence`, `tuple[Contribution, ...]`)."""
    return _build(kind, json.loads(text))


def _plain(value: object) -> object:
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _build(kind: Any, data: Any) -> Any:
    if isinstance(data, list):
        return tuple(_build(_item_type(kind), item) for item in data)
    if isinstance(data, dict) and (structure := _structure(kind)):
        hints = _hints(structure)
        return structure(**{k: _build(hints[k], v) for k, v in data.items() if k in hints})
    return data


def _item_type(kind: Any) -> Any:
    """Return the type of a tuple's items; Any where it is not told. Tuples here are uniform."""
    for option in _options(kind):
        if get_origin(option) is tuple:
            return get_args(option)[0]
    return Any


def _structure(kind: Any) -> Any:
    """Return the dataclass that `kind` is or may be; None if there is none, as in a mapping."""
    return next((option for option in _options(kind) if is_dataclass(option)), None)


def _options(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if NoneType in get_args(kind) else (kind,)


@cache
def _hints(structure: Any) -> dict[str, Any]:
    return get_type_hints(structure)

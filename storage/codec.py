"""The domain's dataclasses as JSON and back, NaN and infinities included.

A newer gpuadvisor may have added a field or removed one: what is unknown is left out, what is
missing has the dataclass's default. So a small structure can change without a migration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

import msgspec


def dumps(value: object) -> str:
    """Return JSON (with Python's NaN and Infinity), the same text for the same value.

    msgspec's encoder would write null for these numbers, and leave out the fields that were missing
    where `loads` read them.
    """
    return json.dumps(value, default=_plain, separators=(",", ":"))


def loads(kind: Any, text: str) -> Any:
    """Return the value of the type `kind` (`Equivalence`, `tuple[Contribution, ...]`).

    ValueError where the text holds no such value.
    """
    return msgspec.convert(json.loads(text), kind)


def _plain(value: object) -> object:
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} cannot be stored")

"""Values that are strictly valid JSON, in ASCII, so that no terminal's encoding matters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any


def text(document: Mapping[str, Any]) -> str:
    """Return an indented document; NaN and infinity are null, what is no UTF-8 is escaped."""
    return json.dumps(_strict(document), indent=2, allow_nan=False)


def line(document: Mapping[str, Any]) -> str:
    """Return the same on one line."""
    return json.dumps(_strict(document), allow_nan=False)


def _strict(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_strict(str(key)): _strict(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(each) for each in value]
    return value

"""Values that are strictly valid JSON, in ASCII, so that no terminal's encoding matters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any


def text(document: Mapping[str, Any]) -> str:
    """Return an indented document; NaN and infinity are null, what is no UTF-8 is escaped."""
    return json.dumps(strict(document), indent=2, allow_nan=False)


def line(document: Mapping[str, Any]) -> str:
    """Return the same on one line."""
    return json.dumps(strict(document), allow_nan=False)


def strict(value: Any) -> Any:
    """Return a value with null for NaN and infinity, and text that UTF-8 can hold."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {strict(str(key)): strict(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [strict(each) for each in value]
    return value

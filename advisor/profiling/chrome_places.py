"""Where a Chrome trace shows the rows of a profile, and how it writes texts and times."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Places:
    """Which process of the trace shows what, and the texts of the profile as JSON."""

    texts: Sequence[str]
    device_offset: int = 0
    """Added to a device's number to get its process: no process of the host has it."""
    operator_of: Mapping[int, int] = field(default_factory=dict)
    """Correlation to the external id of the operator that launched it."""
    collectives: Mapping[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    """Correlation and begin to what a communication kernel says."""
    _known: dict[int, str] = field(default_factory=dict)
    _raw: dict[int, str] = field(default_factory=dict)

    def text(self, number: int) -> str:
        """Return a text as JSON, with its quotes."""
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = quoted(self._plain(number))
        return found

    def json(self, number: int) -> str:
        """Return a text that is JSON already, such as shapes, as it is; another one quoted."""
        found = self._raw.get(number)
        if found is None:
            found = self._raw[number] = _as_json(self._plain(number))
        return found

    def device(self, number: int) -> int:
        return number + self.device_offset

    def _plain(self, number: int) -> str:
        return self.texts[number] if 0 <= number < len(self.texts) else ""


def quoted(text: str) -> str:
    """Return a text as JSON in ASCII; what is no UTF-8 becomes `?`, as no reader takes it."""
    return json.dumps(text.encode("utf-8", "replace").decode())


def microseconds(nanoseconds: int) -> str:
    """Return `12.345`, exactly; a trace's times are not negative."""
    nanoseconds = max(nanoseconds, 0)
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


def _as_json(text: str) -> str:
    try:
        return json.dumps(json.loads(text), allow_nan=False)
    except (ValueError, RecursionError):
        return quoted(text)

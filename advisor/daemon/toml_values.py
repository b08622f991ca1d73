"""Checked values of a configuration file: what is wrong becomes one sentence with the way out."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from gpuadvisor.errors import UsageError
from gpuadvisor.printable import brief, printable

T = TypeVar("T")
UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
LONGEST_S = 100 * 365 * 86400.0
"""A century stands for ever, and no time overflows that is added to today's."""


class Wrong(Exception):  # noqa: N818 - what is allowed, for the sentence
    """A value is none of what is allowed, which this says in words."""


class Keys:
    """One table of the file, from which values are taken by key; `finish` refuses the rest."""

    def __init__(self, path: Path, name: str, values: Mapping[str, Any]) -> None:
        self.path = path
        self.name = name
        self._left = dict(values)
        self._asked: list[str] = []

    def take(self, key: str, check: Callable[[Any], T], default: T) -> T:
        """Return the value of a key, as `check` returns it; the default where it is absent."""
        self._asked.append(key)
        if key not in self._left:
            return default
        value = self._left.pop(key)
        try:
            return check(value)
        except Wrong as wrong:
            raise self._error(key, f"must be {wrong}, not {brief(value)}") from None

    def table(self, key: str) -> Keys | None:
        """Return a table within this one; None where it is absent."""
        values = self.take(key, _table(self._full(key)), None)
        return None if values is None else Keys(self.path, self._full(key), values)

    def tables(self, key: str) -> list[Keys]:
        """Return an array of tables; empty where it is absent."""
        found: list[Any] = self.take(key, _tables(self._full(key)), [])
        return [
            Keys(self.path, f"{self._full(key)}[{place}]", values)
            for place, values in enumerate(found, 1)
        ]

    def finish(self) -> None:
        """Refuse keys that nobody asked for: a misspelt one would be ignored in silence."""
        for key in self._left:
            raise self._error(key, f"is not a key here; {nearest(key, self._asked)}")

    def wrong(self, key: str, problem: str) -> UsageError:
        """Return the sentence for values that do not go together."""
        return self._error(key, problem)

    def _full(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def _error(self, key: str, problem: str) -> UsageError:
        return UsageError(f"{self.path}: `{printable(self._full(key))}` {problem}.")


def nearest(word: str, allowed: list[str]) -> str:
    """Return `did you mean ...` or, where nothing is near, what there is."""
    close = difflib.get_close_matches(word, allowed, n=1)
    if close:
        return f"did you mean `{close[0]}`?".rstrip("?")
    return "there are " + ", ".join(f"`{each}`" for each in sorted(allowed))


def truth(value: Any) -> bool:
    """Check for true or false."""
    if not isinstance(value, bool):
        raise Wrong("true or false")
    return value


def text(value: Any) -> str:
    """Check for text that is not empty."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise Wrong("text in quotes")
    return value


def texts(value: Any) -> tuple[str, ...]:
    """Check for an array of texts that is not empty."""
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise Wrong("an array of texts in quotes")
    if any("\0" in each for each in value):
        raise Wrong("an array of texts without null characters")
    return tuple(value)


def one_of(*allowed: str) -> Callable[[Any], str]:
    """Return the check for one of some words."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise Wrong("one of " + ", ".join(f'"{each}"' for each in allowed))
        return value

    return check


def some_of(*allowed: str) -> Callable[[Any], tuple[str, ...]]:
    """Return the check for an array of some words."""

    def check(value: Any) -> tuple[str, ...]:
        for each in texts(value):
            if each not in allowed:
                raise Wrong(
                    f'an array of event kinds ("{each}" is none: {nearest(each, list(allowed))})'
                )
        return texts(value)

    return check


def time_s(lowest_s: float, highest_s: float = LONGEST_S) -> Callable[[Any], float]:
    """Return the check for a time such as `"30s"`, or a number of seconds."""

    def check(value: Any) -> float:
        seconds = _seconds(value)
        if seconds is None or not lowest_s <= seconds <= highest_s:
            limit = "" if highest_s == LONGEST_S else f" to {_time(highest_s)}"
            raise Wrong(f'a time from {_time(lowest_s)}{limit}, such as "30s" or "1h"')
        return seconds

    return check


def _seconds(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value) if math.isfinite(value) else None
        except OverflowError:
            return None
    parts = (
        re.fullmatch(r"(\d{1,12}(?:\.\d{1,12})?) ?([a-z]+)", value, re.ASCII)
        if isinstance(value, str)
        else None
    )
    if parts is None or parts[2] not in UNITS_S:
        return None
    return float(parts[1]) * UNITS_S[parts[2]]


def _time(seconds: float) -> str:
    if seconds < 1 and seconds:
        return f"{seconds * 1000:g}ms"
    for unit in ("d", "h", "m"):
        if seconds and seconds % UNITS_S[unit] == 0:
            return f"{seconds / UNITS_S[unit]:g}{unit}"
    return f"{seconds:g}s"


def _table(name: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Wrong(f"a table, headed [{name}]")
        return value

    return check


def _tables(name: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise Wrong(f"tables, each headed [[{name}]]")
        return value

    return check

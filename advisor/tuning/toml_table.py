"""A table of a TOML file that a user may have edited: each value is taken out checked.

What is wrong becomes one UsageError that names the file, the key and the way out.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from gpuadvisor.domain.knobs import Value
from gpuadvisor.errors import UsageError
from gpuadvisor.printable import MOST_SHOWN, brief

MAX_BYTES = 1 << 20
"""A plan has some kilobytes. More is another file, which must not fill the memory."""
LONGEST_VALUE = 4096
"""Characters of a setting: Linux's longest path."""
LONGEST_INTEGER = 4096
"""Bits. Python refuses to print one of more than 4,300 digits."""
_MISSING = object()


def load_toml(path: Path, what: str) -> Table:
    """Return the file's root table; `what` names in words what the file should be."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: the path holds a null byte
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read {what} {path}: {reason}; check the path.") from None
    if len(content) > MAX_BYTES:
        raise UsageError(f"{path} is not {what}: it is larger than 1 MiB; check the path.")
    try:
        return Table(path, "", tomllib.loads(content.decode("utf-8")))
    except (ValueError, RecursionError) as error:
        # ValueError: not UTF-8, not TOML, or a number beyond Python's limit of digits.
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"{path} is not {what}: it is not valid TOML ({reason}); correct it, or make a new one"
            " with `gpuadvisor tune`."
        ) from None


class Table:
    """One table, from which values are taken by key; `finish` refuses what is left."""

    def __init__(self, path: Path, name: str, values: Mapping[str, Any]) -> None:
        self.path = path
        self.name = name
        self._left = dict(values)

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string; it must be there unless there is a default."""
        value = self._take(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "text in quotes", value)
        return value

    def one_of(self, key: str, names: Iterable[object]) -> str:
        """Return a string that is one of the names."""
        value, known = self.text(key), [str(name) for name in names]
        if value not in known:
            raise self._wrong(key, f"one of {', '.join(known)}", value)
        return value

    def flag(self, key: str) -> bool:
        """Return true or false; false where it is missing."""
        value = self._take(key, False)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return an array of strings; empty where the key is absent."""
        value = self._take(key, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._wrong(key, "an array of texts in quotes", value)
        return tuple(value)

    def integer(self, key: str) -> int:
        """Return an integer of 0 or more."""
        value = self._take(key)
        if type(value) is not int or value < 0:  # a boolean is an int for isinstance
            raise self._wrong(key, "a whole number of 0 or more", value)
        return value

    def ratio(self, key: str) -> float:
        """Return a positive, finite number."""
        value = self._number(key, self._take(key))
        if value <= 0:
            raise self._wrong(key, "a number above 0", value)
        return value

    def optional_number(self, key: str) -> float | None:
        """Return a finite number; None where it is absent."""
        value = self._take(key, None)
        return None if value is None else self._number(key, value)

    def value(self, key: str) -> Value:
        """Return what a knob can be set to: true or false, a finite number or text."""
        value = self._take(key)
        if isinstance(value, str) and len(value) > LONGEST_VALUE:
            raise self._wrong(key, f"text of at most {LONGEST_VALUE} characters", value)
        if isinstance(value, int) and value.bit_length() > LONGEST_INTEGER:
            raise self._wrong(key, f"a number of at most {LONGEST_INTEGER} bits", value)
        plain = isinstance(value, bool | int | str)
        if plain or (isinstance(value, float) and isfinite(value)):
            return value  # type: ignore[no-any-return]
        raise self._wrong(key, "true, false, a finite number or text in quotes", value)

    def values(self) -> dict[str, Value]:
        """Return all that is left, by key."""
        return {key: self.value(key) for key in list(self._left)}

    def table(self, key: str) -> Table | None:
        """Return a table within this one; None where it is absent."""
        value = self._take(key, None)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._wrong(key, f"a table, [{self._full(key)}]", value)
        return Table(self.path, self._full(key), value)

    def tables(self, key: str) -> list[Table]:
        """Return an array of tables; empty where it is absent."""
        value = self._take(key, [])
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise self._wrong(key, f"tables, each headed [[{self._full(key)}]]", value)
        return [
            Table(self.path, f"{self._full(key)}[{place}]", each)
            for place, each in enumerate(value)
        ]

    def finish(self) -> None:
        """Refuse keys that nobody asked for: a misspelt one would be ignored in silence."""
        for key in self._left:
            raise self.error(key, "is not a key of a plan; remove it or correct its spelling")

    def error(self, key: str, problem: str) -> UsageError:
        """Return the sentence for a key of this table."""
        return UsageError(f"{self.path}: `{self._full(key)}` {problem}.")

    def _full(self, key: str) -> str:
        plain = key[:MOST_SHOWN] if key.isprintable() else json.dumps(key[:MOST_SHOWN])
        return f"{self.name}.{plain}" if self.name else plain

    def _take(self, key: str, default: Any = _MISSING) -> Any:
        value = self._left.pop(key, default)
        if value is _MISSING:
            raise self.error(key, "is missing; add it, or make a new plan with `gpuadvisor tune`")
        return value

    def _number(self, key: str, value: Any) -> float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        try:
            if number and isfinite(value):
                return float(value)
        except OverflowError:  # an integer beyond the range of floats
            pass
        raise self._wrong(key, "a finite number", value)

    def _wrong(self, key: str, wanted: str, value: Any) -> UsageError:
        return self.error(key, f"must be {wanted}, not {brief(value)}; correct it in the file")

"""Column types that keep every value of the domain exactly, in SQLite's STRICT tables."""

from __future__ import annotations

import json
import math
import sys
from array import array
from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import Any

from sqlalchemy import Dialect, LargeBinary, Text
from sqlalchemy.types import TypeDecorator, UserDefinedType

from gpuadvisor.errors import StoreError
from gpuadvisor.storage import codec

NAN = "nan"
"""The text that stands for a NaN, which SQLite would turn into NULL: that is, not measured."""

ESCAPED = "\x1b"
"""First character of a text that is stored as JSON."""


class AnyColumn(UserDefinedType[Any]):
    """SQLite's ANY: in a STRICT table it keeps a value as it comes."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "ANY"


class Number(TypeDecorator[float]):
    """A float, NaN and infinities included."""

    impl = AnyColumn
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | str | None:
        return NAN if value is not None and math.isnan(value) else value

    def process_result_value(self, value: Any, dialect: Dialect) -> float | None:
        return None if value is None else float(value)


class Numbers(TypeDecorator[tuple[float, ...]]):
    """Many floats in eight bytes each (IEEE 754, little-endian): raw step times, losses."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Iterable[float] | None, dialect: Dialect) -> bytes | None:
        return None if value is None else _little_endian(array("d", value)).tobytes()

    def process_result_value(self, value: Any, dialect: Dialect) -> tuple[float, ...] | None:
        return None if value is None else tuple(_little_endian(array("d", value)))


class AnyText(TypeDecorator[str]):
    """Text from outside. Paths that are not UTF-8 have lone surrogates, which SQLite refuses."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or (_is_unicode(value) and not value.startswith(ESCAPED)):
            return value
        return ESCAPED + json.dumps(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        if value is None or not value.startswith(ESCAPED):
            return value  # type: ignore[no-any-return]  # STRICT: the column holds text only
        return str(json.loads(value.removeprefix(ESCAPED)))


class Json(TypeDecorator[Any]):
    """A small structure of the domain, as JSON; `kind` is its type, such as `tuple[str, ...]`."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else codec.dumps(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else codec.loads(self.kind, value)


class Member(TypeDecorator[Any]):
    """A member of an enumeration, under the name that users see."""

    impl = Text
    cache_ok = True

    def __init__(self, enumeration: type[Enum] | type[IntEnum]) -> None:
        super().__init__()
        self.enumeration = enumeration

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        if value is None:
            return None
        for member in self.enumeration:
            if str(member) == value:
                return member
        raise StoreError(
            f"The database holds the {self.enumeration.__name__} {value!r}, which this gpuadvisor "
            "does not know: upgrade gpuadvisor."
        )


def _little_endian(values: array[float]) -> array[float]:
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True

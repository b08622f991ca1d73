"""Between a row and the dataclass of the domain that it holds."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

from sqlalchemy import inspect

from gpuadvisor.storage.models import Base


@cache
def shared(row: type[Base], domain: type) -> tuple[str, ...]:
    """Return the names that are both a column of the table and a field of the dataclass."""
    columns = {column.key for column in inspect(row).column_attrs}
    return tuple(each.name for each in fields(domain) if each.name in columns)


def values(source: object, names: tuple[str, ...]) -> dict[str, Any]:
    """Return these attributes, as keyword arguments."""
    return {name: getattr(source, name) for name in names}

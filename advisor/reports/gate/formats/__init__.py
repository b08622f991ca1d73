"""Formats in which other programs get a gate's outcome.

A new file here is a new format, which `gpuadvisor gate --output` takes by the file's name. Its
docstring's first line is its help; `FILE` is where it is written if the user does not say, `-` for
the standard output; `render` is pure, and takes the outcome of each benchmark, of any text.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from gpuadvisor.reports.gate.outcome import Outcome


class Format(Protocol):
    """A module in this folder: one format."""

    __doc__: str | None
    FILE: str

    def render(self, outcomes: Sequence[Outcome]) -> str: ...


def format_names() -> list[str]:
    """Return what the formats are called: their files, less an underscore at the end."""
    return sorted(module.name.rstrip("_") for module in pkgutil.iter_modules(__path__))


def load_format(name: str) -> Format:
    """Return a format by its name, one of `format_names`."""
    (found,) = (m.name for m in pkgutil.iter_modules(__path__) if m.name.rstrip("_") == name)
    return cast(Format, import_module(f"{__name__}.{found}"))

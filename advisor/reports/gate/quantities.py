"""How the figures of a gate's metrics are shown, and which units other programs get them in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from gpuadvisor.domain.gate import Difference
from gpuadvisor.reports import figures


@dataclass(frozen=True)
class Unit:
    """A unit in which runs are compared."""

    name: str
    """Its base unit, as Prometheus writes it: `seconds`, `bytes`; empty for a number."""
    factor: float
    """How much of that it is."""
    show: Callable[[float | None], str]
    """Writes a figure in this unit for people."""


def number(value: float, sign: str = "") -> str:
    """Return a number for people: a count with all its digits, with `sign` as in a format."""
    return f"{value:{sign},.0f}" if value.is_integer() else f"{value:{sign}.4g}"


UNITS: Mapping[str, Unit] = {
    "ms": Unit("seconds", 1e-3, figures.milliseconds),
    "s": Unit("seconds", 1.0, lambda value: figures.milliseconds(value and 1e3 * value)),
    "bytes": Unit("bytes", 1.0, figures.memory),
    "J": Unit("joules", 1.0, figures.energy),
    "": Unit("", 1.0, lambda value: "-" if value is None else number(value)),
}


def values(found: Difference, side: str) -> list[float]:
    """Return a side's figures in the base unit, of the runs that were compared."""
    factor = UNITS[found.unit].factor
    return [each * factor for each in (found.base if side == "base" else found.head)]


def middle(found: Difference, side: str) -> str:
    """Return the median of them for people, or a hyphen where there are none."""
    known = found.base if side == "base" else found.head
    return UNITS[found.unit].show(median(known)) if known else "-"

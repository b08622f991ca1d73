"""Nsight Compute's units, brought to base units: bytes, seconds, hertz.

It scales each column of each report to what reads best (`Kbyte` here, `Mbyte` there), decimally:
a Kbyte is 1,000 bytes. Reports, and `--print-units base`, have base units with other names.
"""

from __future__ import annotations

from functools import lru_cache

_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SMALL = {"": 1.0, "m": 1e-3, "u": 1e-6, "\u00b5": 1e-6, "n": 1e-9, "p": 1e-12}
_SECONDS = ("s", "sec", "second")
_UNITS: dict[str, tuple[float, str]] = {
    **{f"{prefix}byte": (factor, "byte") for prefix, factor in _PREFIXES.items()},
    **{f"{prefix}bytes": (factor, "byte") for prefix, factor in _PREFIXES.items()},
    **{f"{prefix}hz": (factor, "hertz") for prefix, factor in _PREFIXES.items()},
    **{f"{prefix}hertz": (factor, "hertz") for prefix, factor in _PREFIXES.items()},
    **{
        f"{prefix}{second}": (factor, "second")
        for prefix, factor in _SMALL.items()
        for second in _SECONDS
    },
    "minute": (60.0, "second"),
    "hour": (3600.0, "second"),
}
_SAME = {"cycle/second": "hertz"}
"""What older versions call a clock's rate."""


@lru_cache(maxsize=4096)
def base_unit(unit: str) -> tuple[float, str]:
    """Return what a value is multiplied by, and its base unit: 1e6, `byte/second` for `Mbyte/s`.

    Parts that have no base unit (`%`, `inst`, `sector`) stay as they are.
    """
    above, *below = unit.strip().split("/")
    factor, name = _UNITS.get(above, (1.0, above))
    for part in below:
        divisor, part_name = _UNITS.get(part, (1.0, part))
        factor /= divisor
        name += f"/{part_name}"
    return factor, _SAME.get(name, name)

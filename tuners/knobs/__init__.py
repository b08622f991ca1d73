"""The knobs, one a file. A new file here is a new knob; nothing else needs an edit."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from gpuadvisor.tuners.base import Knob

TARGET_MODULES = ("*",)


def load_knobs() -> dict[str, Knob]:
    """Return every knob by its name, in the order in which they are tried."""
    knobs: list[Knob] = [
        import_module(f"{__name__}.{module.name}").KNOB
        for module in pkgutil.iter_modules(__path__)
        if not module.name.startswith("_")
    ]
    return {knob.name: knob for knob in sorted(knobs, key=lambda knob: (knob.order, knob.name))}

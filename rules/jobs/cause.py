"""Which cause a slice of a job has, of those in `causes`; which there are, and in which order."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from gpuadvisor.domain.jobs import SLICE_S, UNTOLD, Slice

LEAST_HELD_S = SLICE_S / 4
"""Seconds of which a cause is named at least: five polls, and a list of processes. [own]"""


@dataclass(frozen=True)
class JobCause:
    """A reason for which a job does not use its GPU."""

    rank: int
    """Where two hold, the one of the lower rank is named."""
    phrase: str
    """What a job does, as a clause. `{lost}` is the time lost at most and `{held}` the time for
    which it held, in percent; `{time}` is a duration, `{memory}` the memory held."""
    label: str = ""
    """What a job does in a few words of a table; empty where its name says it."""
    advice: str = ""
    """What to do, as a clause; `{script}` is the script."""
    method: str = ""
    """How the time to gain was estimated; empty where there is none to gain."""
    is_bound: bool = False
    """Whether the time to gain is a bound that is hardly ever reached, and is called so."""
    is_tunable: bool = False
    """Whether `gpuadvisor tune` may gain the time."""
    is_waste: bool = True
    """Whether the time is lost, or used well."""


@cache
def load_causes() -> Mapping[str, JobCause]:
    """Return every cause by its name, in the order of their ranks."""
    return {name: cause for name, (cause, _) in _all().items()}


@cache
def _all() -> Mapping[str, tuple[JobCause, Callable[[Slice], float | None]]]:
    from gpuadvisor.rules.jobs import causes

    found = {}
    for module in pkgutil.iter_modules(causes.__path__):
        loaded = import_module(f"{causes.__name__}.{module.name}")
        found[module.name] = (loaded.CAUSE, loaded.lost)
    return dict(sorted(found.items(), key=lambda each: each[1][0].rank))


def name_cause(seen: Slice) -> tuple[str, float]:
    """Return the cause of a slice and the share of its time that is lost at most; UNTOLD and 0
    where none can be told."""
    if seen.held_s >= LEAST_HELD_S:
        for name, (_, lost) in _all().items():
            share = lost(seen)
            if share is not None:
                return name, min(max(share, 0.0), 1.0)
    return UNTOLD, 0.0

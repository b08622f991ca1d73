"""Which rank comes late to the collectives, from traces of all ranks of a run.

A kernel of a synchronizing collective lasts from its rank's arrival until the last one has come and
the data have passed, so the rank that came last has the shortest one. That needs no clock that the
ranks share. Collectives are the same where name, process group and sequence number are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import UNKNOWN, Columns, Profile
from gpuadvisor.rules.facts.communication import described
from gpuadvisor.rules.facts.device_work import DeviceWork, Work
from gpuadvisor.rules.facts.intervals import Whole

SYNCHRONIZING = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier")
"""In names of collectives in which no rank can go on before all have come."""

Key = tuple[str, str, int, int]
"""Name, group, size of the group and sequence number."""


@dataclass(frozen=True)
class Arrivals:
    """Of one rank at the collectives that all ranks have in common."""

    place: int
    """Of its profile among those that were given."""
    collectives: int
    """In which it was the last to come."""
    waited_ns: int
    """The first one to come waited for it so long, in these collectives together."""
    behind_next_ns: int
    """So much later than the last but one it came, in these together."""
    behind_typical_ns: int
    """So much later than the median of the others."""


@dataclass(frozen=True)
class AllArrivals:
    """Of all ranks."""

    collectives: int
    """That were found in all profiles."""
    waited_ns: int
    """The first one to come waited so long for the last, in all of them together."""
    ranks: tuple[Arrivals, ...]
    """Those that others waited for longest first."""


def arrivals(ranks: Sequence[tuple[Profile, DeviceWork]]) -> AllArrivals | None:
    """Return who came late; None where the profiles have no collective of all of them in common."""
    found = [_durations(profile, work) for profile, work in ranks]
    common = [
        key for key in found[0] if key[2] == len(ranks) and all(key in each for each in found)
    ]
    if len(ranks) < 2 or not common:
        return None
    duration = np.array([[each[key] for key in common] for each in found], np.int64)
    last = duration.argmin(axis=0)
    ordered = np.sort(duration, axis=0)
    waited = ordered[-1] - ordered[0]
    behind_next = ordered[1] - ordered[0]
    behind_typical = np.median(ordered[1:], axis=0) - ordered[0]
    every = [
        _of_rank(place, last == place, waited, behind_next, behind_typical)
        for place in range(len(ranks))
    ]
    every.sort(key=lambda each: -each.waited_ns)
    return AllArrivals(len(common), int(waited.sum()), tuple(every))


def _of_rank(
    place: int,
    last: npt.NDArray[np.bool_],
    waited: Whole,
    behind_next: Whole,
    behind_typical: npt.NDArray[np.float64],
) -> Arrivals:
    return Arrivals(
        place,
        int(last.sum()),
        int(waited[last].sum()),
        int(behind_next[last].sum()),
        int(behind_typical[last].sum()),
    )


def _durations(profile: Profile, work: DeviceWork) -> dict[Key, int]:
    """Return how long each synchronizing collective took that says which one it is."""
    told = profile.columns("collectives")
    kernels = np.flatnonzero(work.kind == Work.COMMUNICATION)
    rows = described(work, told, kernels)
    found: dict[Key, int] = {}
    for kernel, row in zip(kernels.tolist(), rows.tolist(), strict=True):
        key = _key(told, work.texts, row)
        if key is not None:
            found[key] = int(work.duration_ns[kernel])
    return found


def _key(told: Columns, texts: Sequence[str], row: int) -> Key | None:
    if row == UNKNOWN or told["sequence"][row] == UNKNOWN:
        return None
    name = texts[told["name"][row]]
    plain = name.lower().replace("_", "")
    if not any(each in plain for each in SYNCHRONIZING):
        return None
    group = texts[told["group"][row]]
    return name, group, int(told["group_size"][row]), int(told["sequence"][row])

"""The collectives of one rank in the order in which it did them: lanes, one for each process group.

Where a trace does not tell process groups, a lane is a stream. What each collective is by name and
size, and its number where the trace has one, is the same number on all ranks (`Tokens`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import IntArray

TOGETHER = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier")
"""Parts of the names of collectives in which no rank can go on before all have come."""
OPEN = ("sendrecv", "generic", "main", "")
"""Kinds that do not tell whether all wait for all."""
IN_PAIRS = ("send", "recv", "isend", "irecv")
ALIKE = ("allreduce", "broadcast")
"""Collectives that have one size on all ranks."""


@dataclass(frozen=True, eq=False)
class Lane:
    """Communication kernels of one rank that came one after the other, as one process group's do.

    Times are the rank's own, since its profile's begin.
    """

    rank: int
    """Place of the rank among those that were given."""
    group: str
    """Name of the process group; empty where it is not told, and the lane is a stream."""
    size: int | None
    """Number of ranks in the group."""
    kinds: Sequence[str]
    together: IntArray
    """Whether no rank can go on before all have come: 1, 0, or UNKNOWN."""
    token: IntArray
    """What each is by name and size: an equal number for what is alike on all ranks."""
    identity: IntArray | None
    """A number for each one, the same on all ranks; None where nothing tells it."""
    begin_ns: IntArray
    end_ns: IntArray
    rows: IntArray
    """Rows of the rank's device work."""
    stream: int = UNKNOWN
    """Stream of the first: ranks run one program, so that it is often the same on all of them."""

    def __len__(self) -> int:
        return len(self.begin_ns)


@dataclass(eq=False)
class Tokens:
    """Numbers for what collectives are, the same on all ranks."""

    numbers: dict[object, int] = field(default_factory=dict)

    def number(self, key: object) -> int:
        """Return the number of a key."""
        return self.numbers.setdefault(key, len(self.numbers))


@dataclass(frozen=True, eq=False)
class Calls:
    """What is told of the communication kernels of a rank, a row each, in the order of begins."""

    rows: IntArray
    kinds: Sequence[str]
    groups: Sequence[str]
    sizes: IntArray
    sequence: IntArray
    elements: IntArray


def plain(name: str) -> str:
    """Return `allgather` of `_all_gather_base`."""
    return name.lower().replace("_", "").removesuffix("base")


def _together_told(kinds: Sequence[str]) -> IntArray:
    """Return whether no rank can go on before all have come, as the kinds tell: the kernels with
    which older versions of NCCL send and receive were those of all-to-all as well."""
    told = {
        kind: 1 if any(each in kind for each in TOGETHER) else UNKNOWN if kind in OPEN else 0
        for kind in set(kinds)
    }
    return np.array([told[kind] for kind in kinds], np.int64)


def lanes(rank: int, work: DeviceWork, calls: Calls, tokens: Tokens) -> Iterator[Lane]:
    """Yield the lanes of one rank: of process groups where they are told, else of streams."""
    if not len(calls.rows):
        return
    keys: dict[object, list[int]] = defaultdict(list)
    streams = work.stream[calls.rows].tolist()
    for place, (kind, group) in enumerate(zip(calls.kinds, calls.groups, strict=True)):
        if kind not in IN_PAIRS:
            keys[(group, int(calls.sizes[place])) if group else streams[place]].append(place)
    for key, places in keys.items():
        at = np.array(places, np.int64)
        kinds = [calls.kinds[place] for place in places]
        what = [
            tokens.number((kind, int(size) if any(each in kind for each in ALIKE) else UNKNOWN))
            for kind, size in zip(kinds, calls.elements[at].tolist(), strict=True)
        ]
        group, size = key if isinstance(key, tuple) else ("", UNKNOWN)
        rows = calls.rows[at]
        yield Lane(
            rank, group, size if size > 0 else None, kinds, _together_told(kinds),
            np.array(what, np.int64), _identity(kinds, calls.sequence[at].tolist(), tokens),
            work.begin_ns[rows], work.end_ns[rows], rows,
            int(work.stream[rows[0]]),
        )  # fmt: skip


def _identity(kinds: Sequence[str], sequence: Sequence[int], tokens: Tokens) -> IntArray | None:
    """Return a number for each collective of a group; of several kernels of one by their order."""
    if UNKNOWN in sequence:
        return None
    times: dict[object, int] = defaultdict(int)
    found = []
    for key in zip(kinds, sequence, strict=True):
        found.append(tokens.number((*key, times[key])))
        times[key] += 1
    return np.array(found, np.int64)

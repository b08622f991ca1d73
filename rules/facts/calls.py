"""Which call of the host launched what ran on the device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import UNKNOWN, Call, Profile
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import Mask, Whole, ends
from gpuadvisor.rules.facts.joins import latest_before, thread_keys

ENQUEUING = (Call.LAUNCH, Call.COPY, Call.MEMSET, Call.GRAPH_LAUNCH)
"""Calls that give a device work."""
BLOCKING = (Call.SYNCHRONIZE, Call.COPY, Call.MEMSET, Call.FREE)
"""Calls in which the host may wait for a device: of copies those of pageable memory and without
`Async`, of frees those without."""


@dataclass(frozen=True, eq=False)
class Calls:
    """The calls into CUDA, as they came."""

    begin_ns: Whole
    end_ns: Whole
    process: Whole
    thread: Whole
    correlation: Whole
    kind: npt.NDArray[np.int8]
    name: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.begin_ns)

    @cached_property
    def thread_key(self) -> Whole:
        """A number for each process and thread."""
        return thread_keys(self.process, self.thread, self.process[:0], self.thread[:0])[0]

    def of_kinds(self, kinds: tuple[Call, ...]) -> Mask:
        of_kinds: Mask = np.isin(self.kind, np.array(kinds, np.int8))
        return of_kinds


@dataclass(frozen=True, eq=False)
class Launches:
    """For each row of the device's work the call that launched it, as far as it was recorded."""

    call: Whole
    """Row of the calls; UNKNOWN where none was recorded."""
    begin_ns: Whole
    """Of the call; meaningless where it is UNKNOWN, like the rest."""
    end_ns: Whole
    thread_key: Whole

    @property
    def known(self) -> Mask:
        known: Mask = self.call != UNKNOWN
        return known


def calls(profile: Profile) -> Calls:
    """Return the calls of a profile."""
    names = ("begin_ns", "duration_ns", "process", "thread", "correlation", "kind", "name")
    columns = profile.columns("calls", names)
    begin, end = ends(columns["begin_ns"], columns["duration_ns"])
    return Calls(begin, end, *(columns[name] for name in names[2:]))


def launches(work: DeviceWork, host: Calls) -> Launches:
    """Return which call launched what."""
    rows = latest_before(host.correlation, host.begin_ns, work.correlation, work.begin_ns)
    if not len(host):
        nothing = np.zeros(len(work), np.int64)
        return Launches(rows, nothing, nothing, nothing)
    taken = np.maximum(rows, 0)
    return Launches(
        rows,
        host.begin_ns[taken],
        host.end_ns[taken],
        host.thread_key[taken],
    )

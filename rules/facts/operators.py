"""Which operators of the framework the devices' time goes to.

A kernel belongs to the innermost operator that was running on the launching thread when its call
began. Where the call was not recorded, it belongs to the operator that the trace links it to. Old
traces of Kineto write the correlation where the link should be; these links are left alone. What
was launched before the recording began has neither, and is told by kernels like it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import UNKNOWN, Profile
from gpuadvisor.rules.facts.device_work import SHAPE, DeviceWork
from gpuadvisor.rules.facts.intervals import IntArray, ends, exact_sum, grouped, numbered
from gpuadvisor.rules.facts.joins import CallTree, call_tree, enclosing, latest_before, thread_keys
from gpuadvisor.rules.facts.launches import Calls, LaunchingCalls

_KIND = ("name", "shapes", "types")


@dataclass(frozen=True, eq=False)
class Operators:
    """The operators of a profile, as they came, and what they launched."""

    begin_ns: IntArray
    end_ns: IntArray
    thread_key: IntArray
    """Number of each row's process and thread, equal to that in `Calls`."""
    name: npt.NDArray[np.int32]
    of_call: IntArray
    """Operator in which each call was made; UNKNOWN outside of all."""
    of_work: IntArray
    """Operator that launched each row of the device's work."""
    of_like_work: IntArray
    """Operator that launched each row of the device's work; for kernels whose launch was not
    recorded one that launched a kernel of the same name, grid and block, where all of these come
    from operators alike."""

    def __len__(self) -> int:
        return len(self.begin_ns)

    @cached_property
    def call_tree(self) -> CallTree:
        """How they call each other."""
        return call_tree(self.begin_ns, self.end_ns, self.thread_key)

    def work_within(self, rows: IntArray) -> IntArray:
        """Return the rows of the devices' work that some operators and what they call launched."""
        tree = self.call_tree
        place = np.empty(len(self), np.int64)
        place[tree.row] = np.arange(len(self))
        change = np.zeros(len(self) + 1, np.int64)
        np.add.at(change, place[rows], 1)
        np.add.at(change, tree.stop[place[rows]], -1)
        inside = np.zeros(len(self), np.bool_)
        inside[tree.row] = np.cumsum(change)[:-1] > 0
        launched = np.flatnonzero(self.of_work != UNKNOWN)
        return launched[inside[self.of_work[launched]]]

    def own_device_ns(self, work: DeviceWork) -> IntArray:
        """Return for each the time of what it launched itself."""
        known = self.of_work != UNKNOWN
        return _sum_by(self.of_work[known], work.duration_ns[known], len(self))


@dataclass(frozen=True)
class OperatorTime:
    """All operators of one name."""

    name: str
    count: int
    self_device_ns: int
    """Time on the device of what the operators launched themselves, added up even where it ran at
    the same time."""
    total_device_ns: int
    """Time on the device with what they called; each event counts once for a name."""
    host_ns: int
    """Time of the outermost operators of the name on their threads."""


@dataclass(frozen=True)
class OperatorTimes:
    """The time of a profile's operators on device and host."""

    by_name: tuple[OperatorTime, ...]
    """The operators by name, those with most time of their own on the device first."""
    unattributed_device_ns: int
    """Time of events that no operator launched, as far as the trace tells."""


def operators(
    profile: Profile, work: DeviceWork, host: Calls, launched: LaunchingCalls
) -> Operators:
    """Return the operators of a profile, joined to calls and to the devices' work."""
    names = ("begin_ns", "duration_ns", "process", "thread", "name", "external_id")
    columns = profile.columns("operators", names)
    begin, end = ends(columns["begin_ns"], columns["duration_ns"])
    key, call_key = thread_keys(columns["process"], columns["thread"], host.process, host.thread)
    of_call = enclosing(begin, end, key, host.begin_ns, call_key)
    of_work = np.full(len(work), UNKNOWN, np.int64)
    known = launched.known
    of_work[known] = of_call[launched.call[known]]
    lost = np.flatnonzero(~known)
    of_work[lost] = _linked(profile, work, lost, columns["external_id"], begin)
    like = _of_like_work(profile, work, of_work, lost)
    return Operators(begin, end, key, columns["name"], of_call, of_work, like)


def _of_like_work(
    profile: Profile, work: DeviceWork, of_work: IntArray, lost: IntArray
) -> IntArray:
    """Return what `Operators.of_like_work` says; `lost` are rows whose launch is not known."""
    lost = lost[work.is_kernel[lost] & (of_work[lost] == UNKNOWN)]
    known = np.setdiff1d(np.flatnonzero(work.is_kernel), lost)
    found = of_work.copy()
    shape = profile.columns("kernels", SHAPE)
    lost, known = (rows[shape["grid_x"][rows] != UNKNOWN] for rows in (lost, known))
    if not len(lost) or not (of_work[known] != UNKNOWN).any():
        return found
    rows = np.concatenate((known, lost))
    alike = grouped(work.name[rows], *(shape[each][rows] for each in SHAPE))
    texts = profile.columns("operators", _KIND)
    operator = of_work[known]
    kind = grouped(operator == UNKNOWN, *(texts[each][operator] for each in _KIND))
    groups = int(alike.max()) + 1
    least, most = np.full(groups, len(kind)), np.full(groups, UNKNOWN)
    np.minimum.at(least, alike[: len(known)], kind)
    np.maximum.at(most, alike[: len(known)], kind)
    first = np.full(groups, UNKNOWN, np.int64)
    first[alike[: len(known)]] = operator
    found[lost] = np.where(least == most, first, UNKNOWN)[alike[len(known) :]]
    return found


def _linked(
    profile: Profile, work: DeviceWork, rows: IntArray, external_id: IntArray, begin_ns: IntArray
) -> IntArray:
    """Return the operators that the trace's own links name."""
    links = profile.columns("links")
    if not len(rows) or np.array_equal(links["external_id"], links["correlation"]):
        return np.full(len(rows), UNKNOWN, np.int64)
    timeless = np.zeros(len(links["correlation"]), np.int64)
    link = latest_before(
        links["correlation"], timeless, work.correlation[rows], work.begin_ns[rows]
    )
    wanted = np.where(link != UNKNOWN, links["external_id"][np.maximum(link, 0)], UNKNOWN)
    return latest_before(external_id, begin_ns, wanted, work.begin_ns[rows])


def operator_times(work: DeviceWork, launching: Operators, texts: Sequence[str]) -> OperatorTimes:
    """Return the devices' and the host's time by operator."""
    own = launching.own_device_ns(work)
    outermost = launching.call_tree.outermost(launching.name)
    used, place = numbered(launching.name)
    total = launching.call_tree.sums(own)
    columns = (
        np.ones(len(own), np.int64),
        own,
        np.where(outermost, total, 0),
        np.where(outermost, launching.end_ns - launching.begin_ns, 0),
    )
    summed = [_sum_by(place, values, len(used)) for values in columns]
    found = [
        OperatorTime(texts[name], *(int(each[row]) for each in summed))
        for row, name in enumerate(used.tolist())
    ]
    found.sort(key=lambda each: (-each.self_device_ns, -each.host_ns, each.name))
    lost = launching.of_work == UNKNOWN
    return OperatorTimes(tuple(found), exact_sum(work.duration_ns[lost]))


def _sum_by(place: IntArray, values: IntArray, count: int) -> IntArray:
    summed = np.zeros(count, np.int64)
    np.add.at(summed, place, values)
    return summed

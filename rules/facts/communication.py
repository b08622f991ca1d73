"""Communication between GPUs: how long, how much is exposed, how fast, and which rank comes late.

The kernels are those that `device_work` names so. Bus bandwidth is that of NCCL's tests: the bytes
that must pass a link, over the kernel's time. A kernel also waits for the other ranks to come, so
the fastest of a collective tells the link's speed, and the typical one includes the waiting.

From traces of all ranks of a run follows the skew: a kernel of a synchronizing collective lasts
from its rank's arrival until the last one has come and the data have passed, so the rank that came
last has the shortest one. That needs no clock that the ranks share. Collectives are the same where
name, process group and sequence number are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import UNKNOWN, Columns, Profile
from gpuadvisor.rules.facts.device_work import DeviceWork, Work
from gpuadvisor.rules.facts.intervals import (
    IntArray,
    Intervals,
    by_key,
    exact_sum,
    grouped,
    uncovered_ns,
)
from gpuadvisor.rules.facts.joins import latest_before

TYPE_BYTES = {
    "double": 8, "long": 8, "int64": 8, "float64": 8, "complexfloat": 8, "complexdouble": 16,
    "float": 4, "int": 4, "float32": 4, "int32": 4,
    "half": 2, "bfloat16": 2, "short": 2, "float16": 2, "int16": 2,
    "byte": 1, "char": 1, "bool": 1, "uint8": 1, "int8": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
}  # fmt: skip
"""Bytes of an element, by PyTorch's names of scalar types, in small letters without `c10::`."""


@dataclass(frozen=True)
class Collective:
    """One collective of one process group on one device."""

    device: int
    name: str
    """Name of the collective in the trace; empty where it does not say."""
    group: str
    group_size: int | None
    count: int
    time_ns: int
    exposed_ns: int
    """Time in which one of these collectives but no compute kernel ran."""
    bytes: int | None
    """Bytes of all messages; None where elements or their type are not known."""
    bus_bandwidth_bytes_per_s: float | None
    """Mean bus bandwidth over all of these collectives."""
    best_bus_bandwidth_bytes_per_s: float | None
    """Bus bandwidth of the fastest of these collectives."""


@dataclass(frozen=True)
class Communication:
    """How long one device communicated, and in which collectives."""

    device: int
    time_ns: int
    """Time in which at least one communication kernel ran."""
    exposed_ns: int
    """Time in which a communication kernel but no compute kernel ran."""
    collectives: tuple[Collective, ...]
    """The device's collectives, longest time first."""


def communication(profile: Profile, work: DeviceWork) -> tuple[Communication, ...]:
    """Return the communication of each device that has some."""
    told = profile.columns("collectives")
    return tuple(
        _of_device(work, told, device, rows, kernels)
        for device, rows in work.by_device()
        if len(kernels := rows[work.kind[rows] == Work.COMMUNICATION])
    )


def _of_device(
    work: DeviceWork, told: Columns, device: int, rows: IntArray, kernels: IntArray
) -> Communication:
    compute = work.intervals(rows[work.kind[rows] == Work.COMPUTE])
    times = work.intervals(kernels)
    row = described(work, told, kernels)
    collectives = [
        _collective(work, told, device, kernels[at], row[at], compute)
        for _, at in by_key(_identity(told, row))
    ]
    collectives.sort(key=lambda each: -each.time_ns)
    return Communication(device, times.total_ns, uncovered_ns(times, compute), tuple(collectives))


def described(work: DeviceWork, told: Columns, kernels: IntArray) -> IntArray:
    """Return the row that describes each kernel: of its correlation, begun at the same time."""
    row = latest_before(
        told["correlation"], told["begin_ns"], work.correlation[kernels], work.begin_ns[kernels]
    )
    if not len(told["begin_ns"]):
        return row
    same = told["begin_ns"][np.maximum(row, 0)] == work.begin_ns[kernels]
    described: IntArray = np.where(same, row, UNKNOWN)
    return described


def _identity(told: Columns, row: IntArray) -> IntArray:
    """Return a number for each collective's name, group and size."""
    if not len(told["name"]):
        return row
    columns = (told[column][np.maximum(row, 0)] for column in ("name", "group", "group_size"))
    return grouped(*(np.where(row != UNKNOWN, values, UNKNOWN) for values in columns))


def _collective(
    work: DeviceWork,
    told: Columns,
    device: int,
    kernels: IntArray,
    row: IntArray,
    compute: Intervals,
) -> Collective:
    duration = work.duration_ns[kernels]
    took, first = exact_sum(duration), int(row[0])
    exposed_ns = uncovered_ns(work.intervals(kernels), compute)
    if first == UNKNOWN:
        return Collective(device, "", "", None, len(kernels), took, exposed_ns, None, None, None)
    name, group = work.texts[told["name"][first]], work.texts[told["group"][first]]
    size = int(told["group_size"][first])
    moved = _message_bytes(told, row, name, work.texts)
    factor = bus_factor(name, size)
    bus = None if moved is None or factor is None else moved * factor
    seconds = duration / 1e9
    speeds = None if bus is None else bus[seconds > 0] / seconds[seconds > 0]
    measured = bus is not None and speeds is not None and len(speeds) > 0
    return Collective(
        device,
        name,
        group,
        size if size > 0 else None,
        len(kernels),
        took,
        exposed_ns,
        None if moved is None else int(moved.sum()),
        float(bus.sum() / (took / 1e9)) if measured and bus is not None else None,
        float(speeds.max()) if measured and speeds is not None else None,
    )


def _message_bytes(
    told: Columns, row: IntArray, name: str, texts: Sequence[str]
) -> npt.NDArray[np.float64] | None:
    """Return the bytes of each message, as NCCL's tests count them."""
    sizes = [type_bytes(texts[number]) for number in told["type"][row].tolist()]
    if None in sizes:
        return None
    elements = np.maximum(told["in_elements"][row], 0)
    if "gather" in name:
        elements = np.maximum(told["out_elements"][row], 0)
    moved: npt.NDArray[np.float64] = elements * np.array(sizes, np.float64)
    return moved


def type_bytes(name: str) -> int | None:
    """Return how long an element is, of a scalar type as traces write it; None if unknown."""
    return TYPE_BYTES.get(name.lower().removeprefix("c10::"))


def bus_factor(name: str, ranks: int) -> float | None:
    """Return how often a byte of a message passes a link; None of an unknown collective.

    See PERFORMANCE.md of NCCL's tests.
    """
    if ranks < 1:
        return None
    plain = name.lower().strip("_").replace("_", "")
    if "allreduce" in plain:
        return 2 * (ranks - 1) / ranks
    if any(each in plain for each in ("allgather", "reducescatter", "alltoall")):
        return (ranks - 1) / ranks
    if any(each in plain for each in ("broadcast", "reduce", "send", "recv")):
        return 1.0
    return None


SYNCHRONIZING = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier")
"""Parts of the names of collectives in which no rank can go on before all have come."""

Key = tuple[str, str, int, int]
"""Name, group, size of the group and sequence number."""


@dataclass(frozen=True)
class RankSkew:
    """How late one rank came to the collectives that all ranks have in common."""

    place: int
    """Place of the rank's profile among those that were given."""
    collectives: int
    """Number of collectives in which the rank was the last to come."""
    waited_ns: int
    """The first one to come waited for it so long, in these collectives together."""
    behind_next_ns: int
    """How much later than the last but one the rank came, added up over these collectives."""
    behind_typical_ns: int
    """How much later than the median of the others the rank came, added up over these
    collectives."""


@dataclass(frozen=True)
class CollectiveSkew:
    """Who came late to the collectives that all ranks have in common."""

    collectives: int
    """Number of collectives that were found in all profiles."""
    waited_ns: int
    """The first one to come waited so long for the last, in all of them together."""
    ranks: tuple[RankSkew, ...]
    """The ranks, the one that others waited for longest first."""


def collective_skew(ranks: Sequence[tuple[Profile, DeviceWork]]) -> CollectiveSkew | None:
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
    lost = (waited, behind_next, behind_typical)
    every = [
        RankSkew(place, int((last == place).sum()), *(int(ns[last == place].sum()) for ns in lost))
        for place in range(len(ranks))
    ]
    every.sort(key=lambda each: -each.waited_ns)
    return CollectiveSkew(len(common), int(waited.sum()), tuple(every))


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

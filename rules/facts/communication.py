"""Communication between GPUs: how long, how much is exposed, how fast, and which rank comes late.

The kernels are those that `device_work` names so. Bus bandwidth is that of NCCL's tests: the bytes
that must pass a link, over the kernel's time. A kernel also waits for the other ranks to come, so
the fastest of a collective tells the link's speed, and the typical one includes the waiting.

What several ranks of a run tell together stands in `ranks`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import GROUP_RANKS, UNKNOWN, Columns, Profile
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
from gpuadvisor.rules.facts.lanes import Calls, plain

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


def collective_calls(profile: Profile, work: DeviceWork, device: int) -> Calls:
    """Return what is known of each communication kernel of a device, in the order of begins.

    The name of the kernel tells what the trace does not.
    """
    told = profile.columns("collectives")
    rows = np.flatnonzero((work.kind == Work.COMMUNICATION) & (work.device == device))
    rows = rows[np.argsort(work.begin_ns[rows], kind="stable")]
    found = described(work, told, rows)
    is_told = found != UNKNOWN

    def column(name: str) -> IntArray:
        if not len(told[name]):
            return np.full(len(rows), UNKNOWN, np.int64)
        values: IntArray = np.where(is_told, told[name][np.maximum(found, 0)], UNKNOWN)
        return values

    names, groups = column("name").tolist(), column("group").tolist()
    texts, ranks = work.texts, profile.header.facts
    kinds = [
        plain(texts[name]) if name != UNKNOWN and texts[name] else kernel_collective(texts[kernel])
        for name, kernel in zip(names, work.name[rows].tolist(), strict=True)
    ]
    return Calls(
        rows,
        kinds,
        [_group(texts[group], ranks) if group != UNKNOWN else "" for group in groups],
        column("group_size"),
        column("sequence"),
        column("in_elements"),
    )


def _group(name: str, facts: Mapping[str, str]) -> str:
    """Return a process group's name, with its ranks where the trace tells them: several groups of
    one size may have one name, each on other ranks."""
    return name and f"{name} {facts.get(GROUP_RANKS + name, '')}".rstrip()


_KERNEL = re.compile(
    r"(?:nccl|rccl)(?:Dev)?(?:Kernel)?_?([A-Za-z]+?)(?:Ring|Tree|LL|Kernel|_|\(|$)"
)


@lru_cache(maxsize=1024)
def kernel_collective(name: str) -> str:
    """Return `allreduce` of `ncclDevKernel_AllReduce_Sum_f32_RING_LL`; empty where it does not
    tell."""
    found = _KERNEL.search(name)
    return plain(found[1]) if found else ""

"""Communication between GPUs: how long, how much of it is exposed, and how fast.

The kernels are those that `device_work` names so. Bus bandwidth is that of NCCL's tests: the bytes
that must pass a link, over the kernel's time. A kernel also waits for the other ranks to come, so
the fastest of a collective tells the link's speed, and the typical one includes the waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import UNKNOWN, Columns, Profile
from gpuadvisor.rules.facts.device_work import DeviceWork, Work
from gpuadvisor.rules.facts.intervals import Intervals, Whole, by_key, exact_sum, uncovered_ns
from gpuadvisor.rules.facts.joins import latest_before

TYPE_BYTES = {
    "double": 8, "long": 8, "int64": 8, "float64": 8, "complexfloat": 8, "complexdouble": 16,
    "float": 4, "int": 4, "float32": 4, "int32": 4,
    "half": 2, "bfloat16": 2, "short": 2, "float16": 2, "int16": 2,
    "byte": 1, "char": 1, "bool": 1, "uint8": 1, "int8": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
}  # fmt: skip
"""Of an element, by PyTorch's names of scalar types, in small letters without `c10::`."""


@dataclass(frozen=True)
class Collective:
    """One collective of one process group on one device."""

    device: int
    name: str
    """As the trace calls it; empty where it does not say."""
    group: str
    group_size: int | None
    count: int
    time_ns: int
    exposed_ns: int
    """In which one of them but no compute kernel ran."""
    bytes: int | None
    """Of messages; None where elements or their type are not known."""
    bus_bandwidth_bytes_per_s: float | None
    """Of all of them together."""
    best_bus_bandwidth_bytes_per_s: float | None
    """Of the fastest one."""


@dataclass(frozen=True)
class Communication:
    """Of one device."""

    device: int
    time_ns: int
    """In which at least one communication kernel ran."""
    exposed_ns: int
    """In which no compute kernel ran beside it."""
    collectives: tuple[Collective, ...]
    """Those that took longest first."""


def communication(profile: Profile, work: DeviceWork) -> tuple[Communication, ...]:
    """Return the communication of each device that has some."""
    told = profile.columns("collectives")
    found = []
    for device, rows in work.by_device():
        kernels = rows[work.kind[rows] == Work.COMMUNICATION]
        if len(kernels):
            found.append(_of_device(work, told, device, rows, kernels))
    return tuple(found)


def _of_device(
    work: DeviceWork, told: Columns, device: int, rows: Whole, kernels: Whole
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


def described(work: DeviceWork, told: Columns, kernels: Whole) -> Whole:
    """Return the row that describes each kernel: of its correlation, begun at the same time."""
    row = latest_before(
        told["correlation"], told["begin_ns"], work.correlation[kernels], work.begin_ns[kernels]
    )
    if not len(told["begin_ns"]):
        return row
    same = told["begin_ns"][np.maximum(row, 0)] == work.begin_ns[kernels]
    described: Whole = np.where(same, row, UNKNOWN)
    return described


def _identity(told: Columns, row: Whole) -> Whole:
    """Return a number for each collective's name, group and size."""
    if not len(told["name"]):
        return row
    code = np.zeros(len(row), np.int64)
    for column in ("name", "group", "group_size"):
        values = np.where(row != UNKNOWN, told[column][np.maximum(row, 0)], UNKNOWN)
        _, place = np.unique(values, return_inverse=True)
        code = code * (len(place) + 1) + place
        _, code = np.unique(code, return_inverse=True)
    return code


def _collective(
    work: DeviceWork,
    told: Columns,
    device: int,
    kernels: Whole,
    row: Whole,
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
    told: Columns, row: Whole, name: str, texts: Sequence[str]
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

"""What names in traces mean: copies, calls, synchronisations, ranges, collectives."""

from __future__ import annotations

import re
from functools import lru_cache

from gpuadvisor.collectors.cuda_calls import kind_of, plain_name
from gpuadvisor.domain.profile import CallKind, Direction, Memory, Range, Synchronization

_COPY = re.compile(
    r"(?:Memcpy|Copy) ?(\w*) ?(?:\(([\w ]{1,20}) -> ([\w ]{1,20})\))?", re.IGNORECASE
)
_DIRECTIONS = {
    "htod": Direction.HOST_TO_DEVICE,
    "hosttodevice": Direction.HOST_TO_DEVICE,
    "dtoh": Direction.DEVICE_TO_HOST,
    "devicetohost": Direction.DEVICE_TO_HOST,
    "dtod": Direction.DEVICE_TO_DEVICE,
    "devicetodevice": Direction.DEVICE_TO_DEVICE,
    "htoh": Direction.HOST_TO_HOST,
    "hosttohost": Direction.HOST_TO_HOST,
    "ptop": Direction.PEER_TO_PEER,
    "peertopeer": Direction.PEER_TO_PEER,
    "htoa": Direction.HOST_TO_DEVICE,
    "atoh": Direction.DEVICE_TO_HOST,
    "atoa": Direction.DEVICE_TO_DEVICE,
    "atod": Direction.DEVICE_TO_DEVICE,
    "dtoa": Direction.DEVICE_TO_DEVICE,
    "m2d": Direction.HOST_TO_DEVICE,  # XPU: memory to device
    "d2m": Direction.DEVICE_TO_HOST,
    "d2d": Direction.DEVICE_TO_DEVICE,
}
_MEMORIES = {
    "pageable": Memory.PAGEABLE,
    "host": Memory.NOT_KNOWN,  # AMD does not tell pinned memory from the rest
    "pinned": Memory.PINNED,
    "device": Memory.DEVICE,
    "array": Memory.ARRAY,
    "managed": Memory.MANAGED,
    "managed static": Memory.MANAGED,
    "device static": Memory.DEVICE,
}

_HIP = re.compile(r"^hip(?:Ext)?(?:Module)?")
"""`hipExtModuleLaunchKernel` does what `cudaLaunchKernel` does."""

_SYNCHRONIZATIONS = {
    "event sync": Synchronization.EVENT,
    "stream wait event": Synchronization.STREAM_WAIT,
    "stream sync": Synchronization.STREAM,
    "stream synchronize": Synchronization.STREAM,
    "context sync": Synchronization.CONTEXT,
    "device sync": Synchronization.CONTEXT,
}

_STEP = "ProfilerStep"
_LOADER = "enumerate(DataLoader)"
_RANGES = (_STEP, _LOADER, "Optimizer.step#", "Optimizer.zero_grad#")

_COLLECTIVE = re.compile(r"^(?:nccl|rccl)(?:Dev)?Kernel_([A-Za-z]+)")
_COLLECTIVES = {
    "allreduce": "allreduce",
    "allgather": "allgather",
    "reducescatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "sendrecv",
    "alltoall": "alltoall",
    "alltoallpivot": "alltoall",
}


@lru_cache(maxsize=1024)
def copy_of(name: str) -> tuple[Direction, Memory, Memory]:
    """Return direction, source and destination of `Memcpy HtoD (Pageable -> Device)`."""
    found = _COPY.match(name)
    if not found:
        return Direction.OTHER, Memory.NOT_KNOWN, Memory.NOT_KNOWN
    kind, source, destination = (part.lower() if part else "" for part in found.groups())
    return (
        _DIRECTIONS.get(kind, Direction.OTHER),
        _MEMORIES.get(source, Memory.NOT_KNOWN),
        _MEMORIES.get(destination, Memory.NOT_KNOWN),
    )


@lru_cache(maxsize=1024)
def memset_of(name: str) -> tuple[Direction, Memory, Memory]:
    """Return direction, source and destination of `Memset (Device)`."""
    inner = name.partition("(")[2].rstrip(") ").lower()
    return Direction.MEMSET, Memory.NOT_KNOWN, _MEMORIES.get(inner, Memory.NOT_KNOWN)


@lru_cache(maxsize=4096)
def call_of(name: str) -> tuple[str, CallKind]:
    """Return a call's name without the suffix of its version, and what it does."""
    return plain_name(name), kind_of(_HIP.sub("cuda", name))


def synchronization_of(kind: str) -> Synchronization:
    """Return what `Stream Wait Event` and the like are."""
    return _SYNCHRONIZATIONS.get(kind.lower(), Synchronization.OTHER)


def range_of(name: str) -> Range:
    """Return whose range of a host's thread a name is."""
    if name.startswith(_STEP):
        return Range.STEP
    return Range.LOADER if name.startswith(_LOADER) else Range.USER


def is_range(name: str) -> bool:
    """Tell whether an operator is a range in truth: older versions had one category."""
    return name.startswith(_RANGES)


@lru_cache(maxsize=4096)
def collective_of(kernel: str) -> str:
    """Return what a kernel of NCCL or RCCL does, empty for others."""
    found = _COLLECTIVE.match(kernel)
    if not found:
        return ""
    name = found[1].lower()
    return _COLLECTIVES.get(name, name)

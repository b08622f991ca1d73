"""What a trace says beside its events: devices, ranks, versions, how it was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gpuadvisor.domain.profile import GROUP_RANKS, DeviceLimits

MAX_FACTS = 64
MAX_FACT = 200
"""Characters kept of a value."""
MAX_DEVICES = 1024
KNOWN = frozenset(
    ("schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "traceName")
)
"""Keys of which every trace of Kineto has at least one."""

_INT64 = 2**63
_AMD_WARP = 64


class TraceMetadata:
    """Collects what a trace says of itself from the members of the trace's outermost object."""

    def __init__(self) -> None:
        self.facts: dict[str, str] = {}
        """All that are a word or a number, as texts."""
        self.numbers: dict[str, int] = {}
        """Facts of the trace that are whole numbers."""
        self.devices: tuple[DeviceLimits, ...] = ()
        self.unreadable: list[str] = []
        """Keys of values that are not what they should be."""
        self.is_kineto = False

    def take(self, key: str, value: bytes) -> None:
        """Take a member; what is of no use is passed over."""
        self.is_kineto |= key in KNOWN
        if value[:1] in b"{[" and key not in ("deviceProperties", "distributedInfo"):
            return
        try:
            plain = msgspec.json.decode(value)
        except (ValueError, RecursionError):
            if len(self.unreadable) < MAX_FACTS:
                self.unreadable.append(key[:MAX_FACT])
            return
        if key == "deviceProperties" and isinstance(plain, list):
            items = [item for item in plain[:MAX_DEVICES] if isinstance(item, dict)]
            # Some versions number none of them: CUDA lists devices in the order of their numbers.
            unnumbered = not any("id" in item for item in items)
            limits = (_device(item, place if unnumbered else None)
                      for place, item in enumerate(items))  # fmt: skip
            self.devices = tuple(device for device in limits if device is not None)
        elif key == "distributedInfo" and isinstance(plain, dict):
            for name, part in plain.items():
                self._take_plain(name if name in ("rank", "world_size") else f"{key}.{name}", part)
            self._take_groups(plain.get("pg_config"))
        else:
            self._take_plain(key, plain)

    def _take_plain(self, key: str, value: object) -> None:
        if not isinstance(value, (str, int, float, bool)) or len(self.facts) >= MAX_FACTS:
            return
        self.facts[key[:MAX_FACT]] = str(value)[:MAX_FACT]
        whole = _whole(value)
        if whole is not None:
            self.numbers[key] = whole

    def _take_groups(self, groups: object) -> None:
        """Take the ranks of each process group; none of so many that other facts had no room."""
        if not isinstance(groups, list) or 2 * len(groups) > MAX_FACTS:
            return
        for each in groups:
            if isinstance(each, dict) and isinstance(ranks := each.get("ranks"), list):
                name = f"{GROUP_RANKS}{each.get('pg_name', '')}"
                self._take_plain(name, ", ".join(map(str, ranks[:MAX_FACT])))


def _device(properties: Mapping[str, Any], place: int | None) -> DeviceLimits | None:
    index = _whole(properties.get("id", place))
    if index is None:
        return None

    def limit(*names: str) -> int | None:
        return next((whole for name in names if (whole := _whole(properties.get(name)))), None)

    major, minor = limit("computeMajor"), _whole(properties.get("computeMinor"))
    name = str(properties.get("name", ""))[:MAX_FACT]
    is_nvidia = limit("warpSize") != _AMD_WARP and "AMD" not in name
    return DeviceLimits(
        index=index,
        name=name,
        # AMD's are those of another architecture: 9.4 is MI300, and 9.0 would be an H100.
        compute_capability=(major, minor) if major and minor is not None and is_nvidia else None,
        sm_count=limit("numSms", "maxComputeUnits"),
        memory_bytes=limit("totalGlobalMem"),
        registers_per_multiprocessor=limit("regsPerMultiprocessor"),
        shared_bytes_per_multiprocessor=limit(
            "sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor"
        ),
        shared_bytes_per_block=limit("sharedMemPerBlockOptin"),
        threads_per_multiprocessor=limit("maxThreadsPerMultiprocessor"),
    )


def _whole(value: object) -> int | None:
    """Return a number that fits into 64 bits, also where it is written as a text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value < _INT64 else None  # type: ignore[operator,return-value]

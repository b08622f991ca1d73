"""What Nsight Compute tells of the GPUs, beside every kernel and mostly the same each time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuadvisor.domain.profile import DeviceLimits

if TYPE_CHECKING:
    from gpuadvisor.collectors.nsight.compute_launches import Launch

_PREFIX = "device__attribute_"
_MOST_FACTS = 20_000
_LONGEST_FACT = 1000  # characters
_MOST_DEVICES = 1024
_EDGES = 2
"""Of its clock on which memory transfers: all of NVIDIA's is counted as double data rate."""


class Attributes:
    """Collects attributes of devices, and what is the same for all kernels."""

    def __init__(self) -> None:
        self._devices: dict[int, dict[str, float]] = {}
        self._names: dict[int, str] = {}
        self._capabilities: dict[int, tuple[int, int]] = {}
        self._facts: dict[str, str | None] = {}

    def add(self, device: int, launch: Launch) -> None:
        """Take what a kernel's report tells."""
        for name, text in launch.texts.items():
            self._note(name, text)
        for name, (value, _) in launch.metrics.items():
            if name.startswith(_PREFIX):
                self._note(name, f"{value:g}" if value % 1 else str(int(value)))
        if device not in self._devices and len(self._devices) < _MOST_DEVICES:
            self._add_device(device, launch)

    def _add_device(self, device: int, launch: Launch) -> None:
        self._devices[device] = {
            name.removeprefix(_PREFIX): value
            for name, (value, _) in launch.metrics.items()
            if name.startswith(_PREFIX)
        }
        self._names[device] = launch.texts.get(f"{_PREFIX}display_name", "")[:_LONGEST_FACT]
        if launch.compute_capability is not None:
            self._capabilities[device] = launch.compute_capability

    def _note(self, name: str, value: str) -> None:
        if name not in self._facts and len(self._facts) < _MOST_FACTS:
            self._facts[name] = value[:_LONGEST_FACT]
        elif self._facts.get(name) != value[:_LONGEST_FACT]:
            self._facts[name] = None

    def facts(self) -> Mapping[str, str]:
        """Return what all kernels have in common."""
        return {name: value for name, value in self._facts.items() if value}

    def limits(self) -> tuple[DeviceLimits, ...]:
        """Return the GPUs on which kernels were profiled."""
        return tuple(self._limits(device) for device in sorted(self._devices))

    def _limits(self, device: int) -> DeviceLimits:
        values = self._devices[device]

        def whole(name: str) -> int | None:
            value = values.get(name, 0.0)
            return int(value) if value > 0 else None

        major, minor = whole("compute_capability_major"), whole("compute_capability_minor")
        told = self._capabilities.get(device)
        clock = whole("max_gpu_frequency_khz") or whole("clock_rate")
        return DeviceLimits(
            index=device,
            name=self._names[device],
            compute_capability=told if major is None else (major, minor or 0),
            multiprocessors=whole("multiprocessor_count"),
            memory_bytes=whole("total_memory"),
            memory_bandwidth_bytes_per_s=_bandwidth(values),
            l2_bytes=whole("l2_cache_size"),
            clock_hz=None if clock is None else clock * 1e3,
            registers_per_multiprocessor=whole("max_registers_per_multiprocessor"),
            shared_bytes_per_multiprocessor=whole("max_shared_memory_per_multiprocessor"),
            shared_bytes_per_block=whole("max_shared_memory_per_block_optin"),
            threads_per_multiprocessor=whole("max_threads_per_multiprocessor"),
        )


def _bandwidth(values: Mapping[str, float]) -> float | None:
    """Return bytes a second of the memory's clock and the width of its bus."""
    clock_khz = values.get("max_mem_frequency_khz") or values.get("memory_clock_rate") or 0.0
    bits = values.get("global_memory_bus_width", 0.0)
    return _EDGES * clock_khz * 1e3 * bits / 8 if clock_khz > 0 and bits > 0 else None

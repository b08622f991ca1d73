"""What a profile's report says, before it is put into HTML, Markdown or JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from gpuadvisor.domain.finding import Diagnosis
from gpuadvisor.domain.profile import DeviceLimits
from gpuadvisor.errors import UsageError
from gpuadvisor.rules.facts.ceilings import Ceilings
from gpuadvisor.rules.facts.kernels import KernelTime
from gpuadvisor.rules.facts.occupancy import occupancy
from gpuadvisor.rules.facts.ranks import Ranks
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.rule import Loaded

KINETO_ZERO_ABOVE_BYTES = 48 * 1024
"""Kineto asks for the occupancy with the default limit of shared memory, and gets 0 blocks above
(`DeviceProperties.cpp`, `FUNC_SHMEM_LIMIT_DEFAULT`)."""


@dataclass(frozen=True)
class KernelRow:
    """Kernels that are the same, and how they fit on the device."""

    kernel: KernelTime
    share: float
    """Share of the time of all kernels, 0 to 1."""
    occupancy: float | None
    """Theoretical occupancy, 0 to 1; None where the device or the launch is not known."""
    limiters: tuple[str, ...]
    """What keeps another block off the SM: `registers`, `shared_memory`, `warps`, `blocks`."""
    kineto_says_zero: bool
    """Whether the trace's own figure is 0 for no other reason than its shared memory."""


@dataclass(frozen=True)
class ProfileReport:
    """A profile and what is said of it."""

    name: str
    facts: Facts
    ceilings: Ceilings | None = None
    """Peak rates of the device; None where they are not known."""
    file: str = ""
    """The file that the profile comes from."""
    version: str = ""
    """Version of gpuadvisor."""
    problems: tuple[str, ...] = field(default=())
    """What the reader should know besides the profile's own warnings."""
    diagnosis: Diagnosis | None = None
    """What the rules say of it; None where they were not asked."""
    rules: tuple[Loaded, ...] = ()
    """The rules that were asked."""
    ranks: Ranks | None = None
    """All ranks of the run; None where only one is known."""

    @cached_property
    def kernels(self) -> tuple[KernelRow, ...]:
        """The kernels, those that took longest first."""
        return kernel_rows(self.facts)

    def device(self, index: int) -> DeviceLimits | None:
        """Return what is known of a device."""
        return device_of(self.facts, index)


def device_of(facts: Facts, index: int) -> DeviceLimits | None:
    """Return what the profile tells of a device; None where it tells nothing."""
    devices = facts.profile.header.devices
    return next((each for each in devices if each.index == index), None)


def kernel_rows(facts: Facts) -> tuple[KernelRow, ...]:
    """Return all kernels with their share of the time and their occupancy."""
    kernels = facts.kernels
    total = sum(kernel.time_ns for kernel in kernels)
    from_kineto = facts.profile.header.source == "kineto"
    found = []
    for kernel in kernels:
        fraction, limiters = _occupancy(device_of(facts, kernel.device), kernel)
        share = kernel.time_ns / total if total else 0.0
        large = kernel.shared_bytes > KINETO_ZERO_ABOVE_BYTES
        is_zero = from_kineto and fraction is not None and large
        found.append(KernelRow(kernel, share, fraction, limiters, is_zero))
    return tuple(found)


def _occupancy(
    device: DeviceLimits | None, kernel: KernelTime
) -> tuple[float | None, tuple[str, ...]]:
    """Return a kernel's theoretical occupancy and its limiters; None where it cannot be known."""
    known = min(kernel.block) > 0 and min(kernel.registers, kernel.shared_bytes) >= 0
    if device is None or device.compute_capability is None or not known:
        return None, ()
    launch = prod(kernel.block), kernel.registers, kernel.shared_bytes
    try:
        found = occupancy(device.compute_capability, *launch, limits=device)
    except UsageError:  # an architecture that nobody described yet, or an AMD GPU's
        return None, ()
    return found.fraction, found.limiters

"""What a check is given, the state of the machine, what it says, and all checks in their order.

A new one is a function in `CHECKS` of a file in `checks/`, and nothing else.
"""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from gpuadvisor.collectors.devices import Inventory, cpu_device, inventory
from gpuadvisor.collectors.energy import ComputeProcess, EnergyMeter, other_processes
from gpuadvisor.collectors.interpreter import TargetPython, inspect_python
from gpuadvisor.doctor import checks
from gpuadvisor.domain.device import Device
from gpuadvisor.errors import UsageError


class CheckState(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    """Something is missing or makes figures worse, but tuning works."""
    PROBLEM = "problem"
    """Tuning cannot work."""


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    """A few words, the same on every machine; with a number where there are several devices."""
    state: CheckState
    detail: str
    """What the check found."""
    fix: str = ""
    """One line that cures it; empty where nothing is to be done."""


def from_sentence(name: str, state: CheckState, sentence: str) -> Check:
    """Make a check of a sentence of the form `fault: way out`, or of a fault alone."""
    fault, colon, way_out = sentence.removesuffix(".").rpartition(": ")
    return Check(name, state, fault, way_out) if colon else Check(name, state, sentence)


@dataclass(frozen=True)
class GpuUse:
    """What a visible GPU tells beside its properties."""

    gpu: Device
    others: tuple[ComputeProcess, ...] | None
    """Compute processes on it; None where the driver does not say."""
    energy_problem: str | None = None
    """Why its energy cannot be measured; None where it can."""


@dataclass(frozen=True)
class MachineState:
    """All that checks may look at: tests build one, `gather` reads the machine."""

    cpu: Device
    python: TargetPython | None = None
    """The interpreter that runs the scripts; None where it cannot be asked."""
    python_problem: str = ""
    """Why the interpreter cannot be asked, as `fault: way out`."""
    inventory: Inventory = field(default_factory=Inventory)
    gpus: tuple[GpuUse, ...] = ()
    """One for each GPU in the inventory."""
    environ: Mapping[str, str] = field(default_factory=dict)
    root: Path = Path("/")
    """Folder in which checks find `/proc`."""

    @property
    def torch(self) -> TargetPython | None:
        """The interpreter if it has torch."""
        return self.python if self.python and self.python.torch else None


def gather(python: str) -> MachineState:
    """Return the state of this machine and of an interpreter; this imports torch there."""
    found, problem = None, ""
    try:
        found = inspect_python(python)
    except UsageError as error:
        problem = str(error)
    seen = inventory()
    return MachineState(
        cpu=cpu_device(),
        python=found,
        python_problem=problem,
        inventory=seen,
        gpus=tuple(_use(gpu) for gpu in seen.gpus),
        environ=dict(os.environ),
    )


def _use(gpu: Device) -> GpuUse:
    meter = EnergyMeter(gpu)
    meter.read_j()
    others = other_processes(gpu)
    return GpuUse(gpu, None if others is None else tuple(others), meter.unavailable())


Look = Callable[[MachineState], Iterable[Check]]
"""Returns the results of one check; none where it does not apply here."""


class CheckModule(Protocol):
    """What a file in `checks/` has."""

    CHECKS: Mapping[int, Look]
    """Each check by its place in the list: causes before their effects."""


def looks() -> list[Look]:
    """Return the checks in their order."""
    names = [module.name for module in pkgutil.iter_modules(checks.__path__)]
    found = [cast(CheckModule, import_module(f"{checks.__name__}.{name}")) for name in names]
    known = [each for module in found for each in module.CHECKS.items()]
    return [look for _, look in sorted(known, key=lambda each: each[0])]


def examine(machine: MachineState) -> list[Check]:
    """Return what every check says."""
    return [check for look in looks() for check in _run(look, machine)]


def _run(look: Look, machine: MachineState) -> list[Check]:
    """Run one check; the machines where a check itself fails are those that need the others."""
    try:
        return list(look(machine))
    except Exception as error:
        name = getattr(look, "__name__", "").removeprefix("check_").replace("_", " ")
        detail = f"could not be checked ({type(error).__name__}: {error})"
        return [Check(name, CheckState.WARNING, detail, "report it as a bug of gpuadvisor")]

"""Finds and runs the checks. A new one is a new file in `checks/`, and nothing else."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from importlib import import_module
from typing import Protocol, cast

from gpuadvisor.doctor import checks
from gpuadvisor.doctor.check import Check, CheckState, MachineState


class CheckModule(Protocol):
    """What a file in `checks/` has."""

    __name__: str
    ORDER: int
    """Place in the list: causes before their effects."""

    def check(self, machine: MachineState) -> Iterable[Check]:
        """Return the results; none where the check does not apply here."""


def modules() -> list[CheckModule]:
    """Return the checks in their order."""
    names = [module.name for module in pkgutil.iter_modules(checks.__path__)]
    found = [cast(CheckModule, import_module(f"{checks.__name__}.{name}")) for name in names]
    return sorted(found, key=lambda module: (module.ORDER, module.__name__))


def examine(machine: MachineState) -> list[Check]:
    """Return what every check says."""
    return [check for module in modules() for check in _run(module, machine)]


def _run(module: CheckModule, machine: MachineState) -> list[Check]:
    """Run one check; the machines where a check itself fails are those that need the others."""
    try:
        return list(module.check(machine))
    except Exception as error:
        name = module.__name__.rpartition(".")[2].replace("_", " ")
        detail = f"could not be checked ({type(error).__name__}: {error})"
        return [Check(name, CheckState.WARNING, detail, "report it as a bug of gpuadvisor")]

"""The interpreter that runs the scripts must be there and new enough."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.collectors.interpreter import OLDEST_PYTHON
from gpuadvisor.doctor.check import Check, CheckState, MachineState, from_sentence

ORDER = 10
NAME = "python"


def check(machine: MachineState) -> Iterator[Check]:
    """Look at the version."""
    if machine.python is None:
        yield from_sentence(NAME, CheckState.PROBLEM, machine.python_problem)
        return
    found = f"{machine.python.version} ({machine.python.executable})"
    if machine.python.runs_harness:
        yield Check(NAME, CheckState.OK, found)
        return
    oldest = ".".join(map(str, OLDEST_PYTHON))
    fix = f"make an environment with Python {oldest} or newer, or give another with --python"
    yield Check(NAME, CheckState.PROBLEM, f"{found} is too old", fix)

"""The interpreter that runs the scripts must be there and new enough."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.collectors.interpreter import OLDEST_PYTHON
from gpuadvisor.doctor.check import Check, State, from_sentence
from gpuadvisor.doctor.facts import Facts

ORDER = 10
NAME = "python"


def check(facts: Facts) -> Iterator[Check]:
    """Look at the version."""
    if facts.python is None:
        yield from_sentence(NAME, State.PROBLEM, facts.python_problem)
        return
    found = f"{facts.python.version} ({facts.python.executable})"
    if facts.python.runs_harness:
        yield Check(NAME, State.OK, found)
        return
    oldest = ".".join(map(str, OLDEST_PYTHON))
    fix = f"make an environment with Python {oldest} or newer, or give another with --python"
    yield Check(NAME, State.PROBLEM, f"{found} is too old", fix)

"""What each `nn.Module` takes: time on its thread, work of the devices, and their idle time in it.

Modules run in the forward pass. What the backward pass launches belongs to the module of the
forward operator that it is for, as far as the trace tells that (`facts.backward`); what adds up
gradients, and what optimizers do, is in none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN

if TYPE_CHECKING:
    from gpuadvisor.rules.facts.summary import Facts


@dataclass(frozen=True)
class ModuleTime:
    """All calls of a module, with those of the modules that it calls."""

    name: str
    """In the profiler's words: class and number."""
    depth: int
    """Number of modules that hold it."""
    calls: int
    host_ns: int
    """Time of its calls on their threads."""
    device_ns: int
    """Time of the kernels and copies that it launched in the forward pass."""
    backward_ns: int
    """Time of those that the backward pass launched for it."""
    idle_ns: int
    """Time in which a device was idle while it, or the backward pass for it, ran on the thread that
    launches."""


def module_times(facts: Facts) -> tuple[ModuleTime, ...]:
    """Return the modules of a profile, each before those that it calls, the longest first."""
    found = facts.modules
    count = len(found.names)
    if not count:
        return ()
    calls = np.bincount(found.number, minlength=count)
    host = np.bincount(found.number, (found.end_ns - found.begin_ns).astype(np.float64), count)
    forward, backward = map(found.with_held, facts.places.work_by_module())
    idle = found.with_held(facts.places.idle_by_module())
    held: dict[int, list[int]] = {}
    for module, parent in enumerate(found.parents):
        held.setdefault(parent, []).append(module)
    times: list[ModuleTime] = []
    left = [(module, 0) for module in _longest_last(held.get(UNKNOWN, []), host)]
    while left:
        module, depth = left.pop()
        numbers = (int(each[module]) for each in (calls, host, forward, backward, idle))
        times.append(ModuleTime(found.names[module], depth, *numbers))
        left += [(each, depth + 1) for each in _longest_last(held.get(module, []), host)]
    return tuple(times)


def _longest_last(modules: list[int], host_ns: np.ndarray) -> list[int]:
    return sorted(modules, key=lambda each: float(host_ns[each]))

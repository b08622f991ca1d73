"""`gpuadvisor.step()`: lets a script say itself where a step ends.

Outside of gpuadvisor the call does nothing, so it can stay in the code.
"""

from __future__ import annotations

from collections.abc import Callable

_listeners: tuple[Callable[[], None], ...] = ()


def step() -> None:
    """Mark the end of a step. Needed only where gpuadvisor finds no step, or the wrong one."""
    for listener in _listeners:
        listener()


def listen(listener: Callable[[], None]) -> None:
    """Have `listener` called at every step; the harness does this, and profiling on demand."""
    global _listeners
    _listeners = (*_listeners, listener)


def ignore(listener: Callable[[], None]) -> None:
    """Call `listener` no more."""
    global _listeners
    _listeners = tuple(other for other in _listeners if other != listener)

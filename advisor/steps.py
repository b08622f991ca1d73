"""`gpuadvisor.step()`: lets a script say itself where a step ends.

Outside of gpuadvisor the call does nothing, so it can stay in the code.
"""

from __future__ import annotations

from collections.abc import Callable

_listener: Callable[[], None] | None = None


def step() -> None:
    """Mark the end of a step. Needed only where gpuadvisor finds no step, or the wrong one."""
    if _listener is not None:
        _listener()


def listen(listener: Callable[[], None]) -> None:
    """Have `listener` called at every step; the harness does this."""
    global _listener
    _listener = listener

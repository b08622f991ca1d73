"""Takes turns with the process of another run: a block of steps in each, and else it waits.

Or it waits once, before it is measured, until the other one has ended. It runs in the process of
the script. While it waits, the thread that makes the script's steps stands still between two of
them; other threads and processes of the script go on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import IO

from gpuadvisor.collectors.script.child.channel import Channel, leave

GO = "go"
"""Order to work for a block; any other one is to end."""
WARM, BLOCK = "wait", "turn"
"""Events: the script is warm and waits, and it waits after a block."""


class Turns:
    """One process's turns, as gpuadvisor gives them through a named pipe."""

    def __init__(self, path: str, channel: Channel, is_owner: Callable[[], bool]) -> None:
        self._path = path
        self._channel = channel
        self._is_owner = is_owner
        self._orders: IO[str] | None = None
        self._process: int | None = None
        """The process whose turns these are; None before the first one."""

    @property
    def mine(self) -> bool:
        """Whether it is this process's turn: it works, as it does not wait."""
        return self._process == os.getpid()

    def join(self, workers: int = 0) -> bool | None:
        """Wait for the first turn. Return whether it came; None where others count instead.

        `workers` of its loaders read ahead meanwhile.
        """
        if not self._is_owner():
            return None
        self._orders = open(self._path, encoding="utf-8")  # noqa: PTH123, SIM115
        self._process = os.getpid()
        self._channel.send(WARM, workers=workers)
        return self._is_to_go()

    def hand_on(self, steps: int, seconds: float) -> bool:
        """Let the other one work after a block of so many steps; return whether to go on then.

        The device is idle. A block in which no step counted has 0 of them.
        """
        self._channel.send(BLOCK, steps=steps, seconds=seconds)
        return self._is_to_go()

    def _is_to_go(self) -> bool:
        assert self._orders is not None  # it has joined
        line = self._orders.readline()
        if not line:  # gpuadvisor is gone
            leave(1)
        return line.strip() == GO

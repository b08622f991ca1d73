"""Gives the steps of a warm script to whoever wants them, such as a profiler."""

from __future__ import annotations

import os
from collections.abc import Callable

from gpuadvisor.domain.target import StepTaker


class Taking:
    """One process's taking of steps. A process forked meanwhile has no part in it."""

    def __init__(self, taker: StepTaker, is_owner: Callable[[], bool]) -> None:
        self._taker = taker
        self._is_owner = is_owner
        self._process: int | None = None

    def begin(self) -> bool:
        """Begin, unless another process's steps are the script's; return whether it did."""
        if not self._is_owner():
            return False
        self._process = os.getpid()
        self._taker.begin()
        return True

    def step(self) -> bool:
        """Return whether all steps were taken that are wanted."""
        return self._is_mine() and self._taker.step()

    def abandon(self) -> None:
        if self._is_mine():
            self._process = None
            self._taker.abandon()

    def end(self) -> None:
        if self._is_mine():
            self._process = None
            self._taker.end()

    def _is_mine(self) -> bool:
        return self._process == os.getpid()

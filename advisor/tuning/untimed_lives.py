"""Lives of a rehearsal whose times are not compared, so that two may go on side by side."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

from gpuadvisor.domain.rehearsal import Life


class Untimed:
    """The lives whose times are not compared: nudged, on equal weights, and with more digits there.

    Each is lived once, however often lives are compared that others' work has disturbed. Where
    there is room the first two go on side by side, and the second is given up if nobody asks for
    it. What came to no end beside the other has another life alone.
    """

    def __init__(
        self,
        nudged: Callable[[float], Life | None],
        on_equal_weights: Callable[[Callable[[], bool]], Life | None],
        precise: Callable[[], Life | None],
        has_room: bool,
    ) -> None:
        self._nudge = nudged
        self._equal = on_equal_weights
        self.nudged = cache(self._nudged)
        self.on_equal_weights = cache(self._on_equal_weights)
        self.precise = cache(precise)
        self._pool = ThreadPoolExecutor(1) if has_room else None
        self._beside: Future[Life | None] | None = None
        self._given_up = False

    def _nudged(self, amount: float) -> Life | None:
        if self._pool is None:
            return self._nudge(amount)
        self._beside = self._pool.submit(self._equal, lambda: self._given_up)
        life = self._nudge(amount)
        if life is None:
            self._beside.result()
            life = self._nudge(amount)
        return life

    def _on_equal_weights(self) -> Life | None:
        life = self._beside.result() if self._beside is not None else None
        return life or self._equal(lambda: False)

    def close(self) -> None:
        """End the life that goes on beside, if any; further ones go on alone."""
        self._given_up = True
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

"""Points on their way: compiled ahead by some processes while others, one a GPU, measure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

from gpuadvisor.domain.kernel_records import Evaluation
from gpuadvisor.domain.study import TrialState
from gpuadvisor.tuners.space import Point
from gpuadvisor.tuning.kernels.evaluator import Measure

POLL_S = 0.1
"""Longest until a request to stop is seen while nothing is finished."""


@dataclass(frozen=True)
class Compiled:
    """What a compiler process made of a point."""

    refused: str = ""
    """Why the point cannot be launched, in words; empty where it can, as far as is known."""
    state: TrialState = TrialState.UNSUPPORTED
    """How a refused point ended."""
    compile_ms: float = 0.0
    resources: Mapping[str, int] = field(default_factory=dict)


Compile = Callable[[Point], Compiled]


class Pipeline:
    """Workers of a search: threads that wait for one process each.

    A point is compiled by the next free compiler, and measured on the next free GPU; without
    compilers it is compiled where it is measured.
    """

    def __init__(
        self,
        measures: Sequence[Measure],
        compiles: Sequence[Compile],
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Take what measures a point, one a GPU, and what compiles one, one a process."""
        self.capacity = len(measures) + len(compiles)
        self.give_up_at: float | None = None
        self._cancelled = cancelled
        self._is_closed = False
        self._uncompiled: SimpleQueue[Point | None] = SimpleQueue()
        self._compiled: SimpleQueue[tuple[Point, Compiled] | None] = SimpleQueue()
        self._done: SimpleQueue[Evaluation | BaseException] = SimpleQueue()
        self._measuring = 0
        self._lock = threading.Lock()
        self._ahead = bool(compiles)
        loops = [partial(self._compile_points, each) for each in compiles]
        loops += [partial(self._measure_points, each) for each in measures]
        self._threads = [
            threading.Thread(target=self._guarded, args=(loop,), daemon=True) for loop in loops
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_closed = True
        for _ in self._threads:
            self._uncompiled.put(None)
            self._compiled.put(None)

    def start(self, point: Point) -> None:
        """Take a point."""
        if self._ahead:
            self._uncompiled.put(point)
        else:
            self._compiled.put((point, Compiled()))

    def finished(self) -> Evaluation | None:
        """Wait for the next point that is measured or refused; what a worker raised is raised here.

        None once the user has stopped and no GPU measures: what it measures then is still waited
        for, and what waits to be measured is dropped.
        """
        while True:
            try:
                found = self._done.get(timeout=POLL_S)
            except Empty:
                with self._lock:
                    is_idle = not self._measuring and self._done.empty()
                if is_idle and self._cancelled():
                    return None
                continue
            if isinstance(found, BaseException):
                raise found
            return found

    def join(self, seconds: float | None = None) -> None:
        """Wait until no thread uses its process any more, at most so long, after it was closed."""
        for thread in self._threads:
            thread.join(seconds)

    def _guarded(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:
            self._done.put(error)

    def _compile_points(self, compile_point: Compile) -> None:
        while (point := self._uncompiled.get()) is not None:
            if self._is_over():
                continue
            compiled = compile_point(point)
            if compiled.refused:
                self._done.put(
                    Evaluation(
                        dict(point),
                        compiled.state,
                        compiled.refused,
                        compile_ms=compiled.compile_ms,
                        resources=compiled.resources,
                    )
                )
            else:
                self._compiled.put((point, compiled))

    def _measure_points(self, measure: Measure) -> None:
        while (waiting := self._compiled.get()) is not None:
            with self._lock:
                if self._is_over():
                    continue
                self._measuring += 1
            try:
                point, compiled = waiting
                found = measure(point, self.give_up_at)
                whole_ms = found.compile_ms + compiled.compile_ms
                self._done.put(replace(found, compile_ms=whole_ms))
            finally:
                with self._lock:
                    self._measuring -= 1

    def _is_over(self) -> bool:
        return self._is_closed or self._cancelled()

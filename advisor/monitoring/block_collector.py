"""The sampler of a block, and the thread that folds its frames."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import inf

from gpuadvisor.collectors.telemetry.supervisor import SamplerProcess
from gpuadvisor.daemon.sources import has_answered
from gpuadvisor.domain.telemetry import Gpu
from gpuadvisor.monitoring.block_figures import BlockFigures
from gpuadvisor.monitoring.block_tally import COUNTER, Tally

LAST_FRAME_S = 3.0
"""A frame comes every second at least, but while a silent sampler is replaced."""


class Collector:
    """Folds frames from its creation until `close`; OSError where no process can be started."""

    def __init__(self, fast_period_s: float | None) -> None:
        self.answered = threading.Event()
        """Set when the first readings are there, or the driver has said that there are none."""
        self._tally = Tally()
        self._lock = threading.Lock()
        self._ended_s = inf
        self._stopped = False
        # Not `sources.live`: the machine's own figures would cost the block time and are not shown.
        self._sampler = SamplerProcess(fast_period_s=fast_period_s, hurried=(COUNTER,))
        self._thread = threading.Thread(
            target=self._collect, name="gpuadvisor-monitor", daemon=True
        )
        self._thread.start()

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Those known by now."""
        with self._lock:
            return self._tally.gpus

    def begin(self, began_s: float) -> None:
        """Begin the block, at this Unix time."""
        with self._lock:
            self._tally.begin(began_s)

    def end(self, ended_s: float) -> None:
        """End the block, and wait for the first reading after it, for a few seconds at most."""
        with self._lock:
            self._ended_s = ended_s
        self._thread.join(LAST_FRAME_S)

    def close(self) -> None:
        """Leave no process and no thread."""
        with self._lock:
            self._stopped = True
        self._sampler.close()
        self._thread.join(LAST_FRAME_S)

    def figures(self, ended_s: float, gpus: Sequence[Gpu]) -> BlockFigures:
        """Return what became of these GPUs; after `close`, and once."""
        with self._lock:
            return self._tally.figures(ended_s, gpus)

    def _collect(self) -> None:
        try:
            for frame in self._sampler.frames():
                with self._lock:
                    self._tally.add(frame, self._ended_s)
                    is_over = self._stopped or frame.time_s >= self._ended_s
                if has_answered(frame):
                    self.answered.set()
                if is_over:
                    return
        finally:
            self.answered.set()

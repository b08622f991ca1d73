"""Memory errors: those that could not be corrected, and storms of those that were.

An error that could not be corrected is an event of its own, without length. A storm begins when a
hundred were corrected within a minute, and ends after ten minutes without.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from gpuadvisor.daemon.episodes import GpuDetector, Wording, called
from gpuadvisor.domain.latest import Latest
from gpuadvisor.domain.telemetry import Event, Frame, Gpu, Number, Severity

UNCORRECTED = "ecc_uncorrected_volatile"
CORRECTED = "ecc_corrected_volatile"

STORM_ERRORS = 100
STORM_WINDOW_S = 60.0
"""A healthy GPU corrects a few errors a week; NVIDIA's Xid 92 ("high single-bit ECC error rate")
is about a rate of this order and gives no number. Ours is a choice, far from both."""
STORM_END_S = 600.0
"""Storms come in bursts from one cell; ten minutes make one event of them."""


class Detector(GpuDetector):
    """Watches the two counters since the driver was loaded."""

    def __init__(self) -> None:
        super().__init__("ecc", end_after_s=STORM_END_S)
        self._uncorrected: dict[str, Number] = {}
        self._corrected: dict[str, deque[tuple[float, Number]]] = {}

    def observe(self, frame: Frame, latest: Latest) -> Iterator[Event]:
        yield from super().observe(frame, latest)
        for gpu in latest.gpus:
            sample = frame.samples.get(gpu.uuid)
            count = sample.values.get(UNCORRECTED) if sample else None
            if count is None:
                continue
            before = self._uncorrected.get(gpu.uuid)
            self._uncorrected[gpu.uuid] = count
            if before is not None and count > before:  # lower: the driver was loaded anew
                yield _errors(gpu, frame.time_s, int(count - before))

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> Iterator[tuple[str, bool | None]]:
        sample = frame.samples.get(gpu.uuid)
        count = sample.values.get(CORRECTED) if sample else None
        if count is None:
            yield "corrected", None
            return
        history = self._corrected.setdefault(gpu.uuid, deque())
        if history and (count < history[-1][1] or frame.time_s < history[-1][0]):
            history.clear()
        history.append((frame.time_s, count))
        while frame.time_s - history[0][0] > STORM_WINDOW_S:
            history.popleft()
        yield "corrected", count - history[0][1] >= STORM_ERRORS

    def word(self, gpu: Gpu, key: str, latest: Latest) -> Wording:
        history = self._corrected[gpu.uuid]
        new = int(history[-1][1] - history[0][1])
        return Wording(
            f"{called(gpu)} corrected {new} memory errors within a minute: its memory may be"
            " failing; watch it, and reset it when it can be spared.",
            Severity.WARNING,
            {"errors": new},
        )


def _errors(gpu: Gpu, time_s: float, new: int) -> Event:
    errors = "a memory error" if new == 1 else f"{new} memory errors"
    return Event(
        "ecc",
        time_s,
        f"{called(gpu)} had {errors} that could not be corrected: results since then may be"
        " wrong; stop what runs on it, and reset it.",
        Severity.ERROR,
        gpu.uuid,
        time_s,
        "uncorrected",
        {"errors": new},
    )

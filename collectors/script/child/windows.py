"""Groups of counted steps, told to the parent as soon as the device has passed them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from gpuadvisor.collectors.script.child.channel import Channel
from gpuadvisor.collectors.script.child.counters import Tally
from gpuadvisor.collectors.script.child.timers import HostTimer, Timer
from gpuadvisor.collectors.script.specification import Schedule

MIN_WINDOWS = 4
"""Windows below which their spread says nothing."""
MAX_EXTENSIONS = 2
"""How often the first half is dropped because the script was not steady yet."""


class Step(NamedTuple):
    """The end of a step: a mark in device time, and the counters then."""

    mark: Any
    tally: Tally


class Windows:
    """The measurement in progress. Marks are read late, so nothing waits for the device."""

    def __init__(self, timer: Timer, channel: Channel, window_s: float) -> None:
        self._timer = timer
        self._channel = channel
        self._window_s = window_s
        self._open: list[Step] = []
        self._closed: list[list[Step]] = []
        self._means: list[tuple[int, float]] = []
        self._began_s = 0.0
        self._extensions = 0
        self.steps = 0
        self._host_s = 0.0
        self.habitual = False
        """Whether most steps have an interruption; then it belongs to the step: a frozen teacher,
        a rollout, inference itself."""

    @property
    def open_steps(self) -> int:
        return max(0, len(self._open) - 1)

    def start(self, tally: Tally) -> None:
        """Begin to count; the device is idle now."""
        self._open = [Step(self._timer.mark(), tally)]
        self._began_s = time.perf_counter()

    def add(self, tally: Tally) -> bool:
        """Add a step, and say whether the window is long enough."""
        self._open.append(Step(self._timer.mark(), tally))
        return time.perf_counter() - self._began_s >= self._window_s

    def adopt(self, steps: list[Step]) -> None:
        """Take steps that were recorded otherwise as one window."""
        self._closed.append(steps)
        self.steps = len(steps) - 1

    def unfinished(self) -> list[Step]:
        """Return the steps of the open window, if their marks are of the host's clock."""
        return self._open[1:] if isinstance(self._timer, HostTimer) else []

    def discard(self) -> None:
        self._open = []

    def drop_all(self) -> None:
        """Forget every window, told or not, and go on counting."""
        self._channel.send("dropped", windows=len(self._means))
        self._closed.clear()
        self._means.clear()
        self._host_s, self.steps = 0.0, 0

    def close(self) -> None:
        """End the window; the next one begins with its last step."""
        if self.open_steps == 0:
            return
        now = time.perf_counter()
        self._host_s += now - self._began_s
        self._began_s = now
        self.steps += self.open_steps
        self._closed.append(self._open)
        self._open = self._open[-1:]
        self.flush()

    def enough(self, schedule: Schedule, burst_steps: int) -> bool:
        """Say whether the measurement can end: long enough, and steady.

        `burst_steps` are the steps in which the loaders' workers deliver twice each.
        """
        if self._host_s >= schedule.max_measure_s and self.steps >= 3:
            return True
        long_enough = (
            self._host_s >= schedule.measure_s
            and self.steps >= max(schedule.min_steps, burst_steps)
            and len(self._means) + len(self._closed) >= MIN_WINDOWS
        )
        if not long_enough or self._extensions >= MAX_EXTENSIONS:
            return long_enough
        if len(self._means) < MIN_WINDOWS:  # the device lags behind, and we do not wait for it
            return False
        if self._drift() <= schedule.drift:
            return True
        self._extensions += 1
        self._drop_first_half()
        return False

    def _drift(self) -> float:
        half = len(self._means) // 2
        first, second = _mean(self._means[:half]), _mean(self._means[half:])
        return abs(second / first - 1) if first else 0.0

    def _drop_first_half(self) -> None:
        half = len(self._means) // 2
        share = half / len(self._means)
        self.steps -= sum(steps for steps, _ in self._means[:half])
        self._host_s *= 1 - share
        self._means = self._means[half:]
        self._channel.send("dropped", windows=half)

    def flush(self, wait: bool = False) -> None:
        """Tell the parent of the windows that the device has passed; `wait` for all of them."""
        if wait:
            self._timer.synchronize()
        while self._closed and self._timer.ready(self._closed[0][-1].mark):
            self._tell(self._closed.pop(0))

    def _tell(self, steps: list[Step]) -> None:
        pairs = list(pairwise(steps))
        times_s = [self._timer.between_s(a.mark, b.mark) for a, b in pairs]
        counted = range(len(pairs)) if self.habitual else _without_interruptions(pairs)
        seconds = sum(times_s[i] for i in counted)
        if not counted:
            return
        self._means.append((len(counted), seconds))
        self._channel.send_list("steps", [round(1e3 * times_s[i], 6) for i in counted])
        self._channel.send(
            "window",
            steps=len(counted),
            seconds=seconds,
            loader_samples=_sum(pairs, counted, "loader_samples"),
            root_samples=_sum(pairs, counted, "root_samples"),
            data_wait_s=_sum(pairs, counted, "data_wait_s"),
        )


def _without_interruptions(pairs: list[tuple[Step, Step]]) -> Sequence[int]:
    """Return the steps to count: those with no evaluation in them."""
    return [i for i, (a, b) in enumerate(pairs) if a.tally.interruptions == b.tally.interruptions]


def _sum(pairs: list[tuple[Step, Step]], counted: Sequence[int], field: str) -> float:
    ends = [(getattr(pairs[i][0].tally, field), getattr(pairs[i][1].tally, field)) for i in counted]
    return float(sum(after - before for before, after in ends))


def _mean(windows: list[tuple[int, float]]) -> float:
    steps = sum(count for count, _ in windows)
    return sum(seconds for _, seconds in windows) / steps if steps else 0.0

"""Groups of counted steps, told to the parent as soon as the device has passed them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Protocol

from gpuadvisor.collectors.script.child.channel import Channel
from gpuadvisor.collectors.script.child.counters import Counters, Step
from gpuadvisor.collectors.script.specification import Schedule

MIN_WINDOWS = 4
"""Windows below which their spread says nothing."""
MAX_EXTENSIONS = 2
"""How often the first windows are dropped because the script was not steady yet."""


class Timer(Protocol):
    """Takes a mark at each step; marks are compared when the device has passed them."""

    def mark(self) -> Any: ...

    def ready(self, mark: Any) -> bool:
        """Say whether the device has passed the mark."""
        ...

    def between_s(self, first: Any, second: Any) -> float: ...

    def synchronize(self) -> None: ...

    def give_back(self, marks: Iterable[Any]) -> None:
        """Take back marks that nobody will compare any more, to use them again."""
        ...


class HostTimer:
    """Times of the host's clock, for scripts that use no GPU."""

    mark = staticmethod(time.perf_counter)

    def ready(self, mark: float) -> bool:
        return True

    def between_s(self, first: float, second: float) -> float:
        return second - first

    def synchronize(self) -> None:
        return None

    def give_back(self, marks: Iterable[float]) -> None:
        return None


class CudaTimer:
    """CUDA events on the stream that is current at the mark.

    The time between two steps' events is the time that the GPU took from the end of one to the
    end of the next, however far the host ran ahead; in steady state it is the step time.
    """

    def __init__(self, torch: Any) -> None:
        self._cuda = torch.cuda
        self._free: list[Any] = []
        """Events to record again, which costs less than to create one and to destroy one."""
        self._device = getattr(torch._C, "_cuda_getDevice", None)  # private: it may go
        self._stream_of = getattr(torch._C, "_cuda_getCurrentStream", None)
        self._streams: dict[Any, Any] = {}

    def mark(self) -> Any:
        stream = self._stream()
        if self._free:
            event = self._free.pop()
            try:
                event.record(stream)
            except RuntimeError:  # an event stays on the device of its first record
                self._free.clear()
            else:
                return event
        event = self._cuda.Event(enable_timing=True)
        event.record(stream)
        return event

    def _stream(self) -> Any:
        """Return `torch.cuda.current_stream()`, which makes a new object in ten calls each time."""
        if self._device is None or self._stream_of is None:
            return self._cuda.current_stream()
        identity = self._stream_of(self._device())
        stream = self._streams.get(identity)
        if stream is None:
            stream = self._streams[identity] = self._cuda.current_stream()
        return stream

    def ready(self, mark: Any) -> bool:
        return bool(mark.query())

    def between_s(self, first: Any, second: Any) -> float:
        return float(first.elapsed_time(second)) / 1e3

    def synchronize(self) -> None:
        self._cuda.synchronize()

    def give_back(self, marks: Iterable[Any]) -> None:
        self._free.extend(marks)


def timer_for(torch: Any) -> Timer:
    """Return CUDA events if the script has work on a GPU by now, else the host's clock."""
    if torch.cuda.is_initialized() and torch.cuda.memory_allocated() > 0:
        return CudaTimer(torch)
    return HostTimer()


class Windows:
    """The measurement in progress. Marks are read late, so nothing waits for the device."""

    def __init__(self, timer: Timer, channel: Channel, counters: Counters, window_s: float) -> None:
        self._timer = timer
        self._counters = counters
        counters.mark = timer.mark
        self._channel = channel
        self._window_s = window_s
        self._open = counters.open = []
        self._closed: list[list[Step]] = []
        self._means: list[tuple[int, float]] = []
        self._told = 0, 0.0
        """Steps and seconds of the window that was told of last."""
        self._began_s = 0.0
        self._seen = 0
        self._extensions = 0
        self.steps = 0
        self._host_s = 0.0
        self.habitual = False
        """Whether most steps have an interruption; then it belongs to the step: a frozen teacher,
        a rollout, inference itself."""

    @property
    def open_steps(self) -> int:
        return self._open[-1][-1] - self._open[0][-1] if self._open else 0

    @property
    def seen_steps(self) -> int:
        """All steps since the first window began, also those that do not count any more."""
        return self._seen + self.open_steps

    @property
    def interrupted_steps(self) -> int:
        """Steps of the open window with an interruption in them."""
        return max(0, len(self._open) - 1) - len(_without_interruptions(self._open))

    def start(self, step_s: float = math.inf) -> None:
        """Begin to count steps of about this time; the device is idle now."""
        counters = self._counters
        self._told = 0, 0.0
        counters.distance, counters.unmarked = 1, 0
        counters.mark_some(self._window_s / step_s)
        self._open[:] = [counters.step(self._timer.mark())]
        self._begin(time.perf_counter())

    def _begin(self, now: float) -> None:
        self._began_s, self._counters.window_ends_s = now, now + self._window_s

    def adopt(self, steps: list[Step]) -> None:
        """Take steps that were recorded otherwise as one window."""
        self._closed.append(steps)
        self.steps = steps[-1][-1] - steps[0][-1]

    def unfinished(self) -> list[Step]:
        """Return the steps of the open window, if their marks are of the host's clock."""
        return self._open[1:] if isinstance(self._timer, HostTimer) else []

    def discard(self) -> None:
        self._seen += self.open_steps
        self._open.clear()

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
        now, steps = time.perf_counter(), self.open_steps
        # Where one of several steps that are timed together is interrupted, none of them counts.
        self._counters.mark_some(0 if self.interrupted_steps else steps)
        self._host_s += now - self._began_s
        self._begin(now)
        self.steps += steps
        self._seen += steps
        self._closed.append(self._open[:])
        del self._open[:-1]
        self.flush()

    def end_block(self) -> tuple[int, float]:
        """Return the steps that count of the window that was closed, and their seconds.

        The device has passed it then. Both are 0 where no step counts.
        """
        self.flush(wait=True)
        self._open.clear()
        return self._told

    def idle_while_waiting(self) -> float | None:
        """Return the share of the long waits for batches in which the device had nothing left to
        do, 0 to 1; None where that was not seen. The device has passed them then.

        A mark is passed once all before it is done, so what lies between two marks without any
        work between is the time that the device was idle.
        """
        waits = self._counters.waits
        waited_s = sum(seconds for _, _, seconds in waits)
        if not waited_s:
            return None
        try:
            idle_s = [min(self._timer.between_s(one, two), took) for one, two, took in waits]
        except (RuntimeError, ValueError):  # the script went on to another device
            return None
        return sum(idle_s) / waited_s

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
        half = len(self._means) // 2
        first, second = _mean(self._means[:half]), _mean(self._means[half:])
        if not first or abs(second / first - 1) <= schedule.drift:
            return True
        early = _unlike_later(self._means)
        if not early:
            return True
        self._extensions += 1
        self._host_s *= 1 - early / len(self._means)
        self.steps -= sum(steps for steps, _ in self._means[:early])
        self._means = self._means[early:]
        self._channel.send("dropped", windows=early)
        return False

    def flush(self, wait: bool = False) -> None:
        """Tell the parent of the windows that the device has passed; `wait` for all of them."""
        if wait:
            self._timer.synchronize()
        while self._closed and self._timer.ready(self._closed[0][-1][0]):
            self._tell(self._closed.pop(0))

    def _tell(self, steps: list[Step]) -> None:
        marks, loaded, given, waited, _, numbers = zip(*steps, strict=True)
        times_s = [self._timer.between_s(first, second) for first, second in pairwise(marks)]
        lengths = [second - first for first, second in pairwise(numbers)]
        self._timer.give_back(marks[:-1])
        counted = range(len(times_s)) if self.habitual else _without_interruptions(steps)
        if not counted:
            return
        seconds = sum(times_s[i] for i in counted)
        count = sum(lengths[i] for i in counted)
        self._told = count, seconds
        self._means.append((count, seconds))
        alone = [round(1e3 * times_s[i], 6) for i in counted if lengths[i] == 1]
        self._channel.send_list("steps", alone)
        self._channel.send(
            "window",
            steps=count,
            seconds=seconds,
            loader_samples=_growth(loaded, counted),
            root_samples=_growth(given, counted),
            data_wait_s=_growth(waited, counted),
        )


def _without_interruptions(steps: list[Step]) -> Sequence[int]:
    """Return what to count of the times between marks: those with no evaluation in them."""
    seen = [step[4] for step in steps]
    if seen and seen[0] == seen[-1]:
        return range(len(seen) - 1)
    return [i for i, (before, after) in enumerate(pairwise(seen)) if before == after]


def _growth(totals: Sequence[float], counted: Sequence[int]) -> float:
    return float(sum(totals[i + 1] - totals[i] for i in counted))


def _unlike_later(windows: Sequence[tuple[int, float]]) -> int:
    """Return how many of the first windows, half of them at most, are unlike those after.

    The mean of the others has the least squared standard error for its number of steps then (MSER:
    White 1997, Simulation 69, 323-334). Where windows merely scatter it is 0 in most cases: more of
    them would not agree better. What goes slower or faster from some window on counts as unlike.
    """

    def error(dropped: int) -> float:
        kept = windows[dropped:]
        mean, steps = _mean(kept), sum(count for count, _ in kept)
        return sum(count * (seconds / count - mean) ** 2 for count, seconds in kept) / steps**2

    return min(range(len(windows) // 2 + 1), key=error)


def _mean(windows: Sequence[tuple[int, float]]) -> float:
    steps = sum(count for count, _ in windows)
    return sum(seconds for _, seconds in windows) / steps if steps else 0.0

"""One call for one GPU: the way that works here, when it is due, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from gpuadvisor.collectors.nvml import codes
from gpuadvisor.collectors.nvml.answers import NOT_VALUES, PENDING, Answer
from gpuadvisor.collectors.nvml.calls import Call
from gpuadvisor.collectors.nvml.device import Device
from gpuadvisor.collectors.nvml.library import reason
from gpuadvisor.domain.metrics import Pace
from gpuadvisor.domain.telemetry import Number, State, Trouble

RECHECK_S = 3600.0
"""What is not supported is asked again hourly: drivers are upgraded."""
PERMISSION_RECHECK_S = 60.0
"""And what is not permitted each minute: that is changed by hand, and somebody waits for it."""

_SENTINEL = "the driver answers with a number that stands for no value"
_HIGHEST = {"performance_state": 15, "fan_pct": 200}
"""Above it a number is no value; `_pct` else ends at 100. 32 is NVML_PSTATE_UNKNOWN."""
_LOWEST = {"temperature_c": -100, "memory_temperature_c": -100}
"""Nothing else is below zero."""


class Question:
    """Asks, falls back to older ways, and keeps the troubles of its metrics."""

    def __init__(self, call: Call, troubles: dict[str, Trouble], phase: float = 0.0) -> None:
        """`troubles` are those of the GPU, by metric, and are kept up to date.

        `phase`, 0 to 1, spreads calls of the same slow pace over its period.
        """
        self.call = call
        self.due_s = 0.0
        """Unix time; in the past where it is asked with every frame."""
        self.good_s = 0.0
        """Unix time of the last good answer; 0 before the first."""
        self._troubles = troubles
        divisors = call.divisors or (1,) * len(call.metrics)
        self._plan = [
            (metric, *_range(metric), divisor)
            for metric, divisor in zip(call.metrics, divisors, strict=True)
        ]
        self._fast_plan = self._plan[: call.fast_metrics]
        self._period_s = call.pace.period_s if call.pace in (Pace.SLOW, Pace.RARE) else 0.0
        self._next_s = 0.0
        self._phase = phase
        self.restart()

    def restart(self) -> None:
        """Begin again with the newest way: the library or the GPU is not the one it was."""
        self._index = 0
        self._way = _instance(self.call, 0)
        self.due_s = 0.0

    def ask(
        self, nvml: Any, device: Device, now_s: float, values: dict[str, Number], fast: bool = False
    ) -> None:
        """Put what the driver says into `values` and the troubles.

        With `fast` only the fast metrics. Raises GpuGoneError and LibraryGoneError.
        """
        while True:
            try:
                answers = self._way(nvml, device)
                break
            except (nvml.NVMLError, AttributeError) as error:
                if not self._fall_back(nvml, device, error):
                    self._fail(error, now_s)
                    return
        unsupported = True
        for (metric, lowest, highest, divisor), answer in zip(
            self._fast_plan if fast else self._plan, answers, strict=False
        ):
            if not isinstance(answer, (int, float)):
                unsupported = self._take_other(metric, answer, now_s) and unsupported
            elif answer in NOT_VALUES or not lowest <= answer <= highest:
                self._trouble(metric, State.NOT_SUPPORTED, now_s, _SENTINEL)
            else:
                values[metric] = answer if divisor == 1 else answer / divisor
                if metric in self._troubles:
                    del self._troubles[metric]
                unsupported = False
        if unsupported:
            self._wait(now_s, self._period_s if self.good_s else RECHECK_S)
        else:
            self.good_s = now_s
            if self._period_s:
                self._schedule(now_s)

    def _take_other(self, metric: str, answer: Answer, now_s: float) -> bool:
        """Take in an answer that is no number; return whether it means not supported."""
        if answer is PENDING:
            return False
        if answer is None:
            self._trouble(metric, State.NOT_SUPPORTED, now_s)
            return True
        assert isinstance(answer, Exception)
        _raise_if_gone(answer)
        state = _state(answer)
        self._trouble(metric, state, now_s, _words(answer))
        return state is State.NOT_SUPPORTED

    def _fall_back(self, nvml: Any, device: Device, error: Exception) -> bool:
        """Take an older way where there is one that may work."""
        _raise_if_gone(error)
        code = codes.code_of(error)
        if code == codes.INVALID_ARGUMENT and self.good_s and has_vanished(nvml, device.uuid):
            raise codes.GpuGoneError from error
        if code not in codes.OLDER_WAY or self._index + 1 >= len(self.call.ways):
            return False
        self._index += 1
        self._way = _instance(self.call, self._index)
        return True

    def _fail(self, error: Exception, now_s: float) -> None:
        state = _state(error)
        for metric in self.call.metrics:
            self._trouble(metric, state, now_s, _words(error))
        if state is State.NOT_SUPPORTED:
            self.restart()
            self._wait(now_s, RECHECK_S)
        elif state is State.NO_PERMISSION:
            self._wait(now_s, PERMISSION_RECHECK_S)
        else:
            self._wait(now_s, self._period_s)

    def _trouble(self, metric: str, state: State, now_s: float, why: str = "") -> None:
        """Note a trouble; one that lasts keeps its beginning."""
        known = self._troubles.get(metric)
        if known is None:
            self._troubles[metric] = Trouble(state, self.good_s or now_s, why)
        elif known.state is not state or known.reason != why:
            self._troubles[metric] = Trouble(state, known.since_s, why)

    def _wait(self, now_s: float, seconds: float) -> None:
        self.due_s = now_s + seconds if seconds else 0.0
        self._next_s = 0.0

    def _schedule(self, now_s: float) -> None:
        """Set when it is due next: the first time after a part of the period, its phase."""
        if not self._next_s:
            self._next_s = now_s + self._phase * self._period_s
        while self._next_s <= now_s:
            self._next_s += self._period_s
        self.due_s = self._next_s


def has_vanished(nvml: Any, uuid: str) -> bool:
    """Whether the driver does not know this GPU any more."""
    try:
        nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError as error:
        _raise_if_gone(error)
        return error.value in (codes.NOT_FOUND, codes.INVALID_ARGUMENT)
    return False


def _raise_if_gone(error: Exception) -> None:
    code = codes.code_of(error)
    if code in codes.GPU_GONE:
        raise codes.GpuGoneError from error
    if code in codes.LIBRARY_GONE:
        raise codes.LibraryGoneError from error


def _state(error: Exception) -> State:
    code = codes.code_of(error)
    if code in codes.OLDER_WAY:
        return State.NOT_SUPPORTED
    return State.NO_PERMISSION if code == codes.NO_PERMISSION else State.STALE


def _words(error: Exception) -> str:
    """Return what the error says beyond the state."""
    return "" if codes.code_of(error) in codes.OLDER_WAY else reason(error)


def _instance(call: Call, index: int) -> Callable[[Any, Device], Any]:
    way: Any = call.ways[index]
    return way() if isinstance(way, type) else way  # type: ignore[no-any-return]


def _range(metric: str) -> tuple[float, float]:
    highest = _HIGHEST.get(metric, 100 if metric.endswith("_pct") else inf)
    return _LOWEST.get(metric, 0), highest

"""One GPU, or MIG instance, under watch: what is asked of it, when, and what it cannot say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import inf
from typing import Any

from gpuadvisor.collectors.nvml import codes
from gpuadvisor.collectors.nvml.calls import Call, DeviceHandle
from gpuadvisor.collectors.nvml.codes import NOT_VALUES, PENDING, Answer
from gpuadvisor.collectors.nvml.library import reason
from gpuadvisor.domain.metrics import GPU_METRICS, SamplingInterval
from gpuadvisor.domain.telemetry import Gpu, Number, Sample, State, Unavailable

RECHECK_S = 3600.0
"""What is not supported is asked again hourly: drivers are upgraded."""
PERMISSION_RECHECK_S = 60.0
"""What is not permitted is asked again each minute: that is changed by hand, and somebody waits."""

_SENTINEL = "the driver answers with a number that stands for no value"
_HIGHEST = {
    "performance_state": 15,
    "fan_pct": 200,
    "temperature_c": 200,
    "memory_temperature_c": 200,
    "power_w": 20_000_000,
    "power_instant_w": 20_000_000,
}
"""Above these, in NVML's units, a number is no value; other `_pct` end at 100. 32 is
NVML_PSTATE_UNKNOWN, 255 and 511 C are what broken sensors tell, and no board draws 20 kW. [own]"""
_LOWEST = {"temperature_c": -100, "memory_temperature_c": -100, "power_w": 1, "power_instant_w": 1}
"""Below these a number is no value; no other metric is below zero. A GPU that answers draws power:
0 is what a sensor tells that does not."""
_GOLDEN_RATIO = 0.618
"""The multiples of this number, modulo 1, are spread evenly however many there are."""
Plan = tuple[tuple[str, float, float, int], ...]
_NOT_FOR_INSTANCES = "the driver offers it for whole GPUs only"


class MetricQuery:
    """One call for one GPU: the way that works here, when it is due, and what is wrong with it."""

    __slots__ = (
        "_fast_plan", "_index", "_next_s", "_period_s", "_phase", "_plan", "_unavailable", "_way",
        "call", "due_s", "good_s",
    )  # fmt: skip

    def __init__(self, call: Call, unavailable: dict[str, Unavailable], phase: float = 0.0) -> None:
        """`unavailable` holds the GPU's metrics that have no value, and is kept up to date.

        `phase`, 0 to 1, spreads calls of the same long interval over it.
        """
        self.call = call
        self.due_s = 0.0
        """Unix time; in the past where it is asked with every frame."""
        self.good_s = 0.0
        """Unix time of the last good answer; 0 before the first."""
        self._unavailable = unavailable
        self._plan, self._fast_plan = _plans(call)
        is_slow = call.interval in (SamplingInterval.SLOW, SamplingInterval.RARE)
        self._period_s = call.interval.period_s if is_slow else 0.0
        self._next_s = 0.0
        self._phase = phase
        self.restart()

    def restart(self) -> None:
        """Begin again with the newest way: the library or the GPU is not the one it was."""
        self._index = 0
        self._way = _instance(self.call, 0)
        self.due_s = 0.0

    def ask(
        self,
        nvml: Any,
        device: DeviceHandle,
        now_s: float,
        values: dict[str, Number],
        fast: bool = False,
    ) -> None:
        """Put what the driver says into `values`, and what it cannot say into `unavailable`.

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
                self._note(metric, State.NOT_SUPPORTED, now_s, _SENTINEL)
            else:
                values[metric] = answer if divisor == 1 else answer / divisor
                if metric in self._unavailable:
                    del self._unavailable[metric]
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
            self._note(metric, State.NOT_SUPPORTED, now_s)
            return True
        assert isinstance(answer, Exception)
        _raise_if_gone(answer)
        state = _state(answer)
        self._note(metric, state, now_s, _words(answer))
        return state is State.NOT_SUPPORTED

    def _fall_back(self, nvml: Any, device: DeviceHandle, error: Exception) -> bool:
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
            self._note(metric, state, now_s, _words(error))
        if state is State.NOT_SUPPORTED:
            self.restart()
            self._wait(now_s, RECHECK_S)
        elif state is State.NO_PERMISSION:
            self._wait(now_s, PERMISSION_RECHECK_S)
        else:
            self._wait(now_s, self._period_s)

    def _note(self, metric: str, state: State, now_s: float, why: str = "") -> None:
        """Note why a metric has no value; what lasts keeps its beginning and its first reason.

        A driver that answers now with this and now with that error makes no news each time.
        """
        known = self._unavailable.get(metric)
        if known is None:
            self._unavailable[metric] = Unavailable(state, self.good_s or now_s, why)
        elif known.state is not state:
            self._unavailable[metric] = Unavailable(state, known.since_s, why)

    def _wait(self, now_s: float, seconds: float) -> None:
        self.due_s = now_s + seconds if seconds else 0.0
        self._next_s = 0.0

    def _schedule(self, now_s: float) -> None:
        """Set when it is due next: the first time after a part of the period, its phase.

        That is within a period from now, however far the clock was set.
        """
        if not self._next_s:
            self._next_s = now_s + self._phase * self._period_s
        # Modulo has the sign of the divisor: from 0 to less than a period, before and after.
        self._next_s = now_s + ((self._next_s - now_s) % self._period_s or self._period_s)
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


def _instance(call: Call, index: int) -> Callable[[Any, DeviceHandle], Any]:
    way: Any = call.ways[index]
    return way() if isinstance(way, type) else way  # type: ignore[no-any-return]


@cache
def _plans(call: Call) -> tuple[Plan, Plan]:
    """Return name, lowest and highest value and divisor of all metrics, and of the fast ones."""
    named = zip(call.metrics, call.divisors, strict=True)
    plan = tuple((metric, *_range(metric), divisor) for metric, divisor in named)
    return plan, plan[: call.fast_metrics]


def _range(metric: str) -> tuple[float, float]:
    highest = _HIGHEST.get(metric, 100 if metric.endswith("_pct") else inf)
    return _LOWEST.get(metric, 0), highest


class WatchedGpu:
    """Reads a GPU; created once for a UUID, and given a new `device` when the handle changes."""

    def __init__(self, gpu: Gpu, device: DeviceHandle, calls: Sequence[Call], now_s: float) -> None:
        self.gpu = gpu
        self.device = device
        self.is_lost = False
        self._calls = [call for call in calls if call.for_instances or not gpu.is_instance]
        self._unavailable: dict[str, Unavailable] = {}
        self._first_s = now_s
        first = gpu.index * len(calls)
        self._queries = [
            MetricQuery(call, self._unavailable, (first + i) * _GOLDEN_RATIO % 1)
            for i, call in enumerate(self._calls)
        ]
        self._fast = [query for query in self._queries if query.call.fast_metrics]
        self._add_what_instances_lack()

    def renew(self, gpu: Gpu, device: DeviceHandle) -> None:
        """Begin again after the GPU was lost, or the library initialised anew."""
        self.gpu, self.device = gpu, device
        self.is_lost = False
        self._unavailable.clear()
        for query in self._queries:
            query.restart()
        self._add_what_instances_lack()

    def hurry(self, metrics: Sequence[str] = ()) -> None:
        """Ask with the next full frame for these metrics, or for all."""
        for query in self._queries:
            if not metrics or any(metric in metrics for metric in query.call.metrics):
                query.due_s = 0.0

    def read_fast(self, nvml: Any, now_s: float) -> Sample | None:
        """Return the fast metrics; None where the GPU is lost. Raises LibraryGoneError."""
        if self.is_lost:
            return None
        values: dict[str, Number] = {}
        try:
            for query in self._fast:
                if query.due_s <= now_s:
                    query.ask(nvml, self.device, now_s, values, True)
        except codes.GpuGoneError as error:
            self.lose(now_s, error)
            return None
        return Sample(values)

    def read(self, nvml: Any, now_s: float) -> Sample:
        """Return what is due, and all that is unavailable. Raises LibraryGoneError."""
        values: dict[str, Number] = {}
        if not self.is_lost:
            try:
                for query in self._queries:
                    if query.due_s <= now_s:
                        query.ask(nvml, self.device, now_s, values)
            except codes.GpuGoneError as error:
                self.lose(now_s, error)
                values = {}
        return Sample(values, dict(self._unavailable))

    def lose(self, now_s: float, error: Exception | None = None) -> None:
        """Note that the GPU does not answer any more; nothing of it is asked until `renew`."""
        self.is_lost = True
        self.device.pcie.forget(self.device.uuid)
        why = reason(error.__cause__) if error and isinstance(error.__cause__, Exception) else ""
        self._note_all(State.LOST, now_s, why)

    def silence(self, now_s: float, why: str) -> Sample:
        """Return a sample that says that nothing can be read now; the first reason stays."""
        self._note_all(State.STALE, now_s, why)
        return Sample({}, dict(self._unavailable))

    def _note_all(self, state: State, now_s: float, why: str) -> None:
        lasting = (State.NOT_SUPPORTED, State.NO_PERMISSION, State.STALE)
        for query in self._queries:
            for metric in query.call.metrics:
                known = self._unavailable.get(metric)
                if known and known.state in lasting and state is State.STALE:
                    continue
                since_s = known.since_s if known else query.good_s or now_s
                self._unavailable[metric] = Unavailable(state, since_s, why)
        if state is State.LOST:
            for metric, known in self._unavailable.items():
                self._unavailable[metric] = Unavailable(state, known.since_s, why)

    def _add_what_instances_lack(self) -> None:
        """Note once that the metrics which no query of this GPU fills are not supported."""
        asked = {metric for call in self._calls for metric in call.metrics}
        for metric in GPU_METRICS:
            if metric.name not in asked:
                self._unavailable[metric.name] = Unavailable(
                    State.NOT_SUPPORTED, self._first_s, _NOT_FOR_INSTANCES
                )

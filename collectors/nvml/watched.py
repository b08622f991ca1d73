"""One GPU, or MIG instance, under watch: its questions, its troubles, and whether it is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.collectors.nvml import codes
from gpuadvisor.collectors.nvml.calls import Call
from gpuadvisor.collectors.nvml.device import Device
from gpuadvisor.collectors.nvml.library import reason
from gpuadvisor.collectors.nvml.question import Question
from gpuadvisor.domain.metrics import GPU_METRICS
from gpuadvisor.domain.telemetry import Gpu, Number, Sample, State, Trouble

_GOLDEN_RATIO = 0.618
"""Its multiples, modulo 1, are spread evenly however many there are."""
_NOT_FOR_INSTANCES = "the driver offers it for whole GPUs only"


class WatchedGpu:
    """Reads a GPU; created once for a UUID, and given a new `device` when the handle changes."""

    def __init__(self, gpu: Gpu, device: Device, calls: Sequence[Call], now_s: float) -> None:
        self.gpu = gpu
        self.device = device
        self.is_lost = False
        self._calls = [call for call in calls if call.for_instances or not gpu.is_instance]
        self._troubles: dict[str, Trouble] = {}
        self._good_s = 0.0
        self._first_s = now_s
        first = gpu.index * len(calls)
        self._questions = [
            Question(call, self._troubles, (first + i) * _GOLDEN_RATIO % 1)
            for i, call in enumerate(self._calls)
        ]
        self._fast = [question for question in self._questions if question.call.fast_metrics]
        self._add_what_instances_lack()

    def renew(self, gpu: Gpu, device: Device) -> None:
        """Begin again after the GPU was lost, or the library initialised anew."""
        self.gpu, self.device = gpu, device
        self._restart()

    def hurry(self, metrics: Sequence[str] = ()) -> None:
        """Ask with the next whole frame for these metrics, or for all."""
        for question in self._questions:
            if not metrics or any(metric in metrics for metric in question.call.metrics):
                question.due_s = 0.0

    def read_fast(self, nvml: Any, now_s: float) -> Sample | None:
        """Return the fast metrics; None where the GPU is lost. Raises LibraryGoneError."""
        if self.is_lost:
            return None
        values: dict[str, Number] = {}
        device = self.device
        try:
            for question in self._fast:
                if question.due_s <= now_s:
                    question.ask(nvml, device, now_s, values, True)
        except codes.GpuGoneError as error:
            self.lose(now_s, error)
            return None
        return Sample(values)

    def read(self, nvml: Any, now_s: float) -> Sample:
        """Return what is due, and all troubles. Raises LibraryGoneError."""
        values: dict[str, Number] = {}
        if not self.is_lost:
            try:
                for question in self._questions:
                    if question.due_s <= now_s:
                        question.ask(nvml, self.device, now_s, values)
                self._good_s = now_s
            except codes.GpuGoneError as error:
                self.lose(now_s, error)
                values = {}
        return Sample(values, dict(self._troubles))

    def lose(self, now_s: float, error: Exception | None = None) -> None:
        """Note that the GPU does not answer any more; nothing of it is asked until `renew`."""
        self.is_lost = True
        self.device.pcie.forget(self.device.uuid)
        why = reason(error.__cause__) if error and isinstance(error.__cause__, Exception) else ""
        self._trouble_all(State.LOST, now_s, why)

    def silence(self, now_s: float, why: str) -> Sample:
        """Return a sample that says that nothing can be read now, whatever the GPU."""
        self._trouble_all(State.STALE, now_s, why)
        return Sample({}, dict(self._troubles))

    def _trouble_all(self, state: State, now_s: float, why: str) -> None:
        lasting = (State.NOT_SUPPORTED, State.NO_PERMISSION)
        for question in self._questions:
            for metric in question.call.metrics:
                known = self._troubles.get(metric)
                if known and known.state in lasting and state is State.STALE:
                    continue
                since_s = known.since_s if known else question.good_s or now_s
                self._troubles[metric] = Trouble(state, since_s, why)
        if state is State.LOST:
            for metric, known in self._troubles.items():
                self._troubles[metric] = Trouble(state, known.since_s, why)

    def _restart(self) -> None:
        self.is_lost = False
        self._troubles.clear()
        for question in self._questions:
            question.restart()
        self._add_what_instances_lack()

    def _add_what_instances_lack(self) -> None:
        """State it once for the metrics that no question of this GPU fills."""
        asked = {metric for call in self._calls for metric in call.metrics}
        for metric in GPU_METRICS:
            if metric.name not in asked:
                trouble = Trouble(State.NOT_SUPPORTED, self._first_s, _NOT_FOR_INSTANCES)
                self._troubles[metric.name] = trouble

"""Which events belong to which table."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from gpuadvisor.collectors.kineto import device_tables, host_tables
from gpuadvisor.collectors.kineto.batch import Output
from gpuadvisor.collectors.kineto.decoding import AnyEvent, event_of, events_of
from gpuadvisor.collectors.kineto.processes import Processes

Taker: TypeAlias = Callable[[Output, Sequence[AnyEvent]], None]

_PYTHON = "python_function"

TAKERS: dict[str, Taker] = {
    "kernel": device_tables.kernels,
    "gpu_memcpy": device_tables.copies,
    "gpu_memset": device_tables.memsets,
    "cuda_sync": device_tables.synchronizations,
    "cpu_op": host_tables.operators,
    "user_annotation": host_tables.user_annotations,
    "gpu_user_annotation": host_tables.device_annotations,
    _PYTHON: host_tables.python_functions,
    "overhead": host_tables.overheads,
    **dict.fromkeys(
        (
            "cuda_runtime",
            "cuda_driver",
            "hip_runtime",
            "hip_driver",
            "xpu_runtime",
            "xpu_driver",
            "mtia_runtime",
            "glow_runtime",
            "privateuse1_runtime",
            "privateuse1_driver",
            "Runtime",
        ),
        host_tables.calls,
    ),
    # Of older versions:
    "Kernel": device_tables.kernels,
    "Memcpy": device_tables.copies,
    "Memset": device_tables.memsets,
    "Operator": host_tables.operators,
}
"""By the category of complete events (`libkineto/include/ActivityType.h`)."""

IGNORED = ("ac2g", "fwdbwd", "async", "async_cpu_to_gpu", "async_gpu", "Trace")
"""Arrows, which correlations say as well, and the recording's own span. A third of all events."""

_MEMORY_EVENT = "[memory]"
_COMPLETE, _COUNTER, _METADATA, _INSTANT = "X", "C", "M", ("i", "I")


class _Groups(dict[str, Callable[[AnyEvent], None]]):
    """Appends events to the list of their category; what has none of its own goes to `others`."""

    def __init__(self) -> None:
        self.lists: dict[str, list[AnyEvent]] = {category: [] for category in TAKERS}
        self.others: list[AnyEvent] = []
        super().__init__((category, events.append) for category, events in self.lists.items())
        self.update(dict.fromkeys(IGNORED, deque[AnyEvent](maxlen=0).append))

    def __missing__(self, category: str) -> Callable[[AnyEvent], None]:
        return self.others.append


class Tables:
    """Takes the events of a trace (`document.Events`)."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.processes = Processes()
        self.events = 0
        self.unreadable = 0
        """Elements that are no events."""
        self.has_python = False
        """Whether the Python functions that ran are among the ranges."""

    def take_array(self, array: bytes) -> bool:
        events = events_of(array)
        if events is None:
            return False
        self._take(events)
        return True

    def take_each(self, elements: list[bytes]) -> None:
        events = [event for element in elements if (event := event_of(element)) is not None]
        self.unreadable += len(elements) - len(events)
        self._take(events)

    def _take(self, events: Sequence[AnyEvent]) -> None:
        self.events += len(events)
        self._output.clock.start(events)
        groups = _Groups()
        for event in events:
            groups[event.cat](event)
        for category, group in groups.lists.items():
            complete = [event for event in group if event.ph == _COMPLETE]
            if complete:
                self.has_python |= category == _PYTHON
                TAKERS[category](self._output, complete)
        self._take_others(groups.others)

    def _take_others(self, events: Sequence[AnyEvent]) -> None:
        memory, counters = [], []
        for event in events:
            if event.ph == _COUNTER:
                counters.append(event)
            elif event.ph == _METADATA:
                self.processes.take(event)
            elif event.name == _MEMORY_EVENT and event.ph in _INSTANT:
                memory.append(event)
        if memory:
            host_tables.memory(self._output, memory)
        if counters:
            device_tables.counters(self._output, counters)

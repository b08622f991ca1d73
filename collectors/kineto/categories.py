"""The table of each category of events, and the names of processes, which are events too."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from gpuadvisor.collectors.kineto import tables
from gpuadvisor.collectors.kineto.batch import Output
from gpuadvisor.collectors.kineto.events import AnyEvent, Arguments, event_of, events_of
from gpuadvisor.collectors.kineto.names import copy_of, memset_of
from gpuadvisor.domain.profile import UNKNOWN, Range

MAX_PROCESSES = 10_000
MAX_OTHER_CATEGORIES = 1_000
MAX_NAME = 200
"""Characters kept of a process's name."""

_DEVICE_LABEL = "GPU"
Taker: TypeAlias = Callable[[Output, Sequence[AnyEvent]], None]
_PYTHON = "python_function"
_COPIES = partial(tables.copies, kind_of=copy_of)
_MEMSETS = partial(tables.copies, kind_of=memset_of)
_CALLS = (
    "cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "xpu_runtime", "xpu_driver",
    "mtia_runtime", "glow_runtime", "privateuse1_runtime", "privateuse1_driver", "Runtime",
)  # fmt: skip
TAKERS: dict[str, Taker] = {
    "kernel": tables.kernels,
    "gpu_memcpy": _COPIES,
    "gpu_memset": _MEMSETS,
    "cuda_sync": tables.synchronizations,
    "cpu_op": tables.operators,
    "user_annotation": tables.ranges,
    "gpu_user_annotation": partial(tables.ranges, kind=Range.DEVICE),
    _PYTHON: partial(tables.ranges, kind=Range.PYTHON),
    "overhead": partial(tables.ranges, kind=Range.OVERHEAD),
    "system_call": partial(tables.ranges, kind=Range.SYSTEM),  # in exported profiles alone
    **dict.fromkeys(_CALLS, tables.calls),
    # Names of older versions:
    "Kernel": tables.kernels,
    "Memcpy": _COPIES,
    "Memset": _MEMSETS,
    "Operator": tables.operators,
}
"""What takes the complete events of a category (`libkineto/include/ActivityType.h`)."""
IGNORED = ("ac2g", "fwdbwd", "async", "async_cpu_to_gpu", "async_gpu", "Trace")
"""Arrows, which correlations say as well, and the recording's own span. A third of all events."""
_MEMORY_EVENT = "[memory]"


class _Metadata(msgspec.Struct, gc=False):
    name: str = ""
    labels: str = ""


_METADATA_ARGUMENTS = Arguments(_Metadata)


class ProcessNames:
    """Collects the names of processes. Devices, which are written as processes, are left out."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._devices: set[int] = set()

    def take(self, event: AnyEvent) -> None:
        """Take one event of metadata."""
        if event.name not in ("process_name", "process_labels"):
            return
        number = event.pid
        if not isinstance(number, int) or number == UNKNOWN or len(self._names) >= MAX_PROCESSES:
            return
        _, records = _METADATA_ARGUMENTS.of([event])
        for record in records:
            if record.name:
                self._names[number] = record.name[:MAX_NAME]
            if record.labels.startswith(_DEVICE_LABEL) and len(self._devices) < MAX_PROCESSES:
                self._devices.add(number)

    def names(self) -> dict[int, str]:
        """Return names by number."""
        return {number: name for number, name in self._names.items() if number not in self._devices}


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
        self.processes = ProcessNames()
        self.events = 0
        self.unreadable = 0
        """Elements that are no events."""
        self.has_phases = False
        """Whether an event tells what it is (`ph`), as all of a Chrome trace do."""
        self.has_python = False
        """Whether the Python functions that ran are among the ranges."""
        self.other_categories: set[str] = set()
        """Categories of events that are in no table."""

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
        self.has_phases = self.has_phases or any(event.ph for event in events)
        self._output.clock.start(events)
        groups = _Groups()
        for event in events:
            groups[event.cat](event)
        for category, group in groups.lists.items():
            complete = [event for event in group if event.ph == _COMPLETE]
            if complete:
                self.has_python |= category == _PYTHON
                TAKERS[category](self._output, complete)
        if len(self.other_categories) < MAX_OTHER_CATEGORIES:
            self.other_categories.update(event.cat for event in groups.others)
        memory, counters = [], []
        for event in groups.others:
            if event.ph == _COUNTER:
                counters.append(event)
            elif event.ph == _METADATA:
                self.processes.take(event)
            elif event.name == _MEMORY_EVENT and event.ph in _INSTANT:
                memory.append(event)
        if memory:
            tables.memory(self._output, memory)
        if counters:
            tables.counters(self._output, counters)

"""Names of processes, which traces tell in events of their own."""

from __future__ import annotations

import msgspec

from gpuadvisor.collectors.kineto.decoding import AnyEvent, Arguments
from gpuadvisor.domain.profile import UNKNOWN

MAX_PROCESSES = 10_000
MAX_NAME = 200
"""Characters."""

_DEVICE_LABEL = "GPU"


class _Metadata(msgspec.Struct, gc=False):
    name: str = ""
    labels: str = ""


_METADATA = Arguments(_Metadata)


class Processes:
    """Collects them. Devices are written as processes too (`GPU 0`), and left out."""

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
        _, records = _METADATA.of([event])
        for record in records:
            if record.name:
                self._names[number] = record.name[:MAX_NAME]
            if record.labels.startswith(_DEVICE_LABEL) and len(self._devices) < MAX_PROCESSES:
                self._devices.add(number)

    def names(self) -> dict[int, str]:
        """Return names by number."""
        return {number: name for number, name in self._names.items() if number not in self._devices}

"""What is shown: the newest values, their last minutes and the newest events, from frames."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from gpuadvisor.domain.latest import Latest, Reading
from gpuadvisor.domain.telemetry import HOST, Event, Frame, Gpu, State
from gpuadvisor.rules.conditions import Conditions
from gpuadvisor.tui.watch import cells
from gpuadvisor.tui.watch.events import EventLog
from gpuadvisor.tui.watch.history import PICTURED, History, Pictured

SILENT_AFTER_S = 3.0
"""A source that says nothing for so long is said to; each gives a frame a second."""


class Board:
    """Written and read by one thread."""

    def __init__(
        self,
        label: str,
        *,
        host: str = "",
        rate: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`label` says where frames come from and `host` of which machine, empty where unknown.

        `rate` is how fast their time goes by, 2 for a recording at twice its pace.
        """
        self.label = label
        self.host = host
        self.history = History()
        self.log = EventLog()
        self.pictured: Pictured = PICTURED[0]
        """What is drawn over time."""
        self.has_ended = False
        """Whether no frame will come any more."""
        self.frames = 0
        self.labels: dict[str, str] = {}
        """The numbers that stand for the GPUs, by UUID."""
        self.has_begun = False
        """Whether GPUs were listed once; they may be gone again."""
        self._conditions = Conditions()
        self._rate = rate if math.isfinite(rate) else 0.0
        self._clock = clock
        self._heard = clock()

    @property
    def latest(self) -> Latest:
        return self._conditions.latest

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return self.latest.gpus

    def update(self, frame: Frame) -> list[Event]:
        """Take in a frame; return the events that began or ended with it."""
        self.frames += 1
        self._heard = self._clock()
        events = self._conditions.observe(frame)
        if frame.gpus is not None:
            self.labels = cells.labels(frame.gpus)
        self.has_begun = self.has_begun or bool(self.gpus)
        self.history.update(frame)
        self.log.add(events)
        return events

    def end(self) -> None:
        """Note that no frame will come any more: what was last known stays as it is."""
        self.has_ended = True

    @property
    def silent_s(self) -> float:
        """For how long no frame has come, in seconds of this machine."""
        return 0.0 if self.has_ended else self._clock() - self._heard

    @property
    def now_s(self) -> float:
        """The Unix time that is shown: it goes on while no frame comes, so that values get old."""
        return self.latest.time_s + self.silent_s * self._rate

    def reading(self, device: str, metric: str) -> Reading | None:
        """Return a metric as it is now; None where it was never read."""
        return self.latest.reading(device, metric, self.now_s)

    def is_known(self, metric: str) -> bool:
        """Return whether any GPU has that metric."""
        return any(
            (reading := self.reading(gpu.uuid, metric)) is not None
            and reading.state is not State.NOT_SUPPORTED
            for gpu in self.gpus
        )

    def picture_next(self) -> None:
        """Draw the next metric that any GPU has."""
        place = PICTURED.index(self.pictured)
        later = [*PICTURED[place + 1 :], *PICTURED[: place + 1]]
        self.pictured = next((p for p in later if self.is_known(p.metric)), self.pictured)

    @property
    def notice(self) -> str:
        """What is to be said of the source, in one sentence; empty where all is well."""
        if self.has_ended:
            return "This is the end of the recording." if self.frames else "There is no frame."
        if self.frames and self.silent_s >= SILENT_AFTER_S:
            return f"No values have come for {cells.age(self.silent_s)}."
        if not self.frames:
            return "The first values are awaited."
        return self.latest.problem or ""

    def heading(self, width: int) -> str:
        """Return the first line, as much of it as fits."""
        parents = {gpu.parent_uuid or gpu.uuid for gpu in self.gpus}
        count = "1 GPU" if len(parents) == 1 else f"{len(parents)} GPUs"
        parts = [
            "gpuadvisor watch",
            self.host,
            self.label,
            cells.time_of_day(self.now_s) if self.frames else "",
            count if self.has_begun else "",
            *self._machine(),
        ]
        line = ""
        for part in filter(None, parts):
            longer = f"{line}  {part}" if line else part
            if len(longer) > width:
                break
            line = longer
        return line or cells.fit(["gpuadvisor"], width)

    def _machine(self) -> list[str]:
        """Return what is known of the machine itself."""
        cpu = self.latest.value(HOST, "cpu_pct")
        used = self.latest.value(HOST, "host_memory_used_bytes")
        total = self.latest.value(HOST, "host_memory_total_bytes")
        said = [] if cpu is None else [f"CPU {cpu:.0f}%"]
        if used is not None and total is not None:
            said.append(f"RAM {used / 2**30:.0f}/{total / 2**30:.0f} GiB")
        return said

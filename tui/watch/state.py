"""What is shown: the newest values, their last minutes and the newest events, from frames."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

from gpuadvisor.domain.accumulators import Latest, Reading
from gpuadvisor.domain.telemetry import Event, Frame, Gpu, State
from gpuadvisor.tui.watch import cells
from gpuadvisor.tui.watch.curves import Curves
from gpuadvisor.tui.watch.event_log import EventLog
from gpuadvisor.tui.watch.history import SPARKLINES, History, Sparkline
from gpuadvisor.tui.watch.why import Why, why

if TYPE_CHECKING:
    from gpuadvisor.daemon.past import Memory
    from gpuadvisor.rules.conditions import Conditions

T = TypeVar("T")
DRIVER = "driver"
"""The kind of the event that nothing can be read of any GPU."""
SILENT_AFTER_S = 3.0
"""A source that says nothing for so long is said to; each gives a frame a second."""


class WatchState:
    """All that a page or a program is shown of a source; written and read by one thread."""

    def __init__(
        self,
        label: str,
        *,
        host: str = "",
        rate: float = 1.0,
        has_all_events: bool = False,
        is_past: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take a `label` for where frames come from, and the machine, empty where it is not known.

        `rate` is how fast their time goes by, 2 for a recording at twice its pace; `is_past` says
        that they are a recording's. Where frames
        have all events, as a daemon has looked at them, their conditions are not looked at again.
        """
        self.label = label
        self.host = host
        self.history = History()
        self.curves = Curves()
        self.memory = None if has_all_events or is_past else _memory()
        """The last quarter of an hour of all metrics; None where a store or a recording has it."""
        self.log = EventLog()
        self.sparkline: Sparkline = SPARKLINES[0]
        """What is drawn over time."""
        self.has_ended = False
        """Whether no frame will come any more."""
        self.frames = 0
        self.labels: dict[str, str] = {}
        """The numbers that stand for the GPUs, by UUID."""
        self.withheld: str | None = None
        """What this user may not see of the processes and why, in one sentence."""
        self.has_begun = False
        """Whether GPUs were listed once; they may be gone again."""
        self.latest = Latest()
        self.is_in_haste = False
        """Whether the first values are to be shown before conditions are looked at, whose modules
        take a tenth of the start to load; they see that frame with the next one."""
        self._has_all_events = has_all_events
        self._conditions: Conditions | None = None
        self._unseen: list[Frame] = []
        """Frames that conditions have yet to see."""
        self._whys: dict[str, Why] = {}
        self._whys_of: object = None
        self._kept: dict[str, tuple[object, object]] = {}
        self.is_past = is_past
        self.is_here = not is_past
        """Whether processes are this machine's, and can be looked at."""
        self._rate = rate if math.isfinite(rate) else 0.0
        self._clock = clock
        self._heard = clock()

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return self.latest.gpus

    def update(self, frame: Frame) -> list[Event]:
        """Take in a frame; return the events that began or ended with it."""
        self.frames += 1
        self._heard = self._clock()
        if self._has_all_events or (self.is_in_haste and not self.has_begun):
            self.latest.add(frame)
            events = list(frame.events)
            if not self._has_all_events:
                self._unseen.append(frame)
        else:
            events = self._observed(frame)
        if frame.gpus is not None:
            self.labels = cells.labels(frame.gpus)
        self.has_begun = self.has_begun or bool(self.gpus)
        self.history.add(frame)
        self.curves.add(frame)
        if self.memory is not None:
            self.memory.take(frame, events)
        self.log.add(events)
        return events

    def _observed(self, frame: Frame) -> list[Event]:
        """Have conditions look at a frame, and before at those that they did not see."""
        if self._conditions is None:
            from gpuadvisor.rules.conditions import Conditions

            self._conditions = Conditions()
            self.latest = self._conditions.latest
        unseen, self._unseen = self._unseen, []
        told = {event.identity for each in unseen for event in each.events}
        missed = [event for each in unseen for event in self._conditions.observe(each)]
        new = [event for event in missed if event.identity not in told]
        return [*new, *self._conditions.observe(frame)]

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

    def why(self, gpu: Gpu) -> Why:
        """Return what is to be said of a GPU; looked at anew with each frame and each second."""
        moment = (self.frames, int(self.now_s), self.gpus)
        if moment != self._whys_of:
            self._whys_of, self._whys = moment, {}
        if gpu.uuid not in self._whys:
            self._whys[gpu.uuid] = why(self, gpu)
        return self._whys[gpu.uuid]

    def kept(self, name: str, of: object, make: Callable[[], T]) -> T:
        """Return what was made under a name last time if it was `of` the same, else make it."""
        found = self._kept.get(name)
        if found is None or found[0] != of:
            found = self._kept[name] = (of, make())
        return cast("T", found[1])

    def is_known(self, metric: str) -> bool:
        """Return whether any GPU has that metric."""
        return any(
            (reading := self.reading(gpu.uuid, metric)) is not None
            and reading.state is not State.NOT_SUPPORTED
            for gpu in self.gpus
        )

    def next_sparkline(self) -> None:
        """Draw the next metric that any GPU has."""
        place = SPARKLINES.index(self.sparkline)
        later = [*SPARKLINES[place + 1 :], *SPARKLINES[: place + 1]]
        self.sparkline = next((p for p in later if self.is_known(p.metric)), self.sparkline)

    @property
    def is_silent(self) -> bool:
        """Whether frames should have come and have not."""
        return bool(self.frames) and self.silent_s >= SILENT_AFTER_S

    def is_seen(self, event: Event) -> bool:
        """Return whether what was read last tells that an event lasts: where nothing can be read,
        only that tells itself. One that a store has and no frame has told may be of a daemon that
        was killed."""
        is_readable = self.latest.problem is None or event.kind == DRIVER
        return not self.is_silent and is_readable and self.log.is_open(event)

    @property
    def notice(self) -> str:
        """What is to be said of the source, in one sentence; empty where all is well."""
        if self.has_ended:
            return "This is the end of the recording." if self.frames else "There is no frame."
        if self.is_silent:
            return f"No values have come for {cells.age(self.silent_s)}."
        if not self.frames:
            return "The first values are awaited."
        return self.latest.problem or ""

    def heading(self, width: int, *, to_the_second: bool = False) -> str:
        """Return what is watched and when, as much of it as fits.

        A page on which no value moves is to send nothing, so the time of now has no seconds there;
        a recording goes at its own pace.
        """
        parents = {gpu.parent_uuid or gpu.uuid for gpu in self.gpus}
        count = "1 GPU" if len(parents) == 1 else f"{len(parents)} GPUs"
        is_exact = to_the_second or self.is_past
        clock = cells.time_of_day if is_exact else cells.hour_and_minute
        parts = [
            self.host,
            self.label,
            clock(self.now_s) if self.frames else "",
            count if self.has_begun else "",
        ]
        line = ""
        for part in filter(None, parts):
            longer = f"{line}  {part}" if line else part
            if len(longer) > width:
                break
            line = longer
        return line


def _memory() -> Memory:
    from gpuadvisor.daemon.past import Memory  # the first page needs none

    return Memory()

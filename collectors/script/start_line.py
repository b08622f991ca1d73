"""Has two runs start at the same time, of which one is measured after the other.

Each waits with its steps, and with an idle device, before it warms up: the first until the second
has started, too, so that nothing starts beside what is timed; the second until it is told to go on.
What speaks against that ends the second, which is then to be run alone: it costs time, no more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.script.child.turns import GO, WARM
from gpuadvisor.collectors.script.specification import Specification
from gpuadvisor.collectors.script.turns import Place

PATIENCE, PATIENCE_S = 1.0, 10.0
"""Times its own start, and seconds besides, for which one waits for the other to start: they may
wait for each other where one holds a lock, or has a port, that the other one wants."""


@dataclass
class StartLine:
    """Two runs that start side by side."""

    lacks_room: Callable[[], str]
    """Asked a few times a second while both start: returns why they do not fit into the memory
    together, as a clause; empty while they do."""

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
        self.first, self.second = Starter(self), Starter(self)
        self.why_apart = ""
        """Why the second was given up; empty if it was not."""
        self.began_s = time.monotonic()
        self._may_follow = False

    def follow(self) -> None:
        """Let the second be measured, as the first has ended."""
        with self.lock:
            self._may_follow = True
            self.go_on()

    def give_up(self, why: str) -> None:
        """Have the second end, for this reason, unless it may be measured already."""
        with self.lock:
            if not self._may_follow:
                self.why_apart = self.why_apart or why

    def go_on(self) -> None:
        """Tell who waits for nothing any more; to be called with the lock held."""
        self._look()
        beside = self.second.is_ready and not self.why_apart
        if self.first.waits and (beside or self.second.has_left):
            self.first.let()
        if self.second.waits and self._may_follow:
            self.second.let()

    def gives_up(self) -> bool:
        """Say whether the second is to end."""
        with self.lock:
            self._look()
            return bool(self.why_apart)

    def _look(self) -> None:
        """See whether both may go on to start side by side, while they do."""
        is_over = self.first.was_let or self.first.has_left or self.second.has_left
        if not (is_over or self._may_follow or self.why_apart):
            self.why_apart = self._speaks_against()

    def _speaks_against(self) -> str:
        """Return why both cannot start side by side, as a clause; empty where nothing is seen."""
        if self.first.workers or self.second.workers:
            return "loaders' workers would read ahead while a version waits"
        for one, other in ((self.first, self.second), (self.second, self.first)):
            if one.waits and not other.is_ready and one.is_impatient:
                return "one took much longer to start than the other, or waited for it"
        return self.lacks_room()


class Starter(Place):
    """One of two runs that start side by side."""

    def __init__(self, line: StartLine) -> None:
        super().__init__()
        self._line = line
        self.was_let = False
        """Whether it was told to go on: what was measured before that may not count."""
        self.workers = 0
        """How many worker processes its DataLoaders have."""
        self.is_ready = False
        """Whether it has started, and waits or has waited."""
        self._start_s = 0.0

    @property
    def is_impatient(self) -> bool:
        """Whether it waits for longer than its own start makes likely."""
        waited_s = time.monotonic() - self._line.began_s - self._start_s
        return waited_s > PATIENCE * self._start_s + PATIENCE_S

    def open(self, folder: Path, specification: Specification) -> Specification:
        return replace(specification, line=self.pipe(folder))

    def take(self, event: Mapping[str, Any]) -> None:
        """Take an event of its process: one of both may go on now."""
        if event["event"] != WARM:
            return
        with self._line.lock:
            self.note_children()
            self.wait()
            if self.was_let:  # another process of the script counts from here on
                self.let()
                return
            self.is_ready, self.workers = True, event["workers"]
            self._start_s = time.monotonic() - self._line.began_s
            self._line.go_on()

    def let(self) -> None:
        """Have it go on; to be called with the lock held."""
        self.was_let = True
        self.order(GO)

    def leave(self, failed: bool = True) -> None:
        """Note that its processes are gone; only the first time."""
        with self._line.lock:
            if self.has_left:
                return
            self.has_left, self.waits = True, False
            self.close()
            self._line.go_on()

    @property
    def is_abandoned(self) -> bool:
        """Whether it is to end and to be run alone."""
        return self is self._line.second and self._line.gives_up()

"""What is told of the unchanged script while its first run goes on, and when it has ended."""

from __future__ import annotations

import math

from gpuadvisor.collectors.script.request import Event
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.reports import figures

ENOUGH_S = 1.0
"""Seconds of counted steps after which they are told. They come after the script is warm, so that a
script whose start takes 10 s is told of within 15."""
ENOUGH_STEPS = 5
NEARLY_ALL = 0.95
"""Part of the time above which what is left without waiting is too short to give a bound."""


class FirstLook:
    """Hears of the events of one run, and says once what the first counted steps look like."""

    def __init__(self) -> None:
        self._process: int | None = None
        self._windows: list[Event] = []
        self._told = False

    def take(self, event: Event) -> str | None:
        """Take an event; return a sentence at the first one that makes enough steps."""
        if self._told:
            return None
        match event["event"]:
            case "step":  # from here on steps are counted by a better marker
                self._process = None
                self._windows.clear()
            case "dropped":
                del self._windows[: event["windows"]]
            case "window" if self._process in (None, event["pid"]):
                self._process = event["pid"]
                self._windows.append(event)
                enough = self._total("steps") >= ENOUGH_STEPS
                self._told = enough and self._total("seconds") >= ENOUGH_S
        return self._sentence() if self._told else None

    def _total(self, name: str) -> float:
        return math.fsum(window[name] for window in self._windows)

    def _sentence(self) -> str:
        seconds, loaded = self._total("seconds"), self._total("loader_samples")
        step_ms = 1e3 * seconds / self._total("steps")
        parts = [f"first look: {figures.milliseconds(step_ms)} a step"]
        if samples := loaded or self._total("root_samples"):
            parts.append(figures.throughput(samples / seconds, "samples/s"))
        if loaded:
            waiting = figures.percent(self._total("data_wait_s") / seconds)
            parts.append(f"{waiting} of it waiting for the DataLoader")
        return ", ".join(parts) + "; not settled yet"


def loader_bound(measurement: Measurement) -> str | None:
    """Return what a run says of its DataLoader's worth; None where it has none.

    A loader that is never waited for leaves all else as it is: that is the most that it can bring.
    """
    if not measurement.facts.loaders:
        return None
    share = measurement.data_wait_share
    workers = figures.count(measurement.facts.loaders[0].num_workers, "worker")
    waits = f"{figures.percent(share)} of that is waiting for the DataLoader ({workers})"
    if share >= NEARLY_ALL:
        return f"{waits}: loading decides its speed"
    most = math.ceil(100 / (1 - share)) / 100
    return f"{waits}: without it a step would be at most {figures.ratio(most)} as fast"

"""The daemon's loop: frames from the driver to detectors, store, alerts and endpoint."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from gpuadvisor.daemon import log
from gpuadvisor.daemon.alerts import Alerts, Identity
from gpuadvisor.daemon.backlog import Backlog, Writer
from gpuadvisor.daemon.configuration import Configuration, Prometheus
from gpuadvisor.daemon.episodes import duration
from gpuadvisor.daemon.figures import Figures
from gpuadvisor.daemon.notices import Senders
from gpuadvisor.daemon.notification import Notifier
from gpuadvisor.daemon.sources import Source
from gpuadvisor.domain.telemetry import Event, Frame, Severity
from gpuadvisor.errors import AdvisorError
from gpuadvisor.interruption import stoppable

if TYPE_CHECKING:
    from gpuadvisor.daemon.exporter import Exporter

LOG = logging.getLogger(__name__)
TEND_S = 60.0
"""Between two times that roll-ups and retention are seen to."""
STATE_FILE = "daemon.json"
"""In the store's folder, while the daemon runs: what `daemon status` shows of it."""
LEVELS = {
    Severity.INFO: logging.INFO,
    Severity.WARNING: logging.WARNING,
    Severity.ERROR: logging.ERROR,
}


@dataclass(frozen=True)
class Setting:
    """What the loop works with."""

    folder: Path
    """Of the store."""
    open_source: Callable[[float | None], Source]
    """Makes the source with this period of fast frames, in seconds."""
    reread: Callable[[], Configuration]
    """Reads the configuration anew; UsageError where it is wrong."""
    wait_for_gpu: bool = False


class Service:
    """One run of the daemon, with a writer that is open."""

    def __init__(
        self,
        setting: Setting,
        configuration: Configuration,
        writer: Writer,
        notifier: Notifier,
        earlier: Iterable[Event] = (),
    ) -> None:
        self._setting = setting
        self._configuration = configuration
        self._notifier = notifier
        self._figures = Figures()
        self._backlog = Backlog(writer)
        self._senders = Senders()
        self._alerts = Alerts(configuration.alerts, self._senders)
        self._exporter: Exporter | None = None
        self._began_s = time.time()
        self._logged: set[Identity] = set()
        """Events whose beginning is in the log, and whose end is not yet."""
        self._tended_s = time.monotonic()
        self._earlier = list(earlier)
        """What is to be told of the time before this run."""

    def run(self, source: Source, frames: Iterator[Frame], asked: Requests) -> None:
        """Work until it is asked to stop. `frames` are those of `source`, some perhaps read."""
        self._exporter = _exporter(self._figures, self._configuration.prometheus)
        last_s = time.time()
        try:
            self._is_ready()
            while True:
                for frame in frames:
                    last_s = frame.time_s
                    self._take(frame)
                    if asked.stop() or asked.reload:
                        break
                if not asked.reload:
                    return
                asked.reload = False
                if self._reload():
                    source.close()
                    source = self._setting.open_source(self._configuration.fast_period_s)
                    frames = source.frames()
        finally:
            self._notifier.stopping()
            source.close()
            self._end(last_s)

    def _take(self, frame: Frame) -> None:
        events = self._earlier + self._figures.observe(frame)
        self._earlier = []
        self._backlog.add(frame, events)
        if frame.whole:
            events += self._store(frame.time_s)
            self._figures.waiting = len(self._backlog)
            self._notifier.alive()
        self._tell(events, frame.time_s)

    def _store(self, time_s: float) -> list[Event]:
        due = time.monotonic() - self._tended_s >= TEND_S
        if due:
            self._tended_s = time.monotonic()
        said = self._backlog.store(time_s, tend=due)
        self._figures.note(event for event in said if event.ended_s is None)
        return said

    def _tell(self, events: list[Event], time_s: float) -> None:
        for event in events:
            self._log(event)
        self._alerts.observe(events, self._figures.latest.gpus, time_s)

    def _log(self, event: Event) -> None:
        if event.ended_s is None:
            self._logged.add(event.identity)
        if event.identity not in self._logged or event.ended_s is None:
            LOG.log(LEVELS[event.severity], "%s: %s", event.kind, event.message)
            return
        self._logged.discard(event.identity)
        lasted = duration(event.ended_s - event.began_s)
        LOG.info("%s, over after %s: %s", event.kind, lasted, event.message)

    def _reload(self) -> bool:
        """Take the new configuration; return whether the source must be made anew."""
        self._notifier.reloading()
        before = self._configuration
        try:
            new = self._setting.reread()
            if new.prometheus != before.prometheus:
                self._move_endpoint(new.prometheus)
        except AdvisorError as error:
            LOG.error("%s The daemon goes on with the configuration that it had.", error)
            new = before
        else:
            LOG.info("the configuration was read again")
        self._configuration = new
        log.set_level(new.log_level)
        self._alerts.reconfigure(new.alerts)
        self._is_ready()
        return new.fast_period_s != before.fast_period_s

    def _move_endpoint(self, chosen: Prometheus | None) -> None:
        """Open the new endpoint; where that fails, the old one is opened again."""
        if self._exporter:
            self._exporter.close()  # before, as it may be the same address with another token
            self._exporter = None
        try:
            self._exporter = _exporter(self._figures, chosen)
        except AdvisorError:
            with suppress(AdvisorError):
                self._exporter = _exporter(self._figures, self._configuration.prometheus)
            raise

    def _is_ready(self) -> None:
        endpoint = self._exporter.url if self._exporter else None
        chosen = self._configuration
        state = {
            "pid": os.getpid(),
            "began_s": self._began_s,
            "endpoint": endpoint,
            "configuration": str(chosen.path) if chosen.path else None,
            "fast_period_s": chosen.fast_period_s,
        }
        path = self._setting.folder / STATE_FILE
        try:
            partial = path.with_suffix(f".{os.getpid()}.tmp")
            partial.write_text(json.dumps(state) + "\n", "utf-8")
            partial.replace(path)
        except OSError as error:
            LOG.warning("%s cannot be written (%s): `daemon status` will miss it", path, error)
        where = f"metrics at {endpoint}" if endpoint else "no endpoint"
        self._notifier.ready(f"Watching GPUs; {where}")
        LOG.info("gpuadvisor daemon %s is running, %s", os.getpid(), where)

    def _end(self, time_s: float) -> None:
        """Write and tell what is left, and leave nothing behind."""
        if self._exporter:
            self._exporter.close()
        ended = [*self._figures.close(time_s), *self._backlog.close(time_s)]
        self._backlog.add_events(ended)
        for event in self._backlog.store(time_s, tend=True):
            LOG.error("at the end: %s", event.message)
        self._senders.close()
        (self._setting.folder / STATE_FILE).unlink(missing_ok=True)
        LOG.info("gpuadvisor daemon %s has stopped", os.getpid())


class Requests:
    """What signals have asked for."""

    def __init__(self, stop: Callable[[], bool]) -> None:
        self.stop = stop
        self.reload = False

    def ask_reload(self, number: int, frame: FrameType | None) -> None:
        self.reload = True


@contextmanager
def requests() -> Iterator[Requests]:
    """Turn SIGTERM and SIGINT into a request to stop, and SIGHUP into one to reload."""
    with stoppable() as stop:
        asked = Requests(stop.requested)
        before = signal.signal(signal.SIGHUP, asked.ask_reload)
        try:
            yield asked
        finally:
            signal.signal(signal.SIGHUP, before)


def _exporter(figures: Figures, chosen: Prometheus | None) -> Exporter | None:
    if chosen is None:
        return None
    from gpuadvisor.daemon.exporter import Exporter

    return Exporter(figures, chosen)

"""The daemon: its start, and its loop from the driver to conditions, store, alerts and endpoint."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from msgspec import structs

from gpuadvisor.daemon import configuration, log, sources
from gpuadvisor.daemon.alerts import Alerts, Dispatchers, Identity, how_it_ended, is_end_seen
from gpuadvisor.daemon.configuration import Configuration, Prometheus
from gpuadvisor.daemon.configured_values import Address
from gpuadvisor.daemon.digest import Digests
from gpuadvisor.daemon.figures import Figures
from gpuadvisor.daemon.job_profiles import JobProfiles
from gpuadvisor.daemon.jobs import WithJobs
from gpuadvisor.daemon.sources import Source
from gpuadvisor.daemon.store import Backlog, Writer, kept, running, store_folder
from gpuadvisor.daemon.systemd import Notifier
from gpuadvisor.domain.metrics import SamplingInterval
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import SILENT, Event, Frame
from gpuadvisor.errors import AdvisorError, StoreError, UsageError
from gpuadvisor.interruption import stoppable
from gpuadvisor.printable import duration
from gpuadvisor.rules.alert_states import UNSEEN

if TYPE_CHECKING:
    from gpuadvisor.daemon.endpoint.exporter import Exporter
    from gpuadvisor.daemon.process_server import ProcessServer

LOG = logging.getLogger(__name__)
TEND_S = 60.0
"""Seconds between two times that roll-ups and retention are seen to."""
STATE_FILE = "daemon.json"
"""In the store's folder, while the daemon runs: what `daemon status` shows of it."""
LEVELS = {
    Severity.INFO: logging.INFO,
    Severity.WARNING: logging.WARNING,
    Severity.ERROR: logging.ERROR,
}
GAP_S = 5.0
"""The least time without frames that is a gap, in seconds, as in `rules/health/gap.py`."""
DANGLING_S = 400 * 86400.0
"""Seconds back from now in which events are looked for that a killed daemon could not end."""


@dataclass(frozen=True)
class Setting:
    """The store, and the ways to open a source and to read the configuration again."""

    folder: Path
    """The store's folder."""
    open_source: Callable[[float | None], Source]
    """A function from the period of fast frames, in seconds, to an open source."""
    reread: Callable[[], Configuration]
    """A function that reads the configuration again; UsageError where it is wrong."""


@dataclass(frozen=True)
class Earlier:
    """What happened since a daemon wrote into a store last, and what it had not told to the end."""

    left: tuple[Event, ...] = ()
    """Events that lasted when a daemon was stopped, or killed: ended when it saw them last."""
    gap: tuple[Event, ...] = ()
    """The time in which none ran, where it was worth an event."""


class Service:
    """One run of the daemon, with a writer that is open."""

    def __init__(
        self,
        setting: Setting,
        configuration: Configuration,
        writer: Writer,
        notifier: Notifier,
        earlier: Earlier | None = None,
    ) -> None:
        self._setting = setting
        self._configuration = configuration
        self._notifier = notifier
        self._figures = Figures()
        self._backlog = Backlog(writer)
        self._dispatchers = Dispatchers()
        self._digests = Digests(setting.folder, configuration.jobs)
        self._job_profiles = JobProfiles(configuration.jobs)
        self._alerts = Alerts(configuration.alerts, self._dispatchers)
        self._exporter: Exporter | None = None
        self._processes: ProcessServer | None = None
        self._began_s = time.time()
        self._logged: set[Identity] = set()
        """Identities of events whose beginning is in the log, and whose end is not yet."""
        self._tended_s = time.monotonic()
        self._earlier = earlier or Earlier()
        """What was before this run; its events go out with the first frame."""

    def run(self, source: Source, frames: Iterator[Frame], asked: Requests) -> None:
        """Work until it is asked to stop. `frames` are those of `source`, some perhaps read."""
        self._exporter = self._open_exporter(self._configuration.prometheus)
        self._processes = _process_server(self._setting.folder, self._configuration)
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
        earlier, self._earlier = self._earlier, Earlier()
        events = [*earlier.gap, *self._figures.observe(frame)]
        self._backlog.add(frame, [*earlier.left, *events])
        if frame.full:
            events += self._store(frame.time_s)
            self._figures.waiting = self._backlog.waiting
            self._job_profiles.tend(self._figures.latest.processes)
            self._notifier.alive()
        for event in earlier.left:
            _log_end(event, is_seen=False)
        for event in events:
            self._log(event, frame.time_s)
        if self._exporter:
            self._exporter.take(frame, [*earlier.left, *events])
        gpus, now_s = self._figures.latest.gpus, time.monotonic()
        self._alerts.observe(events, gpus, frame.time_s, now_s, earlier.left)

    def _store(self, time_s: float) -> list[Event]:
        due = time.monotonic() - self._tended_s >= TEND_S
        if due:
            if gc.get_freeze_count() == 0:
                gc.collect()
                gc.freeze()  # what is there after a minute stays, and is looked at no more
            self._tended_s = time.monotonic()
            self._digests.tend(time_s)
        events = self._backlog.store(time_s, tend=due)
        known = self._logged  # an event that lasts comes again when it grows
        self._figures.note({e.identity: e for e in events if e.identity not in known}.values())
        return events

    def _log(self, event: Event, time_s: float) -> None:
        if event.ended_s is None:
            self._logged.add(event.identity)
        if event.identity not in self._logged or event.ended_s is None:
            LOG.log(LEVELS[event.severity], "%s: %s", event.kind, event.message)
            return
        self._logged.discard(event.identity)
        _log_end(event, is_seen=is_end_seen(event, time_s))

    def _reload(self) -> bool:
        """Read the configuration again; return whether the source must be opened again."""
        self._notifier.reloading()
        before = self._configuration
        try:
            new = self._setting.reread()
            if new.prometheus != before.prometheus:
                self._move_endpoint(new.prometheus)
            elif self._exporter:
                self._exporter.renew_token()
        except AdvisorError as error:
            LOG.error("%s The daemon goes on with the configuration that it had.", error)
            new = before
        else:
            LOG.info("the configuration was read again")
        self._configuration = new
        log.set_level(new.log_level)
        self._alerts.reconfigure(new.alerts)
        self._backlog.keep(new.retention)
        self._digests.chosen = self._job_profiles.chosen = new.jobs
        if _shown_to(new) != _shown_to(before):
            share(self._setting.folder, new)
            if self._processes:
                self._processes.close()
            self._processes = _process_server(self._setting.folder, new)
        self._is_ready()
        return new.fast_period_s != before.fast_period_s

    def _move_endpoint(self, chosen: Prometheus | None) -> None:
        """Open the new endpoint; where that fails, the old one is opened again."""
        if self._exporter:
            self._exporter.close()  # before, as it may be the same address with another token
            self._exporter = None
        try:
            self._exporter = self._open_exporter(chosen)
        except AdvisorError:
            with suppress(AdvisorError):
                self._exporter = self._open_exporter(self._configuration.prometheus)
            raise

    def _open_exporter(self, chosen: Prometheus | None) -> Exporter | None:
        if chosen is None:
            return None
        from gpuadvisor.daemon.endpoint.exporter import Exporter

        return Exporter(self._figures, chosen, self._setting.folder)

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
        from gpuadvisor.storage.home import SHARED_FILE

        path = self._setting.folder / STATE_FILE
        try:
            partial = path.with_suffix(f".{os.getpid()}.tmp")
            partial.write_text(json.dumps(state) + "\n", "utf-8")
            partial.chmod(SHARED_FILE)
            partial.replace(path)
        except OSError as error:
            LOG.warning("%s cannot be written (%s): `daemon status` will miss it", path, error)
        where = f"metrics at {endpoint}" if endpoint else "no endpoint"
        self._notifier.ready(f"Watching GPUs; {where}")
        LOG.info("gpuadvisor daemon %s is running, %s", os.getpid(), where)

    def _end(self, time_s: float) -> None:
        """Store and send what is left, and leave nothing behind."""
        self._job_profiles.close()
        if self._exporter:
            self._exporter.close()
        if self._processes:
            self._processes.close()
        for event in self._backlog.finish(time_s, self._figures.close(time_s)):
            LOG.error("at the end: %s", event.message)
        self._dispatchers.close()
        with suppress(OSError):  # a disk that turned read-only
            (self._setting.folder / STATE_FILE).unlink(missing_ok=True)
        LOG.info("gpuadvisor daemon %s has stopped", os.getpid())


def _log_end(event: Event, *, is_seen: bool) -> None:
    said = how_it_ended(event, is_end_seen=is_seen)
    LOG.info("%s, %s", event.kind, said[0].lower() + said[1:])


class Requests:
    """Requests of signals: to stop, or to read the configuration again."""

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


def _process_server(folder: Path, chosen: Configuration) -> ProcessServer | None:
    from gpuadvisor.daemon.process_server import ProcessServer

    try:
        return ProcessServer(folder, _group(chosen), chosen.admin_group, chosen.jobs.others)
    except OSError as error:
        LOG.warning(
            "no socket can be opened in %s (%s): other users will see no processes", folder, error
        )
        return None


def share(folder: Path, chosen: Configuration) -> None:
    """Let the group that is chosen read the store; a warning says where that cannot be."""
    from gpuadvisor.storage.telemetry.files import share

    try:
        share(folder, _group(chosen))
    except StoreError as error:
        LOG.warning("%s", error)


def _shown_to(chosen: Configuration) -> tuple[object, ...]:
    return chosen.group, chosen.admin_group, chosen.jobs.others


def _group(chosen: Configuration) -> int:
    return os.getegid() if chosen.group is None else chosen.group.number


@dataclass(frozen=True)
class Chosen:
    """Choices of the command line, which override the configuration."""

    configuration: Path | None = None
    fast: bool = False
    address: Address | None = None
    """The endpoint's address; None: as configured."""
    wait_for_gpu: bool = False
    log_file: Path | None = None

    def read(self) -> Configuration:
        """Return the configuration with these choices; UsageError where it is wrong."""
        made = configuration.read(self.configuration)
        if self.fast and made.fast_period_s is None:
            made = structs.replace(made, fast_period_s=SamplingInterval.FAST.period_s)
        if self.address:
            endpoint = structs.replace(made.prometheus or Prometheus(), address=self.address)
            made = structs.replace(made, prometheus=endpoint)
        return made


def run(chosen: Chosen) -> None:
    """Run the daemon until it is asked to stop; AdvisorError where it cannot run."""
    from gpuadvisor.storage.telemetry.writer import TelemetryWriter

    configured = chosen.read()
    log.set_up(configured.log_level, chosen.log_file)
    folder = store_folder()
    if (process := running(folder)) is not None:
        raise UsageError(already(process))
    with requests() as asked:
        source = _live(folder, configured.fast_period_s)
        try:
            notifier = Notifier()
            frames = _from_first_gpu(source, asked, chosen.wait_for_gpu, notifier.remark)
            if frames is None:
                return
            share(folder, configured)
            with TelemetryWriter(folder, kept=kept(configured.retention)) as writer:
                setting = Setting(folder, partial(_live, folder), chosen.read)
                with WithJobs(writer, folder) as both:
                    service = Service(setting, configured, both, notifier, earlier(folder))
                    service.run(source, frames, asked)
        finally:
            source.close()


def _live(folder: Path, fast_period_s: float | None) -> Source:
    """Return this machine, with what the store knows of GPUs that may be lost by now."""
    from gpuadvisor.storage.telemetry.reader import TelemetryReader

    try:
        known = TelemetryReader(folder).gpus()
    except StoreError:  # its writer sees to it
        known = ()
    return sources.Live(fast_period_s, known)


def already(process: int) -> str:
    """Return what a second daemon on the same store says."""
    return (
        f"A daemon writes this store already (process {process}): `gpuadvisor daemon stop` ends"
        " it, and GPUADVISOR_HOME names another store."
    )


def _from_first_gpu(
    source: Source, asked: Requests, wait: bool, remark: Callable[[str], object]
) -> Iterator[Frame] | None:
    """Return the frames from the first that has a GPU; None where it was asked to stop first.

    AdvisorError where there is none, unless it is to `wait`. A driver that does not answer is what
    a daemon must see: its frames are returned as well, and `remark` is told.
    """
    frames = source.frames()
    for frame in frames:
        if asked.stop():
            return None
        if frame.problem == SILENT:
            remark(f"{sources.NOT_ANSWERING}; the daemon waits for it")
        if frame.gpus or wait or frame.problem == SILENT:
            return chain([frame], frames)
        if sources.has_answered(frame):
            problem = frame.problem or "There is no NVIDIA GPU on this machine."
            raise AdvisorError(f"{problem.rstrip('.')}; with --wait-for-gpu the daemon stays.")
    return None


def earlier(folder: Path) -> Earlier:
    """Return the events of the time since a daemon wrote into this store last.

    A store that cannot be read is no reason not to run: its writer sees to it.
    """
    try:
        return _earlier(folder, time.time())
    except StoreError as error:
        LOG.error("what was before is not known: %s", error)
        return Earlier()


def _earlier(folder: Path, now_s: float) -> Earlier:
    from gpuadvisor.storage.telemetry.reader import TelemetryReader

    reader = TelemetryReader(folder)
    newest_s = reader.newest_s()
    if newest_s is None:
        return Earlier()
    stored = list(reader.events(now_s - DANGLING_S))
    dangling = [e for e in stored if e.ended_s is None]
    closed = [e for e in stored if UNSEEN in e.data and (e.ended_s or 0.0) >= newest_s]
    left = (*closed, *(replace(e, ended_s=max(newest_s, e.began_s)) for e in dangling))
    absent_s = now_s - newest_s
    if absent_s <= GAP_S:
        return Earlier(left)
    gap = Event(
        "gap",
        newest_s,
        f"The daemon did not run for {duration(absent_s)}.",
        Severity.WARNING if dangling else Severity.INFO,
        ended_s=now_s,
        key="daemon",
        data={"seconds": absent_s},
    )
    return Earlier(left, (gap,))

"""The start of the daemon: what must be there, in the order in which it can be said best."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from gpuadvisor.daemon import configuration, log, sources
from gpuadvisor.daemon.configuration import Configuration, Prometheus
from gpuadvisor.daemon.episodes import duration
from gpuadvisor.daemon.notification import Notifier
from gpuadvisor.daemon.service import Requests, Service, Setting, requests
from gpuadvisor.daemon.sources import Source
from gpuadvisor.daemon.store import running, store_folder
from gpuadvisor.domain.metrics import Pace
from gpuadvisor.domain.telemetry import Event, Frame, Severity
from gpuadvisor.errors import AdvisorError, UsageError

LOG = logging.getLogger(__name__)
FIRST_GPU_S = 40.0
"""How long a driver may take for its first answer: more than the sampler is given itself."""
GAP_S = 5.0
"""As the detector `gap` has it."""
DANGLING_S = 400 * 86400.0
"""How far back events are looked for that a killed daemon could not end."""


@dataclass(frozen=True)
class Chosen:
    """The command line's choices, which are above the configuration's."""

    configuration: Path | None = None
    fast: bool = False
    address: tuple[str, int] | None = None
    """Where the endpoint is; None: as configured."""
    wait_for_gpu: bool = False
    log_file: Path | None = None

    def read(self) -> Configuration:
        """Return the configuration as it is to be; UsageError where it is wrong."""
        made = configuration.read(self.configuration)
        if self.fast and made.fast_period_s is None:
            made = replace(made, fast_period_s=Pace.FAST.period_s)
        if self.address:
            host, port = self.address
            endpoint = replace(made.prometheus or Prometheus(), host=host, port=port)
            made = replace(made, prometheus=endpoint)
        return made


def run(chosen: Chosen) -> None:
    """Be the daemon until it is asked to stop; AdvisorError where it cannot be."""
    from gpuadvisor.storage.telemetry import retention
    from gpuadvisor.storage.telemetry.writer import TelemetryWriter

    configured = chosen.read()
    log.set_up(configured.log_level, chosen.log_file)
    folder = store_folder()
    if (process := running(folder)) is not None:
        raise UsageError(already(process))
    with requests() as asked:
        source = sources.live(fast_period_s=configured.fast_period_s)
        try:
            frames = _from_first_gpu(source, asked, chosen.wait_for_gpu)
            if frames is None:
                return
            kept = retention.Retention(configured.retention.raw_s, configured.retention.minutes_s)
            with TelemetryWriter(folder, kept=kept) as writer:
                setting = Setting(folder, _live, chosen.read)
                service = Service(setting, configured, writer, Notifier(), earlier(folder))
                service.run(source, frames, asked)
        finally:
            source.close()


def already(process: int) -> str:
    """Return the sentence for a second daemon."""
    return (
        f"A daemon writes this store already (process {process}): `gpuadvisor daemon stop` ends"
        " it, and GPUADVISOR_HOME names another store."
    )


def _live(fast_period_s: float | None) -> Source:
    return sources.live(fast_period_s=fast_period_s)


def _from_first_gpu(
    source: Source, asked: Requests, wait: bool, clock: Callable[[], float] = time.monotonic
) -> Iterator[Frame] | None:
    """Return the frames from the first that has a GPU; None where it was asked to stop first.

    AdvisorError where there is none, unless it is to `wait`.
    """
    frames = source.frames()
    began = clock()
    for frame in frames:
        if asked.stop():
            return None
        if frame.gpus or wait:
            return chain([frame], frames)
        if clock() - began > FIRST_GPU_S or sources.has_answered(frame):
            problem = frame.problem or "There is no NVIDIA GPU on this machine."
            raise AdvisorError(f"{problem.rstrip('.')}; with --wait-for-gpu the daemon stays.")
    return None


def earlier(folder: Path, clock: Callable[[], float] = time.time) -> list[Event]:
    """Return what is to be told of the time since a daemon wrote here last.

    The ends of events that a killed daemon left open, and the gap.
    """
    from gpuadvisor.storage.telemetry.reader import TelemetryReader

    reader = TelemetryReader(folder)
    now_s = clock()
    newest_s = reader.newest_s()
    if newest_s is None:
        return []
    dangling = [e for e in reader.events(now_s - DANGLING_S) if e.ended_s is None]
    told = [replace(e, ended_s=max(newest_s, e.began_s)) for e in dangling]
    if now_s - newest_s > GAP_S:
        told.append(
            Event(
                "gap",
                newest_s,
                f"The daemon did not run for {duration(now_s - newest_s)}.",
                Severity.WARNING if dangling else Severity.INFO,
                ended_s=now_s,
                key="daemon",
                data={"seconds": now_s - newest_s},
            )
        )
    return told

"""What all pages of `gpuadvisor watch` look at: the source, what came of it, and what is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.daemon.sources import Source
from gpuadvisor.domain.telemetry import Gpu
from gpuadvisor.errors import StoreError
from gpuadvisor.tui.watch.state import WatchState

if TYPE_CHECKING:
    from gpuadvisor.daemon.endpoint.remote import Remote
    from gpuadvisor.daemon.past import Past

START = "gpuadvisor daemon start"


@dataclass
class Watched:
    """One for the whole program; pages read it, and change only what is chosen."""

    source: Source
    state: WatchState
    """The newest values, processes and events, and the last minutes."""
    store: Path | None = None
    """The folder of a daemon's store, for `TelemetryReader`; None where there is none to read, and
    with a recording, whose past is the recording's."""
    recording: Path | None = None
    """The recording that is shown, of `--replay`."""
    read_only: bool = False
    """Whether nothing may be done to processes: `--read-only`."""
    remote: Remote | None = None
    """The daemon of another machine that is the source, of `--host`: its processes are not ours."""
    gpu: str | None = None
    """The UUID of the GPU that was chosen last, on whatever page."""

    made: tuple[str, str] | None = None
    """What was stored from here and not shown so far: the key of the page that lists it, which puts
    its cursor there once, and its name."""

    @property
    def hands_off(self) -> str | None:
        """Why nothing may be done to processes, as half a sentence; None where it may."""
        if self.recording is not None:
            return "this is a recording"
        if self.remote is not None:
            name = self.remote.host.name
            return f"its processes are on {name}, where `gpuadvisor watch` can do it"
        return "--read-only was given" if self.read_only else None

    @property
    def chosen(self) -> Gpu | None:
        """The GPU that was chosen, the first one where none was or it has gone."""
        gpus = self.state.gpus
        return next((gpu for gpu in gpus if gpu.uuid == self.gpu), gpus[0] if gpus else None)

    def past(self) -> Past:
        """Open what was: of the recording, the other machine, or the store and the last minutes.

        A recording takes its time. StoreError where nothing that was is kept.
        """
        from gpuadvisor.daemon.past import StoreAndMemory, of_recording
        from gpuadvisor.storage.telemetry.reader import TelemetryReader

        if self.recording is not None:
            return of_recording(self.recording)
        if self.remote is not None:
            from gpuadvisor.daemon.endpoint.remote_past import RemotePast

            return RemotePast(self.remote.host)
        memory = self.state.memory
        if self.store is None:
            if memory is None:
                raise StoreError(f"Nothing that was is kept here: `{START}` keeps 90 days.")
            return memory
        reader = TelemetryReader(self.store)
        return reader if memory is None else StoreAndMemory(reader, memory)

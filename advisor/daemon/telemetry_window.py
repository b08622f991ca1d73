"""Telemetry of some time, summed up for the rules: from a recording, or from the store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gpuadvisor.domain.telemetry_tally import LONGEST_CARRIED_S, MOST_EVENTS, window_of_frames
from gpuadvisor.domain.telemetry_window import TelemetryWindow


def window_of_recording(path: Path) -> TelemetryWindow:
    """Return what a recording says; UsageError where it is none, or holds nothing of a GPU."""
    from gpuadvisor.collectors.telemetry.recording import read_recording
    from gpuadvisor.errors import UsageError

    window = window_of_frames(read_recording(path).frames())
    if window is None:
        raise UsageError(f"{path} holds no values of a GPU: record one that is at work")
    return window


def window_of_store(
    begin_s: float, end_s: float, folder: Path | None = None
) -> TelemetryWindow | None:
    """Return what the daemon stored of a time, with the events of then; None where it has nothing.

    Times are Unix times. Only raw rows are looked at (`retention.raw`): minutes do not tell how
    often a reason held. StoreError where the store cannot be read.
    """
    from gpuadvisor.daemon.store import store_folder
    from gpuadvisor.storage.telemetry.reader import TelemetryReader

    folder = store_folder() if folder is None else folder
    if not list(folder.glob("*.db")):
        return None
    reader = TelemetryReader(folder)
    window = window_of_frames(reader.frames(begin_s - LONGEST_CARRIED_S, end_s), begin_s, end_s)
    if window is None:
        return None
    return replace(window, events=tuple(reader.events(begin_s, end_s, MOST_EVENTS)))

"""Which store the daemon writes, and whether one does."""

from __future__ import annotations

from pathlib import Path


def store_folder() -> Path:
    """Return the folder of the telemetry store, which may not exist."""
    from gpuadvisor.storage.home import home

    return home() / "telemetry"


def running(folder: Path) -> int | None:
    """Return the process that writes the store; None where none does."""
    from gpuadvisor.storage.telemetry.reader import TelemetryReader

    if not folder.is_dir():
        return None
    return TelemetryReader(folder).writer_process()

"""The daemon's log: on stderr, for a terminal, for journald, or for a file of bounded size."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from gpuadvisor.printable import printable

FILE_BYTES = 1 << 20
"""The size of the log file in bytes; one older file of this size is kept beside it."""

# Priorities of sd-daemon(3), which are those of syslog(3).
PRIORITIES = {
    logging.DEBUG: 7,
    logging.INFO: 6,
    logging.WARNING: 4,
    logging.ERROR: 3,
    logging.CRITICAL: 2,
}


def set_up(level: str, file: Path | None = None) -> None:
    """Send what is logged to stderr, or to a file that takes the place of stdout and stderr."""
    root = logging.getLogger("gpuadvisor")
    handler: logging.Handler
    if file is not None:
        handler = _BoundedFile(file)
        handler.setFormatter(_with_time())
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Journal() if _is_journal() else _with_time())
    root.handlers[:] = [handler]
    root.propagate = False
    set_level(level)


def set_level(level: str) -> None:
    """Log messages of at least this level: debug, info, warning or error."""
    logging.getLogger("gpuadvisor").setLevel(level.upper())


def _with_time() -> logging.Formatter:
    return _OneLine("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%d %H:%M:%S")


def _is_journal() -> bool:
    """Return whether stderr is the journal's, as systemd.exec(5) says under JOURNAL_STREAM."""
    stream = os.environ.get("JOURNAL_STREAM", "")
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return stream == f"{status.st_dev}:{status.st_ino}"


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\t\n")


class _Journal(logging.Formatter):
    """A priority before each line, as journald reads it."""

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"<{PRIORITIES.get(record.levelno, 6)}>"
        return "\n".join(
            prefix + printable(line, keep="\t") for line in super().format(record).splitlines()
        )


class _BoundedFile(logging.Handler):
    """Appends to a file on stderr's descriptor, so that what Python itself says goes there too."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._open()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            os.write(2, f"{self.format(record)}\n".encode("utf-8", "replace"))
            if os.fstat(2).st_size > FILE_BYTES:
                self._path.replace(self._path.with_suffix(".log.1"))
                self._open()
        except OSError:  # a full disk must not end what says that the disk is full
            pass

    def _open(self) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)

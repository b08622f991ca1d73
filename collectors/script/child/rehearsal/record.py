"""The file in which a process of a rehearsed script writes down what it does: JSON lines."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Record:
    """Appends records to a file of this process; a forked process gets a file of its own.

    Each record is written at once, so that nothing is lost with a process that is killed. A disk
    that is full ends the record, not the script.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._process = 0
        self._descriptor = -1

    def send(self, record: str, /, **fields: Any) -> None:
        """Append one record: its name and the fields of the object of that name."""
        line = json.dumps({"record": record, **fields}, separators=(",", ":"))
        try:
            if os.getpid() != self._process:
                self._open()
            if self._descriptor >= 0:
                data = memoryview(line.encode() + b"\n")
                while data:
                    data = data[os.write(self._descriptor, data) :]
        except OSError:
            self._descriptor = -1

    def _open(self) -> None:
        self._process, self._descriptor = os.getpid(), -1
        path = record_file(self._folder, self._process)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)


def record_file(folder: str, process: int) -> Path:
    """Return the file of a process's records."""
    return Path(folder) / f"{process}.jsonl"

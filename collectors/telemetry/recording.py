"""Recordings (`.gpr`): frames in a file, to be shown where there is no GPU.

A gzip stream of JSON lines: a header, then a frame each (`encoding`). It is flushed once a second,
so a recorder that is killed loses a second at most, and what is cut off is readable up to the cut.
"""

from __future__ import annotations

import gzip
import json
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gpuadvisor.collectors.telemetry.decoding import decode
from gpuadvisor.collectors.telemetry.encoding import encode
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, Frame
from gpuadvisor.errors import UsageError

KIND = "gpuadvisor recording"
FORMAT = 1
"""The format's version, raised when an older gpuadvisor would misread the file, not for more."""
FLUSH_S = 1.0
LONGEST_LINE = 1 << 24
"""Bytes of a line: a frame of eight GPUs has some 10,000; what is longer is no recording."""


def check_writable(path: Path) -> None:
    """UsageError where a recording could not be written there; leaves no trace."""
    is_new = not path.exists()
    try:
        path.open("ab").close()
        if is_new:
            path.resolve().unlink()
    except OSError as error:
        raise _unwritable(path, error) from error


class Recorder:
    """A writer of a recording; a context manager."""

    def __init__(
        self, path: Path, version: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin the file, replacing one that is there; UsageError where it cannot be written.

        `version` is that of the gpuadvisor that writes it.
        """
        self.path = path
        self.frames = 0
        self._clock = clock
        try:
            self._raw: IO[bytes] = path.open("wb")
        except OSError as error:
            raise _unwritable(path, error) from error
        self._file = gzip.GzipFile(fileobj=self._raw, mode="wb", compresslevel=6, mtime=0)
        self._flushed_s = clock()
        header = {"kind": KIND, "format": FORMAT, "gpuadvisor": version}
        self._write(json.dumps(header).encode())

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, frame: Frame) -> None:
        """Add a frame to the recording; UsageError where the disk is full."""
        self._write(encode(frame))
        self.frames += 1

    def close(self) -> None:
        """Close the recording; what was written is safe before as well."""
        try:
            self._file.close()
            self._raw.close()
        except OSError as error:
            raise self._given_up(error) from error

    def _write(self, line: bytes) -> None:
        try:
            self._file.write(line + b"\n")
            if self._clock() - self._flushed_s >= FLUSH_S:
                self._file.flush(zlib.Z_SYNC_FLUSH)
                self._flushed_s = self._clock()
        except OSError as error:
            raise self._given_up(error) from error

    def _given_up(self, error: OSError) -> UsageError:
        for file in (self._file, self._raw):
            with suppress(OSError):
                file.close()
        return _unwritable(self.path, error)


@dataclass(frozen=True)
class Recording:
    """A recording that was found to be one."""

    path: Path
    version: str
    """Version of the gpuadvisor that wrote it."""

    def frames(self) -> Iterator[Frame]:
        """Yield the frames in order, up to a cut, as a recorder that was killed leaves one.

        Where the file is damaged, the last frame has an event that says so: what comes after the
        damage depends on what was before, and cannot be read.
        """
        lines = _lines(self.path)
        next(lines, None)
        last_s = 0.0
        try:
            for line in lines:
                frame = decode(line)
                last_s = frame.time_s
                yield frame
        except ValueError:
            said = "The recording is damaged here: what was recorded later cannot be read."
            event = Event("gap", last_s, said, Severity.ERROR, ended_s=last_s, key="damaged")
            yield Frame(last_s, events=(event,))


def read_recording(path: Path) -> Recording:
    """Return the recording in a file; UsageError in one sentence where there is none."""
    header = _header(path)
    if header is None:
        raise UsageError(
            f"{path} is not a recording of gpuadvisor: make one with `gpuadvisor record -o run.gpr`"
        )
    if header.get("format") != FORMAT:
        raise UsageError(
            f"{path} was recorded by gpuadvisor {header.get('gpuadvisor', '?')} in a format that "
            "this one does not know: upgrade gpuadvisor"
        )
    return Recording(path, str(header.get("gpuadvisor", "?")))


def _header(path: Path) -> dict[str, Any] | None:
    try:
        header = json.loads(next(_lines(path), b""))
    except (ValueError, RecursionError):
        return None
    is_ours = isinstance(header, dict) and header.get("kind") == KIND
    return header if is_ours else None


def _lines(path: Path) -> Iterator[bytes]:
    """Yield whole lines up to the end, which may be cut off; ValueError where it is damaged."""
    try:
        with gzip.open(path, "rb") as file:
            while (line := file.readline(LONGEST_LINE)).endswith(b"\n"):
                yield line
    except EOFError:
        return
    except (zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(str(error)) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path} cannot be written ({error.strerror}): choose another place with -o")

"""Recordings (`.gpr`): frames in a file, to be shown where there is no GPU.

A gzip stream of JSON lines: a header, then a frame each (`encoding`). It is flushed once a second,
so a recorder that is killed loses a second at most, and what is cut off is readable up to the cut.
Once a minute the compression begins anew, so that damage costs a minute and not the rest.
"""

from __future__ import annotations

import gzip
import json
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from gpuadvisor.collectors.telemetry.decoding import decode
from gpuadvisor.collectors.telemetry.encoding import encode
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, Frame
from gpuadvisor.errors import UsageError
from gpuadvisor.printable import duration

KIND = "gpuadvisor recording"
FORMAT = 1
"""The format's version, raised when an older gpuadvisor would misread the file, not for more."""
FLUSH_S = 1.0
RESTART_S = 60.0
"""Time between two places from which a damaged recording can be read again. It costs 2 % more bytes
than none with 8 GPUs, and every 10 s would cost 11 %."""
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


_FLUSHED = b"\x00\x00\xff\xff"
"""What a flush of deflate ends with: an empty stored block (RFC 1951, 3.2.4)."""
_GZIP, _RAW = 31, -15
"""`wbits` of zlib for a gzip stream, and for deflate from the middle of one."""
_CHUNK = 1 << 10
DAMAGED = "damaged"
"""The key of the `gap` that stands where a recording is damaged."""


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
        self._flushed_s = self._restarted_s = clock()
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
            now_s = self._clock()
            if now_s - self._restarted_s >= RESTART_S:
                self._file.flush(zlib.Z_FULL_FLUSH)
                self._flushed_s = self._restarted_s = now_s
            elif now_s - self._flushed_s >= FLUSH_S:
                self._file.flush(zlib.Z_SYNC_FLUSH)
                self._flushed_s = now_s
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

        Where the file is damaged, the next frame that can be read has a `gap` with the key DAMAGED
        and the bytes that were left out; where there is none, a last frame has it.
        """
        with _opened(self.path) as file:
            lines = _Lines(file)
            read = lines.read()
            next(read, None)
            decoded = _decoded(read)
            last_s, damaged_at, words = 0.0, -1, ""
            while (frame := next(decoded, None)) is not None:
                if isinstance(frame, ValueError):
                    words = str(frame)
                    damaged_at = damaged_at if damaged_at >= 0 else lines.at
                    lines = _Lines(file, _next_flush(file, max(lines.at, lines.begin + 1)))
                    decoded = _decoded(lines.read())
                    continue
                if damaged_at >= 0:
                    if frame.time_s <= last_s:
                        continue  # it was read before
                    event = _damage(lines.begin - damaged_at, last_s, frame.time_s)
                    frame = replace(frame, events=(event, *frame.events))
                    damaged_at = -1
                last_s = frame.time_s
                yield frame
            if damaged_at >= 0:
                event = _damage(lines.begin - damaged_at, last_s, None, words)
                yield Frame(last_s, events=(event,))


def _decoded(lines: Iterator[bytes]) -> Iterator[Frame | ValueError]:
    """Yield the frames of lines, and last what is wrong with the one that is damaged."""
    try:
        yield from map(decode, lines)
    except ValueError as error:
        yield error


class _Lines:
    """The lines of a recording from a place in the file on."""

    def __init__(self, file: IO[bytes], begin: int = 0) -> None:
        """`begin`: 0, or the end of a flush."""
        self._file = file
        self._inflater = zlib.decompressobj(_RAW if begin else _GZIP)
        self._rest = b""
        self.begin = self.at = begin
        """Places in the file: where it begins, and how far it was read."""

    def read(self) -> Iterator[bytes]:
        """Yield whole lines up to the end, which may be cut off; ValueError where it is damaged."""
        while not self._inflater.eof and (chunk := _bytes_at(self._file, self.at, _CHUNK)):
            before = self._inflater.copy()
            problem = None
            try:
                data = self._inflater.decompress(chunk)
            except zlib.error as error:
                problem = str(error)
                chunk, data = _good(before, chunk)
            *lines, self._rest = (self._rest + data).split(b"\n")
            yield from lines
            self.at += len(chunk)
            if problem is not None or len(self._rest) > LONGEST_LINE:
                raise ValueError(problem or "no line is as long")


def _next_flush(file: IO[bytes], begin: int) -> int:
    """Return the place after the next flush, or the end of the file."""
    block = 1 << 20
    while found := _bytes_at(file, begin, block):
        if (place := found.find(_FLUSHED)) >= 0:
            return begin + place + len(_FLUSHED)
        begin += len(found) if len(found) < block else block - len(_FLUSHED) + 1
    return begin


def _bytes_at(file: IO[bytes], place: int, count: int) -> bytes:
    file.seek(place)
    return file.read(count)


def _good(inflater: zlib._Decompress, chunk: bytes) -> tuple[bytes, bytes]:
    """Return the bytes before the one that cannot be inflated, and what they are inflated."""
    inflated = []
    for place in range(len(chunk)):
        try:
            inflated.append(inflater.decompress(chunk[place : place + 1]))
        except zlib.error:
            return chunk[:place], b"".join(inflated)
    return chunk, b"".join(inflated)


def _damage(lost_bytes: int, last_s: float, next_s: float | None, words: str = "") -> Event:
    """Return the event of bytes that cannot be read; `last_s` is 0 where nothing came before."""
    size = f"{lost_bytes / 1e3:.1f} kB of it cannot be read"
    if "check" in words:  # zlib's words for the checksum at the end
        said = (
            "The recording is damaged: its checksum is wrong, so that some of its values may not be"
            " those that were recorded."
        )
    elif next_s is None:
        said = f"The recording is damaged here: {size}, all that was recorded later."
    elif not last_s:
        said = f"The recording is damaged at its begin: {size}."
    else:
        said = f"The recording is damaged here: {size}, {duration(next_s - last_s)} are missing."
    end_s = last_s if next_s is None else next_s
    data = {"bytes": lost_bytes}
    began_s = last_s or end_s
    return Event("gap", began_s, said, Severity.ERROR, ended_s=end_s, key=DAMAGED, data=data)


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
    with _opened(path) as file:
        try:
            header = json.loads(next(_Lines(file).read(), b""))
        except (ValueError, RecursionError):
            return None
    is_ours = isinstance(header, dict) and header.get("kind") == KIND
    return header if is_ours else None


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path} cannot be written ({error.strerror}): choose another place with -o")

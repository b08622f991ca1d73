"""Record a source until a time is over, a command ends, or somebody has seen enough."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuadvisor.daemon.sources import Source, has_answered
from gpuadvisor.domain.telemetry import Frame
from gpuadvisor.errors import AdvisorError, UsageError

POLL_S = 0.1


@dataclass(frozen=True)
class Captured:
    """What became of it."""

    path: Path
    frames: int
    seconds: float
    gpus: int
    status: int
    """The command's exit status, 0 without one."""

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size


def capture(
    source: Source,
    path: Path,
    *,
    command: Sequence[str] = (),
    duration_s: float | None = None,
    stopped_by: Callable[[], int] = lambda: 0,
) -> Captured:
    """Write the source's frames to the file; AdvisorError where there is no GPU to record.

    `stopped_by` is asked several times a second for the signal that asks to stop, 0 for none. A
    command gets a terminal's Ctrl-C itself; SIGTERM is handed on to it. It is always awaited.
    """
    from importlib.metadata import version as version_of

    from gpuadvisor.collectors.telemetry.recording import Recorder

    began_s = time.monotonic()
    process: subprocess.Popen[bytes] | None = None
    frames = source.frames()
    try:
        first = _first(frames)
        with Recorder(path, version_of("gpuadvisor")) as recorder:
            recorder.write(first)
            process = _started(command) if command else None
            watch = _Watch(source, process, began_s, duration_s, stopped_by)
            for frame in frames:
                recorder.write(frame)
            watch.end()
        if process is not None and stopped_by() == signal.SIGTERM:
            process.terminate()
        status = 0 if process is None else _shell_status(process.wait())
        seconds = time.monotonic() - began_s
        return Captured(path, recorder.frames, seconds, len(first.gpus or ()), status)
    finally:
        source.close()
        if process is not None and process.poll() is None:
            process.terminate()
            process.wait()


def _first(frames: Iterator[Frame]) -> Frame:
    """Return the first frame that lists GPUs; until then the driver may still be starting."""
    problem = "the sampler ended"
    for frame in frames:
        if frame.gpus:
            return frame
        problem = frame.problem or problem
        if has_answered(frame):
            break
    raise AdvisorError(f"there is nothing to record: {problem}")


class _Watch:
    """Closes the source when it is time."""

    def __init__(
        self,
        source: Source,
        process: subprocess.Popen[bytes] | None,
        began_s: float,
        duration_s: float | None,
        stopped_by: Callable[[], int],
    ) -> None:
        def is_over() -> bool:
            late = duration_s is not None and time.monotonic() - began_s >= duration_s
            return (
                late or bool(stopped_by()) or (process is not None and process.poll() is not None)
            )

        def look() -> None:
            while not self._done.wait(POLL_S):
                if is_over():
                    source.close()
                    return

        self._done = threading.Event()
        self._thread = threading.Thread(target=look, name="capture", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._done.set()
        self._thread.join()


def _started(command: Sequence[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command)
    except OSError as error:
        raise UsageError(f"cannot start {command[0]}: {error.strerror}") from error


def _shell_status(status: int) -> int:
    return 128 - status if status < 0 else status

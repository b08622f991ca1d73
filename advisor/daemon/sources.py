"""Where frames come from (a daemon's store, this machine's driver, a recording), and their capture.

Consumers see no difference between the sources.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gpuadvisor.domain.telemetry import HOST, SILENT, SLOW, STARTING, Event, Frame, Gpu
from gpuadvisor.errors import AdvisorError, SilentError, UsageError
from gpuadvisor.version import __version__

if TYPE_CHECKING:
    from gpuadvisor.domain.telemetry_window import TelemetryWindow

BEFORE_S = 120.0
"""Seconds of stored rows that are shown at once, so that there is a history to look at."""
RECENT_S = 86400.0
"""Seconds of stored events that are shown: last night's matter in the morning. [own]"""
ASK_S = 0.5
"""Seconds between two queries for new rows, which come once a second: 0.6 ms each time."""
SILENT_S = 5.0
"""A daemon without rows for so long does not do its work, or has ended."""
LONGEST_PAUSE_S = 5.0
"""A gap in a recording is shown no longer than that."""
POLL_S = 0.1
NOT_ANSWERING = (
    "the NVIDIA driver has not answered for 5 s: it hangs (`sudo dmesg` may say why, and a reboot"
    " cures it), or takes that long to wake a GPU, which `nvidia-smi -pm 1` keeps awake"
)
AWAIT_S = 0.02
"""Time between two looks at a command that is not recorded any more: 0.1 % of a core."""


class Source(Protocol):
    """A source of frames in order of time, until the end of a recording or until `close`."""

    label: str
    """The source's name for people: `daemon`, `live`, or that of the recording."""
    has_all_events: bool
    """Whether frames carry the events that the daemon made of them, not only the collector's."""

    @property
    def withheld(self) -> str | None:
        """What this user may not see of the processes and why, in one sentence; None: nothing."""

    def frames(self) -> Iterator[Frame]:
        """Yield each frame as it comes."""

    def close(self) -> None:
        """End `frames`, from any thread."""


class Live:
    """This machine now: its GPUs through a sampler process, and the machine itself.

    With `fast_period_s`, frames with fast values come between the full ones.
    """

    label = "live"
    has_all_events = False
    withheld = None

    def __init__(self, fast_period_s: float | None = None, known: Sequence[Gpu] = ()) -> None:
        """`known` are the GPUs that were listed last, as of a lost one nobody can ask its name."""
        from gpuadvisor.collectors.telemetry.supervisor import SamplerProcess

        self._sampler = SamplerProcess(fast_period_s=fast_period_s, known=known)
        from gpuadvisor.collectors.telemetry.host import HostCollector  # while that one starts

        self._host = HostCollector()

    def frames(self) -> Iterator[Frame]:
        """Yield the sampler's frames, with the machine in each full one: also in its silence."""
        for frame in self._sampler.frames():
            if frame.full:
                frame = replace(frame, samples={**frame.samples, HOST: self._host.sample()})
            yield frame

    def close(self) -> None:
        self._sampler.close()


class Replay:
    """A recording, in its own rhythm."""

    has_all_events = False
    withheld = None

    def __init__(
        self, path: Path, *, speed: float = 1.0, wait: Callable[[float], object] | None = None
    ) -> None:
        """Open it; UsageError where it is none. `speed` 2 is twice as fast, infinity at once.

        `wait` is given the seconds until the next frame.
        """
        from gpuadvisor.collectors.telemetry.recording import read_recording

        self.label = path.name
        self._recording = read_recording(path)
        self._speed = speed
        self._closed = threading.Event()
        self._wait = self._closed.wait if wait is None else wait

    def frames(self) -> Iterator[Frame]:
        """Yield the recorded frames with their own times, in the rhythm of those times."""
        last_s: float | None = None
        for frame in self._recording.frames():
            if last_s is not None and frame.time_s > last_s:
                self._wait(min(frame.time_s - last_s, LONGEST_PAUSE_S) / self._speed)
            if self._closed.is_set():
                return
            last_s = frame.time_s
            yield frame

    def close(self) -> None:
        self._closed.set()


class FromStore:
    """The store of a daemon, row by row as it is written, from two minutes ago on."""

    label = "daemon"
    has_all_events = True

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        from gpuadvisor.storage.telemetry.reader import TelemetryReader

        self._clock = clock
        self._reader = TelemetryReader(folder)
        self._closed = threading.Event()

    def frames(self) -> Iterator[Frame]:
        """Yield the rows of the last two minutes at once, with the events of the last day, and then
        each as it comes.

        While there are none, a frame a second says why: its values are stale. Rows of the future
        are from before the clock was set back, and nothing of now.
        """
        begun_s = self._clock()
        follower = self._reader.follow(
            begun_s - BEFORE_S, with_all_events=True, events_since_s=begun_s - RECENT_S
        )
        last_s = self._clock()
        while not self._closed.is_set():
            for frame in follower.read(self._clock() + ASK_S):
                if self._closed.is_set():
                    return
                last_s = self._clock()
                yield frame
            now_s = self._clock()
            if follower.since_s > now_s + ASK_S:  # the clock was set back
                follower.since_s = last_s = now_s
            if now_s - last_s >= SILENT_S:
                yield Frame(now_s, problem=self._why_silent(now_s - last_s))
            self._closed.wait(ASK_S)

    @property
    def withheld(self) -> str | None:
        return self._reader.withheld

    def close(self) -> None:
        self._closed.set()

    def _why_silent(self, silent_s: float) -> str:
        from gpuadvisor.daemon.store import running

        process = running(self._reader.folder)
        if process is None:
            return "The daemon has stopped: begin again, to read the driver without it."
        return (
            f"The daemon (process {process}) has stored nothing for {silent_s:.0f} s: "
            "`gpuadvisor daemon status` and its log say more."
        )


def choose(*, speed: float = 1.0, recording: Path | None = None) -> Source:
    """Return the recording if there is one to show, else what the daemon stores if one runs, else
    this machine through a sampler of its own."""
    from gpuadvisor.daemon.store import running, store_folder
    from gpuadvisor.errors import StoreError

    if recording is not None:
        return Replay(recording, speed=speed)
    try:
        folder = store_folder()
        return Live() if running(folder) is None else FromStore(folder)
    except StoreError:  # the driver can be read without any store
        return Live()


def stored() -> Path | None:
    """Return the folder of this user's store where there is one to read, also of a daemon that has
    ended; None where there is none."""
    from gpuadvisor.daemon.store import store_folder
    from gpuadvisor.errors import StoreError

    try:
        folder = store_folder()
    except StoreError:
        return None
    return folder if next(folder.glob("*.db"), None) else None


def has_answered(frame: Frame) -> bool:
    """Return whether the driver has said what GPUs there are, or that it cannot: it is not merely
    starting or silent so far."""
    return frame.gpus is not None or frame.problem not in (None, STARTING, SLOW, SILENT)


@dataclass(frozen=True)
class Captured:
    """The recording that was made."""

    path: Path
    frames: int
    seconds: float
    """The time that was recorded, not that of the command."""
    gpus: int
    status: int
    """The command's exit status, 0 without one."""
    size_bytes: int
    """0 where the file has gone meanwhile."""


def capture(
    source: Source,
    path: Path,
    *,
    command: Sequence[str] = (),
    duration_s: float | None = None,
    stopped_by: Callable[[], int] = lambda: 0,
    warn: Callable[[str], object] = lambda _: None,
) -> Captured:
    """Write the source's frames to the file; AdvisorError where there is no GPU to record, and
    SilentError where the driver does not answer.

    `stopped_by` is asked several times a second for the signal that asks to stop, 0 for none. A
    command is begun at once and gets a terminal's Ctrl-C itself; SIGTERM is handed on to it. It is
    always awaited, and nothing else ends it: where there is nothing to record, or the recording
    fails as on a full disk, `warn` gets a sentence and the command goes on. Without a command, that
    is the error.
    """
    from gpuadvisor.collectors.telemetry.recording import Recorder, check_writable

    began_s = time.monotonic()
    process: subprocess.Popen[bytes] | None = None
    recorder: Recorder | None = None
    gpus: tuple[Gpu, ...] = ()

    def is_over() -> bool:
        late = duration_s is not None and time.monotonic() - began_s >= duration_s
        return late or bool(stopped_by()) or bool(process and process.poll() is not None)

    try:
        if command:
            check_writable(path)
            process = _begun(command)
        try:
            with ExitStack() as opened:
                opened.enter_context(_closed_once(is_over, source))
                for frame in _from_first(source, warn if process else None):
                    if recorder is None:
                        recorder = opened.enter_context(Recorder(path, __version__))
                        gpus = frame.gpus or ()
                    recorder.write(frame)
        except Exception as error:  # whatever it is: the command's owner has nothing to do with it
            if process is None:
                raise
            what = "the recording ended early" if recorder else "nothing is recorded"
            goes_on = " and the command goes on" if process.poll() is None else ""
            warn(f"{what}{goes_on}: {str(error) or repr(error)}")
    finally:
        source.close()
    seconds = time.monotonic() - began_s
    status = 0 if process is None else _awaited(process, stopped_by)
    size_bytes = path.stat().st_size if path.exists() else 0
    frames = recorder.frames if recorder else 0
    return Captured(path, frames, seconds, len(gpus), status, size_bytes)


def _begun(command: Sequence[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command)
    except OSError as error:
        raise UsageError(f"cannot start {command[0]}: {error.strerror}") from error


def _awaited(process: subprocess.Popen[bytes], stopped_by: Callable[[], int]) -> int:
    """Return the command's exit status, as shells have it, when it has ended."""
    is_told = False
    while process.poll() is None:
        if not is_told and stopped_by() == signal.SIGTERM:
            process.terminate()
            is_told = True
        time.sleep(AWAIT_S)
    status = process.returncode
    return 128 - status if status < 0 else status


def _from_first(source: Source, warn: Callable[[str], object] | None) -> Iterator[Frame]:
    """Yield the frames from the first that lists GPUs; until then the driver may be starting.

    AdvisorError where it has none. Where it does not answer, `warn` is told once, or without it
    that is a SilentError.
    """
    problem = "it was over before the driver's first answer"
    frames = source.frames()
    is_told = False
    for frame in frames:
        if frame.gpus:
            yield frame
            yield from frames
            return
        problem = frame.problem or problem
        if has_answered(frame):
            break
        if frame.problem == SILENT and not is_told:
            if warn is None:
                raise SilentError(NOT_ANSWERING)
            warn(f"nothing is recorded until it answers: {NOT_ANSWERING}")
            is_told = True
    raise AdvisorError(f"there is nothing to record: {problem}")


@contextmanager
def _closed_once(is_over: Callable[[], bool], source: Source) -> Iterator[None]:
    """Have a thread close the source once the recording is over, while the block runs."""
    done = threading.Event()

    def look() -> None:
        while not done.wait(POLL_S):
            if is_over():
                source.close()
                return

    thread = threading.Thread(target=look, name="capture", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def window_of_recording(path: Path) -> TelemetryWindow:
    """Return what a recording says; UsageError where it is none, or holds nothing of a GPU.

    Its events begin with where it is damaged, if it is.
    """
    from gpuadvisor.collectors.telemetry.recording import DAMAGED, read_recording
    from gpuadvisor.domain.telemetry_window import window_of_frames

    damage: list[Event] = []

    def frames() -> Iterator[Frame]:
        for frame in read_recording(path).frames():
            damage.extend(event for event in frame.events if event.key == DAMAGED)
            yield frame

    window = window_of_frames(frames())
    if window is None:
        raise UsageError(f"{path} holds no values of a GPU: record one that is at work")
    others = [event for event in window.events if event.key != DAMAGED]
    return replace(window, events=(*damage, *others))


def window_of_store(
    begin_s: float, end_s: float, folder: Path | None = None
) -> TelemetryWindow | None:
    """Return what the daemon stored of a time, with the events of then; None where it has nothing.

    Times are Unix times. Only raw rows are looked at (`retention.raw`): minutes do not tell how
    often a reason held. StoreError where the store cannot be read.
    """
    from gpuadvisor.daemon.store import store_folder
    from gpuadvisor.domain.telemetry_window import (
        LONGEST_CARRIED_S,
        MOST_EVENTS,
        window_of_frames,
    )
    from gpuadvisor.storage.telemetry.reader import TelemetryReader

    folder = store_folder() if folder is None else folder
    if not list(folder.glob("*.db")):
        return None
    reader = TelemetryReader(folder)
    window = window_of_frames(reader.frames(begin_s - LONGEST_CARRIED_S, end_s), begin_s, end_s)
    if window is None:
        return None
    events = tuple(reader.events(begin_s, end_s, MOST_EVENTS))
    return replace(window, events=events, withheld=reader.withheld)

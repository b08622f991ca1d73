"""The sampler in a child process, and a watchdog: whatever the driver does, frames keep coming.

A call into a broken driver may never return, and its process cannot always be killed. So nobody
but the child calls NVML here. While it is silent, what was known is handed on as stale, and the
frame's problem says why. A silence lasts from its beginning to the next answer, however many
children are started meanwhile. Its sentences count nothing, and the metrics keep the first one:
whatever changes is told and stored as news.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from gpuadvisor.collectors.telemetry.decoding import decode
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import (
    HOST,
    STARTING,
    Event,
    Frame,
    Sample,
    State,
    Unavailable,
)

SILENCE_S = 2.0
"""Silence after which values are stale and the child is replaced."""
START_S = 30.0
"""Patience for a child's first frame: without persistence mode the driver first wakes every GPU."""
EVERY_S = 1.0
"""Time between two frames, from the child or in its place."""
REPLACE_EVERY_S = 60.0
"""Time between two replacements of a child that hangs, of which the first comes at once: a driver
that hangs for good would otherwise collect a process that cannot be killed every few seconds. It is
also the longest wait after a child that ended, and the life from which on one counts as steady."""
CRASH_WAIT_S = 1.0
"""A child that ended leaves nothing behind, so the next one begins at once, after two in a row that
were not steady in a second, and then in twice as long each time: a start costs 0.2 s of a core."""
MOST_CRASHES = 32
"""More in a row are not counted: the wait has long come to its longest."""
DEATH_S = 1.0
"""Seconds for a killed child to be gone; one in an uninterruptible call stays."""
LATE_S = 1.0
"""Seconds by which this process itself was held up from which a silence does not count."""
NO_ANSWER = "the NVIDIA driver does not answer"
AFTER_S = 1e-6
"""Seconds between a frame in the child's place and the child's own, which began before and comes
after: floats of today's Unix times resolve 0.24 us."""

# -P: a file of that name in the user's folder must not be imported for nvidia-ml-py.
CHILD = (sys.executable, "-P", "-m", "gpuadvisor.collectors.telemetry.child")


class SamplerProcess:
    """Frames from a sampler in a process of its own; a context manager."""

    def __init__(
        self,
        *,
        fast_period_s: float | None = None,
        hurried: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        command: Sequence[str] = CHILD,
        silence_s: float = SILENCE_S,
        start_s: float = START_S,
        replace_every_s: float = REPLACE_EVERY_S,
        every_s: float = EVERY_S,
        crash_wait_s: float = CRASH_WAIT_S,
    ) -> None:
        """Start it. With `fast_period_s`, frames with fast values come between the full ones.

        `hurried` metrics are read with every full one, whatever their interval.
        """
        options = {"fast_period_s": fast_period_s, "hurried": hurried}
        self._command = [*command, json.dumps(options)]
        self._environ = dict(os.environ if environ is None else environ)
        self._silence_s = silence_s
        self._start_s = start_s
        self._replace_every_s = replace_every_s
        self._every_s = every_s
        self._crash_wait_s = crash_wait_s
        self._known: dict[str, dict[str, float | Unavailable]] = {}
        """When each metric of a device was read last, or why it had no value."""
        self._problem: str | None = None
        """Why nothing is heard now, in one sentence; None while all is well."""
        self._first_problem = ""
        """Why nothing was heard at first: the reason of each metric until there is an answer."""
        self._failure: Event | None = None
        self._placed_s = -inf
        """Unix time of the last frame in the child's place."""
        self._hung_s = -inf
        """Monotonic time at which a child that hangs was replaced last."""
        self._crashes = 0
        """Children in a row that ended before they were steady."""
        self._closed = threading.Event()
        self._child = _Child(self._command, self._environ)

    def __enter__(self) -> SamplerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child and `frames`; from any thread, and more than once."""
        self._closed.set()
        self._child.end()

    def frames(self) -> Iterator[Frame]:
        """Yield frames until `close`, at least one a second."""
        while not self._closed.is_set():
            asked_s = time.monotonic()
            frame = self._child.next(self._every_s)
            if self._closed.is_set():
                return
            if frame is not None:
                yield self._heard(frame)
                continue
            if time.monotonic() - asked_s > self._every_s + LATE_S:
                self._child.forgive()
            reason = self._child.ended() or self._silence()
            yield self._in_its_place(reason)
            if reason and self._may_replace():
                self._replace()

    def _heard(self, frame: Frame) -> Frame:
        if frame.time_s <= self._placed_s <= time.time():
            # A slow answer, whose poll began before; were the clock set back, it were earlier now.
            frame = replace(frame, time_s=self._placed_s + AFTER_S)
        if frame.gpus is not None:
            listed = {HOST, *(gpu.uuid for gpu in frame.gpus)}
            self._known = {uuid: kept for uuid, kept in self._known.items() if uuid in listed}
        for device, sample in frame.samples.items():
            known = self._known.setdefault(device, {})
            known.update(dict.fromkeys(sample.values, frame.time_s))
            known.update(sample.unavailable)
        self._problem = None
        if self._failure is None:
            return frame
        over = replace(self._failure, ended_s=max(frame.time_s, self._failure.began_s))
        self._failure = None
        return replace(frame, events=(*frame.events, over))

    def _silence(self) -> str | None:
        """Return the problem of a child that is silent; None while its silence is expected."""
        limit_s = self._silence_s if self._child.heard else self._start_s
        return NO_ANSWER if self._child.silent_s() >= limit_s else None

    def _in_its_place(self, reason: str | None) -> Frame:
        """Return a frame without values: what was known is stale.

        `reason` is what is wrong with the child of now; that of the one before counts on until
        something is heard.
        """
        now_s = self._placed_s = time.time()
        if reason is not None:
            problem = f"{reason[0].upper()}{reason[1:]}."
            if self._problem is None:
                self._first_problem = problem
            self._problem = problem
        if self._problem is None and self._child.silent_s() < self._silence_s:
            return Frame(now_s, full=False)  # late by less than counts
        samples = {
            device: Sample({}, {name: self._stale(each) for name, each in known.items()})
            for device, known in self._known.items()
        }
        events: tuple[Event, ...] = ()
        if reason is not None and self._failure is None:
            self._failure = Event(
                "sampler",
                now_s,
                f"Nothing is measured, because {reason}: the sampler is started anew.",
                Severity.WARNING,
            )
            events = (self._failure,)
        return Frame(now_s, samples, events=events, problem=self._problem or STARTING)

    def _stale(self, known: float | Unavailable) -> Unavailable:
        if isinstance(known, Unavailable):
            return known
        return Unavailable(State.STALE, known, self._first_problem)

    def _may_replace(self) -> bool:
        """Whether it is time for another child, after one that has ended or hangs."""
        now_s, child = time.monotonic(), self._child
        if child.ended() is None:
            if now_s - self._hung_s < self._replace_every_s:
                return False
            self._hung_s = now_s
            return True
        is_steady = child.heard_s - child.began_s >= self._replace_every_s
        crashes = 0 if is_steady else self._crashes
        wait_s = min(self._crash_wait_s * 2 ** (crashes - 1), self._replace_every_s)
        if crashes and now_s - child.heard_s < wait_s:
            return False
        self._crashes = min(crashes + 1, MOST_CRASHES)
        return True

    def _replace(self) -> None:
        self._child.end()
        self._child = _Child(self._command, self._environ)
        if self._closed.is_set():  # while it was replaced
            self._child.end()


class _Child:
    """One sampler process, whose lines a thread reads."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self.heard = False
        """Whether it has sent a frame yet."""
        self._frames: queue.Queue[Frame | None] = queue.Queue()
        self._nonsense = ""
        self._ending = threading.Event()
        self.began_s = self.heard_s = time.monotonic()
        """Monotonic times of its start, and from which on its silence counts."""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # it ends when this end is closed, however we end
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="telemetry", daemon=True)
        self._reader.start()

    def next(self, timeout_s: float) -> Frame | None:
        """Return the child's next frame; None when none came in that time or none will come."""
        try:
            frame = self._frames.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if frame is None:  # the end; asked again, it says so again
            self._frames.put(None)
            self._ending.wait(timeout_s)
            return None
        self.heard = True
        self.forgive()
        return frame

    def forgive(self) -> None:
        """Count the child's silence from now on."""
        self.heard_s = time.monotonic()

    def silent_s(self) -> float:
        return time.monotonic() - self.heard_s

    def ended(self) -> str | None:
        """Return how the child ended; None while it runs."""
        status = self._process.poll()
        if self._nonsense:
            return f"the sampler said nonsense ({self._nonsense[:60]!r})"
        if status is None:
            return None
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"the sampler {how}"

    def end(self) -> None:
        """Kill the child and wait a moment; one that cannot be killed is left to the kernel."""
        self._ending.set()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(DEATH_S)
            self._reader.join(DEATH_S)
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        with stdout:
            for line in stdout:
                try:
                    self._frames.put(decode(line))
                except ValueError:
                    self._nonsense = line.decode("utf-8", "replace").strip()
                    break
        self._frames.put(None)

"""The sampler in a child process, and a watchdog: whatever the driver does, frames keep coming.

A call into a broken driver may never return, and its process cannot always be killed. So nobody
but the child calls NVML here. While it is silent, what was known is handed on as stale, and the
frame's problem says why. A silence lasts from its beginning to the next answer, however many
children are started meanwhile. Its sentences count nothing, and the metrics keep the first one:
whatever changes is told and stored as news.

Two wait for a driver that hangs: the child, which has all the time that a start may take, and
beside it a fresh one every few seconds, as calls that hang do not always return once the driver
works. Who answers first is the child.
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
from dataclasses import asdict, replace
from math import inf

from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import (
    HOST,
    SILENT,
    SLOW,
    STARTING,
    Event,
    Frame,
    Gpu,
    Sample,
    State,
    Unavailable,
)

SILENCE_S = 2.0
"""Silence after which values are stale and the child is replaced."""
SLOW_TIMES = 2.0
"""What a driver that is known to be slow may take, in terms of its last answer. [own]"""
STEP_S = 5.0
"""Patience for each step of a child's start: NVML's own, then each GPU in turn, which the driver
first wakes where nobody keeps it awake, in 1 to 3 s (docs.nvidia.com/deploy/driver-persistence)."""
START_S = 30.0
"""Patience for a child's first word, as Python starts late from a slow disk, and time that one
which waits for the driver is given before another takes its place."""
EVERY_S = 1.0
"""Time between two frames, from the child or in its place."""
PROBE_EVERY_S = 5.0
"""Time between two new children while the driver does not answer, each of which costs 0.2 s of a
core. The first one comes at once."""
LONGEST_WAIT_S = 60.0
"""Time between two new children while a killed one is still there, as a call into the kernel holds
it: a driver that hangs for good would otherwise collect such processes. It is also the longest wait
after a child that ended, and the life from which on one counts as steady."""
CRASH_WAIT_S = 1.0
"""A child that ended leaves nothing behind, so the next one begins at once, after two in a row that
were not steady in a second, and then in twice as long each time: a start costs 0.2 s of a core."""
MOST_CRASHES = 32
"""More in a row are not counted: the wait has long come to its longest."""
DEATH_S = 1.0
"""Seconds for a killed child to be gone; one in an uninterruptible call stays."""
LATE_S = 1.0
"""Seconds by which this process itself was held up from which a silence does not count."""
LINE_BYTES = 1 << 16
"""Bytes that are read at once: as much as a pipe holds. A frame of eight GPUs has 9,000."""
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
        known: Sequence[Gpu] = (),
        environ: Mapping[str, str] | None = None,
        command: Sequence[str] = CHILD,
        silence_s: float = SILENCE_S,
        step_s: float = STEP_S,
        start_s: float = START_S,
        probe_every_s: float = PROBE_EVERY_S,
        longest_wait_s: float = LONGEST_WAIT_S,
        every_s: float = EVERY_S,
        crash_wait_s: float = CRASH_WAIT_S,
    ) -> None:
        """Start it. With `fast_period_s`, frames with fast values come between the full ones.

        `hurried` metrics are read with every full one, whatever their interval. `known` are the
        GPUs that were listed last, where that is known: one that is lost cannot say who it is.
        """
        self._options = {"fast_period_s": fast_period_s, "hurried": hurried}
        self._command = command
        self._gpus: tuple[Gpu, ...] = tuple(known)
        """The GPUs as they were listed last: a new child must know who those are that are lost."""
        self._environ = dict(os.environ if environ is None else environ)
        self._silence_s = silence_s
        self._step_s = step_s
        self._start_s = start_s
        self._probe_every_s = probe_every_s
        self._longest_wait_s = longest_wait_s
        self._every_s = every_s
        self._crash_wait_s = crash_wait_s
        self._known: dict[str, dict[str, float | Unavailable]] = {}
        """When each metric of a device was read last, or why it had no value."""
        self._problem: str | None = None
        """Why nothing is heard now, in one sentence; None while all is well."""
        self._first_problem = ""
        """Why nothing was heard at first: the reason of each metric until there is an answer."""
        self._failure: Event | None = None
        self._is_slow = False
        """Whether the driver answers, but takes longer than a silence that counts."""
        self._errors: tuple[Event, ...] = ()
        """What a child told aside, to be handed on with the next frame."""
        self._placed_s = -inf
        """Unix time of the last frame in the child's place."""
        self._began_s = -inf
        """Monotonic time at which a child was begun last because of a hang."""
        self._crashes = 0
        """Children in a row that ended before they were steady."""
        self._closed = threading.Event()
        self._heard_of: queue.SimpleQueue[tuple[_Child, Frame | None]] = queue.SimpleQueue()
        """What children sent, in order; None when one ended."""
        self._child = self._begin()
        self._probe: _Child | None = None
        self._stuck: list[_Child] = []
        """Children that were killed and may still be there."""

    def __enter__(self) -> SamplerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child and `frames`; from any thread, and more than once."""
        self._closed.set()
        for child in filter(None, (self._child, self._probe)):
            child.end()

    def frames(self) -> Iterator[Frame]:
        """Yield frames until `close`, at least one a second."""
        while not self._closed.is_set():
            asked_s = time.monotonic()
            frame = self._next(asked_s + self._every_s)
            if self._closed.is_set():
                return
            if frame is not None:
                yield self._heard(frame)
                continue
            if time.monotonic() - asked_s > self._every_s + LATE_S:
                for child in filter(None, (self._child, self._probe)):
                    child.heard_s = time.monotonic()  # its silence counts from now on
            how = self._child.ended()
            yield self._with_errors(self._in_its_place(how))
            if how:
                self._replace_ended()
            elif self._problem == SILENT:
                self._try_another()

    def _next(self, until_s: float) -> Frame | None:
        """Return the next frame; None where none came by then (monotonic) or the child ended."""
        while True:
            try:
                wait_s = max(0.0, until_s - time.monotonic())
                child, frame = self._heard_of.get(timeout=wait_s)
            except queue.Empty:
                return None
            if frame is not None and _is_aside(frame):
                self._errors += frame.events
                continue
            took_s = child.silent_s()
            child.heard_s = time.monotonic()
            if frame is None:
                if child is self._child:
                    return None
            elif frame.problem == STARTING:
                child.patience_s = self._step_s
            elif child in (self._child, self._probe):  # and not one that was given up
                child.patience_s = self._patience_after(took_s)
                if child is self._probe:
                    self._succeed()
                elif self._probe is not None:
                    self._end(self._probe)
                    self._probe = None
                return frame

    def _patience_after(self, took_s: float) -> float:
        """Return the silence that is expected after an answer that came after `took_s`.

        A driver that answers every few seconds is slow: once it was held to hang for that, it is
        given more time, else it would hang and recover with each answer.
        """
        is_slow = took_s > self._silence_s and (self._problem == SILENT or self._is_slow)
        self._is_slow = is_slow
        return min(SLOW_TIMES * took_s, self._start_s) if is_slow else self._silence_s

    def _heard(self, frame: Frame) -> Frame:
        if frame.time_s <= self._placed_s <= time.time():
            # A slow answer, whose poll began before; were the clock set back, it were earlier now.
            frame = replace(frame, time_s=self._placed_s + AFTER_S)
        if frame.gpus is not None:
            self._gpus = frame.gpus
            listed = {HOST, *(gpu.uuid for gpu in frame.gpus)}
            self._known = {uuid: kept for uuid, kept in self._known.items() if uuid in listed}
        for device, sample in frame.samples.items():
            known = self._known.setdefault(device, {})
            known.update(dict.fromkeys(sample.values, frame.time_s))
            known.update(sample.unavailable)
        self._problem = None
        frame = self._with_errors(frame)
        if self._failure is None:
            return frame
        over = replace(self._failure, ended_s=max(frame.time_s, self._failure.began_s))
        self._failure = None
        return replace(frame, events=(*frame.events, over))

    def _with_errors(self, frame: Frame) -> Frame:
        errors, self._errors = self._errors, ()
        return replace(frame, events=(*errors, *frame.events)) if errors else frame

    def _in_its_place(self, how: str | None) -> Frame:
        """Return a frame without values: what was known is stale.

        `how` the child of now ended, if it did. The problem of the one before counts on until
        something is heard.
        """
        now_s = self._placed_s = time.time()
        problem = self._problem
        if how is not None:
            problem = f"{how[0].upper()}{how[1:]}."
        elif self._child.silent_s() >= self._child.patience_s:
            problem = SILENT
        late = SLOW if self._is_slow else STARTING
        if self._problem is None:
            self._first_problem = problem or late
        self._problem = problem
        if problem is None and self._child.silent_s() < self._silence_s:
            # Late by less than counts.
            is_starting = self._child.patience_s != self._silence_s and not self._is_slow
            return Frame(now_s, full=False, problem=STARTING if is_starting else None)
        samples = {
            device: Sample({}, {name: self._stale(each) for name, each in known.items()})
            for device, known in self._known.items()
        }
        events: tuple[Event, ...] = ()
        if how is not None and self._failure is None:
            self._failure = Event(
                "sampler",
                now_s,
                f"Nothing is measured, because {how}: it is started anew.",
                Severity.WARNING,
            )
            events = (self._failure,)
        return Frame(now_s, samples, events=events, problem=problem or late)

    def _stale(self, known: float | Unavailable) -> Unavailable:
        if isinstance(known, Unavailable):
            return known
        return Unavailable(State.STALE, known, self._first_problem)

    def _replace_ended(self) -> None:
        """Have another child in place of one that ended, once it is time."""
        now_s, child = time.monotonic(), self._child
        is_steady = child.heard_s - child.began_s >= self._longest_wait_s
        crashes = 0 if is_steady else self._crashes
        wait_s = min(self._crash_wait_s * 2 ** (crashes - 1), self._longest_wait_s)
        if crashes and now_s - child.heard_s < wait_s:
            return
        self._crashes = min(crashes + 1, MOST_CRASHES)
        self._succeed()

    def _try_another(self) -> None:
        """Have another child wait for a driver that does not answer, once it is time."""
        now_s, child = time.monotonic(), self._child
        self._stuck = [each for each in self._stuck if each.is_there()]
        wait_s = self._longest_wait_s if self._stuck else self._probe_every_s
        if now_s - self._began_s < wait_s:
            return
        self._began_s = now_s
        if (
            child.patience_s == self._silence_s
            or self._is_slow
            or child.silent_s() >= self._start_s
        ):
            self._succeed()
        else:
            if self._probe is not None:
                self._end(self._probe)
            self._probe = self._begin()

    def _succeed(self) -> None:
        """Put the one that waits beside the child, or a new one, in its place."""
        self._end(self._child)
        self._child, self._probe = self._probe or self._begin(), None

    def _begin(self) -> _Child:
        options = {**self._options, "known": [asdict(gpu) for gpu in self._gpus]}
        command = [*self._command, json.dumps(options)]
        child = _Child(command, self._environ, self._heard_of, self._start_s)
        if self._closed.is_set():  # while it was begun
            child.end()
        return child

    def _end(self, child: _Child) -> None:
        child.end()
        if child.is_there():
            self._stuck.append(child)


def _is_aside(frame: Frame) -> bool:
    """Return whether a child only tells of errors, from beside a poll that may hang."""
    return bool(frame.events) and not frame.full and not frame.samples


class _Child:
    """One sampler process, whose lines a thread reads."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        heard_of: queue.SimpleQueue[tuple[_Child, Frame | None]],
        patience_s: float,
    ) -> None:
        self.patience_s = patience_s
        """Silence that is expected of it now."""
        self._heard_of = heard_of
        self._nonsense = ""
        self.began_s = self.heard_s = time.monotonic()
        """Monotonic times of its start, and from which on its silence counts."""
        self._process = subprocess.Popen(
            command,
            bufsize=LINE_BYTES,
            stdin=subprocess.PIPE,  # it ends when this end is closed, however we end
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="telemetry", daemon=True)
        try:
            self._reader.start()
        except BaseException:  # Ctrl-C, while it waits for the thread: nobody else knows the child
            self.end()
            raise

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

    def is_there(self) -> bool:
        """Return whether its process has not gone yet."""
        return self._process.poll() is None

    def end(self) -> None:
        """Kill the child and wait a moment; one that cannot be killed is left to the kernel."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired, RuntimeError):  # or it never started
            self._process.wait(DEATH_S)
            self._reader.join(DEATH_S)
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def _read(self) -> None:
        from gpuadvisor.collectors.telemetry.decoding import decode  # while the child starts

        stdout = self._process.stdout
        assert stdout is not None
        with stdout:
            for line in stdout:
                try:
                    self._heard_of.put((self, decode(line)))
                except ValueError:
                    self._nonsense = line.decode("utf-8", "replace").strip()
                    break
        if not self._nonsense:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(DEATH_S)  # so that it is known how it ended
        self._heard_of.put((self, None))

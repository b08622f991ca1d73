"""Run a script once in a fresh process, watch it, and turn every end into a state with a reason."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from gpuadvisor.collectors.load import LoadMeter
from gpuadvisor.collectors.script.bundle import bundle_folder
from gpuadvisor.collectors.script.child.channel import owner_file, ready_file
from gpuadvisor.collectors.script.endings import Ending, conclude
from gpuadvisor.collectors.script.events import RunRecorder, parse
from gpuadvisor.collectors.script.lives import read_life
from gpuadvisor.collectors.script.request import Command, RunOutcome, RunRequest
from gpuadvisor.collectors.script.run_folder import run_folder
from gpuadvisor.collectors.script.run_processes import RunProcesses, reap
from gpuadvisor.collectors.script.scratch import View, scratch
from gpuadvisor.collectors.script.specification import (
    HASH_SEED,
    VARIABLE,
    Shortening,
    Specification,
)
from gpuadvisor.collectors.script.templates import (
    Forked,
    NoTemplateError,
    Phase,
    Start,
    Template,
    noted,
)
from gpuadvisor.domain.rehearsal import Life
from gpuadvisor.domain.study import TrialState
from gpuadvisor.interruption import to_its_end

KEPT_BYTES = 64 * 1024
"""The end of the output that is kept. A script that prints gigabytes fills neither memory nor
disk, and never waits for a reader."""
CHUNK_BYTES = 16 * 1024
POLL_S = 0.2
"""How often time-outs and cancellation are looked at."""
WAITING_S = 20.0
"""Time without a step, or with fewer than FEW_STEPS that were timed, after which that is said. To
import torch and build a model takes 5 to 15 s."""
FEW_STEPS = 5
"""Steps from which on what one takes can be told."""
EXIT_S = 10.0
"""How long a script that ended by itself may take for its exit handlers."""
DEFAULTS = {HASH_SEED: "0", "PYTHONUNBUFFERED": "1"}
"""Variables that are set unless they are set already. What a script printed before it was killed
would be lost in its buffer, which has no terminal behind it. Without a fixed hash seed the order of
a set would be another one in each run."""


class Tail:
    """Reads a stream to its end in a thread of its own."""

    def __init__(self, stream: IO[bytes], also: Callable[[bytes], object] | None = None) -> None:
        self._stream = stream
        self._also = also
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        while chunk := self._stream.read1(CHUNK_BYTES):  # type: ignore[attr-defined]
            if self._also is not None:
                with contextlib.suppress(OSError, ValueError):  # nobody reads there any more
                    self._also(chunk)
            with self._lock:
                self._chunks.append(chunk)
                self._size += len(chunk)
                while self._size - len(self._chunks[0]) > KEPT_BYTES:
                    self._size -= len(self._chunks.popleft())
        self._stream.close()

    def text(self) -> str:
        """Return the end of the output; call it when the processes are gone."""
        self._thread.join(timeout=1.0)
        return self.so_far()

    def so_far(self) -> str:
        """Return the end of what was read until now."""
        with self._lock:
            kept = b"".join(self._chunks)
        text = kept[-KEPT_BYTES:].decode("utf-8", "replace")
        return "\n".join(line.rsplit("\r", 1)[-1] for line in text.splitlines())


def run_script(
    request: RunRequest,
    read_energy_j: Callable[[], float | None] = lambda: None,
    load: LoadMeter | None = None,
) -> RunOutcome:
    """Run the script until it was measured, ended, failed or ran out of time.

    `read_energy_j` reads the energy counter of the request's GPU in joules, `load` sees what else
    uses the machine while the steps are measured. When this returns or raises, no process of the
    run is left. NoPrivateViewError where a private view of the file system was asked for and
    cannot be had: the script did not run.
    """
    with run_folder() as folder:
        outcome = _outcome(request, folder, RunRecorder(read_energy_j, load))
    if load is None:
        return outcome
    return replace(outcome, disturbance=load.disturbance(), limit=load.limit())


def run_life(request: RunRequest, shortening: Shortening) -> Life:
    """Run the script through a shortened life to its own end, and return what was seen of it.

    It is ended where the request's limits say so; what was seen until then is there all the same.
    When this returns or raises, no process of the run is left. NoPrivateViewError as in
    `run_script`.
    """
    with run_folder() as folder:
        record = folder / "record"
        record.mkdir()
        is_apart = not {HASH_SEED} & {*os.environ, *request.environment}
        shortening = replace(shortening, record=str(record), hashes_apart=is_apart)
        specification = replace(request.specification, shortening=shortening)
        recorder = RunRecorder(lambda: None)
        outcome = _outcome(replace(request, specification=specification), folder, recorder)
        return read_life(record, outcome, recorder)


def _outcome(request: RunRequest, folder: Path, recorder: RunRecorder) -> RunOutcome:
    """Run the script, in a private view if that is wanted."""
    if not request.scratch:
        return _Run(request, folder, recorder).go()
    with scratch(folder, request.command.folder, _shared_folders(request)) as view:
        outcome = _Run(_viewed(request, view), folder, recorder).go()
        view.check(ended=outcome.state is not TrialState.PRUNED)
        is_life = request.specification.shortening is not None
        return replace(outcome, written=view.written(contents=is_life))


def _shared_folders(request: RunRequest) -> Iterator[Path]:
    """Yield the folders that a script in a private view has in common with us."""
    yield bundle_folder()
    yield from map(Path, request.shared)
    shortening = request.specification.shortening
    if shortening is not None:
        yield from map(Path, filter(None, (shortening.record, shortening.weights)))


def _viewed(request: RunRequest, view: View) -> RunRequest:
    """Return the request of the same run in a private view."""
    command = replace(request.command, wrapper=(*view.wrapper, *request.command.wrapper))
    return replace(
        request, command=command, environment={**request.environment, **view.environment}
    )


def start_template(request: RunRequest, imports: Path, begun: Template | None = None) -> Template:
    """Start a process of which runs like the requested one can be forked.

    `imports` is what a run of the script has noted of its imports. It is the one that was `begun`
    for the same, where that comes so far. NoTemplateError where it cannot be had. When it is no
    longer used, it is to be closed.
    """
    _template_start(request)  # first: a run in a private view has noted nothing that we could read
    return _template(request, noted(imports), begun=begun)


def begin_template(request: RunRequest, phases: Sequence[Phase], moves: bool = False) -> Template:
    """Start such a process while nobody knows yet whether it will do.

    Where it `moves`, it is one of several scripts. It has to be given to `start_template`, or then
    to `start_common_template`, or closed; NoTemplateError as there.
    """
    return Template(_template_start(request), phases, moves)


def start_common_template(
    requests: Sequence[RunRequest], phases: Sequence[Phase], begun: Template | None = None
) -> Template:
    """Start a process of which runs like any of the requested ones can be forked.

    They are runs of several versions of a script; `phases` is what these import in common. It is
    the one that was `begun` where that imports the same; else that is closed. NoTemplateError where
    it cannot be had. When it is no longer used, it is to be closed.
    """
    starts = [_start_of(each, each.specification) for each in requests]
    if begun is not None and not (begun.phases == phases and all(map(begun.serves, starts))):
        begun.close()
        begun = None
    if begun is None and any(start.anywhere() != starts[0].anywhere() for start in starts):
        raise NoTemplateError("interpreters or environments of both versions differ")
    return _template(requests[0], phases, moves=True, begun=begun)


def is_forked(request: RunRequest) -> bool:
    """Say whether a requested run will be forked: from its template, which began as it would."""
    if request.template is None:
        return False
    return request.template.serves(_start_of(request, request.specification))


def _template(
    request: RunRequest,
    phases: Sequence[Phase],
    moves: bool = False,
    begun: Template | None = None,
) -> Template:
    start, wait_s = _template_start(request), request.limits.startup_s
    try:
        return (begun or Template(start, phases, moves)).wait(wait_s)
    except NoTemplateError:
        if len(phases) < 2:
            raise
    # What is imported after torch is not always fit for it.
    first = {**phases[0], "changed_later": phases[-1]["changed"]}
    return Template(start, [first], moves).wait(wait_s)


def _template_start(request: RunRequest) -> Start:
    """Return how a template of such runs begins; NoTemplateError where they cannot be forked."""
    if not hasattr(os, "memfd_create"):
        raise NoTemplateError("that needs Linux")
    if request.scratch:
        raise NoTemplateError("each run has a view of the file system of its own")
    start = _start_of(request, request.specification)
    if start.environment[HASH_SEED] == "random":
        raise NoTemplateError(f"${HASH_SEED} asks for other hashes in each process")
    return start


def _start_of(request: RunRequest, specification: Specification) -> Start:
    environment = _environment_of(request, specification)
    command = request.command
    return Start.of(command.line(), environment, command.folder, specification.cores)


def _environment_of(request: RunRequest, specification: Specification) -> dict[str, str]:
    """Return the environment of a run's first process."""
    extra = dict(request.environment)
    for variable, value in DEFAULTS.items():
        extra.setdefault(variable, os.environ.get(variable, value))
    gpu = None
    if not request.all_gpus:
        device = request.device
        gpu = (device.uuid or str(device.index)) if device.is_gpu else ""
    return target_environment(specification, extra, gpu)


def target_environment(
    specification: Specification, extra: Mapping[str, str], visible_gpu: str | None = None
) -> dict[str, str]:
    """Return the environment in which a Python process applies a specification by itself."""
    environment = dict(os.environ)
    environment.update(extra)
    paths = [str(bundle_folder())]
    if environment.get("PYTHONPATH"):
        paths.append(environment["PYTHONPATH"])
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    specification = replace(specification, visible_gpus=visible_gpu)
    environment[VARIABLE] = specification.to_json()
    if visible_gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible_gpu
    return environment


class _Run:
    """The state of one run."""

    def __init__(self, request: RunRequest, folder: Path, recorder: RunRecorder) -> None:
        pipe = folder / "events"
        os.mkfifo(pipe, 0o600)
        self._request = request
        self._recorder = recorder
        self._began_s = time.monotonic()
        self._heard_s = self._began_s
        self._specification = replace(request.specification, events=str(pipe), parent=os.getpid())
        # Read and write, so that the pipe has a writer, and no end, for as long as we live.
        self._pipe = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        if request.seat is not None:
            self._specification = request.seat.open(folder, self._specification)
        self._ready = request.ready
        """Awaited by the script's process; None where it is not, or not any more."""
        if self._ready is not None:
            self._specification = replace(self._specification, begins_early=True)
        self._stepped_s = math.inf
        """When it had made its first step, if it waits since then."""
        self._rest = b""
        self._told = False
        """Whether it was said that there is no step yet."""

    def go(self) -> RunOutcome:
        failed = True
        try:
            processes = self._start()
            process = processes.first
            try:
                tail = Tail(process.stdout, self._request.on_output) if process.stdout else None
                ending = self._watch(process)
                # What is printed from here on, such as by a process that outlives another for a
                # moment, is none of the script's own.
                printed = tail.so_far() if tail and ending is Ending.FINISHED else None
                if self._recorder.load is not None:
                    self._recorder.load.end()
            finally:
                with to_its_end():
                    stuck = processes.end()
            self._read()
            wall_s = time.monotonic() - self._began_s
            output = tail.text() if tail else ""
            outcome = conclude(
                self._request, self._recorder, ending, process.returncode, output, wall_s, stuck
            )
            failed = outcome.measurement is None
            return replace(
                outcome,
                read=tuple(dict.fromkeys(self._recorder.read)),
                torch_s=self._recorder.torch_s,
                printed=printed,
                forked=isinstance(process, Forked),
            )
        finally:
            os.close(self._pipe)
            if self._request.seat is not None:
                self._request.seat.leave(failed)

    def _start(self) -> RunProcesses:
        request = self._request
        environment = _environment_of(request, self._specification)
        line, folder, template = request.command.line(), request.command.folder, request.template
        start = Start.of(line, environment, folder, request.specification.cores)
        if template is not None and not template.serves(start):
            template = None
        return RunProcesses(line, environment, folder, template)

    def _watch(self, process: subprocess.Popen[bytes] | Forked) -> Ending:
        """Follow the run until there is a reason to end it."""
        self._recorder.main = process.pid
        if self._request.seat is not None:
            self._request.seat.started(process.pid)
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            while True:
                selector.select(POLL_S)
                reap()
                self._read()
                self._tell_ready()
                if self._recorder.finished is not None and not self._may_exit_by_itself():
                    return Ending.FINISHED
                if process.poll() is not None:
                    self._read()  # what it said last
                    return Ending.EXITED
                ending = self._give_up()
                if ending is not None:
                    return ending

    def _tell_ready(self) -> None:
        """Let a process go on that waits for gpuadvisor, once that has nothing else to do."""
        if self._ready is None or not self._ready.is_set():
            return
        ready_file(str(self._specification.events)).touch()
        self._ready = None
        waited_s = max(0.0, time.monotonic() - self._stepped_s)
        self._began_s += waited_s  # what it waited is none of its own time
        self._stepped_s = math.inf

    def _may_exit_by_itself(self) -> bool:
        """Say whether to wait for the script's own end: it comes now, and its status matters."""
        finished = self._recorder.finished
        if not finished:
            return False
        patience_s = EXIT_S if finished["short"] else 0.0
        return self._since_heard_s() < max(patience_s, self._request.exit_s)

    def _since_heard_s(self) -> float:
        return time.monotonic() - self._heard_s

    def _give_up(self) -> Ending | None:
        request, now = self._request, time.monotonic()
        if request.cancelled is not None and request.cancelled():
            return Ending.CANCELLED
        if request.seat is not None:
            if request.seat.is_abandoned:
                return Ending.CANCELLED
            if request.seat.waits:  # it is the other one that may be stuck
                self._heard_s = now
                return None
            now -= request.seat.waited_s
        if self._too_slow():
            return Ending.TOO_SLOW
        if request.needed and self._recorder.warm and not self._has_effect():
            return Ending.IDLE_KNOBS
        if self._recorder.owner is None:
            return self._without_step(now - self._began_s)
        if sum(window.steps for window in self._recorder.windows) < FEW_STEPS:
            self._tell_once("few_steps", now - self._began_s)
        if self._recorder.released:
            return None
        if self._since_heard_s() > request.limits.idle_s:
            return Ending.STUCK
        return Ending.OUT_OF_TIME if now - self._began_s > request.limits.total_s else None

    def _without_step(self, since_s: float) -> Ending | None:
        """Say whether to give up a run that had no step yet; tell of it before that."""
        limits, has_torch = self._request.limits, self._recorder.torch is not None
        if since_s > limits.startup_s:
            return Ending.NO_STEP
        if not has_torch and since_s > limits.import_s:
            return Ending.NO_TORCH
        limit_s = limits.startup_s if has_torch else min(limits.startup_s, limits.import_s)
        self._tell_once("waiting", since_s, torch=self._recorder.torch, limit_s=limit_s)
        return None

    def _tell_once(self, event: str, since_s: float, **more: Any) -> None:
        """Tell who listens of a run that has shown little for long, the first time only."""
        if since_s > WAITING_S and not self._told and self._request.on_event is not None:
            self._told = True
            self._request.on_event({"event": event, "seconds": since_s, **more})

    def _has_effect(self) -> bool:
        applied = self._recorder.applied.values()
        return any(a.knob in self._request.needed and a.state == "effective" for a in applied)

    def _too_slow(self) -> bool:
        limit_ms, windows = self._request.slower_than_ms, self._recorder.windows
        if limit_ms is None or len(windows) < 2:
            return False
        steps = sum(window.steps for window in windows)
        return steps >= 3 and 1e3 * sum(w.seconds for w in windows) / steps > limit_ms

    def _read(self) -> None:
        for line in self._lines():
            event = parse(line)
            if event is None:
                continue
            self._heard_s = time.monotonic()
            owner = self._recorder.owner
            self._recorder.take(event, self._heard_s - self._began_s)
            if self._recorder.owner != owner:
                self._tell_owner()
                if self._ready is not None:
                    self._stepped_s = min(self._stepped_s, self._heard_s)
            if self._request.on_event is not None:
                self._request.on_event(event)
            if self._request.seat is not None and event.get("pid", owner) == self._recorder.owner:
                self._request.seat.take(event)  # last: what follows is the other one's time

    def _tell_owner(self) -> None:
        """Let the script's processes know whose steps count; the others go on undisturbed."""
        file = owner_file(str(self._specification.events))
        draft = file.with_suffix(".draft")
        draft.write_text(str(self._recorder.owner))
        draft.rename(file)

    def _lines(self) -> Iterator[bytes]:
        while True:
            try:
                chunk = os.read(self._pipe, 1 << 16)
            except BlockingIOError:
                return
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            yield from lines


def replace_process(
    command: Command, specification: Specification, extra: Mapping[str, str]
) -> None:
    """Become the script, with settings applied: its own signals, terminal and exit status."""
    environment = target_environment(specification, extra)
    os.execve(command.python, command.line(), environment)

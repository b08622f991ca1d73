"""Ask a running process to record its next steps, without restarting or harming it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.listeners import (
    ANSWER,
    REQUEST,
    TRACE,
    Registration,
    all_registered,
    alone,
    catches,
    find,
    is_private,
    publish,
    started,
)
from gpuadvisor.errors import AdvisorError, Interrupted, UsageError
from gpuadvisor.profiling.recording import Recorded

POLL_S = 0.05
PATIENCE_S = 120.0
"""Seconds beyond what was asked for: the process may be in a long call, and it writes the trace."""


def attach(
    pid: int,
    folder: Path,
    steps: int,
    seconds: float,
    stacks: bool,
    timeout_s: float | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> tuple[Recorded, str]:
    """Return the trace that a process made for us, in `folder`, and the process's program.

    `seconds` is how long to wait for its first step, and how long to record without any.
    UsageError where it does not listen; AdvisorError where it could not record; Interrupted.
    """
    registration = listening(pid)
    with _alone(registration):
        number = uuid.uuid4().hex
        wanted = {"id": number, "steps": steps, "stacks": stacks, "seconds": seconds}
        _ask(registration, wanted)
        patience_s = timeout_s or 2 * seconds + PATIENCE_S
        answer = _answer(registration, number, patience_s, cancelled)
        if "error" in answer:
            raise AdvisorError(f"process {pid} was not profiled: {answer['error']}")
        trace = folder / TRACE
        shutil.move(Path(registration.folder, TRACE), trace)
        with contextlib.suppress(OSError):
            Path(registration.folder, ANSWER).unlink()
        if started(pid) != registration.started:  # it left its folder to us
            shutil.rmtree(registration.folder, ignore_errors=True)
    notes = () if answer["steps"] else (f"it made no step, so {seconds:g} s were recorded",)
    if 0 < answer["steps"] < steps:
        notes = (f"{answer['steps']} of {steps} steps were recorded: {answer['why']}",)
    return Recorded(trace, answer["steps"], 0, answer["with_gpu"], notes), registration.program


def listening(pid: int) -> Registration:
    """Return what a process has registered; UsageError if it does not listen."""
    if started(pid) is None:
        raise UsageError(f"there is no process {pid}: {_others()}")
    registration = find(pid)
    if registration is None or not is_private(Path(registration.folder)):
        raise UsageError(
            f"process {pid} does not listen: put `import gpuadvisor` and "
            f"`gpuadvisor.profile_on_demand()` at the start of its script, run both as the same "
            f"user and in the same container; {_others()}"
        )
    if not catches(pid, registration.signal):
        name = signal.Signals(registration.signal).name
        raise UsageError(
            f"process {pid} listens no more: its script has removed the handler of {name}, which "
            "would end it now, so it was not signalled"
        )
    return registration


def _others() -> str:
    others = ", ".join(f"{each.pid} ({each.program})" for each in all_registered())
    return f"these listen: {others}" if others else "no process listens now"


@contextmanager
def _alone(registration: Registration) -> Iterator[None]:
    """Keep other commands away from the process meanwhile; UsageError where one is there."""
    try:
        with alone(Path(registration.folder)):
            yield
    except BlockingIOError:
        raise UsageError(
            f"process {registration.pid} is being profiled by another command: wait for it"
        ) from None


def _ask(registration: Registration, wanted: dict[str, Any]) -> None:
    folder = Path(registration.folder)
    for name in (ANSWER, TRACE):  # of a command that did not wait
        with contextlib.suppress(OSError):
            (folder / name).unlink()
    publish(folder / REQUEST, wanted)
    try:
        os.kill(registration.pid, registration.signal)
    except OSError as error:
        raise AdvisorError(
            f"process {registration.pid} cannot be signalled: {error.strerror}"
        ) from error


def _answer(
    registration: Registration, wanted: str, patience_s: float, cancelled: Callable[[], bool]
) -> dict[str, Any]:
    file = Path(registration.folder, ANSWER)
    deadline = time.monotonic() + patience_s
    while True:
        alive = started(registration.pid) == registration.started
        with contextlib.suppress(OSError, ValueError):
            answer = json.loads(file.read_text("utf-8"))
            if answer["id"] == wanted:
                return dict(answer)
        if not alive:
            raise AdvisorError(f"process {registration.pid} ended before a step was recorded")
        if cancelled():
            raise Interrupted("interrupted: nothing was kept, and the process goes on")
        if time.monotonic() > deadline:
            raise AdvisorError(
                f"process {registration.pid} did not answer within {patience_s:.0f} s: it may be "
                "in a long call that handles no signals"
            )
        time.sleep(POLL_S)

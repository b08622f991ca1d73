"""Ask a script that runs, one question after the other; where it dies, it can be started again."""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Self

from gpuadvisor.collectors.script.events import told_by
from gpuadvisor.collectors.script.request import Event, Limits, RunOutcome, RunRequest
from gpuadvisor.collectors.script.run_folder import run_folder
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.domain.inquiry import Answer, Ended, Order
from gpuadvisor.domain.knobs import Application
from gpuadvisor.domain.study import TrialState
from gpuadvisor.errors import Interrupted, ScriptError

NAME = "inquiry"
APPLIER = "gpuadvisor.collectors.script.child.inquiry:INQUIRER"
POLL_S = 0.1
"""How often a wait for an answer looks whether the study was cancelled."""


class ScriptWitness:
    """A running script in which a knob answers orders (`gpuadvisor.domain.inquiry.Witness`).

    `knob` is where the knob is found, as `module:attribute`. All questions together take
    `allowed_s` at most, starts of the script included. No process is left when the context ends.
    """

    def __init__(self, request: RunRequest, knob: str, allowed_s: float) -> None:
        self._request = request
        self._knob = knob
        self._end_s = time.monotonic() + allowed_s
        self._stack = ExitStack()
        self._thread: threading.Thread | None = None
        self._ending = False
        self._outcome: RunOutcome | None = None
        self._failure: BaseException | None = None
        self._orders: int | None = None

    def __enter__(self) -> Self:
        self._path = self._stack.enter_context(run_folder()) / "orders"
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._stack.close()

    @property
    def left_s(self) -> float:
        return max(0.0, self._end_s - time.monotonic())

    def begin(self) -> Answer:
        self._end()
        self._path.unlink(missing_ok=True)  # an order that nobody read may be in it
        os.mkfifo(self._path, 0o600)
        # Read and write, so that the pipe has a reader before the script opens it.
        self._orders = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        self._answers: queue.Queue[Answer | None] = queue.Queue()
        self._outcome = self._failure = None
        self._ending = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self._next(self._request.limits.startup_s + self.left_s)

    def ask(self, order: Order, limit_s: float) -> Answer:
        self.tell(order)
        return self._next(limit_s)

    def tell(self, order: Order) -> None:
        if self._orders is None:
            raise Ended("it does not run")
        os.write(self._orders, (json.dumps(order) + "\n").encode())

    def _next(self, limit_s: float) -> Answer:
        until_s = time.monotonic() + limit_s
        while True:
            cancelled = self._request.cancelled
            if cancelled is not None and cancelled():
                self._end()
                raise Interrupted("interrupted")
            try:
                answer = self._answers.get(timeout=POLL_S)
            except queue.Empty:
                if time.monotonic() > until_s:
                    self._end()
                    raise Ended(f"it gave no answer within {limit_s:.0f} s") from None
                continue
            if answer is not None:
                return answer
            self._end()
            self._tell_end()

    def _tell_end(self) -> None:
        """Raise what the end of the process was."""
        if isinstance(self._failure, Interrupted | ScriptError):
            raise self._failure
        if self._failure is not None:
            raise ScriptError(str(self._failure))
        assert self._outcome is not None  # it ended without a failure of ours
        # As it says of a script that has too few steps for what it was started for.
        by_itself = self._outcome.state in (TrialState.UNSUPPORTED, TrialState.COMPLETE)
        raise Ended(self._outcome.reason.rstrip(".") or "the script ended", by_itself)

    def _run(self) -> None:
        """Run the script to its end, in a thread of its own."""
        options = json.dumps({"knob": self._knob, "orders": str(self._path)})
        own = self._request.specification
        applications = (*own.applications, Application(NAME, APPLIER, options))
        try:
            self._outcome = run_script(
                replace(
                    self._request,
                    specification=replace(own, applications=applications),
                    shared=(*self._request.shared, str(self._path.parent)),
                    on_event=self._hear,
                    cancelled=self._is_to_end,
                )
            )
        except BaseException as error:
            self._failure = error
        finally:
            self._answers.put(None)

    def _is_to_end(self) -> bool:
        cancelled = self._request.cancelled
        return self._ending or (cancelled is not None and cancelled())

    def _hear(self, event: Event) -> None:
        if (answer := told_by(NAME, event)) is not None:
            self._answers.put(answer)
        if self._request.on_event is not None:
            self._request.on_event(event)

    def _end(self) -> None:
        """End the process, and wait until none is left."""
        if self._orders is not None:
            with suppress(OSError):
                os.write(self._orders, b'{"end": true}\n')
        self._ending = True
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._orders is not None:
            os.close(self._orders)
            self._orders = None


def patient(limits: Limits, allowed_s: float) -> Limits:
    """Return the limits of a script that stands still while it is asked."""
    return replace(limits, idle_s=allowed_s, total_s=limits.startup_s + allowed_s)

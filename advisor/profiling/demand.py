"""One recording on demand, in the process of the script: from the request to the answer."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuadvisor import steps
from gpuadvisor.collectors.script.child import torch_profiler
from gpuadvisor.collectors.script.child.torch_profiler import Recording
from gpuadvisor.profiling.registrations import ANSWER, TRACE

TIME = "time"
"""What ends the recording of a process that makes no steps."""


class Demand:
    """Made and begun by the handler of the signal, then driven by the script's steps.

    The profiler belongs to the thread that starts it, so only that one goes on with it: the one
    that makes the steps, or the main thread, where the handler runs.
    """

    def __init__(self, folder: Path, request: dict[str, Any], poke: Callable[[], None]) -> None:
        self.ended = False
        self.told = False
        """Whether there is an answer that somebody may still want to read."""
        self._process = os.getpid()
        self._folder = folder
        self._id = request["id"]
        self._steps = int(request["steps"])
        self._stacks = bool(request["stacks"])
        self._seconds = float(request["seconds"])
        self._poke = poke
        self._marker = ""
        self._optimizer = 0
        self._hook: Any = None
        self._recording: Recording | None = None
        self._thread = 0
        self._deadline_s = 0.0

    def begin(self) -> None:
        """Wait for a step; without any, the time is what ends each stage."""
        torch = sys.modules.get("torch")
        if torch is None:
            self._answer(error="it has not imported torch, so there is nothing to record")
        elif torch_profiler.is_profiling(torch):
            self._answer(error=torch_profiler.THEIRS)
        else:
            from torch.optim.optimizer import register_optimizer_step_post_hook

            steps.listen(self._explicit)
            self._hook = register_optimizer_step_post_hook(self._stepped)
            self._wake_after(self._seconds)

    def poked(self) -> None:
        """The time is up, for the first step or for the recording, or somebody else signalled."""
        if self.ended or time.monotonic() < self._deadline_s:
            return
        if self._recording is None:
            self._marker = TIME
            self._start()
            self._wake_after(self._seconds)
        elif self._marker == TIME or (self._recording.steps and self._is_mine()):
            self._finish(self._recording)
        else:
            self._wake_after(self._seconds)

    def close(self) -> None:
        """The process ends: save what there is."""
        if self.ended:
            return
        if self._recording is not None and self._is_mine():
            self._finish(self._recording)
        else:
            self._answer(error="it ended before a step was recorded")

    # -- steps -------------------------------------------------------------------------------

    def _explicit(self) -> None:
        if self._marker == "optimizer":  # the script itself knows better what a step is
            self._discard()
            self._marker = ""
        self._tick("explicit")

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._optimizer = self._optimizer or id(optimizer)  # a GAN has two
        if id(optimizer) != self._optimizer or self._marker not in ("", "optimizer"):
            return
        if self._marker:
            self._tick("optimizer")
        self._marker = "optimizer"  # not recorded from the first on: an explicit one may follow

    def _tick(self, marker: str) -> None:
        if self.ended or os.getpid() != self._process or self._marker == TIME:
            return
        self._marker = marker
        if self._recording is None:
            self._start()
        elif self._is_mine():
            recording = self._recording
            try:
                complete = recording.step()
            except Exception as error:
                self._answer(error=f"torch's profiler failed: {error}")
                return
            if complete:
                self._tell(recording)

    # -- the recording -----------------------------------------------------------------------

    def _start(self) -> None:
        wanted = None if self._marker == TIME else self._steps
        recording = Recording(sys.modules["torch"], self._folder / TRACE, wanted, self._stacks)
        try:
            recording.start()
        except Exception as error:
            self._answer(error=f"torch's profiler did not start: {error}")
            return
        self._recording, self._thread = recording, threading.get_ident()

    def _finish(self, recording: Recording) -> None:
        try:
            recording.save()
        except Exception as error:
            self._answer(error=f"torch's profiler failed: {error}")
            return
        self._tell(recording)

    def _discard(self) -> None:
        if self._recording is not None and self._is_mine():
            self._recording.discard()
            self._recording = None

    def _tell(self, recording: Recording) -> None:
        if recording.saved:
            self._answer(**recording.report())
        else:
            self._answer(error="it ended before a step was recorded")

    def _answer(self, **fields: Any) -> None:
        self.ended = self.told = True
        steps.ignore(self._explicit)
        if self._hook is not None:
            self._hook.remove()
        draft = self._folder / f"{ANSWER}.draft"
        draft.write_text(json.dumps({"id": self._id, **fields}), "utf-8")
        draft.replace(self._folder / ANSWER)

    def _is_mine(self) -> bool:
        return self._thread == threading.get_ident()

    def _wake_after(self, seconds: float) -> None:
        self._deadline_s = time.monotonic() + seconds
        timer = threading.Timer(seconds + 0.01, self._wake)
        timer.daemon = True
        timer.start()

    def _wake(self) -> None:
        if not self.ended:
            self._poke()

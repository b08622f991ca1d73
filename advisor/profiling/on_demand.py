"""`gpuadvisor.profile_on_demand()`: a script that can be profiled while it runs.

    import gpuadvisor
    gpuadvisor.profile_on_demand()

`gpuadvisor profile --attach PID` then asks the process by a signal to record its next steps, and so
does a daemon that is configured to. Until then this costs nothing: no module but those of the
standard library is imported, and no function of torch is touched.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from gpuadvisor import steps
from gpuadvisor.collectors.listeners import (
    ANSWER,
    FOLDER_PREFIX,
    REQUEST,
    TRACE,
    Registration,
    alone,
    publish,
    register,
    started,
)
from gpuadvisor.errors import UsageError

if TYPE_CHECKING:
    from gpuadvisor.collectors.script.child.torch_profiler import TraceRecording

TIME = "time"
"""What ends the recording of a process that makes no steps."""
LEAVING_S = 2.0
"""Seconds for which a process that ends waits for a command to take its last trace: a command looks
20 times a second."""

_listener: _Listener | None = None


def profile_on_demand(signal_number: int = signal.SIGUSR2) -> None:
    """Let `gpuadvisor profile --attach PID` profile this process, whenever it asks to.

    Steps are counted by `gpuadvisor.step()`, else by the first optimizer; a process that makes
    none is recorded for some seconds. To be called once, in the main thread. UsageError where the
    signal is taken by another handler, or the thread is another one.
    """
    global _listener
    if _listener is not None and _listener.process == os.getpid():
        return
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("call gpuadvisor.profile_on_demand() in the main thread, as signals need")
    before = signal.getsignal(signal_number)
    if before not in (signal.SIG_DFL, signal.SIG_IGN, None) and _listener is None:
        name = signal.Signals(signal_number).name
        raise UsageError(
            f"{name} is taken by another handler: give profile_on_demand() another signal, such as "
            "signal.SIGUSR1"
        )
    _listener = _Listener(signal_number)


class _Listener:
    """Waits for the signal, and makes one recording at a time."""

    def __init__(self, number: int) -> None:
        self.process = os.getpid()
        self._number = number
        self._folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
        self._demand: Demand | None = None
        signal.signal(number, self._asked)  # before anybody may learn that we listen
        registration = Registration(
            self.process,
            started(self.process) or 0,
            int(number),
            str(self._folder),
            " ".join(sys.argv[:1]),
        )
        try:
            self._file = register(registration)
        except OSError:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        atexit.register(self._leave)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal: of the command, or of our own clock."""
        if os.getpid() != self.process:
            return  # a forked child has the handler, and no part in this
        demand = self._demand
        if demand is not None and not demand.ended:
            demand.poked()
            return
        try:
            request = json.loads((self._folder / REQUEST).read_text("utf-8"))
            (self._folder / REQUEST).unlink()
        except (OSError, ValueError):
            return
        self._demand = Demand(self._folder, request, self._poke)
        self._demand.begin()

    def _poke(self) -> None:
        """Have the main thread look at the time: only it can stop what it has started."""
        os.kill(self.process, self._number)

    def _leave(self) -> None:
        if os.getpid() != self.process:
            return
        if self._demand is not None:
            self._demand.close()
        if self._demand is not None and self._demand.answered and not self._is_fetched():
            return  # the command removes the folder, or whoever comes next
        with contextlib.suppress(OSError):
            self._file.unlink()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _is_fetched(self) -> bool:
        """Wait until no command is at the folder; return whether that is so."""
        deadline_s = time.monotonic() + LEAVING_S
        while time.monotonic() < deadline_s:
            try:
                with alone(self._folder):
                    return True
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:  # it has gone
                return True
        return False


class Demand:
    """One recording on demand: begun by the handler of the signal, then driven by the steps.

    The profiler belongs to the thread that starts it, so only that one goes on with it: the one
    that makes the steps, or the main thread, where the handler runs.
    """

    def __init__(self, folder: Path, request: dict[str, Any], poke: Callable[[], None]) -> None:
        self.ended = False
        self.answered = False
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
        self._recording: TraceRecording | None = None
        self._thread = 0
        self._deadline_s = 0.0

    def begin(self) -> None:
        """Wait for a step; without any, the time is what ends each stage."""
        from gpuadvisor.collectors.script.child import torch_profiler

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
        """Go on: the time for the first step or the recording is up, or somebody else signalled."""
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
        """Save what there is, because the process ends."""
        if self.ended:
            return
        if self._recording is not None and self._is_mine():
            self._finish(self._recording)
        else:
            self._answer(error="it ended before a step was recorded")

    # -- steps -------------------------------------------------------------------------------

    def _explicit(self) -> None:
        if self._marker == "optimizer":  # the script itself knows better what a step is
            if self._recording is not None and self._is_mine():
                self._recording.discard()
                self._recording = None
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
        from gpuadvisor.collectors.script.child.torch_profiler import TraceRecording

        wanted = None if self._marker == TIME else self._steps
        recording = TraceRecording(sys.modules["torch"], self._folder / TRACE, wanted, self._stacks)
        try:
            recording.start()
        except Exception as error:
            self._answer(error=f"torch's profiler did not start: {error}")
            return
        self._recording, self._thread = recording, threading.get_ident()

    def _finish(self, recording: TraceRecording) -> None:
        try:
            recording.save()
        except Exception as error:
            self._answer(error=f"torch's profiler failed: {error}")
            return
        self._tell(recording)

    def _tell(self, recording: TraceRecording) -> None:
        if recording.saved:
            self._answer(**recording.report())
        else:
            self._answer(error="it ended before a step was recorded")

    def _answer(self, **fields: Any) -> None:
        self.ended = self.answered = True
        steps.ignore(self._explicit)
        if self._hook is not None:
            self._hook.remove()
        publish(self._folder / ANSWER, {"id": self._id, **fields})

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

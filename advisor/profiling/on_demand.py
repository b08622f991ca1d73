"""`gpuadvisor.profile_on_demand()`: a script that can be profiled while it runs.

    import gpuadvisor
    gpuadvisor.profile_on_demand()

`gpuadvisor profile --attach PID` then asks the process by a signal to record its next steps. Until
then this costs nothing: no module but those of the standard library is imported, and no function
of torch is touched.
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
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from gpuadvisor.errors import UsageError
from gpuadvisor.profiling.registrations import (
    FOLDER_PREFIX,
    REQUEST,
    Registration,
    register,
    started,
)

if TYPE_CHECKING:
    from gpuadvisor.profiling.demand import Demand

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
        self._file = register(registration)
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
        from gpuadvisor.profiling.demand import Demand

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
        if self._demand is not None and self._demand.told:
            return  # a command that waits may yet read the trace; it removes the folder then
        with contextlib.suppress(OSError):
            self._file.unlink()
        shutil.rmtree(self._folder, ignore_errors=True)

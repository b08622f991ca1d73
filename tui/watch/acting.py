"""What may be asked of and done to a process from here: its environment, and a signal."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from gpuadvisor.domain.telemetry import GpuProcess
from gpuadvisor.printable import printable

SIGNALS = {
    "T": (signal.SIGTERM, "terminate", "asks it to end"),
    "K": (signal.SIGKILL, "kill", "ends it at once; what it has not saved is lost"),
    "I": (signal.SIGINT, "interrupt", "is Ctrl-C"),
    "P": (signal.SIGSTOP, "pause", "stops it where it is; it keeps its memory, P lets it go on"),
}
"""The signals by their keys, which are nvitop's, and what they do."""
CONTINUE = (signal.SIGCONT, "continue", "lets what was paused go on")
SAME_S = 1.0
"""Seconds by which two readings of a process's start may differ: the kernel counts ticks since its
own start, whose time is known to about that."""


def why_not(process: GpuProcess) -> str | None:
    """Return why a process is none that can be acted on here; None where it is."""
    if process.is_host_pid:
        return f"{process.pid} is a number of the host's: it means another process here, or none"
    if process.started_s is None:
        return f"of {process.pid} nothing is known here: it has ended, or is another container's"
    import psutil

    try:
        began_s = psutil.Process(process.pid).create_time()
    except psutil.Error:
        return f"{process.pid} has ended"
    if abs(began_s - process.started_s) > SAME_S:
        return f"{process.pid} has ended, and its number is another process's now"
    return None


def is_paused(process: GpuProcess) -> bool:
    """Return whether it was stopped by a signal."""
    import psutil

    try:
        return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


def send(processes: Sequence[GpuProcess], number: signal.Signals) -> str:
    """Send a signal to each process, at most once; return what came of it, in a sentence."""
    told, problems = [], []
    for process in {each.pid: each for each in processes}.values():
        problem = why_not(process)
        if problem is None:
            try:
                os.kill(process.pid, number)
            except ProcessLookupError:
                problem = f"{process.pid} has ended"
            except PermissionError:
                problem = f"{process.pid} is {process.user or 'another user'}'s: not allowed"
        if problem is None:
            told.append(str(process.pid))
        else:
            problems.append(problem)
    said = f"{number.name} was sent to {', '.join(told)}" if told else "No signal was sent"
    return f"{said}: {'; '.join(problems)}." if problems else f"{said}."


def environment(process: GpuProcess) -> list[str]:
    """Return what its environment was when it began, sorted; or one line on why it is unknown."""
    problem = why_not(process)
    if problem is not None:
        return [f"{problem[0].upper()}{problem[1:]}."]
    import psutil

    try:
        found = psutil.Process(process.pid).environ()
    except psutil.AccessDenied:
        owner = process.user or "another user"
        return [
            f"The environment of {process.pid} is {owner}'s, and only they and root may read it."
        ]
    except (psutil.Error, OSError):
        return [f"{process.pid} has ended."]
    return [printable(f"{name}={found[name]}") for name in sorted(found)] or ["It is empty."]

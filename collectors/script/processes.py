"""A run's processes: found however they hide, and ended however they resist."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import psutil

RUN_VARIABLE = "GPUADVISOR_RUN"
"""Environment variable with the run's own identity. Every process that the script starts inherits
it, also one that leaves the process group and the session."""

GRACE_S = 5.0
"""How long killed processes may take to disappear; a process in a driver call cannot die before."""


def end_all(process_group: int, run: str) -> list[int]:
    """Kill a run's first process, which leads its group, all others of the group, their
    descendants, and whatever else carries the run's identity.

    Returns the processes that were still there `GRACE_S` later, stuck in the kernel.
    """
    left = _descendants(process_group)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process_group, signal.SIGKILL)
    deadline = time.monotonic() + GRACE_S
    while True:
        left = [process for process in {*left, *belonging_to(run)} if _is_alive(process)]
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        if not left or time.monotonic() > deadline:
            return [process.pid for process in left]
        psutil.wait_procs(left, timeout=0.05)


def _descendants(process: int) -> list[psutil.Process]:
    """Return a process's descendants, also those with an environment and session of their own."""
    try:
        return list(psutil.Process(process).children(recursive=True))
    except psutil.Error:
        return []


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def belonging_to(run: str) -> list[psutil.Process]:
    """Return the living processes that carry a run's identity in their environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.uids().real != os.getuid():
                continue  # its environment cannot be read, and it is not ours
            if _is_alive(process) and process.environ().get(RUN_VARIABLE) == run:
                found.append(process)
    return found

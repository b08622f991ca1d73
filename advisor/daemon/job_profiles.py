"""Profiles of jobs that waste their GPUs, where the configuration and their scripts allow it.

Another process chooses the job and makes the profile, as what that needs would stay in the daemon's
memory. The daemon starts it only while a process on a GPU listens.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from gpuadvisor.collectors.listeners import all_registered
from gpuadvisor.daemon.configuration import Jobs
from gpuadvisor.domain.telemetry import GpuProcess

LOG = logging.getLogger(__name__)
FIRST_S = 10.0
"""Seconds from the start to the first look: processes are listed every five seconds."""
LOOK_S = 60.0
"""Seconds between two looks for processes that listen, which take a millisecond."""
AGAIN_S = 600.0
"""Seconds after which processes that listen are judged again, which takes a second of CPU time."""
ENDING_S = 5.0
"""Seconds that a profile under way has to be given up when the daemon ends."""


class JobProfiles:
    """Has jobs profiled, one after the other; asked about once a second."""

    def __init__(self, chosen: Jobs, clock: Callable[[], float] = time.monotonic) -> None:
        self.chosen = chosen
        """What is configured, which may be changed at any time."""
        self._clock = clock
        self._look_s = clock() + FIRST_S
        self._judged: dict[tuple[int, int], float] = {}
        """Processes that listen, by number and start, and when they were judged last."""
        self._child: subprocess.Popen[str] | None = None
        self._said = ""
        """What is wrong, as it was said last; empty where nothing is."""

    def tend(self, listed: Iterable[GpuProcess] | None) -> None:
        """Begin what is due, and do not wait. `listed` are the processes on GPUs."""
        now_s = self._clock()
        if self._child is not None and self._child.poll() is not None:
            self._tell(self._child)
            self._child = None
        if not self.chosen.profile or self._child is not None or now_s < self._look_s:
            return
        self._look_s = now_s + LOOK_S
        on_gpus = {each.pid for each in listed or () if not each.is_host_pid}
        known = {(each.pid, each.started) for each in all_registered() if each.pid in on_gpus}
        self._judged = {each: at_s for each, at_s in self._judged.items() if each in known}
        due = [each for each in known if now_s - self._judged.get(each, -AGAIN_S) >= AGAIN_S]
        if due:
            self._judged |= dict.fromkeys(due, now_s)
            self._begin()

    def close(self) -> None:
        """Give up what is under way: what it has noted by then stays."""
        if self._child is None:
            return
        self._child.terminate()
        try:
            self._child.communicate(timeout=ENDING_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.communicate()
        self._child = None

    def _begin(self) -> None:
        words = [sys.executable, "-P", "-m", "gpuadvisor", "jobs", "--profile-one"]
        with suppress(OSError):  # no room for another process: later
            self._child = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True,
            )  # fmt: skip

    def _tell(self, child: subprocess.Popen[str]) -> None:
        said, problem = child.communicate()
        if said.strip():
            LOG.info("%s", said.strip())
            self._judged.clear()  # there may be others
        elif not child.returncode:
            LOG.debug("no job that listens is to be profiled now")
        why = problem.strip().splitlines()[-1:] if child.returncode else [""]
        wrong = why[0].removeprefix("gpuadvisor: ") if why else f"exit status {child.returncode}"
        if wrong and wrong != self._said:
            LOG.error("no job could be profiled: %s", wrong)
        self._said = wrong

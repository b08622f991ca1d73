"""A run's processes: found however they hide, and ended however they resist."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence, Set

import psutil

from gpuadvisor.collectors.script import templates
from gpuadvisor.collectors.script.templates import RUN_VARIABLE, Forked, NoTemplateError, Template
from gpuadvisor.errors import AdvisorError

GRACE_S = 5.0
"""How long killed processes may take to disappear; a process in a driver call cannot die before."""
POLL_S = 0.05
CLEANERS = ("multiprocessing.resource_tracker", "torch_shm_manager")
"""In the command lines of processes that end by themselves when all others of the script have."""
CLEANING_S = 1.0
"""How long such processes are waited for; they take some milliseconds."""
_PR_SET_CHILD_SUBREAPER = 36
"""`prctl` option, from <linux/prctl.h>."""

_lock = threading.RLock()
_runs: dict[str, int] = {}
"""Run to its first process, for those that were not ended yet."""
_forked_from: dict[str, str] = {}
"""Run to the identity of the template that it was forked from, for those of them that were."""
_children_before: set[int] = set()
"""Children of this process that were there before the oldest of these runs."""


class RunProcesses:
    """All processes of one run.

    A program that starts sessions of its own while a run lasts loses them at its end: they cannot
    be told from what the script detached.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: str | None = None,
        template: Template | None = None,
    ) -> None:
        """Start the first one, the leader of a group and a session, with its output in a pipe.

        It is forked from the template, if there is one that can do that still. AdvisorError if
        there is no such program.
        """
        global _children_before
        self._run = uuid.uuid4().hex
        self.first: subprocess.Popen[bytes] | Forked
        environment = {**environment, RUN_VARIABLE: self._run}
        with _lock:  # so that no run that ends meanwhile takes it for an orphan
            if not _runs:
                _children_before = {child.pid for child in _children()}
                _adopt_orphans(True)
            try:
                self.first = self._forked(template, environment, argv, folder) or subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    cwd=folder,
                    start_new_session=True,
                )
            except OSError as error:
                raise AdvisorError(f"cannot start {argv[0]}: {error.strerror}") from error
            else:
                _runs[self._run] = self.first.pid
            finally:
                if not _runs:
                    _adopt_orphans(False)

    def _forked(
        self,
        template: Template | None,
        environment: Mapping[str, str],
        argv: Sequence[str],
        folder: str | None,
    ) -> Forked | None:
        if template is None:
            return None
        try:
            forked = template.fork(environment, argv, folder)
        except NoTemplateError:
            return None
        _forked_from[self._run] = template.run
        return forked

    def _identities(self) -> set[str]:
        """Return what its processes may carry in their environment, as the kernel shows it.

        That is the environment with which a process was started, not forked. Of runs side by side
        that were forked from one template, nobody can tell whose a process with its identity is, so
        this is left to the last of them.
        """
        template = _forked_from.get(self._run)
        others = {of for run, of in list(_forked_from.items()) if run != self._run}
        return {self._run} if template is None or template in others else {self._run, template}

    def end(self) -> list[int]:
        """Kill the first process, its group, and all that descends from it.

        Returns the processes that were still there `GRACE_S` later, stuck in the kernel.
        """
        left: list[psutil.Process] = []
        try:
            left = self._end_known()
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.first.wait(timeout=GRACE_S)
            with _lock:
                _runs.pop(self._run, None)
                _forked_from.pop(self._run, None)
                if not _runs:
                    left += _end_orphans()
                    _adopt_orphans(False)
        return [process.pid for process in left]

    def _end_known(self) -> list[psutil.Process]:
        found = self._alive(_descendants(self.first.pid))
        if any(map(_cleans_up, found)):
            self._let_clean_up(found)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.first.pid, signal.SIGKILL)
        deadline = time.monotonic() + GRACE_S
        while left := self._alive(found):
            _kill(left)
            if time.monotonic() > deadline:
                break
            self._wait(left)
        return left

    def _let_clean_up(self, found: Iterable[psutil.Process]) -> None:
        """Kill all but those that then remove what the others shared, and wait for these."""
        deadline = time.monotonic() + CLEANING_S
        while time.monotonic() < deadline:
            alive = self._alive(found)
            cleaners = list(filter(_cleans_up, alive))
            if not cleaners:
                break
            _kill(process for process in alive if process not in cleaners)
            self._wait(alive)

    def _wait(self, ending: Iterable[psutil.Process]) -> None:
        """Wait a moment for some to end. The first one's status is left to who has started it."""
        others = [process for process in ending if process.pid != self.first.pid]
        if others:
            psutil.wait_procs(others, timeout=POLL_S)
        else:
            time.sleep(POLL_S / 5)

    def _alive(self, known: Iterable[psutil.Process]) -> list[psutil.Process]:
        """Return the run's living processes, those that are known and those that can be found."""
        found = {*known, *_belonging_to(self._identities()), *_orphans(self.first.pid)}
        return list(filter(_is_alive, found))


def reap() -> None:
    """Reap inherited processes that have ended, as the system's first process would.

    To be called now and then while a script runs, which may wait for one of them to be gone.
    """
    with _lock, contextlib.suppress(OSError):  # until there is no child at all
        while hasattr(os, "waitid"):
            # One call, where a list of the children would take milliseconds.
            seen = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if seen is None or not _is_inherited(seen.si_pid):
                break
            os.waitpid(seen.si_pid, os.WNOHANG)


def _is_inherited(child: int) -> bool:
    """Say whether a child was not started by this process: all that it starts is of its session,
    but for the first processes of runs and what was there before them."""
    own = child in _runs.values() or child in _children_before or child in templates.living
    return not own and _session(child) not in (None, os.getsid(0))


def _session(process: int) -> int | None:
    """Return a process's session; None if it is gone."""
    with contextlib.suppress(OSError):
        return os.getsid(process)
    return None


def _orphans(session: int | None = None) -> list[psutil.Process]:
    """Return what this process has inherited from its runs, or from the one with this session.

    An environment can be emptied and a session left, but not the ancestors.
    """
    with _lock:
        inherited = [child for child in _children() if _is_inherited(child.pid)]
    return [child for child in inherited if session in (None, _session(child.pid))]


def _end_orphans() -> list[psutil.Process]:
    """Kill what no run has found: of what left its session and its environment, runs side by side
    cannot tell whose it is, so this is left to the last of them.

    Returns what is still there. The first process of a container is left out: it inherits from
    everybody.
    """
    deadline = time.monotonic() + GRACE_S
    while os.getpid() != 1 and (left := list(filter(_is_alive, _orphans()))):
        _kill(left)
        if time.monotonic() > deadline:
            return left
        psutil.wait_procs(left, timeout=POLL_S)
    reap()
    return []


def _adopt_orphans(begin: bool) -> None:
    """Become the parent of descendants whose own parent ends, or be that no more; on Linux."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(begin), 0, 0, 0)


def _children() -> list[psutil.Process]:
    return list(psutil.Process().children())


def _descendants(process: int) -> list[psutil.Process]:
    """Return a process's descendants, also those with an environment and session of their own."""
    try:
        return list(psutil.Process(process).children(recursive=True))
    except psutil.Error:
        return []


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _cleans_up(process: psutil.Process) -> bool:
    """Say whether it removes shared memory and semaphores when all who use them are gone."""
    try:
        line = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return any(name in line for name in CLEANERS)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _belonging_to(identities: Set[str]) -> list[psutil.Process]:
    """Return the living processes that carry one of a run's identities in their environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.uids().real != os.getuid() or process.pid in templates.living:
                continue  # its environment cannot be read, and it is not ours; or no run
            if _is_alive(process) and process.environ().get(RUN_VARIABLE) in identities:
                found.append(process)
    return found

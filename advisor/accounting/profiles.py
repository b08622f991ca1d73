"""Profiles of jobs that waste their GPUs: which job is next, and what became of those before.

A job is profiled once, whatever comes of it, and only if its script called `profile_on_demand()`,
it is of the daemon's own user, nobody else is on its GPUs, and a profile would tell more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gpuadvisor.accounting.gathering import AdvisedJob, gather
from gpuadvisor.collectors import listeners
from gpuadvisor.domain.jobs import Job, JobProfile, Use
from gpuadvisor.domain.telemetry import GpuProcess
from gpuadvisor.rules.jobs.advice import is_worth_a_profile
from gpuadvisor.rules.jobs.launches import SAME_START_S
from gpuadvisor.rules.jobs.ledger import ALIVE_S
from gpuadvisor.storage.locks import Held, locked
from gpuadvisor.storage.telemetry.jobs import JOBS, JobsFile

SINCE = "24h"
"""What a job wastes is judged by its last day: how it began a week ago says little of its steps."""
LOCK = "job-profile.lock"
"""In the store's folder; held while a job is profiled, also by what a killed daemon left."""


def to_profile(folder: Path) -> tuple[Job, GpuProcess] | None:
    """Return the job that wastes most of those that may be profiled now, with its process that
    listens; None where there is none."""
    report = gather(SINCE, folder=folder)
    here = [each for each in report.jobs if time.time() - each.job.end_s <= ALIVE_S]
    for each in here:
        if _may_be_profiled(each, here):
            process = next(_listening(each.job, report.uses), None)
            if process is not None:
                return each.job, process
    return None


def _may_be_profiled(wanted: AdvisedJob, here: Sequence[AdvisedJob]) -> bool:
    job = wanted.job
    if job.profile is not None or job.by_gpuadvisor is not False:
        return False  # a trial of a study must not be slowed down
    others = (each.job for each in here if each.job.key != job.key)
    is_alone = not any(set(job.gpus) & set(each.gpus) for each in others)
    return is_alone and is_worth_a_profile(wanted.advice)


def _listening(job: Job, uses: Sequence[Use]) -> Iterator[GpuProcess]:
    """Yield the job's processes that can be profiled on demand, by this user."""
    import psutil

    seen = [use.process for use in uses if use.process and use.process.pid in job.pids]
    for process in seen:
        registration = None if process.is_host_pid else listeners.find(process.pid)
        if registration is None or process.started_s is None or process.user is None:
            continue
        try:  # the number may be another process's by now
            apart_s = abs(psutil.Process(process.pid).create_time() - process.started_s)
        except psutil.Error:
            continue
        if apart_s <= SAME_START_S and listeners.catches(process.pid, registration.signal):
            yield process


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[bool]:
    """Say whether this process is the only one that profiles a job of the store, and stay it."""
    try:
        with locked(folder / LOCK):
            yield True
    except Held:
        yield False


class Noted:
    """The profile of one job in the store: begun, and then what became of it."""

    def __init__(self, folder: Path, process: GpuProcess) -> None:
        assert process.user is not None  # else nobody listens
        self._path = folder / JOBS
        self._made = JobProfile(process.pid, process.user, time.time())
        self._keep(self._made)  # so that it stays the only one, however this process ends

    def done(self, name: str, findings: Sequence[str]) -> None:
        """Keep what it says."""
        self._keep(replace(self._made, name=name, findings=tuple(findings)))

    def failed(self, why: str) -> None:
        """Keep why there is none."""
        self._keep(replace(self._made, problem=why))

    def _keep(self, made: JobProfile) -> None:
        file = JobsFile(self._path)
        try:
            file.note_profile(made)
        finally:
            file.close()

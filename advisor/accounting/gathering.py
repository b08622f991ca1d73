"""The jobs of a span with what is to be said of each, from the store or from its daemon."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal

from gpuadvisor.daemon.history import Moment, open_reader, span
from gpuadvisor.domain.jobs import Advice, Amounts, Job, JobProfile, Ledger, ProvenPlan, Use
from gpuadvisor.domain.study import Verdict
from gpuadvisor.errors import AdvisorError
from gpuadvisor.reports.jobs_document import jobs_json, main_cause, said
from gpuadvisor.rules.gpus import called
from gpuadvisor.rules.jobs.advice import advice
from gpuadvisor.rules.jobs.launches import SAME_START_S
from gpuadvisor.rules.jobs.ledger import ALIVE_S, LATE_S, ledger
from gpuadvisor.rules.jobs.use import HOUR_S, WARM_UP_S, JobFold

if TYPE_CHECKING:
    import pandas as pd

    from gpuadvisor.domain.telemetry import Gpu
    from gpuadvisor.storage.telemetry.jobs import JobsReader

By = Literal["user", "script", "gpu"]


@dataclass(frozen=True)
class AdvisedJob:
    """A job with what is to be said of it."""

    job: Job
    gpus: tuple[Gpu, ...]
    """Its GPUs, as far as the store knows them."""
    advice: tuple[Advice, ...]


@dataclass(frozen=True)
class Group:
    """Jobs that have something in common."""

    name: str
    jobs: int
    amounts: Amounts
    lost_hours: float


@dataclass(frozen=True)
class JobsReport:
    """The jobs of a span, those that waste most first."""

    ledger: Ledger
    jobs: tuple[AdvisedJob, ...]
    gpus: tuple[Gpu, ...]
    """The GPUs of the store."""
    unmeasured_s: float
    """GPU time of the span since the first use of which nothing is known, also at its end: where
    no daemon runs any more."""
    uses: tuple[Use, ...]

    def grouped(self, by: By) -> list[Group]:
        """Return the jobs of each user, script or GPU together, those that waste most first."""
        parts: dict[str, list[Job]] = {}
        for each in self.jobs if by != "gpu" else ():
            name = each.job.user if by == "user" else each.job.script
            parts.setdefault(name or "?", []).append(each.job)
        for gpu in self.gpus if by == "gpu" else ():
            here = [use for use in self.uses if use.gpu == gpu.uuid]
            if here:  # a job on several GPUs is parted
                book = ledger(here, self.ledger.since_s, self.ledger.until_s)
                parts[called(gpu)] = list(book.jobs)
        groups = [_group(name, jobs) for name, jobs in parts.items()]
        return sorted(groups, key=lambda each: -each.lost_hours)


def _group(name: str, jobs: Sequence[Job]) -> Group:
    amounts = Amounts()
    for job in jobs:
        amounts.add(job.amounts)
    return Group(name, len(jobs), amounts, sum(job.lost_hours for job in jobs))


def gather(
    since: Moment = "7d", until: Moment | None = None, *, folder: Path | None = None
) -> JobsReport:
    """Return the jobs that used GPUs from the whole hour of `since` until before that of `until`.

    UsageError where there is no store yet, or an argument is wrong.
    """
    now_s = time.time()
    since_s, until_s = span(since, until, now_s)
    until_s = min(until_s, now_s)  # what is later is from before the clock was set back
    reader = open_reader(folder)
    from gpuadvisor.storage.telemetry.jobs import JobsReader, stored_profiles

    begin_s = since_s // HOUR_S * HOUR_S
    stored = JobsReader(reader.folder)
    uses = list(stored.read(begin_s, until_s))
    uses += [use for use in _newest(reader.folder, stored) if begin_s <= use.hour_s < until_s]
    seen_s = max((use.last_s for use in uses if use.last_s <= now_s), default=begin_s)
    end_s = min(until_s, seen_s)
    book = ledger(uses, begin_s, end_s, stored.withheld, now_s)
    gpus = reader.all_gpus()
    plans = proven_plans()
    made = stored_profiles(reader.folder)
    jobs = [_advised(_with_profile(job, made), gpus, plans) for job in book.jobs]
    jobs.sort(key=lambda each: (-each.job.lost_hours, -each.job.gpu_hours))
    first_s = min((use.first_s for use in uses), default=end_s)
    seen = len({use.gpu for use in uses})
    known_s = until_s if until_s - end_s > LATE_S else end_s
    whole_s = (known_s - max(begin_s, first_s)) * seen
    missed_s = max(whole_s - book.total.seconds, 0.0)
    return JobsReport(book, tuple(jobs), gpus, missed_s, tuple(uses))


def _newest(folder: Path, stored: JobsReader) -> Iterator[Use]:
    """Yield the uses of what is stored and was not made into uses yet; nothing for other users."""
    from gpuadvisor.storage.telemetry.frames import FrameReader
    from gpuadvisor.storage.telemetry.listed_processes import ProcessReader

    if stored.is_closed:
        return
    since_s = stored.folded_s
    fold = JobFold(since_s)
    frames = FrameReader(folder, since_s - WARM_UP_S, processes=ProcessReader(folder))
    for frame in frames.read(math.inf):
        for minute in fold.add(frame):
            yield from minute.uses
    for minute in fold.finish():
        yield from minute.uses


def _with_profile(job: Job, made: Sequence[JobProfile]) -> Job:
    """Return a job with its profile: of a process with one of its numbers, while it lived."""
    for each in made:
        is_ours = each.pid in job.pids and each.user == job.user
        if is_ours and job.start_s - SAME_START_S <= each.time_s <= job.end_s + ALIVE_S:
            return replace(job, profile=each)
    return job


def _advised(job: Job, gpus: Sequence[Gpu], plans: Sequence[ProvenPlan]) -> AdvisedJob:
    ours = tuple(gpu for gpu in gpus if gpu.uuid in job.gpus)
    names = {gpu.name for gpu in ours}
    device = names.pop() if len(names) == 1 else None
    return AdvisedJob(job, ours, tuple(advice(job, plans, device)))


def proven_plans() -> list[ProvenPlan]:
    """Return the plans of this user's studies that were shown to be faster; none where there is no
    store of studies, or it cannot be read."""
    from gpuadvisor.storage.home import DATABASE, readable_home

    path = readable_home() / DATABASE
    if not os.access(path, os.R_OK):
        return []
    from gpuadvisor.tuning.selection import StudyFilter, stored_studies

    try:
        records = stored_studies(StudyFilter(verdicts=(Verdict.FASTER, Verdict.FASTER_UNVERIFIED)))
    except (AdvisorError, OSError):
        return []
    return [
        ProvenPlan(
            each.name,
            f"-m {each.script}" if each.is_module else each.script,
            each.folder,
            each.environment.device.name,
            each.speedup.ratio,
            str(PurePath(each.folder, each.plan)),
            each.verdict is Verdict.FASTER,
        )
        for each in records
        if each.plan is not None and each.speedup is not None
    ]


# -- as a pandas table -----------------------------------------------------------------------------

LISTS = ("causes", "advice", "pids", "gpus", "profile")
"""Fields of the JSON that no column can hold."""
FIGURES = (
    "gpu_hours", "held_hours", "shared_hours", "energy_kwh", "memory_mean_bytes", "utilization_pct",
    "sm_active_pct", "tensor_active_pct", "dram_active_pct", "cpu_cores", "children_cpu_cores",
    "wasted_gpu_hours",
)  # fmt: skip
"""Columns that may be NA, also all of them."""


def jobs(
    since: Moment = "7d", until: Moment | None = None, *, folder: Path | None = None
) -> pd.DataFrame:
    """Return the jobs that used GPUs, those that waste most first; see `telemetry` for times.

    Columns: `job`, `script`, `command`, `user`, `container`, `gpus` (numbers, with commas),
    `start`, `end` (UTC), `is_running`, `by_gpuadvisor`, `memory_max_bytes`, `gpu_hours` (its part
    where jobs shared a GPU), `held_hours` (undivided), `shared_hours`, `energy_kwh`,
    `memory_mean_bytes`, `utilization_pct`, `sm_active_pct`, `tensor_active_pct`, `dram_active_pct`,
    `cpu_cores`, `children_cpu_cores`, `wasted_gpu_hours` (at most), `cause` (of most of its time),
    `advice`, `profile` (the name of the one that the daemon had made of it) and `findings` (what
    that says, or why there is none). What was not measured, or not made, is NA.

    UsageError where there is no store yet, or an argument is wrong.
    """
    import pandas as pd

    found = gather(since, until, folder=folder)
    every = [(each.job, each.gpus, each.advice) for each in found.jobs]
    rows = []
    for told, (job, gpus, advised) in zip(
        jobs_json(found.ledger, every, 0.0)["jobs"], every, strict=True
    ):
        row = {name: value for name, value in told.items() if name not in LISTS}
        row["gpus"] = ",".join(str(gpu.index) for gpu in gpus)
        row["cause"], row["advice"] = main_cause(job), "; ".join(map(said, advised))
        made = job.profile
        row["profile"] = made.name if made else None
        row["findings"] = (made.problem or "; ".join(made.findings)) if made else None
        rows.append(row)
    table = pd.DataFrame(rows)
    for name in FIGURES if rows else ():
        table[name] = table[name].astype("float64")
    for name in ("is_running", "by_gpuadvisor") if rows else ():
        table[name] = table[name].astype("boolean")
    for name in ("profile", "findings") if rows else ():
        table[name] = table[name].astype("string")
    for name in ("start", "end") if rows else ():
        table.insert(
            table.columns.get_loc(f"{name}_s"),  # type: ignore[arg-type]
            name,
            pd.to_datetime(table.pop(f"{name}_s"), unit="s", utc=True),
        )
    return table.drop(columns=["gpu_indices"], errors="ignore")

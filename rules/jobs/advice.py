"""What is said of a job: what it wastes, how much of that could be gained at most, and what to do.

Little is said of little: nothing of a job that was measured for less than ten minutes, and nothing
of what takes less than a twentieth of its time.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from gpuadvisor.domain.jobs import UNTOLD, Advice, Job, Loss, ProvenPlan
from gpuadvisor.printable import duration
from gpuadvisor.rules.jobs.cause import JobCause, load_causes
from gpuadvisor.rules.jobs.launches import script_path
from gpuadvisor.rules.rule import MOST

LEAST_SEEN_S = 600.0
"""Seconds for which a job must have been measured: imports, compilation and the first batches take
minutes, and say nothing of the hours after them. [own]"""
LEAST_SHARE = 0.05
"""Share of a job's time that is worth a sentence. [own]"""
LEAST_IDLE_S = 1800.0
"""Seconds for which nothing ran that are worth a sentence: people have lunch. [own]"""
LEAST_RATIO = 1.05
"""The least gain of a plan that is pointed to."""
GIB = 2**30
PLAN_METHOD = (
    "Its GPU-hours less what they would be at the ratio that the study proved, if it is the same"
    " script at the same work."
)
PLAN, TELL = "proven_plan", "cannot_tell"
"""The names of advice that is of no cause."""


def advice(job: Job, plans: Iterable[ProvenPlan] = (), device: str | None = None) -> list[Advice]:
    """Return what is to be said of a job, the largest gain first; nothing where nothing is.

    `plans` are those of all studies, and `device` the name of the job's GPUs, where it is one.
    """
    if job.amounts.held_s < LEAST_SEEN_S:
        return []
    found = [*_of_causes(job), *_of_plans(job, plans, device), *_untold(job)]
    return sorted(found, key=lambda each: -(each.gain_hours or 0.0))


def is_worth_a_profile(said: Iterable[Advice]) -> bool:
    """Return whether some steps of the job, recorded, would tell more: where time may be gained by
    tuning, or nobody can tell what it waits for."""
    causes = load_causes()
    return any(
        each.cause == TELL or (each.cause in causes and causes[each.cause].is_tunable)
        for each in said
    )


def _of_causes(job: Job) -> Iterator[Advice]:
    for name, cause in load_causes().items():
        loss = job.causes.get(name)
        if loss is not None and cause.is_waste and _is_worth_it(job, name, loss):
            yield Advice(
                name,
                _phrase(job, cause, loss),
                cause.advice.format(script=_quoted(job)) if _has_script(job, cause) else "",
                loss.lost_s / 3600 if cause.is_tunable else None,
                cause.method,
                cause.is_bound,
            )


def _is_worth_it(job: Job, name: str, loss: Loss) -> bool:
    if name in ("idle", "on_the_cpu"):
        return loss.held_s / len(job.gpus) >= LEAST_IDLE_S
    return loss.lost_s >= LEAST_SHARE * job.amounts.seconds > 0


def _has_script(job: Job, cause: JobCause) -> bool:
    """Return whether the advice can name a script that somebody can give to `gpuadvisor`."""
    return "{script}" not in cause.advice or job.script.endswith(".py") or "-m " in job.script


def _phrase(job: Job, cause: JobCause, loss: Loss) -> str:
    count = len(job.gpus)
    time = duration(loss.held_s / count) + (f" on average of {count} GPUs" if count > 1 else "")
    whole = job.amounts.seconds or 1.0
    return cause.phrase.format(
        lost=_percent(loss.lost_s / whole),
        held=_percent(loss.seconds / whole),
        depth=_percent(loss.lost_s / loss.seconds if loss.seconds else 0.0),
        time=time,
        memory=f"{job.memory_max_bytes / GIB:.0f} GiB",
    )


def _of_plans(job: Job, plans: Iterable[ProvenPlan], device: str | None) -> Iterator[Advice]:
    """Point to the best plan of a study of this script on this kind of GPU, if it is not used."""
    if job.by_gpuadvisor or device is None or not job.command:
        return
    path = script_path(job.command)
    alike = [
        (plan, same)
        for plan in plans
        if plan.device == device
        and plan.ratio >= LEAST_RATIO
        and (same := _is_of(plan, path)) is not None
    ]
    if not alike:
        return
    plan, is_same = max(alike, key=lambda each: (each[1], each[0].is_verified, each[0].ratio))
    which = "this script" if is_same else f"a {job.script} in {plan.folder}"
    proven = "proven" if plan.is_verified else "proven, but not verified,"
    used = "is not used" if job.by_gpuadvisor is False else "may not be used"
    yield Advice(
        PLAN,
        f"a plan {proven} {plan.ratio:.1f}x for {which} on this kind of GPU exists (study"
        f" {plan.study}) and {used}",
        f"`gpuadvisor run --plan {shlex.quote(plan.path)} {_quoted(job)}`",
        job.gpu_hours * (1 - 1 / plan.ratio) if is_same and plan.is_verified else None,
        PLAN_METHOD if is_same and plan.is_verified else "",
    )


def _is_of(plan: ProvenPlan, path: str) -> bool | None:
    """Return whether a plan is of the script of a command line: True where its whole path is the
    same, False where only its name is, None where not even that."""
    if path.startswith("-m ") or plan.script.startswith("-m "):
        return True if path == plan.script else None
    if PurePath(path).is_absolute():
        return True if PurePath(path) == PurePath(plan.folder, plan.script) else None
    return False if PurePath(path).name == PurePath(plan.script).name else None


def _untold(job: Job) -> Iterator[Advice]:
    """Say that nothing can be told, and what would."""
    loss, whole = job.causes.get(UNTOLD), job.amounts.seconds
    if loss is None or loss.seconds < MOST * whole:
        return
    lacking = [
        word
        for word, known_s in (
            ("utilization", job.amounts.busy_known_s),
            ("activity of the SMs", job.amounts.sm_known_s),
            ("CPU time", job.amounts.cpu_known_s),
        )
        if not known_s
    ]
    why = f" ({' and '.join(lacking)} not measured)" if lacking else ""
    yield Advice(
        TELL,
        f"cannot tell what it waits for {_percent(loss.seconds / whole)} of the time{why}",
        "" if job.profile is not None and job.profile.name is not None else
        f"a profile would: `gpuadvisor profile {_quoted(job)}`" if _is_script(job) else
        "a profile would",
        None,
        "",
    )  # fmt: skip


def _is_script(job: Job) -> bool:
    return job.script.endswith(".py") or job.script.startswith("-m ")


def _quoted(job: Job) -> str:
    if job.script.startswith("-m "):
        return job.script
    path = script_path(job.command) if job.command else job.script
    return shlex.quote(path if path.endswith(".py") else job.script)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"

"""Uses as jobs: which processes belong together, what they took in all, and what was nobody's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from math import inf

from gpuadvisor.domain.jobs import Amounts, Job, Ledger, Loss, Unclaimed, Use
from gpuadvisor.domain.telemetry import GpuProcess
from gpuadvisor.rules.jobs.launches import is_same_process, launches, script_of

ALIVE_S = 90.0
"""Seconds since a process was seen last after which it has ended: uses are stored each minute."""
LATE_S = 300.0
"""Seconds without any use from which on nobody knows whether a job runs. Another user is told the
uses of whole minutes, which are stored up to a minute later: those of a daemon at work are 120 s
old at most (`TEND_S` of `daemon.daemon`). Above that a larger number only says for longer of a job
whose daemon has ended that it runs."""
ABSENT_S = 900.0
"""Seconds without a process of an unknown start after which its number is another process's."""
ENDING_S = 60.0
"""Seconds for which the driver may list a process that has ended: nobody knows its start then."""


def ledger(
    uses: Iterable[Use],
    since_s: float,
    until_s: float,
    withheld: str | None = None,
    now_s: float = inf,
) -> Ledger:
    """Return the jobs of a span, those with most GPU time first, and what was unclaimed.

    `now_s` is the Unix time by which a job runs, or is not said to, as nothing was measured lately;
    without it none is. What is later is from before the clock was set back.
    """
    unclaimed: dict[Unclaimed, Amounts] = {}
    lives: dict[tuple[object, ...], list[list[Use]]] = {}
    last_s = since_s
    for use in sorted(uses, key=lambda each: (each.hour_s, each.first_s)):
        last_s = max(last_s, use.last_s) if use.last_s <= now_s else last_s
        if use.process is None:
            kind = use.unclaimed or Unclaimed.UNKNOWN
            unclaimed.setdefault(kind, Amounts()).add(use.amounts)
            continue
        _to_life(lives.setdefault((use.process.pid, use.process.is_host_pid), []), use)
    every = [life for found in lives.values() for life in found]
    seen_s = last_s if now_s - last_s <= LATE_S else inf
    jobs = [_job(group, seen_s) for group in launches(every, lambda life: _who(life))]
    jobs.sort(key=lambda job: (-job.amounts.seconds, job.key))
    return Ledger(since_s, until_s, tuple(jobs), unclaimed, withheld)


def _to_life(lives: list[list[Use]], use: Use) -> None:
    """Add a use to the life of its process: of the same start, or without one soon after."""
    assert use.process is not None
    for life in reversed(lives):
        there = _who(life)
        absent_s = use.first_s - max(each.last_s for each in life)
        if use.process.started_s is None:
            is_same = absent_s <= (ABSENT_S if there.started_s is None else ENDING_S)
        else:
            is_same = is_same_process(there, use.process) or _is_of_another_clock(life, use.process)
        if is_same:
            life.append(use)
            return
    lives.append([use])


def _is_of_another_clock(life: Sequence[Use], process: GpuProcess) -> bool:
    """Return whether a process can only be the one of a life, told with another start.

    The kernel counts a start from the machine's, which moves where the clock is set. No process
    begins while another has its number.
    """
    there, started_s = _who(life), process.started_s
    if started_s is None or started_s >= max(each.last_s for each in life):
        return False
    return all(
        getattr(there, name) == getattr(process, name)
        for name in ("command", "name", "user", "container", "parent_pid")
    )


def _who(life: Sequence[Use]) -> GpuProcess:
    """Return what is known of a process: by the use that knows most."""
    known = [use.process for use in life if use.process is not None]
    return next((each for each in known if each.command), known[0])


def _job(group: Sequence[Sequence[Use]], seen_s: float) -> Job:
    """Return processes as a job; it runs where it was there when anything was seen last."""
    people = sorted(map(_who, group), key=lambda each: (each.started_s or 0.0, each.pid))
    uses = [use for life in group for use in life]
    amounts, causes = Amounts(), dict[str, Loss]()
    for use in uses:
        amounts.add(use.amounts)
        for name, loss in use.causes.items():
            causes.setdefault(name, Loss()).add(loss)
    first_s, end_s = min(use.first_s for use in uses), max(use.last_s for use in uses)
    starts = [each.started_s for each in people if each.started_s is not None]
    advised = {each.by_gpuadvisor for each in people}
    first = people[0]
    start_s = min(starts, default=first_s)
    return Job(
        key=_key(first, start_s),
        script=script_of(people),
        command=next((each.command for each in people if each.command), None),
        user=next((each.user for each in people if each.user), None),
        container=next((each.container for each in people if each.container), None),
        gpus=tuple(sorted({use.gpu for use in uses})),
        pids=tuple(dict.fromkeys(each.pid for each in people)),
        start_s=start_s,
        end_s=end_s,
        is_running=0 <= seen_s - end_s <= ALIVE_S,
        memory_max_bytes=max(use.memory_max_bytes for use in uses),
        amounts=amounts,
        causes=dict(sorted(causes.items(), key=lambda each: -each[1].seconds)),
        by_gpuadvisor=True if True in advised else None if None in advised else False,
    )


def _key(first: GpuProcess, start_s: float) -> str:
    """Return eight digits that name a job: by its first process, whose start may jitter a
    little."""
    return blake2b(f"{first.pid} {start_s // 10}".encode(), digest_size=4).hexdigest()

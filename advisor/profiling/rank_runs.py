"""Which of the traces that were imported from one folder are the ranks of one run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuadvisor.storage.models import ProfileRecord


@dataclass(frozen=True)
class Run:
    """Profiles of the ranks of one run, at most one of each, in their order."""

    records: tuple[ProfileRecord, ...]

    @property
    def world_size(self) -> int | None:
        return self.records[0].world_size

    @property
    def begin_unix_ns(self) -> int:
        """When the first of them begins; 0 where it is not known."""
        return min((each.begin_unix_ns or 0 for each in self.records), default=0)


def runs_of(records: Iterable[ProfileRecord]) -> tuple[Run, ...]:
    """Return the runs that profiles are of, those of most ranks first, of these the newest.

    Ranks of one run were recorded by one tool, for a world of one size. Where a rank is there
    twice, several runs or recordings are: each profile goes with those that it overlaps in time,
    and without any it is a run of its own, as is a profile that tells no rank.
    """
    kinds: dict[object, list[ProfileRecord]] = {}
    for each in records:
        alone = each.id if each.rank is None else None
        kinds.setdefault((each.source, each.world_size, alone), []).append(each)
    runs: list[list[ProfileRecord]] = []
    for some in kinds.values():
        some.sort(key=lambda each: (each.begin_unix_ns or 0, each.id))
        if len({each.rank for each in some}) == len(some):
            runs.append(some)
            continue
        found: list[list[ProfileRecord]] = []
        for each in some:
            begin = each.begin_unix_ns or 0
            fitting = [run for run in found if _goes_with(each, run)]
            run = min(fitting, key=lambda run: begin - (run[0].begin_unix_ns or 0), default=None)
            if run is None:
                found.append([each])
            else:
                run.append(each)
        runs += found
    ordered = [Run(tuple(sorted(run, key=lambda each: each.rank or 0))) for run in runs]
    ordered.sort(key=lambda run: (-len(run.records), -run.begin_unix_ns, -run.records[-1].id))
    return tuple(ordered)


def _goes_with(record: ProfileRecord, run: Sequence[ProfileRecord]) -> bool:
    if any(each.rank == record.rank for each in run):
        return False
    begin = record.begin_unix_ns
    return any(
        begin is None
        or each.begin_unix_ns is None
        or begin <= each.begin_unix_ns + max(each.duration_ns, record.duration_ns)
        for each in run
    )

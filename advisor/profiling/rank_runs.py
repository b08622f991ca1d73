"""Which traces of a folder are the ranks of one run, and folders stored as such."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from gpuadvisor.errors import UsageError
from gpuadvisor.profiling.importing import Imported, Progress, import_files
from gpuadvisor.storage.models import ProfileRecord
from gpuadvisor.storage.profiles.library import open_profiles

MOST_NAMED = 6
"""Traces that an error names."""


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


@dataclass(frozen=True)
class Folder:
    """What a folder of traces holds."""

    run: Run
    others: tuple[Run, ...]
    notes: tuple[str, ...]
    """Sentences about what else is in it, and what could not be read."""


def import_folder(folder: Path, progress: Callable[[], AbstractContextManager[Progress]]) -> Folder:
    """Store the traces of a folder and return the run that most of them are of.

    UsageError where it has no trace that can be read, or only lone traces of several runs.
    """
    records: list[ProfileRecord] = []
    failed: list[str] = []

    def on_imported(found: Imported) -> None:
        records.append(found.profile.record)

    def on_failure(path: Path, error: Exception, sentence: str) -> None:
        failed.append(sentence)

    with open_profiles() as profiles:
        import_files(profiles, [folder], None, progress, on_imported, on_failure)
    if not records:
        raise UsageError(failed[0] if failed else f"{folder} has no trace that can be read.")
    run, *others = runs_of({each.id: each for each in records}.values())
    if len(run.records) == 1 and others:
        names = [each.name for one in (run, *others) for each in one.records]
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        raise UsageError(
            f"The {len(names)} traces in {folder} are of different runs, or do not tell their rank:"
            f" diagnose one of them by its name, {', '.join(names[:MOST_NAMED])}{more}."
        )
    return Folder(run, tuple(others), (*failed, *_others(others)))


def _others(others: Sequence[Run]) -> Iterable[str]:
    if others:
        count = sum(len(each.records) for each in others)
        names = [each.records[0].name for each in others]
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        yield (
            f"the folder also has {count} trace{'s' * (count != 1)} of {len(others)} other"
            f" run{'s' * (len(others) != 1)}, which {'is' if count == 1 else 'are'} not part of"
            f" this: {', '.join(names[:MOST_NAMED])}{more}"
        )

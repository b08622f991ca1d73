"""A folder of traces, stored as the ranks of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from gpuadvisor.errors import UsageError
from gpuadvisor.profiling.importing import Imported, Progress, import_files
from gpuadvisor.profiling.rank_runs import Run, runs_of
from gpuadvisor.storage.models import ProfileRecord
from gpuadvisor.storage.profiles.library import open_profiles

MOST_NAMED = 6
"""Traces that an error names."""


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
    return Folder(run, tuple(others), (*failed, *_others(run, others)))


def _others(run: Run, others: Sequence[Run]) -> Iterable[str]:
    if others:
        count = sum(len(each.records) for each in others)
        names = [each.records[0].name for each in others]
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        yield (
            f"the folder also has {count} trace{'s' * (count != 1)} of {len(others)} other"
            f" run{'s' * (len(others) != 1)}, which {'is' if count == 1 else 'are'} not part of"
            f" this: {', '.join(names[:MOST_NAMED])}{more}"
        )

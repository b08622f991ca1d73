"""Which of the stored studies are meant: by filters for a list, by names for a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from gpuadvisor.domain.study import StudyResult, Trial, Verdict
from gpuadvisor.errors import UsageError

if TYPE_CHECKING:
    from gpuadvisor.storage.database import StudyRecord


@dataclass(frozen=True)
class StudyFilter:
    """What a list of studies is narrowed to; nothing by default."""

    script: str | None = None
    """A script's path or file name, or a module."""
    folder: str | None = None
    """Folder in which the script ran, or one above it."""
    verdicts: tuple[Verdict, ...] = ()
    """Verdicts of which each study has one; all where this is empty."""
    last: int | None = None
    """How many of the newest are left in the end."""

    def choose(self, records: Sequence[StudyRecord]) -> list[StudyRecord]:
        """Return those that fit, in their order, which is the newest first."""
        found = [each for each in records if self._fits(each)]
        return found if self.last is None else found[: self.last]

    def _fits(self, record: StudyRecord) -> bool:
        if self.verdicts and record.verdict not in self.verdicts:
            return False
        if self.folder is not None:
            folder = PurePath(Path(self.folder).expanduser().resolve())
            if not record.folder or not PurePath(record.folder).is_relative_to(folder):
                return False
        return self.script is None or _is_of(record, self.script)


def _is_of(record: StudyRecord, script: str) -> bool:
    """Say whether a study is of this script: as it was given, by its file name, or its path."""
    if script == record.script:
        return True
    if record.is_module:
        return False
    if PurePath(script).name == script:
        return PurePath(record.script).name == script
    return Path(script).expanduser().resolve() == Path(record.folder, record.script).resolve()


@dataclass(frozen=True)
class Underway:
    """What a study without a result has come to."""

    worker: int | None
    """Process that works on it; None where it has ended."""
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial | None:
        """The fastest run of other settings than the unchanged script's; measured, not proven."""
        gains = [each for each in self.trials if each.gain is not None and each.settings]
        return max(gains, key=lambda each: each.gain or 0.0, default=None)


def underway(name: str) -> Underway:
    """Return what a study has come to; UsageError where there is none of the name."""
    from gpuadvisor.storage.database import open_store

    with open_store() as store:
        return Underway(store.worker(name), tuple(store.trials(name)))


def stored_studies(wanted: StudyFilter) -> list[StudyRecord]:
    """Return the studies that fit, the newest first."""
    from gpuadvisor.storage.database import open_store

    with open_store() as store:
        return wanted.choose(store.study_records())


def load_studies(names: Sequence[str]) -> list[tuple[StudyResult, str]]:
    """Return the result of each study and the folder in which its script ran.

    UsageError where one is not there, has no result yet, or is named twice.
    """
    from gpuadvisor.storage.database import open_store

    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice} is named twice: name two different studies")
    if len(names) == 1:
        raise UsageError(
            f"one study is nothing to compare: name another, or see `gpuadvisor report {names[0]}`"
        )
    with open_store() as store:
        return [(store.load_study(name), store.study_record(name).folder) for name in names]

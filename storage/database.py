"""The store: studies, trials and measurements in one SQLite file that many processes share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.domain.device import Environment
from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.study import Objective, StudyResult, Trial
from gpuadvisor.errors import StoreError, UsageError
from gpuadvisor.storage import names, studies
from gpuadvisor.storage.locks import Held, locked
from gpuadvisor.storage.models import StudyRow
from gpuadvisor.storage.open_database import OpenDatabase, url, usable_path
from gpuadvisor.storage.sqlite_file import ELSEWHERE, connect, explained
from gpuadvisor.storage.studies import StudyRecord

if TYPE_CHECKING:
    from optuna.storages import RDBStorage


def open_store(path: Path | None = None) -> Store:
    """Open the database, created if need be; `with open_store() as store` closes it.

    Without a path it is `gpuadvisor.db` in `home()`. StoreError where it cannot be used.
    """
    return Store(usable_path(path))


class Store(OpenDatabase):
    """An open database. Threads may share it; a forked child must open its own.

    What a method has written outlives this process, however it ends; a power cut may take the
    last commits with it but leaves the file whole. Every method raises StoreError where the
    file fails, and UsageError, which names the newest studies, where there is no such study.
    """

    def close(self) -> None:
        """Close the file, for Optuna as well."""
        if "_optuna" in self.__dict__:
            self._optuna.remove_session()
            self._optuna.engine.dispose()
        super().close()

    def create_study(
        self,
        name: str | None,
        script: str,
        args: Sequence[str],
        environment: Environment,
        level: Level,
        objective: Objective,
        started: str = "",
        folder: str = "",
    ) -> str:
        """Store that a study starts and return its name: one of `new_study_name` for None.

        `started` is UTC in ISO 8601, now if empty; `folder` is where the script runs.
        UsageError if the name is taken.
        """
        with self.writing() as session:
            record = StudyRecord(
                name=names.next_study_name(session, script) if name is None else name,
                script=script,
                args=tuple(args),
                environment=environment,
                level=level,
                objective=objective,
                started=started or datetime.now(UTC).isoformat(timespec="seconds"),
                ended=None,
                interrupted="",
                folder=folder,
            )
            studies.create(session, record)
        return record.name

    def add_trial(self, study: str, trial: Trial) -> None:
        """Store one trial; StoreError if the study has one of that number."""
        with self.writing() as session:
            studies.add_trial(session, studies.find(session, study), trial)

    def trials(self, study: str) -> list[Trial]:
        """Return the trials stored so far, in the order of their numbers."""
        with self.reading() as session:
            rows = studies.trial_rows(session, studies.find(session, study))
            return [studies.trial_of(row) for row in rows]

    def finish_study(self, result: StudyResult) -> None:
        """Store the result of a study; one that was continued may be finished again.

        Trials are added, or replaced where they differ. Stored ones it does not name stay.
        """
        with self.writing() as session:
            studies.finish(session, result)

    def load_study(self, name: str) -> StudyResult:
        """Return the result with its trials by number; UsageError while there is none."""
        with self.reading() as session:
            return studies.load(session, name)

    def study_record(self, name: str) -> StudyRecord:
        """Return what is known of a study from its start on."""
        with self.reading() as session:
            return studies.record_of(studies.find(session, name))

    def load_unfinished(
        self,
        script: str,
        args: Sequence[str],
        level: Level,
        objective: Objective,
        folder: str = "",
    ) -> StudyRecord | None:
        """Return the newest such study if it was killed or interrupted, to be continued."""
        same = (
            StudyRow.script == script,
            StudyRow.args == tuple(args),
            StudyRow.folder == folder,
            StudyRow.level == level,
            StudyRow.objective == objective,
        )
        with self.reading() as session:
            row = studies.latest(session, *same)
            unfinished = row is not None and (row.ended is None or bool(row.interrupted))
            return studies.record_of(row) if row is not None and unfinished else None

    def latest_study(self, script: str | None = None, finished: bool | None = None) -> str | None:
        """Return the newest study's name, of this script, with (True) or without a result."""
        conditions = []
        if script is not None:
            conditions.append(StudyRow.script == script)
        if finished is not None:
            conditions.append(StudyRow.ended.is_not(None) if finished else StudyRow.ended.is_(None))
        with self.reading() as session:
            row = studies.latest(session, *conditions)
            return None if row is None else row.name

    def study_names(self, limit: int | None = None) -> list[str]:
        """Return the names of studies, the newest first."""
        with self.reading() as session:
            return studies.names(session, limit)

    def new_study_name(self, script: str) -> str:
        """Return a free name, such as `train-3`, which another process may take before you."""
        with self.reading() as session:
            return names.next_study_name(session, script)

    @contextmanager
    def lock_study(self, name: str) -> Iterator[None]:
        """Keep other processes from working on this study; UsageError if one does already."""
        # A name may hold characters that a file's name may not.
        key = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:16]
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.path.with_name("locks") / f"{key}.lock"))
            except Held as other:
                raise UsageError(
                    f"Study {name} is being tuned by process {other.process or '?'}: "
                    "wait for it or stop it, or start a study of another name."
                ) from None
            yield

    def optuna_storage(self) -> RDBStorage:
        """Return Optuna's storage in this file; it is closed with the store.

        Its own errors are Optuna's: ask and tell within `recording()`.
        """
        return self._optuna

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Turn what Optuna raises where the file fails into StoreError."""
        with explained(self.path):
            yield

    @cached_property
    def _optuna(self) -> RDBStorage:
        return _open_optuna(self.path)


def _open_optuna(path: Path) -> RDBStorage:
    """Return Optuna's storage on this file, its tables created beside ours if need be.

    StoreError where the file cannot be used, or another version of Optuna made its tables.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # our reports say what happens
    address = url(path).render_as_string().replace("{", "{{").replace("}", "}}")
    # Write transactions from the start, as for our tables; two processes that create Optuna's
    # tables at once would both find them missing.
    writer = partial(connect, path, "IMMEDIATE")
    with explained(path), locked(path.with_name("optuna.lock"), wait=True):
        try:
            return optuna.storages.RDBStorage(address, engine_kwargs={"creator": writer})
        except RuntimeError as error:
            raise StoreError(
                f"Optuna {optuna.__version__} cannot read its tables in {path}, which another "
                f"version made: install that one, or {ELSEWHERE}."
            ) from error

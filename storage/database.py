"""The store: studies, trials and measurements in one SQLite file that many processes share."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from gpuadvisor.domain.device import Environment
from gpuadvisor.domain.knobs import AppliedKnob, Level, Settings
from gpuadvisor.domain.measurement import Measurement, StepWindow, Trace
from gpuadvisor.domain.study import Objective, Speedup, StudyResult, Trial, Verdict
from gpuadvisor.errors import StoreError, UsageError
from gpuadvisor.storage.locks import Held, holder, locked
from gpuadvisor.storage.models import (
    AppliedKnobRow,
    EnvironmentRow,
    MeasurementRow,
    StudyRow,
    TraceRow,
    TrialRow,
    WindowRow,
    shared,
    values,
)
from gpuadvisor.storage.names import NAMES_IN_ERROR, check_name, next_study_name
from gpuadvisor.storage.open_database import OpenDatabase, url
from gpuadvisor.storage.sqlite_file import ELSEWHERE, connect, explained

if TYPE_CHECKING:
    from optuna.storages import RDBStorage

RESULT = shared(StudyRow, StudyResult)
TRIAL = shared(TrialRow, Trial)
MEASUREMENT = shared(MeasurementRow, Measurement)
WINDOW = shared(WindowRow, StepWindow)
TRACE = shared(TraceRow, Trace)
APPLIED = shared(AppliedKnobRow, AppliedKnob)


@dataclass(frozen=True)
class StudyRecord:
    """A study as a list shows it. What only its result says is None until there is one."""

    name: str
    script: str
    args: tuple[str, ...]
    environment: Environment
    level: Level
    objective: Objective
    started: str
    """UTC, ISO 8601."""
    ended: str | None
    """UTC, ISO 8601; None if it runs, or its process was killed."""
    interrupted: str
    """Why it ended early; empty otherwise."""
    until: str | None = None
    """When the time of its newest session is over: UTC, ISO 8601; None where that has no limit."""
    folder: str = ""
    """Absolute path of the folder in which the script ran; empty where it is not known."""
    is_module: bool = False
    """Whether `script` is a module, as after `python -m`."""
    verifies: str | None = None
    """Path of the plan that was verified; None where settings were searched."""
    verdict: Verdict | None = None
    settings: Settings | None = None
    """The best settings that were found, or those of the plan that was verified."""
    speedup: Speedup | None = None
    wall_s: float | None = None
    plan: str | None = None
    """Path of the plan, relative to `folder` unless it is absolute; None where there is none."""


RECORD = shared(StudyRow, StudyRecord)


def open_store(path: Path | None = None) -> Store:
    """Open the database, created if need be; `with open_store() as store` closes it.

    Without a path it is `gpuadvisor.db` in `home()`. StoreError where it cannot be used.
    """
    return Store(path)


class Store(OpenDatabase):
    """An open database. Threads may share it; a forked child must open its own.

    What a method has written outlives this process, however it ends; a power cut may take the
    last commits with it but leaves the file whole. Every method raises StoreError where the
    file fails, and UsageError, which names the newest studies, where there is no such study.
    """

    def close(self) -> None:
        """Close the file, for Optuna as well."""
        if "optuna_storage" in self.__dict__:
            self.optuna_storage.remove_session()
            self.optuna_storage.engine.dispose()
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
        is_module: bool = False,
        verifies: str | None = None,
    ) -> str:
        """Store that a study starts and return its name: for None one that is free.

        `started` is UTC in ISO 8601, now if empty; `folder` is where the script runs; `verifies`
        is the path of a plan, where that is all that the study is about. UsageError if the name
        is taken.
        """
        with self.writing() as session:
            name = check_name(next_study_name(session, script, is_module) if name is None else name)
            if session.scalar(select(StudyRow.id).filter_by(name=name)) is not None:
                raise UsageError(
                    f"There is a study {name} already: choose another name, or continue it "
                    "with --resume."
                )
            row = StudyRow(
                name=name, script=script, args=tuple(args), level=level, objective=objective,
                started=started or _now(), interrupted="", folder=folder, is_module=is_module,
                verifies=verifies,
            )  # fmt: skip
            row.environment = _environment(session, environment)
            session.add(row)
        return name

    def add_trial(self, study: str, trial: Trial) -> None:
        """Store one trial; StoreError if the study has one of that number."""
        with self.writing() as session:
            _add_trial(session, _find(session, study), trial)

    def trials(self, study: str) -> list[Trial]:
        """Return the trials stored so far, in the order of their numbers."""
        with self.reading() as session:
            return [_trial_of(row) for row in _trial_rows(session, _find(session, study))]

    def finish_study(self, result: StudyResult) -> None:
        """Store the result of a study; one that was continued may be finished again.

        Trials are added, or replaced where they differ. Stored ones it does not name stay.
        """
        with self.writing() as session:
            row = _find(session, result.study)
            _drop_summary(session, row)
            stored = _put_trials(session, row, result.trials)
            for name, value in values(result, RESULT).items():
                setattr(row, name, value)
            row.environment = _environment(session, result.environment)
            row.baseline = _summary(result, result.baseline, stored)
            row.best = _summary(result, result.best, stored) if result.best else None
            row.ended = _now()

    def load_study(self, name: str) -> StudyResult:
        """Return the result with its trials by number; UsageError while there is none."""
        with self.reading() as session:
            row = _find(session, name)
            if row.baseline is None:
                again = "can be continued with `gpuadvisor tune --resume`"
                if row.verifies is not None:
                    again = "cannot be continued: run `gpuadvisor verify` again"
                raise UsageError(
                    f"Study {name} has no result yet: it is running, or it was killed and {again}."
                )
            return StudyResult(
                **values(row, RESULT),
                study=row.name,
                environment=row.environment.fingerprint,
                baseline=_measurement_of(row.baseline),
                best=_measurement_of(row.best) if row.best else None,
                trials=tuple(_trial_of(trial) for trial in _trial_rows(session, row)),
            )

    def study_record(self, name: str) -> StudyRecord:
        """Return what is known of a study from its start on."""
        with self.reading() as session:
            return _record_of(_find(session, name))

    def study_records(self) -> list[StudyRecord]:
        """Return what is known of every study, the newest first."""
        with self.reading() as session:
            newest = select(StudyRow).order_by(StudyRow.id.desc())
            return [_record_of(row) for row in session.scalars(newest)]

    def load_unfinished(
        self, script: str, args: Sequence[str], level: Level, objective: Objective, folder: str = ""
    ) -> StudyRecord | None:
        """Return the newest such search if it was killed or interrupted, to be continued."""
        same = (
            StudyRow.verifies.is_(None),
            StudyRow.script == script,
            StudyRow.args == tuple(args),
            StudyRow.folder == folder,
            StudyRow.level == level,
            StudyRow.objective == objective,
        )
        with self.reading() as session:
            row = _latest(session, *same)
            if row is None or (row.ended is not None and not row.interrupted):
                return None
            return _record_of(row)

    def latest_finished(self) -> str | None:
        """Return the name of the newest study that has a result."""
        with self.reading() as session:
            row = _latest(session, StudyRow.ended.is_not(None))
            return None if row is None else row.name

    def study_names(self) -> list[str]:
        """Return the names of studies, the newest first."""
        with self.reading() as session:
            return _names(session)

    @contextmanager
    def lock_study(self, name: str) -> Iterator[None]:
        """Keep other processes from working on this study; UsageError if one does already."""
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self._lock(name)))
            except Held as other:
                raise UsageError(
                    f"Study {name} is being tuned by process {other.process or '?'}: "
                    "wait for it or stop it, or start a study of another name."
                ) from None
            yield

    def worker(self, name: str) -> int | None:
        """Return the process that works on a study; None where none does."""
        return holder(self._lock(name))

    def begin_session(self, name: str, until: str | None) -> None:
        """Store when the time of a study's session is over: UTC in ISO 8601, None for no limit."""
        with self.writing() as session:
            _find(session, name).until = until

    def _lock(self, name: str) -> Path:
        # A name may hold characters that a file's name may not.
        key = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:16]
        return self.path.with_name("locks") / f"{key}.lock"

    def recording(self) -> AbstractContextManager[None]:
        """Turn what Optuna raises where the file fails into StoreError."""
        return explained(self.path)

    @cached_property
    def optuna_storage(self) -> RDBStorage:
        """Optuna's storage in this file, its tables created beside ours if need be.

        It is closed with the store. StoreError where the file cannot be used, or another version
        of Optuna made its tables. Its own errors are Optuna's: ask and tell within `recording()`.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)  # our reports say what happens
        address = url(self.path).render_as_string().replace("{", "{{").replace("}", "}}")
        # Write transactions from the start, as for our tables; two processes that create Optuna's
        # tables at once would both find them missing.
        opened: list[sqlite3.Connection] = []

        def writer() -> sqlite3.Connection:
            opened.append(connect(self.path, "IMMEDIATE"))
            return opened[-1]

        with explained(self.path), locked(self.path.with_name("optuna.lock"), wait=True):
            try:
                return optuna.storages.RDBStorage(address, engine_kwargs={"creator": writer})
            except BaseException as error:
                for connection in opened:  # of an engine that nobody else can dispose of
                    connection.close()
                if not isinstance(error, RuntimeError):
                    raise
                raise StoreError(
                    f"Optuna {optuna.__version__} cannot read its tables in {self.path}, which "
                    f"another version made: install that one, or {ELSEWHERE}."
                ) from error


# -- studies ---------------------------------------------------------------------------------------


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _find(session: Session, name: str) -> StudyRow:
    """Return the study's row; UsageError with the nearest or newest names if there is none."""
    row = session.scalar(select(StudyRow).filter_by(name=name))
    if row is None:
        known = _names(session)
        near = get_close_matches(name, known, NAMES_IN_ERROR)
        there_is = f"did you mean {' or '.join(near)}?" if near else "none is stored yet."
        if known and not near:
            there_is = f"the newest are {', '.join(known[:NAMES_IN_ERROR])}."
        raise UsageError(f"There is no study {name!r}: {there_is}")
    return row


def _names(session: Session) -> list[str]:
    """Return the names of studies, the newest first."""
    return list(session.scalars(select(StudyRow.name).order_by(StudyRow.id.desc())))


def _latest(session: Session, *conditions: ColumnElement[bool]) -> StudyRow | None:
    """Return the newest study that fulfils the conditions."""
    return session.scalar(select(StudyRow).where(*conditions).order_by(StudyRow.id.desc()).limit(1))


def _record_of(row: StudyRow) -> StudyRecord:
    """Return what is known of the study from its start on."""
    fields = values(row, RECORD) | {"interrupted": row.interrupted or ""}
    return StudyRecord(**fields, environment=row.environment.fingerprint)


def _environment(session: Session, environment: Environment) -> EnvironmentRow:
    same = select(EnvironmentRow).where(EnvironmentRow.fingerprint == environment)
    return session.scalar(same) or EnvironmentRow(fingerprint=environment)


def _summary(
    result: StudyResult, measurement: Measurement, stored: dict[int, TrialRow]
) -> MeasurementRow:
    """Return the row of the trial that this measurement comes from, else a row of its own."""
    for trial in result.trials:
        if trial.measurement is measurement or trial.measurement == measurement:
            row = stored[trial.number].measurement
            if row is not None:
                return row
    return _measurement_row(measurement)


def _drop_summary(session: Session, row: StudyRow) -> None:
    """Forget an earlier baseline and best; delete them unless they are those of a trial."""
    old = {each.id: each for each in (row.baseline, row.best) if each is not None}
    row.baseline = row.best = None
    session.flush()
    of_trials = select(TrialRow.measurement_id).where(TrialRow.measurement_id.in_(old))
    for key in set(old) - set(session.scalars(of_trials)):
        session.delete(old[key])


# -- trials --------------------------------------------------------------------------------------


def _add_trial(session: Session, study: StudyRow, trial: Trial) -> TrialRow:
    """Add a trial; StoreError if the study has one of that number."""
    taken = select(TrialRow.id).filter_by(study_id=study.id, number=trial.number)
    if session.scalar(taken) is not None:
        raise StoreError(
            f"Trial {trial.number} of study {study.name} is stored already: another process "
            "may be running the same study."
        )
    return _new_trial(session, study, trial)


def _new_trial(session: Session, study: StudyRow, trial: Trial) -> TrialRow:
    row = TrialRow(study_id=study.id)
    _fill_trial(row, trial)
    session.add(row)
    return row


def _put_trials(session: Session, study: StudyRow, trials: Iterable[Trial]) -> dict[int, TrialRow]:
    """Add the trials or bring the stored ones up to date; return the study's rows by number.

    Stored trials that are not among them stay.
    """
    stored = {row.number: row for row in _trial_rows(session, study)}
    for trial in trials:
        if trial.number not in stored:
            stored[trial.number] = _new_trial(session, study, trial)
        elif _trial_of(stored[trial.number]) != trial:
            _fill_trial(stored[trial.number], trial)
    return stored


def _trial_rows(session: Session, study: StudyRow) -> list[TrialRow]:
    """Return the study's rows in the order of their numbers."""
    wanted = select(TrialRow).filter_by(study_id=study.id).order_by(TrialRow.number)
    return list(session.scalars(wanted))


def _trial_of(row: TrialRow) -> Trial:
    """Return the trial with its measurement."""
    return Trial(
        **values(row, TRIAL),
        measurement=_measurement_of(row.measurement) if row.measurement else None,
    )


def _fill_trial(row: TrialRow, trial: Trial) -> None:
    for name, value in values(trial, TRIAL).items():
        setattr(row, name, value)
    row.measurement = _measurement_row(trial.measurement) if trial.measurement else None


# -- measurements --------------------------------------------------------------------------------


def _measurement_row(measurement: Measurement) -> MeasurementRow:
    """Return a measurement as a new row, with its windows, trace and applied knobs."""
    return MeasurementRow(
        **values(measurement, MEASUREMENT),
        trace=TraceRow(**values(measurement.trace, TRACE)),
        windows=[
            WindowRow(position=position, **values(window, WINDOW))
            for position, window in enumerate(measurement.windows)
        ],
        applied=[
            AppliedKnobRow(position=position, **values(knob, APPLIED))
            for position, knob in enumerate(measurement.applied)
        ],
    )


def _measurement_of(row: MeasurementRow) -> Measurement:
    """Return the measurement that a row and its parts hold."""
    return Measurement(
        **values(row, MEASUREMENT),
        trace=Trace(**values(row.trace, TRACE)),
        windows=tuple(StepWindow(**values(window, WINDOW)) for window in row.windows),
        applied=tuple(AppliedKnob(**values(knob, APPLIED)) for knob in row.applied),
    )

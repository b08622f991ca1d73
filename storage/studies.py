"""Studies, their trials and measurements, as rows and back.

A function here works in the session, and so the transaction, that it is given.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from gpuadvisor.domain.device import Environment
from gpuadvisor.domain.knobs import AppliedKnob, Level
from gpuadvisor.domain.measurement import Measurement, StepWindow, Trace
from gpuadvisor.domain.study import Objective, StudyResult, Trial
from gpuadvisor.errors import StoreError, UsageError
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
from gpuadvisor.storage.names import NAMES_IN_ERROR, check_name

RESULT = shared(StudyRow, StudyResult)
TRIAL = shared(TrialRow, Trial)
MEASUREMENT = shared(MeasurementRow, Measurement)
WINDOW = shared(WindowRow, StepWindow)
TRACE = shared(TraceRow, Trace)
APPLIED = shared(AppliedKnobRow, AppliedKnob)


@dataclass(frozen=True)
class StudyRecord:
    """A study as it is known from its start on, without its result."""

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
    folder: str = ""
    """Absolute path of the folder in which the script ran; empty where it is not known."""


RECORD = shared(StudyRow, StudyRecord)


def create(session: Session, record: StudyRecord) -> None:
    """Add a study that starts; UsageError if its name is taken or cannot be one."""
    check_name(record.name)
    if session.scalar(select(StudyRow.id).filter_by(name=record.name)) is not None:
        raise UsageError(
            f"There is a study {record.name} already: choose another name, or continue it "
            "with --resume."
        )
    row = StudyRow(**values(record, RECORD))
    row.environment = _environment(session, record.environment)
    session.add(row)


def find(session: Session, name: str) -> StudyRow:
    """Return the study's row; UsageError that lists the newest names if there is none."""
    row = session.scalar(select(StudyRow).filter_by(name=name))
    if row is None:
        newest = names(session, NAMES_IN_ERROR)
        there_is = f"the newest are {', '.join(newest)}" if newest else "none is stored yet"
        raise UsageError(f"There is no study {name!r}: {there_is}.")
    return row


def names(session: Session, limit: int | None = None) -> list[str]:
    """Return the names of studies, the newest first."""
    return list(session.scalars(select(StudyRow.name).order_by(StudyRow.id.desc()).limit(limit)))


def latest(session: Session, *conditions: ColumnElement[bool]) -> StudyRow | None:
    """Return the newest study that fulfils the conditions."""
    return session.scalar(select(StudyRow).where(*conditions).order_by(StudyRow.id.desc()).limit(1))


def record_of(row: StudyRow) -> StudyRecord:
    """Return what is known of the study from its start on."""
    fields = values(row, RECORD) | {"interrupted": row.interrupted or ""}
    return StudyRecord(**fields, environment=row.environment.fingerprint)


def finish(session: Session, result: StudyResult) -> None:
    """Store all that the result says, over an earlier result of the study."""
    row = find(session, result.study)
    _drop_summary(session, row)
    stored = put_trials(session, row, result.trials)
    for name, value in values(result, RESULT).items():
        setattr(row, name, value)
    row.environment = _environment(session, result.environment)
    row.baseline = _summary(result, result.baseline, stored)
    row.best = _summary(result, result.best, stored) if result.best else None
    row.ended = datetime.now(UTC).isoformat(timespec="seconds")


def load(session: Session, name: str) -> StudyResult:
    """Return a finished study's result; UsageError if it is unknown or has no result."""
    row = find(session, name)
    if row.baseline is None:
        raise UsageError(
            f"Study {name} has no result yet: it is running, or it was killed and can be "
            "continued with `gpuadvisor tune --resume`."
        )
    return StudyResult(
        **values(row, RESULT),
        study=row.name,
        environment=row.environment.fingerprint,
        baseline=_measurement_of(row.baseline),
        best=_measurement_of(row.best) if row.best else None,
        trials=tuple(trial_of(trial) for trial in trial_rows(session, row)),
    )


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


def add_trial(session: Session, study: StudyRow, trial: Trial) -> TrialRow:
    """Add a trial; StoreError if the study has one of that number."""
    taken = select(TrialRow.id).filter_by(study_id=study.id, number=trial.number)
    if session.scalar(taken) is not None:
        raise StoreError(
            f"Trial {trial.number} of study {study.name} is stored already: another process "
            "may be running the same study."
        )
    row = TrialRow(study_id=study.id)
    _fill_trial(row, trial)
    session.add(row)
    return row


def put_trials(session: Session, study: StudyRow, trials: Iterable[Trial]) -> dict[int, TrialRow]:
    """Add the trials or bring the stored ones up to date; return the study's rows by number.

    Stored trials that are not among them stay.
    """
    stored = {row.number: row for row in trial_rows(session, study)}
    for trial in trials:
        if trial.number not in stored:
            stored[trial.number] = add_trial(session, study, trial)
        elif trial_of(stored[trial.number]) != trial:
            _fill_trial(stored[trial.number], trial)
    return stored


def trial_rows(session: Session, study: StudyRow) -> list[TrialRow]:
    """Return the study's rows in the order of their numbers."""
    wanted = select(TrialRow).filter_by(study_id=study.id).order_by(TrialRow.number)
    return list(session.scalars(wanted))


def trial_of(row: TrialRow) -> Trial:
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

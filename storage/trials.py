"""Trials of a study. A function here works in the session, and so the transaction, it is given."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import select
from sqlalchemy.orm import Session

from gpuadvisor.domain.study import Trial
from gpuadvisor.errors import StoreError
from gpuadvisor.storage import measurements
from gpuadvisor.storage.models import StudyRow, TrialRow
from gpuadvisor.storage.rows import shared, values

SCALARS = shared(TrialRow, Trial)


def add(session: Session, study: StudyRow, trial: Trial) -> TrialRow:
    """Add a trial; StoreError if the study has one of that number."""
    taken = select(TrialRow.id).filter_by(study_id=study.id, number=trial.number)
    if session.scalar(taken) is not None:
        raise StoreError(
            f"Trial {trial.number} of study {study.name} is stored already: another process "
            "may be running the same study."
        )
    row = TrialRow(study_id=study.id)
    _fill(row, trial)
    session.add(row)
    return row


def put(session: Session, study: StudyRow, trials: Iterable[Trial]) -> dict[int, TrialRow]:
    """Add the trials or bring the stored ones up to date; return the study's rows by number.

    Stored trials that are not among them stay.
    """
    stored = {row.number: row for row in rows(session, study)}
    for trial in trials:
        if trial.number not in stored:
            stored[trial.number] = add(session, study, trial)
        elif from_row(stored[trial.number]) != trial:
            _fill(stored[trial.number], trial)
    return stored


def rows(session: Session, study: StudyRow) -> list[TrialRow]:
    """Return the study's rows in the order of their numbers."""
    wanted = select(TrialRow).filter_by(study_id=study.id).order_by(TrialRow.number)
    return list(session.scalars(wanted))


def from_row(row: TrialRow) -> Trial:
    """Return the trial with its measurement."""
    return Trial(
        **values(row, SCALARS),
        measurement=measurements.from_row(row.measurement) if row.measurement else None,
    )


def _fill(row: TrialRow, trial: Trial) -> None:
    for name, value in values(trial, SCALARS).items():
        setattr(row, name, value)
    row.measurement = measurements.to_row(trial.measurement) if trial.measurement else None

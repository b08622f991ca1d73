"""The tables as typed models, from which a new file gets its schema.

Columns that share a name with a field of the domain hold just that field; see `shared`. Optuna's
tables live in the same file (`studies`, `trials`, `study_*`, `trial_*`, `version_info`,
`alembic_version`), so ours have other names. Times are UTC in ISO 8601; ANY columns hold a number,
or the text `nan`, which SQLite could not tell from NULL otherwise.

A change to a table is a new `SCHEMA_VERSION`. Until the first release a file of another version is
refused and left as it is; from the first release on, old files are migrated, never lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from sqlalchemy import ForeignKey, LargeBinary, Text, UniqueConstraint, inspect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from gpuadvisor.domain.device import Environment
from gpuadvisor.domain.knobs import Contribution, Level, ScriptFacts, Settings
from gpuadvisor.domain.loader_supply import LoaderSupply
from gpuadvisor.domain.measurement import Counts, OutputSample
from gpuadvisor.domain.profile import DeviceLimits
from gpuadvisor.domain.screening import Screened
from gpuadvisor.domain.study import (
    Dropped,
    Equivalence,
    Expectation,
    Forking,
    InTurns,
    Objective,
    Rehearsal,
    Speedup,
    TrialState,
    Verdict,
)
from gpuadvisor.storage.column_types import AnyText, Json, Member, Number, Numbers

SCHEMA_VERSION = 17
"""Version of the schema, in `PRAGMA user_version` of a file with these tables."""

Texts = Mapping[str, str]
CASCADE = "all, delete-orphan"


class Base(DeclarativeBase):
    """The base of all tables: any text can be stored, and a float may be NaN or infinite."""

    type_annotation_map = {str: AnyText, float: Number, bytes: LargeBinary}  # noqa: RUF012 - SQLAlchemy's


class EnvironmentRow(Base):
    """One fingerprint, shared by the studies that ran in it."""

    __tablename__ = "environment"
    id: Mapped[int] = mapped_column(primary_key=True)
    fingerprint: Mapped[Environment] = mapped_column(Json(Environment), unique=True)


class WindowRow(Base):
    """A window of steps between two synchronisations."""

    __tablename__ = "measurement_window"
    measurement_id: Mapped[int] = mapped_column(
        ForeignKey("measurement.id", ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(primary_key=True)
    steps: Mapped[int]
    seconds: Mapped[float]
    samples: Mapped[float]
    data_wait_s: Mapped[float]
    energy_j: Mapped[float | None]


class TraceRow(Base):
    """The losses and outputs of one measurement."""

    __tablename__ = "measurement_trace"
    measurement_id: Mapped[int] = mapped_column(
        ForeignKey("measurement.id", ondelete="CASCADE"), primary_key=True
    )
    losses: Mapped[tuple[float, ...]] = mapped_column(Numbers)
    outputs: Mapped[tuple[OutputSample, ...]] = mapped_column(Json(tuple[OutputSample, ...]))
    last_loss: Mapped[float | None]


class AppliedKnobRow(Base):
    """What a knob reported from inside the measured process."""

    __tablename__ = "applied_knob"
    measurement_id: Mapped[int] = mapped_column(
        ForeignKey("measurement.id", ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(primary_key=True)
    knob: Mapped[str]
    state: Mapped[str]
    detail: Mapped[str]


class MeasurementRow(Base):
    """The steady steps of one run, with its raw windows and step times."""

    __tablename__ = "measurement"
    id: Mapped[int] = mapped_column(primary_key=True)
    marker: Mapped[str]
    step_ms: Mapped[tuple[float, ...]] = mapped_column(Numbers)
    warmup_steps: Mapped[int]
    samples_source: Mapped[str | None]
    peak_memory_bytes: Mapped[int]
    reserved_memory_bytes: Mapped[int]
    startup_s: Mapped[float]
    wall_s: Mapped[float]
    compiles: Mapped[int]
    counts: Mapped[Mapping[str, Counts]] = mapped_column(Json(Mapping[str, Counts]))
    facts: Mapped[ScriptFacts] = mapped_column(Json(ScriptFacts))

    windows: Mapped[list[WindowRow]] = relationship(
        order_by=WindowRow.position, cascade=CASCADE, lazy="selectin"
    )
    applied: Mapped[list[AppliedKnobRow]] = relationship(
        order_by=AppliedKnobRow.position, cascade=CASCADE, lazy="selectin"
    )
    trace: Mapped[TraceRow] = relationship(cascade=CASCADE, lazy="selectin")


class TrialRow(Base):
    """One run of a study's script."""

    __tablename__ = "tuning_trial"
    __table_args__ = (UniqueConstraint("study_id", "number"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("tuning_study.id", ondelete="CASCADE"))
    number: Mapped[int]
    settings: Mapped[Settings] = mapped_column(Json(Settings))
    phase: Mapped[str]
    state: Mapped[TrialState] = mapped_column(Member(TrialState))
    reason: Mapped[str]
    measurement_id: Mapped[int | None] = mapped_column(ForeignKey("measurement.id"))
    equivalence: Mapped[Equivalence | None] = mapped_column(Json(Equivalence))
    gain: Mapped[float | None]
    gpu: Mapped[int]
    wall_s: Mapped[float]
    disturbance: Mapped[str]
    start_saved_s: Mapped[float | None]
    in_turns: Mapped[InTurns | None] = mapped_column(Json(InTurns))

    measurement: Mapped[MeasurementRow | None] = relationship(
        cascade=CASCADE, single_parent=True, lazy="selectin"
    )


class StudyRow(Base):
    """A tuning study: what was asked, and once it ended what was found (NULL until then)."""

    __tablename__ = "tuning_study"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    script: Mapped[str] = mapped_column(index=True)
    args: Mapped[tuple[str, ...]] = mapped_column(Json(tuple[str, ...]))
    environment_id: Mapped[int] = mapped_column(ForeignKey("environment.id"))
    level: Mapped[Level] = mapped_column(Member(Level))
    objective: Mapped[Objective] = mapped_column(Member(Objective))
    started: Mapped[str]
    ended: Mapped[str | None]
    until: Mapped[str | None]
    wall_s: Mapped[float | None]
    verdict: Mapped[Verdict | None] = mapped_column(Member(Verdict))
    interrupted: Mapped[str | None]
    plan: Mapped[str | None]
    baseline_id: Mapped[int | None] = mapped_column(ForeignKey("measurement.id"))
    best_id: Mapped[int | None] = mapped_column(ForeignKey("measurement.id"))
    settings: Mapped[Settings | None] = mapped_column(Json(Settings))
    speedup: Mapped[Speedup | None] = mapped_column(Json(Speedup))
    contributions: Mapped[tuple[Contribution, ...] | None] = mapped_column(
        Json(tuple[Contribution, ...])
    )
    equivalence: Mapped[Equivalence | None] = mapped_column(Json(Equivalence))
    no_effect: Mapped[Mapping[str, str] | None] = mapped_column(Json(Mapping[str, str]))
    notes: Mapped[tuple[str, ...] | None] = mapped_column(Json(tuple[str, ...]))
    folder: Mapped[str] = mapped_column(server_default="")
    expectations: Mapped[tuple[Expectation, ...]] = mapped_column(
        Json(tuple[Expectation, ...]), server_default="[]"
    )
    is_module: Mapped[bool] = mapped_column(Json(bool), server_default="false")
    verifies: Mapped[str | None]
    rehearsal: Mapped[Rehearsal | None] = mapped_column(Json(Rehearsal))
    dropped: Mapped[tuple[Dropped, ...] | None] = mapped_column(Json(tuple[Dropped, ...]))
    untried: Mapped[Texts | None] = mapped_column(Json(Texts))
    needed_s: Mapped[float | None]
    left: Mapped[tuple[str, ...] | None] = mapped_column(Json(tuple[str, ...]))
    screened: Mapped[tuple[Screened, ...] | None] = mapped_column(Json(tuple[Screened, ...]))
    computing_ms: Mapped[float | None]
    supply: Mapped[LoaderSupply | None] = mapped_column(Json(LoaderSupply))
    forking: Mapped[Forking | None] = mapped_column(Json(Forking))

    environment: Mapped[EnvironmentRow] = relationship(lazy="joined")
    baseline: Mapped[MeasurementRow | None] = relationship(foreign_keys=[baseline_id])
    best: Mapped[MeasurementRow | None] = relationship(foreign_keys=[best_id])


class ProfileRow(Base):
    """One trace.

    `imported`, `name` and `digest` are NULL until all of it is stored, so that a profile on its way
    in, or one whose import was killed, is in nobody's way.
    """

    __tablename__ = "profile"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str | None] = mapped_column(Text, unique=True)
    source: Mapped[str]
    tool: Mapped[str]
    path: Mapped[str]
    size_bytes: Mapped[int]
    digest: Mapped[str | None] = mapped_column(Text, unique=True)
    imported: Mapped[str | None]
    begin_unix_ns: Mapped[int | None]
    first_ns: Mapped[int]
    duration_ns: Mapped[int]
    rank: Mapped[int | None]
    world_size: Mapped[int | None]
    ranks_of: Mapped[str]
    processes: Mapped[Texts] = mapped_column(Json(Texts))
    facts: Mapped[Texts] = mapped_column(Json(Texts))
    not_measured: Mapped[Texts] = mapped_column(Json(Texts))
    warnings: Mapped[tuple[str, ...]] = mapped_column(Json(tuple[str, ...]))
    table_rows: Mapped[Mapping[str, int]] = mapped_column(Json(Mapping[str, int]))


class ProfileDeviceRow(Base):
    """A GPU as the trace describes it."""

    __tablename__ = "profile_device"
    profile_id: Mapped[int] = mapped_column(
        ForeignKey("profile.id", ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    uuid: Mapped[str | None]
    limits: Mapped[DeviceLimits] = mapped_column(Json(DeviceLimits))


class ProfileChunkRow(Base):
    """Some tens of thousands of values of one column, or texts; `profiles.chunks` says how."""

    __tablename__ = "profile_chunk"
    profile_id: Mapped[int] = mapped_column(
        ForeignKey("profile.id", ondelete="CASCADE"), primary_key=True
    )
    table_name: Mapped[str] = mapped_column(Text, primary_key=True)
    column_name: Mapped[str] = mapped_column(Text, primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    dtype: Mapped[str]
    row_count: Mapped[int]
    data: Mapped[bytes]


class CeilingRow(Base):
    """A rate that a GPU was measured to reach."""

    __tablename__ = "device_ceiling"
    id: Mapped[int] = mapped_column(primary_key=True)
    device_uuid: Mapped[str] = mapped_column(index=True)
    device_name: Mapped[str]
    what: Mapped[str]
    value: Mapped[float]
    unit: Mapped[str]
    measured: Mapped[str]
    conditions: Mapped[Texts] = mapped_column(Json(Texts))


@cache
def shared(row: type[Base], domain: type) -> tuple[str, ...]:
    """Return the names that are both a column of the table and a field of the dataclass."""
    columns = {column.key for column in inspect(row).column_attrs}
    return tuple(each.name for each in fields(domain) if each.name in columns)


def values(source: object, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the attributes of these names, as keyword arguments."""
    return {name: getattr(source, name) for name in names}


@dataclass(frozen=True)
class ProfileRecord:
    """A stored profile in a list."""

    id: int
    name: str
    source: str
    tool: str
    path: str
    size_bytes: int
    digest: str
    imported: str
    """UTC, ISO 8601."""
    begin_unix_ns: int | None
    duration_ns: int
    rank: int | None
    world_size: int | None
    ranks_of: str
    table_rows: Mapping[str, int]


PROFILE_RECORD = shared(ProfileRow, ProfileRecord)


def profile_record(row: ProfileRow) -> ProfileRecord:
    """Return a row as a list shows it; any ValueError and the like where it is damaged."""
    counts = {table: int(count) for table, count in row.table_rows.items()}
    return ProfileRecord(**values(row, PROFILE_RECORD) | {"table_rows": counts})

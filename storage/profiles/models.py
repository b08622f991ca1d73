"""The tables of profiles as typed models; `storage.models` says how they are meant."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import ForeignKey, Text
from sqlalchemy.orm import Mapped, mapped_column

from gpuadvisor.domain.profile import DeviceLimits
from gpuadvisor.storage.columns import Json
from gpuadvisor.storage.models import Base

Words = Mapping[str, str]


class ProfileRow(Base):
    """One trace; NULL in `imported`, `name` and `digest` until all of it is stored."""

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
    processes: Mapped[Words] = mapped_column(Json(Words))
    facts: Mapped[Words] = mapped_column(Json(Words))
    not_measured: Mapped[Words] = mapped_column(Json(Words))
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
    """Some tens of thousands of values of one column, or texts; `chunks` says how."""

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
    conditions: Mapped[Words] = mapped_column(Json(Words))

"""What GPUs were measured to reach, kept for later diagnoses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import select

from gpuadvisor.domain.ceiling import Ceiling
from gpuadvisor.storage.models import CeilingRow
from gpuadvisor.storage.open_database import OpenDatabase
from gpuadvisor.storage.rows import shared, values

CEILING = shared(CeilingRow, Ceiling)


def add(database: OpenDatabase, uuid: str, name: str, ceilings: Iterable[Ceiling]) -> None:
    """Store what one GPU was measured to reach; earlier measurements stay."""
    with database.writing() as session:
        session.add_all(
            CeilingRow(device_uuid=uuid, device_name=name, **values(each, CEILING))
            for each in ceilings
        )


def newest(
    database: OpenDatabase, uuid: str | None = None, name: str | None = None
) -> Mapping[str, Ceiling]:
    """Return the newest measurement of each kind, of this GPU, else of one of the same name.

    Traces seldom tell a UUID, and GPUs of one name reach much the same.
    """
    with database.reading() as session:
        for condition in (CeilingRow.device_uuid == uuid, CeilingRow.device_name == name):
            rows = session.scalars(select(CeilingRow).where(condition).order_by(CeilingRow.id))
            if found := {row.what: Ceiling(**values(row, CEILING)) for row in rows}:
                return found
    return {}

"""All profiles of the store: added, found, listed and removed.

Beside them stands what GPUs were measured to reach, with which profiles are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, delete, literal_column, select, update

from gpuadvisor.domain.ceiling import Ceiling
from gpuadvisor.errors import StoreError
from gpuadvisor.storage.locks import Held, locked
from gpuadvisor.storage.models import (
    CeilingRow,
    ProfileChunkRow,
    ProfileRecord,
    ProfileRow,
    profile_record,
    shared,
    values,
)
from gpuadvisor.storage.names import check_profile_name, find_profile
from gpuadvisor.storage.open_database import OpenDatabase

if TYPE_CHECKING:  # they need numpy, which a list of profiles does without
    from gpuadvisor.storage.profiles.stored import StoredProfile
    from gpuadvisor.storage.profiles.writer import Origin, ProfileWriter

CEILING = shared(CeilingRow, Ceiling)

REMOVED_CHUNKS = 100
"""Chunks that one transaction removes: at most 50 MB, whose pages SQLite visits one by one."""


def open_profiles(path: Path | None = None) -> Profiles:
    """Open the profiles of the database, `gpuadvisor.db` in `home()` without a path."""
    return Profiles(path)


class Profiles(OpenDatabase):
    """The profiles in an open database. Every method raises StoreError where the file fails."""

    pooled = False  # profiles that were opened must leave no connection behind

    @contextmanager
    def writer(self, origin: Origin) -> Iterator[ProfileWriter]:
        """Give a sink for a new profile; unless it was finished at the end, nothing is kept.

        What a killed import left behind is removed first.
        """
        from gpuadvisor.storage.profiles.writer import ProfileWriter

        self.remove_unfinished()
        with ExitStack() as stack:
            stack.enter_context(self.kept_open())
            profile_id = self._begin(origin, stack)
            writer = ProfileWriter(self, profile_id, origin)
            try:
                yield writer
            finally:
                # Where this fails, as on a full disk, the next import does it.
                with suppress(StoreError):
                    if self._is_unfinished(profile_id):
                        self._remove(profile_id)

    def get(self, profile_id: int) -> StoredProfile:
        """Return the profile of this id; UsageError if there is none."""
        return self.find(f"#{profile_id}")

    def find(self, wanted: str) -> StoredProfile:
        """Return the profile that a name, id, digest's begin, path or file name stands for.

        UsageError, which names the newest profiles, if there is none.
        """
        from gpuadvisor.storage.profiles.stored import StoredProfile

        with self.reading() as session:
            return StoredProfile(self, *find_profile(session, wanted))

    def with_digest(self, digest: str) -> StoredProfile | None:
        """Return the profile of the file with this digest, None if it is not stored."""
        from gpuadvisor.storage.profiles.stored import StoredProfile

        with self.reading() as session:
            asked = select(ProfileRow.id, ProfileRow.name).filter_by(digest=digest)
            row = session.execute(asked).first()
        return None if row is None else StoredProfile(self, row[0], str(row[1]))

    def check_free(self, name: str) -> None:
        """Raise UsageError if no profile can get this name."""
        with self.reading() as session:
            check_profile_name(session, name)

    def list(self, ranks_of: str | None = None) -> list[ProfileRecord]:
        """Return what is stored, the newest first; the ranks of one folder where it is named."""
        chosen = select(ProfileRow).where(ProfileRow.imported.is_not(None))
        if ranks_of is not None:
            chosen = chosen.filter_by(ranks_of=ranks_of)
        try:
            with self.reading() as session:
                rows = session.scalars(chosen.order_by(ProfileRow.id.desc()))
                return [profile_record(row) for row in rows]
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreError(
                f"The list of profiles in {self.path} is damaged ({error}): save what can be read "
                f"with `sqlite3 {self.path} .recover`, and move it away to start a new one."
            ) from error

    def join(self, profile_id: int, ranks_of: str, rank: int | None) -> bool:
        """Make a lone profile one of the ranks of a folder, as that rank unless it knows its own.

        False where it belongs to a folder already.
        """
        with self.writing() as session:
            row = session.get(ProfileRow, profile_id)
            if row is None or row.ranks_of:
                return False
            row.ranks_of = ranks_of
            row.rank = rank if row.rank is None else row.rank
            return True

    def remove(self, wanted: str) -> str:
        """Remove a profile and return its name; UsageError if there is none."""
        with self.writing() as session:
            profile_id, name = find_profile(session, wanted)
            hidden = update(ProfileRow).where(ProfileRow.id == profile_id)
            session.execute(hidden.values(name=None, digest=None, imported=None))
        self._remove(profile_id)
        return name

    def remove_unfinished(self) -> None:
        """Remove what imports that were killed have left; those that go on are left alone."""
        with self.reading() as session:
            unfinished = list(session.scalars(select(ProfileRow.id).filter_by(imported=None)))
        for profile_id in unfinished:
            with suppress(Held), locked(self._lock(profile_id)):
                if self._is_unfinished(profile_id):  # asked again: it may have ended well
                    self._remove(profile_id)

    def add_ceilings(self, uuid: str, name: str, ceilings: Iterable[Ceiling]) -> None:
        """Store what one GPU was measured to reach; earlier measurements stay."""
        with self.writing() as session:
            session.add_all(
                CeilingRow(device_uuid=uuid, device_name=name, **values(each, CEILING))
                for each in ceilings
            )

    def newest_ceilings(
        self, uuid: str | None = None, name: str | None = None
    ) -> Mapping[str, Ceiling]:
        """Return the newest measurement of each kind, of this GPU, else of one of the same name.

        Traces seldom tell a UUID, and GPUs of one name reach much the same.
        """
        with self.reading() as session:
            for condition in (CeilingRow.device_uuid == uuid, CeilingRow.device_name == name):
                rows = session.scalars(select(CeilingRow).where(condition).order_by(CeilingRow.id))
                if found := {row.what: Ceiling(**values(row, CEILING)) for row in rows}:
                    return found
        return {}

    def _begin(self, origin: Origin, stack: ExitStack) -> int:
        """Add the row of an unfinished profile, and hold its lock from before it is seen."""
        with self.writing() as session:
            row = ProfileRow(
                source="", tool="", path=origin.path, size_bytes=origin.size_bytes, first_ns=0,
                duration_ns=0, ranks_of=origin.ranks_of, processes={}, facts={}, not_measured={},
                warnings=(), table_rows={},
            )  # fmt: skip
            session.add(row)
            session.flush()
            # Free, or about to be: of who removed an earlier profile of this number.
            stack.enter_context(locked(self._lock(row.id), wait=True))
            return row.id

    def _is_unfinished(self, profile_id: int) -> bool:
        with self.reading() as session:
            same = select(ProfileRow.id).filter_by(id=profile_id, imported=None)
            return session.scalar(same) is not None

    def _remove(self, profile_id: int) -> None:
        """Remove a profile that nobody sees, in steps, so that other writers wait for none long."""
        rowid: ColumnElement[int] = literal_column("rowid")
        some = select(rowid).select_from(ProfileChunkRow).filter_by(profile_id=profile_id)
        while True:
            with self.writing() as session:
                found = session.scalars(some.limit(REMOVED_CHUNKS)).all()
                session.execute(delete(ProfileChunkRow).where(rowid.in_(found)))
                if len(found) < REMOVED_CHUNKS:
                    session.execute(delete(ProfileRow).filter_by(id=profile_id))
                    return

    def _lock(self, profile_id: int) -> Path:
        return self.path.with_name("locks") / f"profile-{profile_id}.lock"

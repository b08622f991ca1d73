"""How profiles are called, and which one is meant."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from gpuadvisor.errors import UsageError
from gpuadvisor.storage import naming
from gpuadvisor.storage.models import ProfileRow
from gpuadvisor.storage.profiles.records import Origin

SHORTEST_DIGEST = 6
"""Hexadecimal digits of a file's digest that say which profile is meant."""
NAMES_IN_ERROR = 5
"""How many profiles an error message proposes."""


class Listed(NamedTuple):
    """What tells a profile from others."""

    id: int
    name: str
    digest: str
    path: str


def chosen(session: Session, origin: Origin) -> str:
    """Return the new profile's name; UsageError if the user's is taken or cannot be one.

    It stays free only as long as the session's transaction lasts.
    """
    if origin.name is None:
        return _free(session, origin.stem)
    check_free(session, origin.name)
    return origin.name


def check_free(session: Session, name: str) -> None:
    """Raise UsageError if the name is taken or cannot be one."""
    naming.check(name, "profile")
    if session.scalar(select(ProfileRow.id).filter_by(name=name)) is not None:
        raise UsageError(
            f"There is a profile {name} already: choose another name, or remove it with "
            f"`gpuadvisor import --remove {name}`."
        )


def find(session: Session, wanted: str) -> tuple[int, str]:
    """Return the id and name of the profile that a name, id, digest or file name stands for.

    A name comes first, then an id, the begin of a digest, a path or file name (the newest of
    these). UsageError where there is none, or a digest's begin is that of several.
    """
    listed = select(ProfileRow.id, ProfileRow.name, ProfileRow.digest, ProfileRow.path)
    visible = listed.where(ProfileRow.imported.is_not(None)).order_by(ProfileRow.id.desc())
    rows = [
        Listed(row.id, row.name or "", row.digest or "", row.path)
        for row in session.execute(visible)
    ]
    for matches in (
        [row for row in rows if row.name == wanted],
        [row for row in rows if str(row.id) == wanted.removeprefix("#")],
        _of_digest(rows, wanted),
        [row for row in rows if row.path and wanted in (row.path, PurePath(row.path).name)],
    ):
        if matches:
            return matches[0].id, matches[0].name
    known = [row.name for row in rows[:NAMES_IN_ERROR]]
    there_is = f"the newest are {', '.join(known)}" if known else "none is stored yet"
    raise UsageError(f"There is no profile {wanted!r}: {there_is}.")


def _of_digest(rows: list[Listed], wanted: str) -> list[Listed]:
    if not re.fullmatch(rf"[0-9a-f]{{{SHORTEST_DIGEST},64}}", wanted):
        return []
    matches = [row for row in rows if row.digest.startswith(wanted)]
    if len(matches) > 1:
        several = ", ".join(row.name for row in matches[:NAMES_IN_ERROR])
        raise UsageError(f"The digests of several profiles begin with {wanted}: {several}.")
    return matches


def _free(session: Session, stem: str) -> str:
    """Return the stem, or `stem-2` and so on where it is taken."""
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", stem).strip("-.")[: naming.LONGEST_STEM] or "profile"
    # By comparison, as `_` has a meaning in LIKE; "." is the character after "-".
    alike = select(ProfileRow.name).where(ProfileRow.name >= plain, ProfileRow.name < f"{plain}.")
    taken = set(session.scalars(alike))
    numbered = (f"{plain}-{number}" for number in range(2, len(taken) + 3))
    return next(name for name in (plain, *numbered) if name not in taken)

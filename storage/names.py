"""Names of studies and of profiles: readable, numbered where one is taken, and found again."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import NamedTuple
from unicodedata import combining, normalize

from sqlalchemy import select
from sqlalchemy.orm import Session

from gpuadvisor.errors import UsageError
from gpuadvisor.storage.models import ProfileRow, StudyRow

LONGEST_NAME = 100
"""Most characters of a name, as names stand in tables on a terminal."""
LONGEST_STEM = 40
"""Characters that a name made from a script's or trace's file keeps of it."""
SHORTEST_DIGEST = 6
"""Hexadecimal digits of a file's digest that say which profile is meant."""
NAMES_IN_ERROR = 5
"""How many studies or profiles an error message proposes."""


def check_name(name: str, what: str = "study") -> str:
    """Return a name that the user chose; UsageError if it cannot be typed and printed again."""
    if not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        raise UsageError(
            f"{name!r} cannot name a {what}: use one line of 1 to {LONGEST_NAME} printable "
            "characters."
        )
    return name


def next_study_name(session: Session, script: str, is_module: bool = False) -> str:
    """Return `train-3` where the studies of any `train.py`, or module `package.train`, reach up to
    `train-2`.

    It stays free only as long as the session's transaction lasts.
    """
    own = script.rpartition(".")[2] if is_module else PurePath(script).stem
    stem = _readable(own) or "study"
    # By comparison, as `_` has a meaning in LIKE; "." is the character after "-".
    of_stem = select(StudyRow.name).where(StudyRow.name > f"{stem}-", StudyRow.name < f"{stem}.")
    numbered = re.compile(re.escape(stem) + "-([0-9]{1,9})")
    matches = map(numbered.fullmatch, session.scalars(of_stem))
    return f"{stem}-{max((int(match[1]) for match in matches if match), default=0) + 1}"


def new_profile_name(session: Session, name: str | None, stem: str) -> str:
    """Return the new profile's name; UsageError if the user's is taken or cannot be one.

    Without one of the user's it is the stem, or `stem-2` and so on where that is taken. It stays
    free only as long as the session's transaction lasts.
    """
    if name is not None:
        check_profile_name(session, name)
        return name
    plain = _readable(stem) or "profile"
    # By comparison, as `_` has a meaning in LIKE; "." is the character after "-".
    alike = select(ProfileRow.name).where(ProfileRow.name >= plain, ProfileRow.name < f"{plain}.")
    taken = set(session.scalars(alike))
    numbered = (f"{plain}-{number}" for number in range(2, len(taken) + 3))
    return next(name for name in (plain, *numbered) if name not in taken)


def check_profile_name(session: Session, name: str) -> None:
    """Raise UsageError if the name is taken or cannot be one."""
    check_name(name, "profile")
    if session.scalar(select(ProfileRow.id).filter_by(name=name)) is not None:
        raise UsageError(
            f"There is a profile {name} already: choose another name, or remove it with "
            f"`gpuadvisor import --remove {name}`."
        )


def find_profile(session: Session, wanted: str) -> tuple[int, str]:
    """Return the id and name of the profile that a name, id, digest or file name stands for.

    A name comes first, then an id, the begin of a digest, a path or file name (the newest of
    these). UsageError where there is none, or a digest's begin is that of several.
    """
    listed = select(ProfileRow.id, ProfileRow.name, ProfileRow.digest, ProfileRow.path)
    visible = listed.where(ProfileRow.imported.is_not(None)).order_by(ProfileRow.id.desc())
    rows = [
        _Listed(row.id, row.name or "", row.digest or "", row.path)
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


def _of_digest(rows: list[_Listed], wanted: str) -> list[_Listed]:
    if not re.fullmatch(rf"[0-9a-f]{{{SHORTEST_DIGEST},64}}", wanted):
        return []
    matches = [row for row in rows if row.digest.startswith(wanted)]
    if len(matches) > 1:
        several = ", ".join(row.name for row in matches[:NAMES_IN_ERROR])
        raise UsageError(f"The digests of several profiles begin with {wanted}: {several}.")
    return matches


class _Listed(NamedTuple):
    """A profile with all by which it may be called."""

    id: int
    name: str
    digest: str
    path: str


def _readable(stem: str) -> str:
    """Return a file's name without what needs quotes in a shell, `Uber` of `Über`; it may be empty
    then.
    """
    stem = "".join(each for each in normalize("NFKD", stem) if not combining(each))
    return re.sub(r"[^A-Za-z0-9_.]+", "-", stem).strip("-.")[:LONGEST_STEM]

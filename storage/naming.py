"""Names of studies: readable, and numbered by script."""

from __future__ import annotations

import re
from pathlib import PurePath

from sqlalchemy import select
from sqlalchemy.orm import Session

from gpuadvisor.errors import UsageError
from gpuadvisor.storage.models import StudyRow

LONGEST_NAME = 100
"""Characters. Names stand in tables on a terminal."""

LONGEST_STEM = 40
"""Characters of the script's name that its studies' names keep."""


def next_name(session: Session, script: str) -> str:
    """Return `train-3` where the studies of any `train.py` reach up to `train-2`.

    It stays free only as long as the session's transaction lasts.
    """
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", PurePath(script).stem).strip("-.")
    stem = plain[:LONGEST_STEM] or "study"
    # By comparison, as `_` has a meaning in LIKE; "." is the character after "-".
    of_stem = select(StudyRow.name).where(StudyRow.name > f"{stem}-", StudyRow.name < f"{stem}.")
    numbered = re.compile(re.escape(stem) + "-([0-9]{1,9})")
    matches = map(numbered.fullmatch, session.scalars(of_stem))
    return f"{stem}-{max((int(match[1]) for match in matches if match), default=0) + 1}"


def check(name: str, what: str = "study") -> str:
    """Return a name that the user chose; UsageError if it cannot be typed and printed again."""
    if not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        raise UsageError(
            f"{name!r} cannot name a {what}: use one line of 1 to {LONGEST_NAME} printable "
            "characters."
        )
    return name

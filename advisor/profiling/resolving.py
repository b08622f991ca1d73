"""Find the study or profile that a word on the command line means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.domain.profile import Recording
from gpuadvisor.errors import UsageError
from gpuadvisor.profiling.reading import read_profile, stem

if TYPE_CHECKING:
    from gpuadvisor.storage.profiles.stored import StoredProfile

MOST_NAMES = 6
"""Near names that an error proposes."""
_LOOKED_AT = 2000
"""How many of the newest names are searched for near ones."""


class Kind(StrEnum):
    """What has a name: a study or a profile."""

    STUDY = "study"
    PROFILE = "profile"


@dataclass(frozen=True)
class ResolvedProfile:
    """A profile, and how it is called."""

    name: str
    file: str
    """The trace file from which the profile was read."""
    profile: Recording


def resolve(wanted: str, studies: Sequence[str], kind: Kind | None = None) -> str | ResolvedProfile:
    """Return the study's name, or the profile, that a word means; UsageError if that is not clear.

    A file is a profile, whatever else has its name.
    """
    if kind is not Kind.STUDY and Path(wanted).is_file():
        path = Path(wanted)
        return ResolvedProfile(stem(path), str(path.absolute()), read_profile(path))
    found = _stored(wanted) if kind is not Kind.STUDY else None
    is_study = kind is not Kind.PROFILE and wanted in studies
    if found is not None and is_study and found.name == wanted:
        raise UsageError(
            f"{wanted!r} is a study and a profile: add `--kind study` or `--kind profile`."
        )
    if is_study:
        return wanted
    if found is not None:
        return found
    raise UsageError(_unknown(wanted, studies, kind))


def resolve_profile(wanted: str) -> ResolvedProfile:
    """Return the profile in a file, or the stored one; UsageError with near names if none is."""
    found = resolve(wanted, (), Kind.PROFILE)
    assert isinstance(found, ResolvedProfile)
    return found


def newest_profile() -> ResolvedProfile | None:
    """Return the profile that was stored last; None where there is none."""
    from gpuadvisor.storage.profiles.library import open_profiles

    profiles = open_profiles()
    records = profiles.list()
    if not records:
        return None
    return stored_profile(profiles.get(records[0].id))


def stored_profile(stored: StoredProfile) -> ResolvedProfile:
    """Return a profile of the store under its name there."""
    return ResolvedProfile(stored.record.name, stored.record.path, stored)


def _stored(wanted: str) -> ResolvedProfile | None:
    from gpuadvisor.storage.profiles.library import open_profiles

    try:
        return stored_profile(open_profiles().find(wanted))
    except UsageError as error:
        if str(error).startswith("There is no profile"):
            return None
        raise


def _unknown(wanted: str, studies: Sequence[str], kind: Kind | None) -> str:
    from gpuadvisor.storage.profiles.library import open_profiles

    known: dict[str, list[str]] = {}
    if kind is not Kind.PROFILE:
        known["studies"] = list(studies)[:_LOOKED_AT]
    if kind is not Kind.STUDY:
        known["profiles"] = [each.name for each in open_profiles().list()][:_LOOKED_AT]
    what = str(kind) if kind is not None else "study or profile"
    if not any(known.values()):
        return (
            f"There is no {what} {wanted!r}, and none is stored: name a trace file, or add one"
            " with `gpuadvisor import FILE`."
        )
    proposed = []
    for plural, newest in known.items():
        near = get_close_matches(wanted, newest, MOST_NAMES, cutoff=0.5) or newest[:MOST_NAMES]
        if near:
            proposed.append(f"{plural} {', '.join(near)}")
    return f"There is no {what} {wanted!r}; there are: {'; '.join(proposed)}."

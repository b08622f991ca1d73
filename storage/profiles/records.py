"""What is said of stored profiles, without their events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Origin:
    """The file that a profile comes from, and how it is to be called."""

    path: str
    """Absolute; empty where the file is not kept."""
    size_bytes: int
    digest: str
    """SHA-256 of the file, in hexadecimal."""
    stem: str
    """What names the profile where the user does not; a number is added where it is taken."""
    name: str | None = None
    """As the user chose it."""
    ranks_of: str = ""
    """Absolute path of the folder whose traces are the ranks of one run; empty for a lone one."""


@dataclass(frozen=True)
class Kept:
    """Where an import ended."""

    profile_id: int
    is_new: bool
    """False where the same file was stored meanwhile, by another process."""


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

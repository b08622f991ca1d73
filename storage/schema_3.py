"""Version 3 of the schema: profiles, their columns in compressed chunks, and measured ceilings.

A profile without `imported` is on its way in, or its import was killed; it has no name and no
digest yet, so that it is in nobody's way. `{strict}` is as in version 1.
"""

from __future__ import annotations

STATEMENTS = (
    """
    CREATE TABLE profile (
        id INTEGER NOT NULL PRIMARY KEY,
        name TEXT UNIQUE,
        source TEXT NOT NULL,
        tool TEXT NOT NULL,
        path TEXT NOT NULL,
        size_bytes INTEGER NOT NULL,
        digest TEXT UNIQUE,
        imported TEXT,
        begin_unix_ns INTEGER,
        first_ns INTEGER NOT NULL,
        duration_ns INTEGER NOT NULL,
        rank INTEGER,
        world_size INTEGER,
        ranks_of TEXT NOT NULL,
        processes TEXT NOT NULL,
        facts TEXT NOT NULL,
        not_measured TEXT NOT NULL,
        warnings TEXT NOT NULL,
        table_rows TEXT NOT NULL
    ){strict}
    """,
    """
    CREATE TABLE profile_device (
        profile_id INTEGER NOT NULL REFERENCES profile (id) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        name TEXT NOT NULL,
        uuid TEXT,
        limits TEXT NOT NULL,
        PRIMARY KEY (profile_id, position)
    ){strict}
    """,
    """
    CREATE TABLE profile_chunk (
        profile_id INTEGER NOT NULL REFERENCES profile (id) ON DELETE CASCADE,
        table_name TEXT NOT NULL,
        column_name TEXT NOT NULL,
        number INTEGER NOT NULL,
        dtype TEXT NOT NULL,
        row_count INTEGER NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY (profile_id, table_name, column_name, number)
    ){strict}
    """,
    """
    CREATE TABLE device_ceiling (
        id INTEGER NOT NULL PRIMARY KEY,
        device_uuid TEXT NOT NULL,
        device_name TEXT NOT NULL,
        what TEXT NOT NULL,
        value ANY NOT NULL,
        unit TEXT NOT NULL,
        measured TEXT NOT NULL,
        conditions TEXT NOT NULL
    ){strict}
    """,
    "CREATE INDEX ix_device_ceiling_device_uuid ON device_ceiling (device_uuid)",
)
"""To be run in order."""

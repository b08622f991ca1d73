"""Version 1 of the schema. It is history: a change to a table is a new version, not an edit.

Optuna's tables live in the same file (`studies`, `trials`, `study_*`, `trial_*`, `version_info`,
`alembic_version`), so ours have other names. Times are UTC in ISO 8601; ANY columns hold a
number, or the text `nan`, which SQLite could not tell from NULL otherwise.
"""

from __future__ import annotations

STATEMENTS = (
    """
    CREATE TABLE environment (
        id INTEGER NOT NULL PRIMARY KEY,
        fingerprint TEXT NOT NULL UNIQUE
    ){strict}
    """,
    """
    CREATE TABLE measurement (
        id INTEGER NOT NULL PRIMARY KEY,
        marker TEXT NOT NULL,
        step_ms BLOB NOT NULL,
        warmup_steps INTEGER NOT NULL,
        samples_source TEXT,
        peak_memory_bytes INTEGER NOT NULL,
        reserved_memory_bytes INTEGER NOT NULL,
        startup_s ANY NOT NULL,
        wall_s ANY NOT NULL,
        compiles INTEGER NOT NULL,
        facts TEXT NOT NULL
    ){strict}
    """,
    """
    CREATE TABLE measurement_window (
        measurement_id INTEGER NOT NULL REFERENCES measurement (id) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        steps INTEGER NOT NULL,
        seconds ANY NOT NULL,
        samples ANY NOT NULL,
        data_wait_s ANY NOT NULL,
        energy_j ANY,
        PRIMARY KEY (measurement_id, position)
    ){strict}
    """,
    """
    CREATE TABLE measurement_trace (
        measurement_id INTEGER NOT NULL PRIMARY KEY
            REFERENCES measurement (id) ON DELETE CASCADE,
        losses BLOB NOT NULL,
        outputs TEXT NOT NULL,
        last_loss ANY
    ){strict}
    """,
    """
    CREATE TABLE applied_knob (
        measurement_id INTEGER NOT NULL REFERENCES measurement (id) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        knob TEXT NOT NULL,
        state TEXT NOT NULL,
        detail TEXT NOT NULL,
        PRIMARY KEY (measurement_id, position)
    ){strict}
    """,
    """
    CREATE TABLE tuning_study (
        id INTEGER NOT NULL PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        script TEXT NOT NULL,
        args TEXT NOT NULL,
        environment_id INTEGER NOT NULL REFERENCES environment (id),
        level TEXT NOT NULL,
        objective TEXT NOT NULL,
        started TEXT NOT NULL,
        ended TEXT,
        wall_s ANY,
        verdict TEXT,
        interrupted TEXT,
        plan TEXT,
        baseline_id INTEGER REFERENCES measurement (id),
        best_id INTEGER REFERENCES measurement (id),
        settings TEXT,
        speedup TEXT,
        contributions TEXT,
        equivalence TEXT,
        no_effect TEXT,
        notes TEXT
    ){strict}
    """,
    "CREATE INDEX ix_tuning_study_script ON tuning_study (script)",
    """
    CREATE TABLE tuning_trial (
        id INTEGER NOT NULL PRIMARY KEY,
        study_id INTEGER NOT NULL REFERENCES tuning_study (id) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        settings TEXT NOT NULL,
        phase TEXT NOT NULL,
        state TEXT NOT NULL,
        reason TEXT NOT NULL,
        measurement_id INTEGER REFERENCES measurement (id),
        equivalence TEXT,
        gain ANY,
        gpu INTEGER NOT NULL,
        wall_s ANY NOT NULL,
        UNIQUE (study_id, number)
    ){strict}
    """,
)
"""To be run in order, with `{strict}` filled in."""

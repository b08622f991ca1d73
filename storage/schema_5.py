"""Version 5 of the schema: whether a study's script is a module, as after `python -m`."""

from __future__ import annotations

STATEMENTS = ("ALTER TABLE tuning_study ADD COLUMN is_module TEXT NOT NULL DEFAULT 'false'",)
"""To be run in order."""

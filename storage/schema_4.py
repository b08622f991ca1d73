"""Version 4 of the schema: what the diagnosis promised of a study."""

from __future__ import annotations

STATEMENTS = ("ALTER TABLE tuning_study ADD COLUMN expectations TEXT NOT NULL DEFAULT '[]'",)
"""To be run in order."""

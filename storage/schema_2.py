"""Version 2 of the schema: a study knows its folder, as `train.py` is another script elsewhere."""

from __future__ import annotations

STATEMENTS = ("ALTER TABLE tuning_study ADD COLUMN folder TEXT NOT NULL DEFAULT ''",)
"""To be run in order."""

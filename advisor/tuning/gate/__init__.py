"""A gate: two versions of a script made ready, run in turns, and compared."""

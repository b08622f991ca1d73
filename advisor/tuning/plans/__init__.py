"""Plans: what was proven, as TOML (`file`), and applied to a script (`application`).

`premises` says whether an earlier rehearsal of a plan still holds.
"""

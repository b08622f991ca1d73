"""Plans: written and read as TOML (`file`), applied to a script (`application`), and verified.

`verification` measures whether a plan's gain is still there, `judgement` says so, and `premises`
whether an earlier rehearsal still holds.
"""

"""What profiles say: pure functions over their columns, one subject a file.

`summary` has them all as attributes of `Facts`, each computed when a rule first asks for it.
"""

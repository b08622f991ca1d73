"""Rows that wait, and those that could not be replaced."""

from tests.rules.machines import machine

FIRES = {
    "rows that wait": lambda: machine((60, {"remap_pending": 1})),
    "one that could not be replaced": lambda: machine((30, {}), (30, {"remap_failed": 1})),
    "only one of both is known": lambda: machine((60, {"remap_pending": None, "remap_failed": 1})),
}
SILENT = {
    "none": lambda: machine((60, {})),
    "replaced meanwhile": lambda: machine((30, {"remap_pending": 1}), (30, {})),
}

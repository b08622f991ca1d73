"""Errors of memory that were counted within the time, and those of before."""

from tests.rules.machines import machine

LOST, MENDED = "ecc_uncorrected_volatile", "ecc_corrected_volatile"
FIRES = {
    "one that could not be corrected": lambda: machine((30, {}), (30, {LOST: 1})),
    "a storm": lambda: machine((30, {MENDED: 3}), (30, {MENDED: 103})),
    "after others": lambda: machine((30, {LOST: 5}), (30, {LOST: 7})),
    "since a driver was loaded anew": lambda: machine(
        (20, {LOST: 5}), (20, {LOST: 0}), (20, {LOST: 2})
    ),
    "a storm over a driver that was loaded anew": lambda: machine(
        (20, {MENDED: 4000}), (20, {MENDED: 4060}), (20, {MENDED: 40})
    ),
}
SILENT = {
    "none": lambda: machine((60, {})),
    "those of before": lambda: machine((60, {LOST: 5, MENDED: 4000})),
    "a few that were corrected": lambda: machine((30, {MENDED: 3}), (30, {MENDED: 102})),
    "a driver that was loaded anew": lambda: machine((30, {LOST: 5}), (30, {LOST: 0})),
}

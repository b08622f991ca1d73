"""Text that profilers print: sums and pages without a time line, which are no recordings."""

from __future__ import annotations

import re

_KEPT = "give the report (.nsys-rep), or what `nsys export --type sqlite` makes of it"
_PRINTED: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (
        re.compile(rb"Total Time \(ns\)[ ,|].*(Instances|Num Calls|Count|Operations)"),
        f"tables of `nsys stats`, sums without a time line, which are not read: {_KEPT}",
    ),
    (
        re.compile(rb"^==\d+== (NVPROF is profiling|Profiling (application|result))", re.M),
        "what nvprof printed, which is not read: record with `nsys profile`, and give its report",
    ),
    (
        re.compile(rb"Section: (GPU Speed Of Light|Launch Statistics|Occupancy)"),
        "a page that Nsight Compute printed, which is not read: give its report (.ncu-rep), or what"
        " `ncu --import REPORT --csv --page raw` makes of it",
    ),
)
"""What only such text has, and what it is and what to give instead, for people."""


def printed(head: bytes) -> str | None:
    """Return what a file that begins so is and what to give instead; None where it is none."""
    return next((words for pattern, words in _PRINTED if pattern.search(head)), None)

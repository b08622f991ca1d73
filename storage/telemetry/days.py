"""The files of raw rows: one for each day (UTC)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

DAY_S = 86400.0
_NAME = re.compile(r"samples-(\d{8})\.db")


def begin_of(time_s: float) -> float:
    """Return when the day of this Unix time began."""
    return time_s // DAY_S * DAY_S


def file_of(folder: Path, time_s: float) -> Path:
    """Return the file with the rows of this Unix time."""
    day = datetime.fromtimestamp(begin_of(time_s), UTC)
    return folder / f"samples-{day:%Y%m%d}.db"


def files(
    folder: Path, since_s: float = float("-inf"), until_s: float = float("inf")
) -> list[Path]:
    """Return the files that may have rows from `since_s` up to `until_s`, the oldest first."""
    return [
        path for begin_s, path in _all(folder) if begin_s + DAY_S > since_s and begin_s <= until_s
    ]


def begin_of_file(path: Path) -> float:
    """Return when the file's day began."""
    found = _NAME.fullmatch(path.name)
    if found is None:
        raise ValueError(f"not a file of samples: {path}")
    return datetime.strptime(found[1] + "+0000", "%Y%m%d%z").timestamp()


def _all(folder: Path) -> Iterator[tuple[float, Path]]:
    for path in sorted(folder.glob("samples-*.db")):
        try:
            yield begin_of_file(path), path
        except ValueError:  # somebody's copy, or a date that does not exist
            continue

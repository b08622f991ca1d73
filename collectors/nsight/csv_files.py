"""CSV files from anybody: records of which none can fill the memory, and numbers of any country."""

from __future__ import annotations

import codecs
import csv
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

LONGEST_LINE = 4 * 2**20
"""Characters of a line. The widest real line (2,238 metrics on Hopper) has 140,000."""
LONGEST_RECORD = 16 * 2**20
"""Characters of a record, over all the lines that quotes may spread it."""
MOST_CELLS = 50_000
_ENCODINGS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
"""Encodings that `>` writes in PowerShell; all else is UTF-8, with or without its mark."""
_LONGEST = 400
"""Characters of a number; the largest one in floating point has 309 digits."""
_INSTANCES = re.compile(r"\s+\(.*", re.DOTALL)
"""The single values after a sum (`--print-metric-instances values`)."""
_SPACES = str.maketrans("", "", " \u00a0\u202f\u2009'\u2019")
"""Characters that some countries put between thousands."""
_NUMBER = re.compile(r"[+-]?(\d{1,3}(,\d{2,3})*,\d{3}|\d+)?(\.\d*)?([eE][+-]?\d+)?")
_COMMA_IS_DECIMAL = re.compile(r"[+-]?(\d+,(\d{1,2}|\d{4,})|0,\d+|\d{1,3}(\.\d{3})+,\d+)")
_POINT_IS_DECIMAL = re.compile(r"[+-]?(\d+\.(\d{1,2}|\d{4,})|0\.\d+|\d{1,3}(,\d{3})+\.\d+)")


class NotCsvError(Exception):
    """The file cannot be read further; `str()` says why."""


def encoding_of(head: bytes) -> str:
    """Return the encoding of a file that begins so."""
    return next((name for mark, name in _ENCODINGS.items() if head.startswith(mark)), "utf-8-sig")


def opened(path: Path) -> IO[str]:
    """Open a text file; what is no text becomes U+FFFD. OSError where it cannot be opened."""
    with path.open("rb") as file:
        encoding = encoding_of(file.read(2))
    return path.open(encoding=encoding, errors="replace", newline="")


def lines(file: IO[str]) -> Iterator[str]:
    """Yield lines; NotCsvError where one is too long."""
    while line := file.readline(LONGEST_LINE):
        if len(line) >= LONGEST_LINE and not line.endswith("\n"):
            raise NotCsvError(f"a line has more than {LONGEST_LINE:,} characters")
        yield line


class Records:
    """Iterates over the records in lines; NotCsvError, again and again, where one is broken."""

    def __init__(self, source: Iterator[str]) -> None:
        self._source = source
        self._length = 0
        self._fault: NotCsvError | None = None
        self._reader = csv.reader(self._bounded())

    def _bounded(self) -> Iterator[str]:
        for line in self._source:
            self._length += len(line)
            if self._length > LONGEST_RECORD:
                raise NotCsvError(f"a record has more than {LONGEST_RECORD:,} characters")
            yield line

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        if self._fault is not None:
            raise self._fault
        self._length = 0
        try:
            record = next(self._reader)
            if len(record) > MOST_CELLS:
                raise NotCsvError(f"a record has more than {MOST_CELLS:,} cells")
            return record
        except csv.Error as error:
            self._fault = NotCsvError(str(error))
            raise self._fault from error
        except NotCsvError as error:
            self._fault = error
            raise


def decimal_mark(texts: Iterable[str]) -> str:
    """Return which of `.` and `,` is before fractions, told by numbers that can be read one way."""
    points = commas = 0
    for text in texts:
        bare = text.translate(_SPACES)
        points += _POINT_IS_DECIMAL.fullmatch(bare) is not None
        commas += _COMMA_IS_DECIMAL.fullmatch(bare) is not None
    return "," if commas > points else "."


def number(text: str, mark: str = ".") -> float | None:
    """Return a number, or None for what is none (`no data`, `nan`, `N/A`, text)."""
    if len(text) > _LONGEST:
        text = _INSTANCES.sub("", text[:_LONGEST])
    bare = _INSTANCES.sub("", text.strip()).translate(_SPACES)
    if mark == ",":
        bare = bare.translate(str.maketrans(",.", ".,"))
    if not _NUMBER.fullmatch(bare) or not any(character.isdigit() for character in bare):
        return None
    try:
        value = float(bare.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None

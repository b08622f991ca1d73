"""Nsight Compute: what `ncu --csv` prints, with or without `--page raw`.

The raw page has a line a kernel, and units in a line below the names. The details page has a line a
metric. Before both, and between their lines, may be what ncu and the program say.
"""

from __future__ import annotations

import codecs
import csv
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO

from gpuadvisor.collectors.nsight.bounded import Warnings
from gpuadvisor.collectors.nsight.compute_launches import (
    MOST_METRICS,
    ProfiledKernel,
    ProfiledKernels,
)
from gpuadvisor.collectors.nsight.compute_metrics import base_unit, metric_name
from gpuadvisor.domain.profile import Header, Sink
from gpuadvisor.errors import UsageError

_DESCRIBES = {
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context",
    "Stream", "Block Size", "Grid Size", "Device", "CC",
}  # fmt: skip
"""Columns that are no metrics; which of them there are depends on the version."""
_NVTX = "Domain:"
"""Part of the names of columns with ranges (`--nvtx`)."""
_NO_VALUE = ("", "no data", "n/a", "N/A", "nan", "inf", "-nan", "-inf")
_WHOLE = re.compile(r"\d{1,10}")
EXPORT = "`ncu --import FILE --page raw --csv`"
_LONGEST_PREAMBLE = 64 * 2**20
"""Characters of what is printed before the table."""
_SAMPLE_RECORDS = 64
"""Records that tell how numbers are written; a line of the raw page alone has hundreds."""
_SAYS = "=="
"""Begin of ncu's own lines: `==PROF== Connected to process 1`."""
_REASONS = {
    "ERR_NVGPUCTRPERM": "the driver did not let ncu read the performance counters "
    "(ERR_NVGPUCTRPERM): run it as root, or see `gpuadvisor doctor`",
    "No kernels were profiled": "ncu profiled no kernel: check its filters (`--kernel-name`, "
    "`--launch-skip`)",
}
_SUMMARY = "Invocations"
"""Column of `--print-summary`, which has averages over kernels instead of kernels."""


class MetricTable(ABC):
    """A table, as far as it was read."""

    def __init__(self, header: list[str], mark: str) -> None:
        self.header = header
        self._mark = mark
        self._places = {name: place for place, name in reversed(list(enumerate(header)))}

    @staticmethod
    @abstractmethod
    def fits(header: Sequence[str]) -> bool:
        """Say whether a table with these columns is of this kind."""

    @abstractmethod
    def take(self, record: list[str], launches: ProfiledKernels) -> bool:
        """Take a record; return False where it is incomplete."""

    @abstractmethod
    def finish(self, launches: ProfiledKernels) -> None:
        """Give what is still held back."""

    def _cell(self, record: Sequence[str], column: str) -> str:
        place = self._places.get(column)
        return "" if place is None else record[place]

    def _launch(self, record: Sequence[str]) -> ProfiledKernel:
        """Return the kernel that a record is of, without metrics."""
        process = _numbers(self._cell(record, "Process ID"))
        device = _numbers(self._cell(record, "Device"))
        stream = _numbers(self._cell(record, "Stream"))
        capability = _numbers(self._cell(record, "CC"))
        return ProfiledKernel(
            name=self._cell(record, "Kernel Name"),
            process=process[0] if process else -1,
            process_name=self._cell(record, "Process Name"),
            device=device[0] if device else None,
            stream=stream[0] if stream else None,
            compute_capability=(capability[0], capability[1]) if len(capability) == 2 else None,
            grid=_numbers(self._cell(record, "Grid Size")),
            block=_numbers(self._cell(record, "Block Size")),
        )

    def _measure(self, launch: ProfiledKernel, metric: str, unit: str, text: str) -> None:
        """Add a metric to a kernel; the first of the same name counts."""
        if text in _NO_VALUE or metric in launch.metrics or len(launch.metrics) >= MOST_METRICS:
            return
        value = number(text, self._mark)
        factor, base = base_unit(unit)
        if value is not None:
            launch.metrics[metric] = value * factor, base
        elif len(launch.texts) < MOST_METRICS:
            launch.texts[metric] = text


class RawTable(MetricTable):
    """`--page raw`: a record a kernel."""

    def __init__(self, header: list[str], mark: str) -> None:
        super().__init__(header, mark)
        self._metrics = [(place, name) for place, name in enumerate(header) if _is_metric(name)]
        self._units: Mapping[int, str] = {}

    @staticmethod
    def fits(header: Sequence[str]) -> bool:
        return any(_is_metric(name) for name in header)

    def take(self, record: list[str], launches: ProfiledKernels) -> bool:
        """Take a kernel, or the line of units, which has no kernel."""
        if len(record) != len(self.header):
            return not record
        if not self._cell(record, "Kernel Name") and not self._cell(record, "Process ID"):
            self._units = dict(enumerate(record))
            return True
        if not self._units:  # of nanoseconds and seconds nothing tells which
            raise NotCsvError("the line of units below the names is missing")
        launch = self._launch(record)
        for place, name in self._metrics:
            self._measure(launch, name, self._units.get(place, ""), record[place])
        launches.add(launch)
        return True

    def finish(self, launches: ProfiledKernels) -> None:
        """Give nothing: each kernel is given when it is read."""


class DetailsTable(MetricTable):
    """`--page details`: a record a metric, those of a kernel after each other."""

    _NAME, _UNIT, _VALUE = "Metric Name", "Metric Unit", "Metric Value"
    _RULE = "Rule Name"

    def __init__(self, header: list[str], mark: str) -> None:
        super().__init__(header, mark)
        self._current: ProfiledKernel | None = None
        self._whose: tuple[str, ...] = ()

    @staticmethod
    def fits(header: Sequence[str]) -> bool:
        return {"ID", DetailsTable._NAME, DetailsTable._VALUE} <= set(header)

    def take(self, record: list[str], launches: ProfiledKernels) -> bool:
        """Take a metric, or the opinion of a rule, which has none."""
        if not self._ends_early(record) and len(record) != len(self.header):
            return not record
        record = [*record, *[""] * (len(self.header) - len(record))]
        whose = tuple(self._cell(record, one) for one in ("Host Name", "Process ID", "ID"))
        if whose != self._whose:
            self.finish(launches)
            self._current, self._whose = self._launch(record), whose
        label, unit = self._cell(record, self._NAME), self._cell(record, self._UNIT)
        if label and self._current is not None:
            self._measure(
                self._current, metric_name(label, unit), unit, self._cell(record, self._VALUE)
            )
        return True

    def _ends_early(self, record: Sequence[str]) -> bool:
        """Say whether a metric's record leaves out what only rules have: newer versions of ncu put
        their columns behind the value, and end a metric's line after the comma that follows it."""
        rest = self.header[len(record) - 1 :]
        return (
            len(record) > self._places[self._VALUE] + 1 and record[-1] == "" and self._RULE in rest
        )

    def finish(self, launches: ProfiledKernels) -> None:
        """Give the kernel whose metrics came last."""
        if self._current is not None:
            launches.add(self._current)
        self._current = None


def _is_metric(column: str) -> bool:
    return bool(column) and column not in _DESCRIBES and _NVTX not in column


def _numbers(text: str) -> list[int]:
    """Return the whole numbers in `(256, 1, 1)`, `9.0` or `0`."""
    return [int(found) for found in _WHOLE.findall(text[:100])]


def recognises(head: bytes) -> bool:
    """Say whether a file that begins so is what `ncu --csv` printed."""
    text = head.decode(encoding_of(head), "replace")
    return any(_is_header(line) or line.startswith("==PROF==") for line in text.splitlines())


def read(path: Path, sink: Sink) -> Header:
    """Read what ncu printed into a sink; UsageError where it is something else."""
    launches = ProfiledKernels(sink, Warnings())
    try:
        with opened(path) as file:
            _read_all(path, _from_header(path, lines(file)), launches)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except NotCsvError as error:
        if not launches.count:
            raise UsageError(f"{path} is not what {EXPORT} prints: {error}") from error
        launches.warnings.add(f"the end of the file is left out: {error}")
    if not launches.count:
        raise UsageError(f"{path} has a header but no kernel: make it anew with {EXPORT}")
    return launches.finish()


def _is_header(line: str) -> bool:
    bare = line.replace('"', "").lstrip("\ufeff")
    return bare.startswith(("ID,", "Process ID,")) and "Kernel Name" in bare


def _from_header(path: Path, source: Iterator[str]) -> Iterator[str]:
    """Return the lines from the header on; UsageError if there is none."""
    length, reason = 0, ""
    for line in source:
        if _is_header(line):
            return chain([line], (line for line in source if not line.startswith(_SAYS)))
        if line.startswith(_SAYS):
            reason = next((why for sign, why in _REASONS.items() if sign in line), reason)
        length += len(line)
        if length > _LONGEST_PREAMBLE:
            break
    if reason:
        raise UsageError(f"{path} holds no metrics: {reason}")
    raise UsageError(f"{path} is not a CSV of Nsight Compute: make one with {EXPORT}")


def _read_all(path: Path, source: Iterator[str], launches: ProfiledKernels) -> None:
    records = Records(source)
    header = next(records, [])
    if _SUMMARY in header:
        raise UsageError(
            f"{path} holds sums over kernels (`--print-summary`): make it anew with {EXPORT}"
        )
    sample = list(_until_broken(islice(records, _SAMPLE_RECORDS)))
    table = _table(path, header, sample)
    ragged = 0
    try:
        for record in chain(sample, records):
            if _is_header(",".join(record[:8])):
                table.finish(launches)
                table = _table(path, record, sample)
            elif not table.take(record, launches):
                ragged += 1
    finally:
        table.finish(launches)
        if ragged:
            launches.warnings.add(f"{ragged} lines of the file are incomplete: left out")


def _until_broken(records: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield records as long as they can be read; asking for more of them tells the fault."""
    try:
        yield from records
    except NotCsvError:
        return


def _table(path: Path, header: list[str], sample: list[list[str]]) -> MetricTable:
    mark = decimal_mark(cell for record in sample for cell in record)
    kind: type[MetricTable] = DetailsTable if DetailsTable.fits(header) else RawTable
    if not kind.fits(header):
        raise UsageError(f"{path} has kernels but no metrics: make it anew with {EXPORT}")
    return kind(header, mark)


# -- CSV from anybody: bounded records, and numbers of any country ---------------------------------

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

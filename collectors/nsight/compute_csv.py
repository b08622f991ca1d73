"""Nsight Compute: what `ncu --csv` prints, with or without `--page raw`.

The raw page has a line a kernel, and units in a line below the names. The details page has a line a
metric. Before both, and between their lines, may be what ncu and the program say.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from gpuadvisor.collectors.nsight.compute_launches import Launches
from gpuadvisor.collectors.nsight.compute_tables import DetailsTable, RawTable, Table
from gpuadvisor.collectors.nsight.csv_lines import (
    NotCsvError,
    Records,
    encoding_of,
    lines,
    opened,
)
from gpuadvisor.collectors.nsight.number_format import decimal_mark
from gpuadvisor.collectors.nsight.remarks import Remarks
from gpuadvisor.domain.profile import Header, Sink
from gpuadvisor.errors import UsageError

EXPORT = "`ncu --import FILE --page raw --csv`"
_LONGEST_PREAMBLE = 64 * 2**20
"""Characters of what is printed before the table."""
_SAMPLE_RECORDS = 64
"""From which is told how numbers are written; a line of the raw page alone has hundreds."""
_SAYS = "=="
"""What begins ncu's own lines: `==PROF== Connected to process 1`."""
_REASONS = {
    "ERR_NVGPUCTRPERM": "the driver did not let ncu read the performance counters "
    "(ERR_NVGPUCTRPERM): run it as root, or see `gpuadvisor doctor`",
    "No kernels were profiled": "ncu profiled no kernel: check its filters (`--kernel-name`, "
    "`--launch-skip`)",
}
_SUMMARY = "Invocations"
"""Column of `--print-summary`, which has averages over kernels instead of kernels."""


def recognises(head: bytes) -> bool:
    """Say whether a file that begins so is what `ncu --csv` printed."""
    text = head.decode(encoding_of(head), "replace")
    return any(_is_header(line) or line.startswith("==PROF==") for line in text.splitlines())


def read(path: Path, sink: Sink) -> Header:
    """Read what ncu printed into a sink; UsageError where it is something else."""
    launches = Launches(sink, Remarks())
    try:
        with opened(path) as file:
            _read_all(path, _from_header(path, lines(file)), launches)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except NotCsvError as error:
        if not launches.count:
            raise UsageError(f"{path} is not what {EXPORT} prints: {error}") from error
        launches.remarks.add(f"the end of the file is left out: {error}")
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


def _read_all(path: Path, source: Iterator[str], launches: Launches) -> None:
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
            if _is_header(",".join(record[:8])) and record != table.header:
                table.finish(launches)
                table = _table(path, record, sample)
            elif not table.take(record, launches):
                ragged += 1
    finally:
        table.finish(launches)
        if ragged:
            launches.remarks.add(f"{ragged} lines of the file are incomplete: left out")


def _until_broken(records: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield records as long as they can be read; asking for more of them tells the fault."""
    try:
        yield from records
    except NotCsvError:
        return


def _table(path: Path, header: list[str], sample: list[list[str]]) -> Table:
    mark = decimal_mark(cell for record in sample for cell in record)
    kind: type[Table] = DetailsTable if DetailsTable.fits(header) else RawTable
    if not kind.fits(header):
        raise UsageError(f"{path} has kernels but no metrics: make it anew with {EXPORT}")
    return kind(header, mark)

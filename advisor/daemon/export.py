"""Tables written to a file, piece by piece: CSV or Parquet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuadvisor.errors import AdvisorError, UsageError

if TYPE_CHECKING:
    import pandas as pd

Write = Callable[[Iterator["pd.DataFrame"]], int]
"""Writes tables that have the same columns; returns the number of rows."""


def writer(output: str) -> Write:
    """Return what writes to this file, by the end of its name; UsageError where it has another."""
    if output == "-":
        return lambda tables: _csv(sys.stdout, tables)
    if output.endswith((".csv", ".csv.gz")):
        return lambda tables: _csv_file(Path(output), tables)
    if output.endswith(".parquet"):
        _parquet_modules()  # says what is missing before anything is read
        return lambda tables: _parquet_file(Path(output), tables)
    raise UsageError(f"{output} must end in .csv, .csv.gz or .parquet, or be `-` for CSV.")


def _csv(file: Any, tables: Iterator[pd.DataFrame]) -> int:
    number = 0
    for place, table in enumerate(tables):
        table.to_csv(file, index=False, header=place == 0)
        number += len(table)
    return number


def _csv_file(path: Path, tables: Iterator[pd.DataFrame]) -> int:
    import gzip

    with _complete(path) as partial:
        if path.suffix == ".gz":
            with gzip.open(partial, "wt", encoding="utf-8", newline="") as file:
                return _csv(file, tables)
        with partial.open("w", encoding="utf-8", newline="") as file:
            return _csv(file, tables)


def _parquet_file(path: Path, tables: Iterator[pd.DataFrame]) -> int:
    pa, parquet = _parquet_modules()
    number: int = 0
    with _complete(path) as partial:
        first = pa.Table.from_pandas(next(tables), preserve_index=False)
        with parquet.ParquetWriter(partial, first.schema) as file:
            file.write_table(first)
            number += len(first)
            for table in tables:
                file.write_table(pa.Table.from_pandas(table, first.schema, preserve_index=False))
                number += len(table)
    return number


def _parquet_modules() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise AdvisorError(
            "Parquet needs pyarrow: `pip install 'gpuadvisor[parquet]'`, or write a .csv."
        ) from None
    return pyarrow, parquet


@contextmanager
def _complete(path: Path) -> Iterator[Path]:
    """Give a file beside it that takes its place once it is whole."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{path} cannot be written ({reason}): choose another place.") from error
    finally:
        partial.unlink(missing_ok=True)

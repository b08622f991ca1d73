"""Stored telemetry as pandas tables and as CSV or Parquet: `gpuadvisor.telemetry(since="1h")`."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gpuadvisor.daemon.configured_values import Seconds, Wrong
from gpuadvisor.daemon.store import store_folder
from gpuadvisor.domain.telemetry import HOST
from gpuadvisor.errors import MissingError, UsageError
from gpuadvisor.whole_files import draft_of

if TYPE_CHECKING:
    import pandas as pd

    from gpuadvisor.domain.telemetry import Gpu
    from gpuadvisor.storage.telemetry.reader import Resolution, TelemetryReader
    from gpuadvisor.storage.telemetry.tables import Chunk, Rows

Moment = str | float | datetime
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
EXACT = 2.0**53
"""The first number from which on floats do not have every integer."""
Write = Callable[[Iterator["pd.DataFrame"]], int]
"""A function that writes tables with the same columns and returns the number of rows."""


def telemetry(
    since: Moment = "1h",
    until: Moment | None = None,
    *,
    resolution: Resolution = "auto",
    gpus: Sequence[int | str] | None = None,
    metrics: Sequence[str] | None = None,
    host: bool = False,
    folder: Path | None = None,
) -> pd.DataFrame:
    """Return what the daemon has stored of the GPUs, or with `host` of the machine.

    `since` and `until` are a time ago (`"90s"`, `"1h"`, `"7d"`), a time of day or of a day
    (`"14:02"`, `"yesterday 03:00"`, `"monday 18:30"`), a moment in ISO 8601 (of this machine's time
    zone unless it names one), a datetime, or a Unix time in seconds. `resolution`
    is `raw` (each second), `minute`, `hour`, or `auto`: as fine as the length allows. `gpus` are
    numbers or UUIDs, `metrics` names as in the columns; None means all.

    Columns: `time` (UTC, the begin of the minute or hour), `gpu` (its number), `uuid`, `gpu_name`,
    and the metrics, whose names end in their units. In minutes and hours a metric's own column is
    the mean, with `min_`, `max_` and `p95_` beside it; of a counter it is the last value, with
    `first_`; of flags, all that were set. What was not read is NA.

    UsageError where there is no store yet, or an argument is wrong.
    """
    import pandas as pd

    since_s, until_s = span(since, until)
    reader = open_reader(folder)
    rows = reader.table(
        since_s,
        until_s,
        _known_resolution(resolution),
        host=host,
        gpus=None if gpus is None else uuids(reader, gpus),
        metrics=known_metrics(metrics),
    )
    return pd.concat(tables(rows, reader), ignore_index=True)


def events(
    since: Moment = "24h", until: Moment | None = None, *, folder: Path | None = None
) -> pd.DataFrame:
    """Return the events that began or lasted then, oldest first; see `telemetry` for times.

    Columns: `began`, `ended` (UTC; NA while it lasts), `kind`, `severity`, `uuid`, `message`.
    """
    import pandas as pd

    since_s, until_s = span(since, until)
    found = open_reader(folder).events(since_s, until_s)
    table = pd.DataFrame(
        [(e.began_s, e.ended_s, e.kind, str(e.severity), e.gpu, e.message) for e in found],
        columns=["began", "ended", "kind", "severity", "uuid", "message"],
    )
    for name in ("began", "ended"):
        table[name] = pd.to_datetime(table[name].astype("float64"), unit="s", utc=True)
    return table


def span(since: Moment, until: Moment | None, now_s: float | None = None) -> tuple[float, float]:
    """Return begin and end of a span as Unix times, the end infinite for None.

    UsageError where they are none, or the wrong way round.
    """
    now_s = time.time() if now_s is None else now_s
    begin_s = moment("since", since, now_s)
    end_s = math.inf if until is None else moment("until", until, now_s)
    if begin_s >= end_s:
        raise UsageError(f"since ({since}) must be before until ({until}).")
    return begin_s, end_s


def moment(name: str, given: Moment, now_s: float) -> float:
    """Return the Unix time of a text, or of what is one already.

    A text is a time ago (`3h`, `17 min ago`, `-90m`), a time of day (the last one before `now_s`),
    one of a day such as `yesterday 03:00`, `last night` (22:00 of the day before), `now`, or a
    moment in ISO 8601. UsageError where it is none.
    """
    if isinstance(given, datetime):
        return given.timestamp()
    if isinstance(given, int | float):
        return float(given)
    ago = _AGO.fullmatch(given.strip().lower())
    if ago is not None and (ago["sign"] or ago["ago"] or ago["unit"] in LONG_UNITS):
        given = f"{ago['number']}{LONG_UNITS.get(ago['unit'], ago['unit'])}"
    try:
        return now_s - Seconds.read(given)
    except Wrong:
        pass
    try:
        told = _of_day(given, datetime.fromtimestamp(now_s))
        return (datetime.fromisoformat(given) if told is None else told).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(
            f'{name} must be a time ago such as "1h" or "7d", or a moment such as "14:02", '
            f'"yesterday 03:00" or "2026-01-31T18:00", not {given!r}.'
        ) from None


LONG_UNITS = {
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
}
"""Units as one writes them in a sentence, and as `Seconds` has them."""
_AGO = re.compile(
    r"(?P<sign>-)?\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[a-z]+)(?P<ago>\s+ago)?", re.ASCII
)
NIGHT_HOUR = 22
"""When last night began: it lasted until 06:00. [own]"""
_OF_DAY = re.compile(
    rf"(?:(?P<day>now|today|yesterday|{'|'.join(DAYS)})\s*)?"
    r"(?:(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}))?)?"
)


def _of_day(given: str, now: datetime) -> datetime | None:
    """Return the local time of a day and a time of day, either of which may be left out."""
    if " ".join(given.lower().split()) == "last night":
        return _of_day(f"yesterday {NIGHT_HOUR}:00", now)
    found = _OF_DAY.fullmatch(given.strip().lower())
    if found is None or not found[0]:
        return None
    day, hour = found["day"], found["hour"]
    if day == "now":
        if hour is not None:
            raise ValueError(given)
        return now
    at = now.replace(
        hour=int(hour or 0),
        minute=int(found["minute"] or 0),
        second=int(found["second"] or 0),
        microsecond=0,
    )
    if day in DAYS:
        return at - timedelta(days=(now.weekday() - DAYS.index(day)) % 7 or 7)
    if day == "yesterday" or (day is None and at > now):
        return at - timedelta(days=1)
    return at


def open_reader(folder: Path | None) -> TelemetryReader:
    """Return the reader of this store, or of the default one; MissingError where there is none."""
    from gpuadvisor.storage.telemetry.reader import TelemetryReader

    folder = store_folder() if folder is None else folder
    if not list(folder.glob("*.db")):
        raise MissingError(
            f"There is no telemetry in {folder}: `gpuadvisor daemon start` begins to collect it."
        )
    return TelemetryReader(folder)


def known_metrics(metrics: Sequence[str] | None) -> Sequence[str] | None:
    """Return names of metrics; UsageError where one is none."""
    from difflib import get_close_matches

    from gpuadvisor.domain.metrics import BY_NAME

    for name in metrics or ():
        if name not in BY_NAME:
            close = get_close_matches(name, BY_NAME, 1)
            hint = f"did you mean {close[0]}?" if close else "`gpuadvisor.telemetry().columns`"
            raise UsageError(f"{name} is not a metric: {hint}")
    return metrics


def uuids(reader: TelemetryReader, gpus: Sequence[int | str]) -> list[str]:
    """Return the UUIDs of GPUs by number or UUID; UsageError where the store has no such GPU."""
    known = reader.all_gpus()
    found = []
    for given in gpus:
        matching = [g.uuid for g in known if str(given) in (g.uuid, str(g.index))]
        if not matching:
            here = ", ".join(sorted({str(g.index) for g in known})) or "none"
            raise UsageError(f"There is no GPU {given} in this store; there are: {here}.")
        found += matching
    return found


def tables(rows: Rows, reader: TelemetryReader) -> Iterator[pd.DataFrame]:
    """Yield the rows as tables of some thousand each; one without rows where there are none."""
    from gpuadvisor.storage.telemetry.tables import Chunk

    gpus = {gpu.uuid: gpu for gpu in reader.all_gpus()}
    chunk = None
    for chunk in rows.chunks:
        yield _table(rows, chunk, gpus)
    if chunk is None:
        yield _table(rows, Chunk((), (), {}), gpus)


def _table(rows: Rows, chunk: Chunk, gpus: dict[str, Gpu]) -> pd.DataFrame:
    """Return a table with the GPU's number and name beside its UUID, and the time in front."""
    import numpy as np
    import pandas as pd

    times, uuids = [row[0] for row in chunk.rows], [chunk.devices[row[1]] for row in chunk.rows]
    moments = np.round(np.array(times, dtype="float64") * 1e6).astype("datetime64[us]")
    columns: dict[str, Any] = {
        "time": pd.DatetimeIndex(moments.astype("datetime64[ns]")).tz_localize("UTC")
    }
    if HOST not in set(uuids):
        known = [gpus.get(uuid) for uuid in uuids]
        columns["gpu"] = _array("INTEGER", [gpu and gpu.index for gpu in known])
        columns["uuid"] = _array("TEXT", uuids)
        columns["gpu_name"] = _array("TEXT", [gpu and gpu.name for gpu in known])
    # All values at once: one by one they would take as long as reading them.
    numbers = None
    if chunk.rows and "TEXT" not in rows.types[2:]:
        numbers = np.array(chunk.rows, dtype="float64")
    places = {name: place for place, name in enumerate(chunk.names, 2)}
    for name, kind in zip(rows.columns[2:], rows.types[2:], strict=True):
        place = places.get(name)
        if place is None:
            columns[name] = _nothing(kind, len(times))
        elif numbers is None or (column := _of_numbers(kind, numbers[:, place])) is None:
            columns[name] = _array(kind, [row[place] for row in chunk.rows])
        else:
            columns[name] = column
    return pd.DataFrame(columns, copy=False)


def _of_numbers(kind: str, numbers: Any) -> Any:
    """Return a column of floats in its type; None where an integer may not be exact any more."""
    import numpy as np
    import pandas as pd

    if kind == "REAL":
        return numbers
    absent = np.isnan(numbers)
    whole = np.where(absent, 0.0, numbers)
    if np.abs(whole).max() >= EXACT:
        return None
    return pd.arrays.IntegerArray(whole.astype("int64"), absent)


def _array(kind: str, values: Sequence[Any]) -> Any:
    """Return the values as a column of their type, NA for None."""
    import pandas as pd

    if kind == "REAL":
        return pd.array(values, dtype="float64").to_numpy()
    return pd.array(values, dtype="string" if kind == "TEXT" else "Int64")


def _nothing(kind: str, count: int) -> Any:
    """Return a column of NA."""
    import numpy as np
    import pandas as pd

    if kind == "REAL":
        return np.full(count, np.nan)
    if kind == "TEXT":
        return pd.array([None] * count, dtype="string")
    return pd.arrays.IntegerArray(np.zeros(count, "int64"), np.ones(count, bool))


def _known_resolution(given: str) -> Literal["raw", "minute", "hour", "auto"]:
    from typing import get_args

    from gpuadvisor.storage.telemetry.reader import Resolution

    if given not in get_args(Resolution):
        raise UsageError(f"resolution must be raw, minute, hour or auto, not {given!r}.")
    return given  # type: ignore[return-value]


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
        raise UsageError(
            "Parquet needs pyarrow, which this Python has not: `pip install pyarrow`, or name a"
            " file that ends in .csv or .csv.gz."
        ) from None
    return pyarrow, parquet


@contextmanager
def _complete(path: Path) -> Iterator[Path]:
    """Yield a file beside `path` that takes its place once it is complete."""
    try:
        with draft_of(path) as draft:
            yield draft
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{path} cannot be written ({reason}): choose another place.") from error

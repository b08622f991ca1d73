"""Look after the store: check its files, make them smaller, or export telemetry.

Exit status: 0 where all is well; 1 where there is no telemetry to export; 5 where a file is damaged
or cannot be used.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.commands._arguments import add_actions, add_json, run_action
from gpuadvisor.errors import StoreError, UsageError

if TYPE_CHECKING:
    from gpuadvisor.storage.telemetry.reader import TelemetryReader
    from gpuadvisor.storage.telemetry.tables import Rows

EPILOG = """examples:
  gpuadvisor db check
  gpuadvisor db export -o night.csv --since 12h --metric power_w --metric sm_active_pct
  gpuadvisor db export -o week.csv.gz --since 7d --resolution minute
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = add_actions(parser)
    check = add("check", "read every file of the store and say whether it is sound", _check)
    add_json(check)
    add("vacuum", "give the room of removed rows back to the disk", _vacuum)
    _add_export(add("export", "write telemetry as CSV or Parquet", _export))


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="FILE.csv, FILE.csv.gz or FILE.parquet (which needs pyarrow); `-` is CSV on the"
        " standard output",
    )
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    parser.add_argument(
        "--since", metavar="TIME", default="1h", help="a time ago such as 1h or 7d (default: 1h),"
        " or a moment such as 2026-01-31T18:00",
    )  # fmt: skip
    parser.add_argument("--until", metavar="TIME", help="the same; default: now")
    parser.add_argument(
        "--resolution",
        choices=("raw", "minute", "hour", "auto"),
        default="auto",
        help="a row for each second, minute or hour (default: as fine as the length allows)",
    )
    parser.add_argument(
        "--metric", metavar="NAME", action="append", help="only this one; may be given again"
    )
    parser.add_argument(
        "--gpu", metavar="GPU", action="append", help="only this number or UUID; the same"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--host", action="store_true", help="the machine instead of its GPUs")
    what.add_argument("--processes", action="store_true", help="processes on GPUs instead")
    what.add_argument("--events", action="store_true", help="events instead")


def run(args: argparse.Namespace) -> int:
    return run_action(args)


def _check(args: argparse.Namespace) -> int:
    from gpuadvisor.storage import upkeep
    from gpuadvisor.storage.home import readable_home

    home = readable_home()
    found = [upkeep.inspect(path) for path in upkeep.files(home)]
    if args.json:
        import json
        from dataclasses import asdict

        documents = [{**asdict(each), "path": str(each.path)} for each in found]
        print(json.dumps({"version": 1, "files": documents}, indent=2))
    else:
        count = f"{len(found)} file{'' if len(found) == 1 else 's'}"
        print(f"{home}: {count if found else 'nothing stored yet'}")
        for each in found:
            rows = "" if each.rows is None else f"{each.rows:,} rows"
            size = f"{each.size_bytes / 1e6:.1f} MB"
            said = each.problem or each.unread or "ok"
            print(f"  {each.path.name:<21} {size:>11} {rows:>16}  {said}")
    return StoreError.exit_code if any(each.problem for each in found) else 0


def _vacuum(args: argparse.Namespace) -> int:
    from gpuadvisor.daemon.store import running, store_folder
    from gpuadvisor.storage import home, upkeep

    if (process := running(store_folder())) is not None:
        raise UsageError(
            f"The daemon (process {process}) writes the store, and would have to wait: "
            "`gpuadvisor daemon stop` first."
        )
    for path in upkeep.files(home.home()):
        gained = upkeep.vacuum(path)
        print(f"  {path.name:<21} {max(gained, 0) / 1e6:8.1f} MB gained")
    return 0


def _export(args: argparse.Namespace) -> int:
    from gpuadvisor.daemon import history

    if args.output != "-" and Path(args.output).exists() and not args.force:
        raise UsageError(f"{args.output} is there already: choose another name, or add --force")
    write = history.writer(args.output)
    if args.events:
        number = write(iter([history.events(args.since, args.until)]))
    else:
        reader = history.open_reader(None)
        number = write(history.tables(_rows(args, reader), reader))
        if reader.withheld:
            print(f"gpuadvisor: {reader.withheld}", file=sys.stderr)
    print(f"{args.output}: {number:,} rows", file=sys.stderr)
    return 0


def _rows(args: argparse.Namespace, reader: TelemetryReader) -> Rows:
    from gpuadvisor.daemon import history

    since_s, until_s = history.span(args.since, args.until)
    if args.processes:
        return reader.processes(since_s, until_s)
    return reader.table(
        since_s,
        until_s,
        args.resolution,
        host=args.host,
        gpus=None if args.gpu is None else history.uuids(reader, args.gpu),
        metrics=history.known_metrics(args.metric),
    )

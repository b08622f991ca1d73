"""Read profiles of the torch profiler, Nsight Systems or Nsight Compute into the store.

A folder stands for the traces in it, one for each rank of a run. The same file twice is one
profile. Exit status: 0 where every file is stored now; 1 where one could not be read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuadvisor.errors import AdvisorError, Interrupted, StoreError, UsageError
from gpuadvisor.interruption import stoppable

if TYPE_CHECKING:
    from gpuadvisor.profiling.reading import TraceFile
    from gpuadvisor.storage.profiles.library import Profiles

EPILOG = """examples:
  gpuadvisor import train.pt.trace.json.gz
  gpuadvisor import report1.sqlite kernels.csv --json
  gpuadvisor import traces/ --name run-7
  gpuadvisor import --list
  gpuadvisor import --remove train
"""
VERSION = 1
"""Of the JSON."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="a trace, or a folder of traces"
    )
    parser.add_argument(
        "--name", metavar="NAME", help="what to call the profile; of several, how names begin"
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--list", action="store_true", help="list the stored profiles instead")
    instead.add_argument(
        "--remove", metavar="NAME", action="append", default=[],
        help="remove this profile instead; may be given again",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(args: argparse.Namespace) -> int:
    if args.files and (args.list or args.remove):
        raise UsageError("--list and --remove take no FILE: leave one of them out.")
    if not (args.files or args.list or args.remove):
        raise UsageError("import needs a FILE: name a trace, a folder of traces, or use --list.")
    from gpuadvisor.storage.profiles.library import open_profiles

    with open_profiles() as profiles:
        if args.list:
            return _list(profiles, args.json)
        if args.remove:
            return _remove(profiles, args.remove, args.json)
        with stoppable() as stop:
            try:
                return _import(profiles, args, stop.requested)
            except Interrupted as interruption:
                interruption.exit_code = stop.exit_status
                raise


def _import(profiles: Profiles, args: argparse.Namespace, cancelled: Callable[[], bool]) -> int:
    from gpuadvisor.commands._console import messages
    from gpuadvisor.printable import printable
    from gpuadvisor.profiling import importing, summary
    from gpuadvisor.profiling.importing import ProgressBar
    from gpuadvisor.profiling.reading import trace_files

    files = trace_files(args.files)
    done: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    for file in files:
        name, file = _named(file, args.name, alone=len(files) == 1)
        try:
            with ProgressBar(messages(), cancelled) as progress:
                found = importing.import_trace(profiles, file, name, progress)
            done.append(summary.as_json(found.profile, is_new=found.is_new))
            if not args.json:
                print("\n".join(summary.lines(found.profile, is_new=found.is_new)), flush=True)
        except (Interrupted, StoreError, BrokenPipeError):
            raise  # of a store the other files would fail as well
        except Exception as error:
            if args.debug:
                raise
            sentence = _sentence(file.path, error)
            failed.append({"path": str(file.path), "error": sentence})
            print(printable(f"gpuadvisor: {sentence}"), file=sys.stderr)
    if args.json:
        _print_json({"profiles": done, "failed": failed})
    return int(bool(failed))


def _sentence(path: Path, error: Exception) -> str:
    """Say why a file could not be stored; the others go on even where it is our fault."""
    if isinstance(error, AdvisorError):
        return str(error)
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return (
        f"{path}: this is a bug in gpuadvisor ({what}): import it again with --debug and report "
        "the output"
    )


def _named(file: TraceFile, name: str | None, *, alone: bool) -> tuple[str | None, TraceFile]:
    """Return the profile's name, None where only its begin is given, which the file then has."""
    from dataclasses import replace

    from gpuadvisor.profiling.reading import stem

    if name is None or alone:
        return name, file
    return None, replace(file, stem=f"{name}-{stem(file.path)}")


def _list(profiles: Profiles, as_json: bool) -> int:
    from gpuadvisor.profiling import summary

    records = profiles.list()
    if as_json:
        _print_json({"profiles": [summary.record_as_json(each) for each in records]})
    elif records:
        print("\n".join(summary.table(records)))
    else:
        print("no profile is stored yet: `gpuadvisor import FILE` adds one")
    return 0


def _remove(profiles: Profiles, wanted: list[str], as_json: bool) -> int:
    removed = []
    for each in wanted:
        removed.append(profiles.remove(each))
        if not as_json:
            print(f"removed {removed[-1]}")
    if as_json:
        _print_json({"removed": removed})
    return 0


def _print_json(document: dict[str, Any]) -> None:
    import json

    print(json.dumps({"version": VERSION, **document}, indent=2))

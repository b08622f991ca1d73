"""Read profiles of the torch profiler, Nsight Systems or Nsight Compute into the store.

A folder stands for the traces in it, one for each rank of a run. The same file twice is one
profile. Exit status: 0 where every file is stored now; 1 where one could not be read.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuadvisor.commands._arguments import add_json
from gpuadvisor.errors import UsageError

if TYPE_CHECKING:
    from gpuadvisor.profiling.importing import Imported
    from gpuadvisor.storage.profiles.library import Profiles

EPILOG = """examples:
  gpuadvisor import train.pt.trace.json.gz
  gpuadvisor import report1.sqlite kernels.csv --json
  gpuadvisor import traces/ --name run-7
  gpuadvisor import --list
  gpuadvisor import --remove train
"""
VERSION = 1
"""The version of the JSON document."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
    add_json(parser)


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
        return _import(profiles, args)


def _import(profiles: Profiles, args: argparse.Namespace) -> int:
    from gpuadvisor.commands._output import messages, note
    from gpuadvisor.interruption import stoppable
    from gpuadvisor.printable import printable
    from gpuadvisor.profiling import summary
    from gpuadvisor.profiling.importing import import_files
    from gpuadvisor.profiling.progress import ImportProgress

    done: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []

    def on_imported(found: Imported) -> None:
        done.append(summary.as_json(found.profile, is_new=found.is_new))
        if not args.json:
            print("\n".join(summary.lines(found.profile, is_new=found.is_new)), flush=True)

    def on_failure(path: Path, error: Exception, sentence: str) -> None:
        if args.debug:
            raise error
        failed.append({"path": str(path), "error": sentence})
        note(printable(sentence))

    with stoppable() as stop:

        def progress() -> ImportProgress:
            return ImportProgress(messages(), stop.requested)

        import_files(profiles, args.files, args.name, progress, on_imported, on_failure)
    if args.json:
        _print_json({"profiles": done, "failed": failed})
    return int(bool(failed))


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

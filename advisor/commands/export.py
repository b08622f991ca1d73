"""Write a profile as a Chrome trace, to look at in Perfetto (https://ui.perfetto.dev).

Beside what was recorded it shows what to fix first and why the GPU was idle, on tracks of their
own. It works for profiles of Nsight Systems too. `--open` shows it there: the browser fetches it
from this machine, and nothing is uploaded. Telemetry is exported by `gpuadvisor db export`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpuadvisor.errors import Interrupted, UsageError

EPILOG = """examples:
  gpuadvisor export train --open
  gpuadvisor export train -o train.json.gz
  gpuadvisor export report1.sqlite -o report1.json
"""
ENDINGS = (".json", ".json.gz")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", metavar="PROFILE", help="a stored profile, or a trace file")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="FILE.json or FILE.json.gz"
    )
    parser.add_argument(
        "--open", action="store_true", help="show it in Perfetto, in the browser; no file is needed"
    )
    parser.add_argument("--force", action="store_true", help="replace a file that is there")


def run(args: argparse.Namespace) -> int:
    if args.output is None and not args.open:
        raise UsageError("say what to do with it: --open shows it in Perfetto, -o FILE writes it")
    if args.output is not None:
        if not args.output.name.endswith(ENDINGS):
            endings = "neither .json nor .json.gz"
            raise UsageError(f"{args.output} ends in {endings}: choose one of them.")
        if args.output.exists() and not args.force:
            raise UsageError(f"{args.output} is there already: choose another name, or add --force")
        _write(args.profile, args.output)
    if args.open:
        _open(args.profile, args.output)
    return 0


def _write(profile: str, file: Path) -> None:
    from gpuadvisor.profiling.diagnosing import profile_report
    from gpuadvisor.profiling.exporting import export
    from gpuadvisor.profiling.resolving import resolve_profile
    from gpuadvisor.reports.diagnosis.report import matters

    report = profile_report(resolve_profile(profile), whole=True)
    shown = report.diagnosis.shown if report.diagnosis is not None else ()
    count = export(report.facts, file, [finding for finding in shown if matters(finding)])
    print(f"{file}: {count:,} events", file=sys.stderr)


def _open(profile: str, written: Path | None) -> None:
    """Show what was written, else a file that is removed once the browser has it."""
    from tempfile import TemporaryDirectory
    from threading import Thread

    from gpuadvisor.interruption import stoppable
    from gpuadvisor.profiling.perfetto import TraceServer

    with stoppable() as stop, TemporaryDirectory(prefix="gpuadvisor-") as folder:
        file = written or Path(folder) / f"{Path(profile).name.partition('.')[0]}.json"
        server = TraceServer(file)
        if written is None:
            _write(profile, file)
        print(f"Opening {server.page}", file=sys.stderr)
        # A browser of a terminal returns only when it ends.
        Thread(target=_browse, args=(server.page,), daemon=True).start()
        if not server.serve(stop.requested):
            raise Interrupted("interrupted: Perfetto did not fetch the profile")


def _browse(page: str) -> None:
    import webbrowser

    from gpuadvisor.profiling.perfetto import PORT

    if not webbrowser.open(page):
        print(
            "No browser opened here: open this address yourself; from another machine, first `ssh"
            f" -L {PORT}:127.0.0.1:{PORT}` to this one. It waits until Perfetto has the profile;"
            " Ctrl-C ends it.",
            file=sys.stderr,
        )

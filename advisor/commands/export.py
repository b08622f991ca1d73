"""Write a profile as a Chrome trace, to look at in Perfetto (https://ui.perfetto.dev).

Beside what was recorded it shows what to fix first and why the GPU was idle, on tracks of their
own. It works for profiles of Nsight Systems too. Telemetry is exported by `gpuadvisor db export`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpuadvisor.errors import UsageError

EPILOG = """examples:
  gpuadvisor export train -o train.json.gz
  gpuadvisor export report1.sqlite -o report1.json
"""
ENDINGS = (".json", ".json.gz")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", metavar="PROFILE", help="a stored profile, or a trace file")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", required=True, help="FILE.json or FILE.json.gz"
    )
    parser.add_argument("--force", action="store_true", help="replace a file that is there")


def run(args: argparse.Namespace) -> int:
    if not args.output.name.endswith(ENDINGS):
        raise UsageError(f"{args.output} ends in neither .json nor .json.gz: choose one of them.")
    if args.output.exists() and not args.force:
        raise UsageError(f"{args.output} is there already: choose another name, or add --force")
    from gpuadvisor.profiling.diagnosing import profile_report
    from gpuadvisor.profiling.exporting import export
    from gpuadvisor.profiling.resolving import resolve_profile
    from gpuadvisor.reports.diagnosis_report import matters

    report = profile_report(resolve_profile(args.profile))
    shown = report.diagnosis.shown if report.diagnosis is not None else ()
    found = [finding for finding in shown if matters(finding)]
    count = export(report.facts, args.output, found)
    print(f"{args.output}: {count:,} events", file=sys.stderr)
    return 0

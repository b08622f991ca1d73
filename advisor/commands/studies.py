"""List the studies of all folders, or show several side by side.

Without a name: every study with its verdict, newest first. With two names or more: what each
measured, and which settings and what of the environment differs; what cannot be compared is said.
Tuned kernels are listed by `gpuadvisor kernels`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.commands._arguments import add_json, add_markdown, check_positive
from gpuadvisor.errors import UsageError

if TYPE_CHECKING:
    from gpuadvisor.tuning.selection import StudyFilter

FILTERS = ("script", "folder", "verdict", "last")
VERDICTS = ("faster", "faster_unverified", "no_gain", "inconclusive", "not_tried")
EPILOG = """examples:
  gpuadvisor studies                             all of them, the newest first
  gpuadvisor studies --script train.py --verdict faster --last 5
  gpuadvisor studies --folder . --json | jq -r '.studies[].study'
  gpuadvisor studies train-1 train-4             side by side
  gpuadvisor studies train-1 train-4 --markdown  for a pull request
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="*", metavar="STUDY",
        help="studies to show side by side, each compared with the first",
    )  # fmt: skip
    group = parser.add_argument_group("which to list")
    group.add_argument(
        "--script", metavar="SCRIPT", help="those of this script: its path, file name or module"
    )
    group.add_argument(
        "--folder", metavar="FOLDER", help="those whose script ran in this folder or below it"
    )
    group.add_argument(
        "--verdict", action="append", choices=VERDICTS, help="those that ended so; may be repeated"
    )
    group.add_argument("--last", metavar="N", type=int, help="the newest N of them")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page to this file")
    add_markdown(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    if args.names:
        return _compare(args)
    return _list(args)


def _list(args: argparse.Namespace) -> int:
    wanted = _filter(args)
    from gpuadvisor.commands._output import note, output, write_formats
    from gpuadvisor.reports.json_studies import studies_json
    from gpuadvisor.reports.study import several as report
    from gpuadvisor.tuning.selection import StudyFilter, stored_studies

    records = stored_studies(wanted)
    if not records and wanted == StudyFilter():
        note("no study is stored yet: `gpuadvisor tune script.py` makes one")
    elif not records:
        note("no study fits: leave a filter out, `gpuadvisor studies` lists all")
    written = write_formats(
        args,
        lambda: studies_json(records),
        lambda: report.studies_markdown(records),
        lambda: report.studies_html(records),
    )
    if records and not written:
        report.print_studies(records, output())
    return 0


def _compare(args: argparse.Namespace) -> int:
    given = [f"--{name}" for name in FILTERS if getattr(args, name) is not None]
    if given:
        raise UsageError(f"{given[0]} narrows the list: leave it out, or the names of studies")
    from gpuadvisor.commands._output import output, write_formats
    from gpuadvisor.reports.json_studies import studies_comparison_json
    from gpuadvisor.reports.study import several as report
    from gpuadvisor.reports.study.comparison import ComparedStudy, compare_studies
    from gpuadvisor.tuning.selection import load_studies

    studies = [ComparedStudy(result, folder) for result, folder in load_studies(args.names)]
    comparison = compare_studies(studies)
    if not write_formats(
        args,
        lambda: studies_comparison_json(comparison),
        lambda: report.comparison_markdown(comparison),
        lambda: report.comparison_html(comparison),
    ):
        report.print_comparison(comparison, output())
    return 0


def _filter(args: argparse.Namespace) -> StudyFilter:
    from gpuadvisor.domain.study import Verdict
    from gpuadvisor.tuning.selection import StudyFilter

    check_positive(args, "--last")
    verdicts = tuple(Verdict(each) for each in args.verdict or ())
    return StudyFilter(args.script, args.folder, verdicts, args.last)

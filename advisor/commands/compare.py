"""Compare two profiles: what got slower, faster, is new or gone.

Times are those of a mean step where both profiles have steps, else of the whole recordings. The
largest changes come first.
"""

from __future__ import annotations

import argparse

from gpuadvisor.commands._arguments import add_json, add_markdown, add_whole

EPILOG = """examples:
  gpuadvisor compare before after
  gpuadvisor compare old.pt.trace.json.gz new.pt.trace.json.gz --markdown
  gpuadvisor compare before after --json | jq '.kernels[:5]'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="BEFORE", help="a stored profile's name, or a trace file")
    parser.add_argument("after", metavar="AFTER", help="the same")
    parser.add_argument("--all", action="store_true", help="print every change, not the largest")
    add_whole(parser)
    add_markdown(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from gpuadvisor.commands._output import write_formats
    from gpuadvisor.profiling.evidence import facts_of
    from gpuadvisor.profiling.resolving import resolve_profile
    from gpuadvisor.reports.json_documents import comparison_json
    from gpuadvisor.reports.profile import comparison as report
    from gpuadvisor.rules.facts.comparison import compare

    before, after = (resolve_profile(name) for name in (args.before, args.after))
    names = (before.name, after.name) if before.name != after.name else (args.before, args.after)
    one, two = (facts_of(each.profile, None, whole=args.whole) for each in (before, after))
    comparison = compare(one, two, names)
    if not write_formats(
        args,
        lambda: comparison_json(comparison),
        lambda: report.comparison_markdown(comparison),
    ):
        for line in report.comparison_lines(comparison, args.all):
            print(line)
    return 0

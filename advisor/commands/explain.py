"""Explain what a rule of the diagnosis looks at, what that costs, and what to do about it.

Without a name it lists all rules, those of other packages too, and what each needs to look: a
profile, hardware counters, telemetry or several of them.
"""

from __future__ import annotations

import argparse
import sys

EPILOG = """examples:
  gpuadvisor explain
  gpuadvisor explain input_bound
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "rule", nargs="?", metavar="RULE", help="as `diagnose` names it; a list of all without"
    )


def run(args: argparse.Namespace) -> int:
    from gpuadvisor.commands._output import output
    from gpuadvisor.profiling.rules import select_rules
    from gpuadvisor.reports.rules_text import page_of, print_rules

    console = output()
    if args.rule is None:
        print_rules(console, select_rules())
        return 0
    page = page_of(*select_rules([args.rule]))
    if console.is_terminal:
        from rich.markdown import Markdown

        console.print(Markdown(page))
    else:
        sys.stdout.write(page)
    return 0

"""Accept a new level of a baseline: recordings before it do not count any more.

Exit status: 0 when it was noted; 2 where there is no such baseline; 5 when the file cannot be read
or written.
"""

from __future__ import annotations

import argparse

from gpuadvisor.commands.gate._arguments import add_baseline, baseline_of
from gpuadvisor.errors import UsageError

EPILOG = """example:
  gpuadvisor gate accept --name train --why "the new augmentation is worth 8 % of a step"

Who, when and why stay in the file, and `gpuadvisor gate history` shows them.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_baseline(parser)
    parser.add_argument("--why", metavar="TEXT", required=True, help="the reason, for the history")


def run(args: argparse.Namespace) -> int:
    import getpass
    import os
    from datetime import UTC, datetime

    from gpuadvisor.domain.baseline import Acceptance
    from gpuadvisor.printable import printable
    from gpuadvisor.storage.gate import add_to_baselines, read_baselines

    baseline = baseline_of(args)
    if not args.why.strip():
        raise UsageError("--why: say why, so that others can read it in the history")
    known = read_baselines(baseline.file)
    count = len(known.recordings_of(baseline.name))
    if not count:
        raise UsageError(
            f"{known.lacks(baseline.name, baseline.file)}: `gpuadvisor gate record` makes one"
        )
    try:
        # The one who asked a CI system for it, not the account that it runs under.
        by = os.environ.get("GITHUB_ACTOR") or os.environ.get("GITLAB_USER_LOGIN")
        by = by or getpass.getuser()
    except (OSError, KeyError):  # a container without an entry for its user
        by = f"user {os.getuid()}"
    add_to_baselines(
        baseline.file,
        Acceptance(baseline.name, datetime.now(UTC).replace(microsecond=0), by, args.why.strip()),
    )
    print(printable(f"recordings of {baseline.name} before now ({count}) do not count any more"))
    return 0

"""The rules that a user names, or all of them."""

from __future__ import annotations

import sys
from collections.abc import Collection
from difflib import get_close_matches
from functools import cache

from gpuadvisor.errors import UsageError
from gpuadvisor.rules.registry import load_rules, problems
from gpuadvisor.rules.rule import Loaded

MOST_NAMES = 3
"""Near names that an error proposes."""


def select_rules(names: Collection[str] = ()) -> tuple[Loaded, ...]:
    """Return the rules of these names, or all; UsageError, with near names, where there is none."""
    _warn()
    known = {rule.name: rule for rule in load_rules()}
    if not names:
        return tuple(known.values())
    return tuple(known[_checked(name, known)] for name in dict.fromkeys(names))


def _checked(name: str, known: Collection[str]) -> str:
    if name in known:
        return name
    near = get_close_matches(name.replace("-", "_"), known, MOST_NAMES, cutoff=0.6)
    near = near or [each for each in known if name.lower() in each][:MOST_NAMES]
    proposal = f"did you mean {' or '.join(near)}?" if near else "there is none like it;"
    raise UsageError(f"There is no rule {name!r}: {proposal} `gpuadvisor explain` lists all.")


@cache
def _warn() -> None:
    """Say once which rules of other packages cannot be used, and why."""
    for problem in problems():
        print(f"gpuadvisor: {problem}", file=sys.stderr)

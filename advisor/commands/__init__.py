"""The subcommands. Each module has `add_arguments(parser)` and `run(args) -> exit status`; its
`EPILOG`, if it has one, holds the examples of its help.

A new file here is a new command, whose name has hyphens for underscores and loses one at its end;
its docstring's first line is its help.
"""

from __future__ import annotations

import argparse
import pkgutil
from importlib import import_module
from typing import Protocol, cast


class Command(Protocol):
    """A module in this folder: one subcommand."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


ORDER = ("tune", "run", "verify", "report", "studies", "doctor")
"""The commands that come first in the help; others follow by name."""


def load_commands(first: str | None = None) -> dict[str, Command]:
    """Return every command by its name; where `first` is the name of one, that one alone."""
    names = [m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")]
    rank = {name: place for place, name in enumerate(ORDER)}
    names.sort(key=lambda name: (rank.get(name, len(rank)), name))
    # As they are typed: `bench-device`, and `import`, which no module can be.
    modules = {name.rstrip("_").replace("_", "-"): name for name in names}
    if first in modules:
        modules = {first: modules[first]}
    return {
        typed: cast(Command, import_module(f"{__name__}.{name}")) for typed, name in modules.items()
    }

"""The subcommands. Each module has `add_arguments(parser)` and `run(args) -> exit status`; its
`EPILOG`, if it has one, holds the examples of its help.

A new file here is a new command, whose name has hyphens for underscores and loses one at its end;
its docstring's first line is its help. A folder is a command, too, and each file in it one of two
words: `gate/record.py` is `gpuadvisor gate record`.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast


class Command(Protocol):
    """A module in this folder: one subcommand."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


ORDER = ("tune", "run", "verify", "report", "studies", "doctor")
"""The commands that come first in the help; others follow by name."""


def load_commands(first: str | None = None) -> dict[str, Command]:
    """Return every command by its name; where `first` is the first word of one, those alone."""
    modules = _modules(Path(__file__).parent)
    names = [each for each in modules if first in (None, _typed(each).split()[0])] or modules
    rank = {name: place for place, name in enumerate(ORDER)}
    names.sort(key=lambda name: (rank.get(name, len(rank)), name))
    return {_typed(name): cast(Command, import_module(f"{__name__}.{name}")) for name in names}


def _modules(folder: Path, above: str = "") -> list[str]:
    """Return the modules of commands in a folder, such as `tune` and `gate.record`.

    `pkgutil` would do, and imports `inspect`, which takes as long as all of `--help`'s own code.
    """
    found = []
    for path in sorted(folder.iterdir()):
        is_package = (path / "__init__.py").is_file()
        if path.name.startswith("_") or not (is_package or path.suffix == ".py"):
            continue
        found.append(above + path.stem)
        if is_package:
            found += _modules(path, f"{above}{path.stem}.")
    return found


def _typed(name: str) -> str:
    """Return a command as it is typed: `bench-device`, and `import`, which no module can be."""
    return " ".join(word.rstrip("_").replace("_", "-") for word in name.split("."))

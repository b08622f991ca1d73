"""Lets a script import all of gpuadvisor where all of it is installed.

The few modules on the script's path hide an installed gpuadvisor, but a script may use more of it
than the harness does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

PACKAGE = "gpuadvisor"


class _Rest(MetaPathFinder):
    """Finds submodules in the installed package; asked only when nobody else knows them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        if package != PACKAGE or not rest:
            return None
        root = PathFinder.find_spec(PACKAGE)  # an editable install has a finder of its own
        parents = rest.split(".")[:-1]
        places = (root.submodule_search_locations or []) if root is not None else []
        return PathFinder.find_spec(fullname, [str(Path(place, *parents)) for place in places])


def find_rest() -> None:
    """Install the finder, behind all others."""
    sys.meta_path.append(_Rest())

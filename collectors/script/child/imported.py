"""Which modules of libraries a run had imported, and under which conditions."""

# ruff: noqa: PTH105, PTH109, PTH123
# Paths are texts here, as the import system's are.
from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from gpuadvisor.collectors.script.child.shortening.loop_imports import library_folders

OWN_VARIABLES = "GPUADVISOR_"
"""What the names of gpuadvisor's own variables begin with."""


class ImportNotes:
    """Writes down what the script imports: until torch is there, and until its model is called."""

    def __init__(self, path: str) -> None:
        """Begin with what there is when the process starts; the notes go to `path`."""
        self._path = path
        self._began = conditions()
        self._known = set(sys.modules)
        self._phases: list[dict[str, Any]] = []

    def note(self) -> None:
        """Write down what was imported since the last note, to its end: a library that imports
        torch is not there yet when torch is.
        """
        modules = [(name, m) for name, m in list(sys.modules.items()) if not _is_begun(name, m)]
        self._phases.append(
            {
                "modules": [
                    (name, origin)
                    for name, module in modules
                    if name not in self._known and (origin := library_origin(name, module))
                ],
                "path": list(sys.path),
                "main": getattr(sys.modules["__main__"], "__file__", None),
                "changed": changed_since(self._began),
            }
        )
        self._known.update(name for name, _ in modules)
        draft = f"{self._path}.draft"
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(self._phases, file)
        os.replace(draft, self._path)


def _is_begun(name: str, module: ModuleType) -> bool:
    """Say whether a module's code still runs, in the import that began it. That of torch has ended
    when it is noted, but to the import system it has not.
    """
    spec = getattr(module, "__spec__", None)
    return name != "torch" and bool(getattr(spec, "_initializing", False))


def library_origin(name: str, module: ModuleType) -> str:
    """Return the file that a library's module comes from; empty for all other modules.

    Those of the script and of the harness are others, and those that have no file of their own:
    they come with the ones that have.
    """
    if name.partition(".")[0] in ("gpuadvisor", "__main__"):
        return ""
    spec = getattr(module, "__spec__", None)
    # Some modules stand in `sys.modules` under a second name, as `os.path`.
    if spec is None or spec.name != name or not isinstance(spec.origin, str):
        return ""
    return spec.origin if is_installed(spec.origin) else ""


def is_installed(path: str) -> bool:
    """Say whether a file is Python's own or of a package, also where `pip --target` put it."""
    installed = "site-packages" in path or "dist-packages" in path
    return installed or path.startswith(library_folders())


def changed_since(began: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the conditions that are others than they were; None for what is gone."""
    now = conditions()
    return {k: now.get(k) for k in now.keys() | began.keys() if now.get(k) != began.get(k)}


def conditions() -> dict[str, Any]:
    """Return what libraries read when they are imported, by a name that the user knows."""
    found: dict[str, Any] = {
        f"${name}": value
        for name, value in os.environ.items()
        if not name.startswith(OWN_VARIABLES)
    }
    found["the working directory"] = os.getcwd()
    found["its CPU cores"] = sorted(os.sched_getaffinity(0))
    found["how libraries are loaded"] = sys.getdlopenflags()
    return found

"""Run something right after a module was imported, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
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


class _After(Loader):
    """Loads a module as its own loader would, then calls back."""

    def __init__(self, loader: Loader, callback: Callable[[], None]) -> None:
        self._loader = loader
        self._callback = callback

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # `torch` looks at its own loader and spec (`torch.package`, `inspect`): give it those.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._callback()


class _Finder(MetaPathFinder):
    def __init__(self) -> None:
        self.waiting: dict[str, Callable[[], None]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.waiting:
            return None
        callback = self.waiting.pop(fullname)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _After(spec.loader, callback)
        return spec


_finder = _Finder()


def after_import(name: str, callback: Callable[[], None]) -> None:
    """Call back once, as soon as the module `name` has been imported."""
    if name in sys.modules:
        callback()
        return
    _finder.waiting[name] = callback
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)

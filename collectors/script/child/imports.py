"""Run something right after a module was imported, without importing it; and whose modules are."""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable, Sequence
from functools import partial
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
    """Finds what is waited for as the others would, with a loader that calls back.

    A module may be looked for many times before it is imported, or never be: `datasets` and
    `transformers` ask `find_spec("torch")` to see whether it is installed.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callable[[], None]]] = {}
        self._asking: set[tuple[int, str]] = set()
        """Threads that ask the others right now, and for what."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        asks = (get_ident(), fullname)
        if fullname not in self.waiting or asks in self._asking:
            return None
        self._asking.add(asks)
        try:
            spec = find_spec(fullname)
        finally:
            self._asking.discard(asks)
        if spec is not None and spec.loader is not None:
            spec.loader = _After(spec.loader, partial(self._imported, fullname))
        return spec

    def _imported(self, name: str) -> None:
        for callback in self.waiting.pop(name, ()):
            callback()


_finder = _Finder()


def after_import(name: str, callback: Callable[[], None]) -> None:
    """Call back once, as soon as the module `name` has been imported."""
    if name in sys.modules:
        callback()
        return
    _finder.waiting.setdefault(name, []).append(callback)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def is_library(file: str) -> bool:
    """Say whether a source file is not the user's own but of a package or of Python itself."""
    harness = __file__.partition("collectors")[0]
    return (
        "site-packages" in file
        or "dist-packages" in file
        or file.startswith(("<frozen", harness, sys.base_prefix + "/lib/"))
    )

"""The script's own files, read together: a file's branch may call what another one changes."""

# ruff: noqa: PTH109, PTH113, PTH118, PTH119, PTH120, PTH123
# Paths are texts here, as the import system's are.
from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator

from gpuadvisor.collectors.script.child.branch_names import Names

MOST_FILES = 40
"""Files that are read ahead, at some 50 ms each. A script has few; whoever runs a library from its
own repository has hundreds."""


class OwnFiles:
    """Reads a file with all that it imports of the script's own, when it is loaded."""

    def __init__(self, is_own: Callable[[str], bool]) -> None:
        self._is_own = is_own
        self._read: dict[str, tuple[ast.Module, Names]] = {}
        """Files that were read ahead, and are loaded yet."""
        self._folders: tuple[str, ...] = ()

    def read(self, source: bytes | str, path: str) -> tuple[ast.Module, Names]:
        """Return a file's tree and what is known of its names. Raises what `ast.parse` raises."""
        path = os.path.realpath(path)
        if path not in self._read:
            self._folders = self._folders or (os.path.dirname(path), os.getcwd())
            trees = {path: ast.parse(source, path)}
            self._follow(trees[path], path, trees)
            stems = [_module_name(each) for each in trees]
            names = Names(*trees.values(), modules=stems)
            self._read.update((each, (tree, names)) for each, tree in trees.items())
        return self._read.pop(path)

    def _follow(self, tree: ast.Module, path: str, trees: dict[str, ast.Module]) -> None:
        """Read what a file imports."""
        for each in _imported(tree, path, self._folders):
            found = os.path.realpath(each)
            if len(trees) >= MOST_FILES or found in trees or not os.path.isfile(found):
                continue
            try:
                if self._is_own(found):
                    with open(found, "rb") as file:
                        trees[found] = ast.parse(file.read(), found)
                    self._follow(trees[found], found, trees)
            except (OSError, SyntaxError, ValueError, RecursionError):  # the script's own concern
                continue


def _module_name(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.basename(folder) if name == "__init__.py" else name[: -len(".py")]


def _imported(tree: ast.Module, path: str, folders: tuple[str, ...]) -> Iterator[str]:
    """Yield the paths at which what a file imports may lie."""
    for node in ast.walk(tree):
        names, where = [], folders
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            begin = [node.module] if node.module else []
            names = [".".join([*begin, alias.name]) for alias in node.names] + begin
            if node.level:
                folder = path
                for _ in range(node.level):
                    folder = os.path.dirname(folder)
                where = (folder,)
        for name in names:
            for folder in where:
                stem = os.path.join(folder, *name.split("."))
                yield from (f"{stem}.py", os.path.join(stem, "__init__.py"))

"""Where a script begins a pass over a DataLoader within another, or asks for its workers.

A loader whose workers live on has one iterator: a second pass begins that one anew.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence

from gpuadvisor.collectors.script.child.shortening.syntax import (
    Function,
    last_name,
    makes_loader,
    own_nodes,
)

READERS = frozenset({"enumerate", "islice", "iter", "list", "next", "tqdm", "tuple", "zip"})
"""Functions that begin a pass over what they are given."""


class Loaders:
    """The DataLoaders of a script's files, by the names that stand for them."""

    def __init__(
        self,
        bound: Sequence[tuple[str, ast.expr]],
        functions: Mapping[str, Sequence[Function]],
        key: Callable[[ast.AST], str],
    ) -> None:
        """Take what is given to names, and functions by the key that a call of them has."""
        self._functions = functions
        self._key = key
        self._names = {name for name, value in bound if any(map(makes_loader, ast.walk(value)))}
        self._names |= {name for name, value in bound if last_name(value) in self._names}

    def passes(self, source: ast.expr) -> set[str]:
        """Return what a loop goes through that is a DataLoader, or made of one."""
        nodes = (n for n in ast.walk(source) if isinstance(n, (ast.Name, ast.Attribute)))
        return {ast.unparse(node) for node in nodes if last_name(node) in self._names}

    def begins_pass(self, body: Iterable[ast.AST], loaders: set[str]) -> bool:
        """Say whether statements begin another pass over one of these loaders."""
        for node in own_nodes(body):
            if isinstance(node, (ast.For, ast.comprehension)) and self.passes(node.iter) & loaders:
                return True
            if not isinstance(node, ast.Call):
                continue
            given = [each for each in node.args if ast.unparse(each) in loaders]
            if given and last_name(node.func) in READERS:
                return True
            for function in self._functions.get(self._key(node), ()) if given else ():
                pairs = zip(function.parameters, node.args, strict=False)
                names = {name for name, each in pairs if each in given}
                if any(_reads(inner, names) for inner in own_nodes(function.body)):
                    return True
        return False

    def asks_workers(self, node: ast.Attribute) -> bool:
        """Say whether an attribute is how many workers a DataLoader has."""
        is_asked = node.attr == "num_workers" and isinstance(node.ctx, ast.Load)
        return is_asked and last_name(node.value) in self._names


def _reads(node: ast.AST, names: set[str]) -> bool:
    """Say whether a node begins a pass over what one of these names stands for."""
    if isinstance(node, (ast.For, ast.comprehension)):
        return not names.isdisjoint(map(last_name, ast.walk(node.iter)))
    given = node.args if isinstance(node, ast.Call) and last_name(node.func) in READERS else []
    return any(last_name(each) in names for each in given)

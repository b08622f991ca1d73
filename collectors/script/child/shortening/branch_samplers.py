"""Where a script asks a sampler of its own how far it is.

A sampler stays in the script's process, and is asked ahead of what the script has used where
workers read: it is some batches farther then.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpuadvisor.collectors.script.child.shortening.syntax import (
    DEFINITIONS,
    LOOPS,
    assigned,
    chain,
    last_name,
    own_nodes,
    stored_names,
)

GIVEN = ("sampler", "batch_sampler")
"""Arguments by which a DataLoader is given a sampler."""


class Samplers:
    """The samplers of a script's files, and by which of their attributes and methods they say how
    far they are."""

    def __init__(
        self,
        classes: Mapping[str, ast.ClassDef],
        bound: Sequence[tuple[str, ast.expr]],
        calls: Iterable[ast.Call],
    ) -> None:
        """Take classes by their names, what is given to names, and all calls."""
        values = [each.value for call in calls for each in call.keywords if each.arg in GIVEN]
        names = set(map(last_name, values))
        makers = [value for name, value in bound if name in names] + values
        made = {last_name(value.func) for value in makers if isinstance(value, ast.Call)}
        self._asked: set[str] = set()
        """Attributes that count what was drawn, and methods that tell of them."""
        self._names = names - {""}
        for name, node in classes.items():
            if name in made or any("Sampler" in each for each in (name, *_bases(node))):
                self._asked |= _telling(node)
                self._names |= {each for each, value in bound if _makes(value, name)}

    def asks(self, node: ast.AST) -> bool:
        """Say whether a node asks a sampler how far it is: `sampler.place`."""
        is_asked = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
        if not is_asked or node.attr not in self._asked:  # type: ignore[attr-defined]
            return False
        owner = chain(node.value)  # type: ignore[attr-defined]
        return owner != ["self"] and not ({*self._names, *GIVEN}).isdisjoint(owner)


def _telling(sampler: ast.ClassDef) -> set[str]:
    """Return the attributes that a sampler changes between the indices that it gives, and the
    methods that read them."""
    methods = [each for each in sampler.body if isinstance(each, DEFINITIONS)]
    giving = [each for each in methods if each.name == "__iter__"]
    loops = (n for each in giving for n in own_nodes(each.body) if isinstance(n, LOOPS))
    counted = {
        name
        for loop in loops
        if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in own_nodes(loop.body))
        for name in _stored_in_self(loop.body)
    }
    telling = (each for each in methods if not each.name.startswith("__"))
    return counted | {each.name for each in telling if counted & set(_read_in_self(each.body))}


def _stored_in_self(body: Iterable[ast.AST]) -> Iterator[str]:
    for node in own_nodes(body):
        for target, _ in assigned(node):
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            for each in parts:
                if _is_own(each):
                    yield from stored_names(each)


def _read_in_self(body: Iterable[ast.AST]) -> Iterator[str]:
    for node in own_nodes(body):
        if _is_own(node) and isinstance(getattr(node, "ctx", None), ast.Load):
            yield last_name(node)


def _is_own(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and chain(node.value) == ["self"]


def _bases(node: ast.ClassDef) -> Iterator[str]:
    yield from map(last_name, node.bases)


def _makes(value: ast.expr, name: str) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) == name

"""Where a script puts something of its own in the place of what an optimizer keeps.

An optimizer's loops take numbers of any type there, its kernels those alone that it made itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from gpuadvisor.collectors.script.child.shortening.syntax import (
    assigned,
    chain,
    last_name,
    stored_names,
)

OPTIMIZERS = frozenset({"ASGD", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop",
                        "SGD"})  # fmt: skip
"""Optimizers of torch's, by which a name is known that says nothing itself."""
ALIKE = frozenset({
    "clone", "deepcopy", "empty_like", "full_like", "ones_like", "rand_like", "zeros_like",
})  # fmt: skip
"""Functions and methods whose result has the type of what they are given."""


class Optimizers:
    """The optimizers of a script's files, by the names that stand for them and for their state."""

    def __init__(self, nodes: Iterable[ast.AST], bound: Sequence[tuple[str, ast.expr]]) -> None:
        """Take all nodes, and what is given to names."""
        self._names = {name for name, value in bound if _makes_optimizer(value)}
        self._states: set[str] = set()
        """Names that stand for what is kept of one parameter."""
        self._states = {name for name, value in bound if self._is_state(value)}
        for node in nodes:
            if isinstance(node, (ast.For, ast.comprehension)) and self._gives_states(node.iter):
                self._states.update(stored_names(node.target))

    def replaces(self, node: ast.AST) -> bool:
        """Say whether a statement or call puts something new into what is kept of a parameter."""
        if isinstance(node, ast.Assign):
            members = ((to, value) for to, value in assigned(node) if isinstance(to, ast.Subscript))
            return any(self._is_state(to.value) and not self._is_alike(v) for to, v in members)
        called = node.func if isinstance(node, ast.Call) else None
        is_update = isinstance(called, ast.Attribute) and called.attr == "update"
        return is_update and self._is_state(called.value)  # type: ignore[union-attr]

    def _is_state(self, node: ast.expr) -> bool:
        """Say whether an expression is what is kept of one parameter: `optimizer.state[p]`."""
        if isinstance(node, ast.Name):
            return node.id in self._states
        return isinstance(node, ast.Subscript) and self._is_all(node.value)

    def _is_all(self, node: ast.expr) -> bool:
        """Say whether an expression is what is kept of all parameters: `optimizer.state`."""
        if not isinstance(node, ast.Attribute) or node.attr != "state":
            return False
        names = chain(node.value)
        return not self._names.isdisjoint(names) or "opt" in "".join(names[-1:]).lower()

    def _gives_states(self, source: ast.expr) -> bool:
        called = source.func if isinstance(source, ast.Call) else None
        is_given = isinstance(called, ast.Attribute) and called.attr in ("items", "values")
        return is_given and self._is_all(called.value)  # type: ignore[union-attr]

    def _is_alike(self, value: ast.expr) -> bool:
        """Say whether a value has the type of what stood there: it is made of that, or alike."""
        if isinstance(value, ast.Call) and last_name(value.func) in ("tensor", "zeros"):
            first = value.args[0] if value.args else value
            is_float = isinstance(getattr(first, "value", None), float)
            return not value.keywords and (is_float or last_name(value.func) == "zeros")
        nodes = list(ast.walk(value))
        made = (last_name(each.func) for each in nodes if isinstance(each, ast.Call))
        members = (each.value for each in nodes if isinstance(each, ast.Subscript))
        return not ALIKE.isdisjoint(made) or any(map(self._is_state, members))


def _makes_optimizer(value: ast.expr) -> bool:
    names = chain(value.func) if isinstance(value, ast.Call) else []
    return bool(names) and (names[-1] in OPTIMIZERS or "optim" in names)

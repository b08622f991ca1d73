"""Which constants of a Triton kernel are sizes of what it computes, by its text.

A range that no loop moves and no mask ends covers all that there is of something, such as the size
of a head: with another length a launch reads and writes what belongs to others, or leaves some out.

    feature = tl.arange(0, HEAD)                                # a size
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)      # moved
    column = tl.arange(0, WIDTH); mask = column < columns       # ended by a mask
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

SHAPES = ("arange", "zeros", "full", "ones", "empty")
"""Functions of `triton.language` that are given lengths."""
ACCESSES = ("load", "store")
"""Functions that are given places, and those that begin with `ATOMIC`."""
ATOMIC = "atomic_"
_LINEAR = (ast.Add, ast.Sub, ast.Mult)


def sizes(definition: ast.FunctionDef) -> set[str]:
    """Return the parameters that are lengths of such ranges and nothing else.

    One that is used in any other way, or handed to a function, is not among them.
    """
    found = _Ranges({each.arg for each in ast.walk(definition) if isinstance(each, ast.arg)})
    for _ in range(2):  # what a loop's end says of its beginning, too
        for statement in definition.body:
            found.visit(statement)
    return found.ranged - found.others


class _Ranges(ast.NodeVisitor):
    def __init__(self, parameters: set[str]) -> None:
        self._parameters = parameters
        self._made_of: dict[str, set[str]] = {}
        """Variables, with the parameters that ranges are as long as which they are made of."""
        self.ranged: set[str] = set()
        self.others: set[str] = set()
        """Parameters that are used for more than lengths, or whose ranges a mask may end."""

    def visit_Name(self, node: ast.Name) -> None:
        self.others |= {node.id} & self._parameters  # as what gives lengths is not visited

    def visit_Call(self, node: ast.Call) -> None:
        name = _called(node)
        given = [*node.args, *(each.value for each in node.keywords)]
        if name in SHAPES:
            named = {each.id for each in _names(given)} & self._parameters
            self.ranged |= named if name == "arange" else set()
            given = [each for each in given if not _is_plain(each)]
        elif name not in ACCESSES and not name.startswith(ATOMIC):
            self.others |= self._ranges(given)
        for each in [node.func, *given]:
            self.visit(each)

    def visit_Compare(self, node: ast.Compare) -> None:
        self.others |= self._ranges([node])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not isinstance(node.op, _LINEAR):
            self.others |= self._ranges([node])
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._assign(node.targets, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._assign([node.target], node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.op, _LINEAR):
            self.others |= self._ranges([node])
        self._assign([node.target], node.value)

    def _assign(self, targets: Iterable[ast.AST], value: ast.AST | None) -> None:
        if value is None:
            return
        self.visit(value)
        for each in _names(targets):
            self._made_of.setdefault(each.id, set()).update(self._ranges([value]))

    def _ranges(self, nodes: Iterable[ast.AST]) -> set[str]:
        """Return the parameters whose ranges values are made of."""
        found: set[str] = set()
        for node in nodes:
            name = _called(node) if isinstance(node, ast.Call) else ""
            if name == "arange":
                found |= {each.id for each in _names([node])} & self._parameters
            elif name not in ACCESSES and not name.startswith(ATOMIC):
                if isinstance(node, ast.Name):
                    found |= self._made_of.get(node.id, set())
                found |= self._ranges(ast.iter_child_nodes(node))
        return found


def _called(node: ast.Call) -> str:
    return str(getattr(node.func, "attr", None) or getattr(node.func, "id", ""))


def _names(nodes: Iterable[ast.AST]) -> Iterator[ast.Name]:
    return (each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name))


def _is_plain(node: ast.AST) -> bool:
    """Say whether lengths are given as they are, or as a list of such."""
    parts = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
    return all(isinstance(each, ast.Name | ast.Constant) for each in parts)

"""Which constants of a Triton kernel are blocks, and which of those its programs lie apart by.

Read from the kernel's text and that of the functions that it calls. A constant may be a block's
length, or a size as well, whose change makes a launch read and write beyond its arguments:

    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)   # a block, and programs lie BLOCK apart
    for first in range(0, rows, STEP): ...                   # a block, and no program's place
    for step in tl.static_range(STEPS): ...                  # neither
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from gpuadvisor.tuners.knobs._triton.sizes import sizes

OPERATORS = ("zeros", "full", "ones", "empty")
"""Functions of `triton.language` whose first argument is a block's shape."""
READS = ("load", "atomic_add", "atomic_cas", "atomic_xchg", "load_tensor_descriptor")
"""Functions whose result comes from memory: it follows from no program's place."""
CONVERSIONS = ("to", "cast", "zeros", "full", "empty", "dot", "sum")
"""Functions that may be given the type of something: they convert to it, or compute in it."""
TYPES = ("dtype", "type", "element_ty", "scalar", "primitive_bitwidth", "itemsize", "element_size")
"""Attributes that tell the type of an argument."""
REINTERPRETED = ("pointer_type", "bitcast", "inline_asm_elementwise")
"""Names by which bits are read as of another type."""
MOST_DEEP = 6
"""Functions within functions that are read."""
_Where = tuple[frozenset[str], bool]
"""Parameters of the kernel that a value is made of, and whether it follows from a program's id."""
_NOWHERE: _Where = (frozenset(), False)


class Constants:
    """What a kernel's text says of its parameters."""

    def __init__(self, function: Any) -> None:
        """Read a Python function; OSError, or SyntaxError, where its text cannot be."""
        self.lengths: set[str] = set()
        """Parameters that lengths of blocks are made of, or steps from one to the next."""
        self.places: set[str] = set()
        """Parameters that a program's place is multiplied by."""
        self.sizes: set[str] = set()
        """Parameters that are the whole length of something: see `sizes`."""
        self.tells_types = False
        """Whether types of arguments may decide more than what is converted to them, so that it may
        compute something else for others."""
        self.multiplies = False
        """Whether it multiplies blocks, float32 rounded to TF32 as is usual then."""
        names = inspect.signature(function).parameters
        _Reading(self, function, {name: (frozenset({name}), False) for name in names})


class _Reading(ast.NodeVisitor):
    """One function, as it is called from the kernel."""

    def __init__(
        self, found: Constants, function: Any, known: Mapping[str, _Where], depth: int = 0
    ) -> None:
        self._found, self._function, self._depth = found, function, depth
        self._known = dict(known)
        self._converts = False
        """Whether what is visited is an argument of a conversion."""
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        (definition,) = (node for node in tree.body if isinstance(node, ast.FunctionDef))
        if not depth:
            found.sizes = sizes(definition)
        self._arguments = {each.arg for each in ast.walk(definition) if isinstance(each, ast.arg)}
        for _ in range(2):  # what a loop's end says of its beginning, too
            for statement in definition.body:
                self.visit(statement)

    # -- what names stand for ----------------------------------------------------------------------

    def _where(self, *nodes: ast.AST | None) -> _Where:
        made_of: frozenset[str] = frozenset()
        follows = False
        for node in (part for each in nodes if each is not None for part in _parts(each)):
            if isinstance(node, ast.Name):
                own = self._known.get(node.id, _NOWHERE)
                made_of, follows = made_of | own[0], follows or own[1]
            elif isinstance(node, ast.Call):
                follows |= _called(node) == "program_id"
        return made_of, follows

    def _give(self, target: ast.AST, where: _Where) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                before = self._known.get(node.id, _NOWHERE)
                self._known[node.id] = before[0] | where[0], before[1] or where[1]

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._give(target, self._where(node.value))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        self._give(node.target, self._where(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        if isinstance(node.op, ast.Mult):
            self._multiply(node.target, node.value)
        self._give(node.target, self._where(node.value))

    def visit_For(self, node: ast.For) -> None:
        bounds = node.iter.args if isinstance(node.iter, ast.Call) else []
        # Where a loop ends says how often it is run, and not where.
        self._give(node.target, (frozenset(), len(bounds) > 1 and self._where(bounds[0])[1]))
        self.generic_visit(node)

    # -- what is done with them --------------------------------------------------------------------

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        if isinstance(node.op, ast.Mult):
            self._multiply(node.left, node.right)

    def _multiply(self, *sides: ast.AST) -> None:
        for one, other in (sides, sides[::-1]):
            if self._where(one)[1] and not _is_quotient(one, other):
                self._found.places |= self._where(other)[0]

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        is_type = node.attr in TYPES and not self._converts
        self._found.tells_types |= is_type or node.attr in REINTERPRETED

    def visit_Compare(self, node: ast.Compare) -> None:
        self._visit_within(node, converts=False)

    def _visit_within(self, node: ast.AST, converts: bool) -> None:
        before, self._converts = self._converts, converts
        self.generic_visit(node)
        self._converts = before

    def visit_Call(self, node: ast.Call) -> None:
        name, named = _called(node), {each.arg: each.value for each in node.keywords}
        self._visit_within(node, converts=name in CONVERSIONS)
        is_cast = "bitcast" in named or len(node.args) > {"to": 1, "cast": 2}.get(name, 99)
        if is_cast or name in REINTERPRETED or self._is_argument(node.func):
            self._found.tells_types = True
        if name == "dot":
            self._found.multiplies |= not _is_in_full(named)
        lengths: list[ast.AST | None] = [named.get("block_shape")]
        if name == "arange":
            lengths += node.args
        elif name in OPERATORS:
            lengths += [*node.args[:1], named.get("shape")]
        elif name == "make_block_ptr":
            lengths += node.args[4:5]
        elif name in ("range", "static_range"):
            lengths += [*node.args[2:3], named.get("step")]
        self._found.lengths |= self._where(*lengths)[0]
        function = _own_function(node.func, self._function)
        if function is not None:
            self._enter(function, node, named)

    def _is_argument(self, node: ast.AST) -> bool:
        """Say whether what is called is given by whoever launches or calls: nobody can read it."""
        return isinstance(node, ast.Name) and node.id in self._arguments

    def _enter(self, function: Any, node: ast.Call, named: Mapping[str | None, ast.AST]) -> None:
        """Read a function of the script's that is called."""
        names = list(inspect.signature(function).parameters)
        given: dict[Any, ast.AST] = {**dict(zip(names, node.args, strict=False)), **named}
        if self._depth < MOST_DEEP and not any(isinstance(a, ast.Starred) for a in node.args):
            known = {name: self._where(value) for name, value in given.items() if name}
            _Reading(self._found, function, known, self._depth + 1)
        else:
            made_of, follows = self._where(*node.args, *named.values())
            self._found.tells_types = True
            self._found.lengths |= made_of
            self._found.places |= made_of if follows else set()


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all in it but what is no place: what memory holds, masks, and types."""
    is_type = isinstance(node, ast.Attribute) and node.attr in ("dtype", "type", "shape")
    is_read = isinstance(node, ast.Call) and _called(node) in READS
    if is_type or is_read or isinstance(node, ast.Compare):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _parts(child)


def _called(node: ast.Call) -> str:
    """Return the last part of the name of what is called."""
    function = node.func
    return str(getattr(function, "attr", None) or getattr(function, "id", ""))


def _is_in_full(named: Mapping[str | None, ast.AST]) -> bool:
    """Say whether a product's arguments have float32 multiplied as such."""
    words = {"input_precision": "ieee", "allow_tf32": False}
    given = {name: getattr(named.get(name), "value", None) for name in words}
    return any(given[name] is not None and given[name] == word for name, word in words.items())


def _is_quotient(node: ast.AST, divisor: ast.AST) -> bool:
    """Say whether a value is one divided by another, as in `place // BLOCK * BLOCK`, which is the
    same place."""
    is_floor = isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)
    return is_floor and ast.dump(node.right) == ast.dump(divisor)  # type: ignore[attr-defined]


def _own_function(node: ast.AST, caller: Any) -> Any:
    """Return the Python function of what is called where that is one of the script's own that
    Triton compiles; else None."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    found = caller.__globals__.get(node.id)
    for name in reversed(names):
        found = getattr(found, name, None)
    function = getattr(found, "fn", None)
    is_own = inspect.isfunction(function) and function.__module__.partition(".")[0] != "triton"
    return function if is_own else None

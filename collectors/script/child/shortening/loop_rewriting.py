"""Lets loops of a module ask at run time whether to go on, with each line and column kept.

`for x in ITERABLE` becomes `for x in __gpuadvisor_loop__(ITERABLE, site)`, and `while CONDITION`
asks `__gpuadvisor_while__(site)` first. It is the syntax tree that changes and never the text: what
`inspect.getsource`, `torch.jit.script`, Triton and tracebacks read is the user's file as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from gpuadvisor.collectors.script.child.channel import Report, guarded
from gpuadvisor.collectors.script.child.shortening.branch_marking import Mark, Marker
from gpuadvisor.collectors.script.child.shortening.branch_names import Names
from gpuadvisor.collectors.script.child.shortening.loop_limits import Limit, limits_of
from gpuadvisor.collectors.script.child.shortening.syntax import breaks
from gpuadvisor.collectors.script.child.shortening.syntax import last_name as _last_name
from gpuadvisor.collectors.script.child.shortening.syntax import own_nodes as _own

LOOP, WHILE = "__gpuadvisor_loop__", "__gpuadvisor_while__"
"""Built-in functions that the runtime provides. Two underscores at both ends: no class mangles
them, and scripts that walk through their own globals never meet them."""
TRACERS = frozenset({
    "autotune", "compile", "custom_op", "export", "func_to_graph", "guvectorize", "heuristics",
    "jit", "kernel", "njit", "script", "stencil", "trace", "vectorize", "vmap",
})  # fmt: skip
"""Last names of decorators and functions that read or trace a function's code."""
TRACED_METHODS = frozenset({"forward", "backward", "__getitem__", "__iter__", "__len__"})
"""Methods that take no steps, but are traced by compilers or run for each sample."""
STEP_WORDS = frozenset({
    "backward", "fit", "learn", "optimise", "optimize", "step", "train", "training", "update",
})  # fmt: skip
"""Words in names of what is called where a script trains: `update` of `agent.update_policy()`."""
LEARNING_CALLS = frozenset({"backward", "fit", "grad"})
"""Names of methods without which a script cannot train, unless a library trains for it."""
VIEWS = frozenset({"items", "keys", "values"})
PURE_CALLS = frozenset({
    "abs", "bool", "float", "int", "len", "math.ceil", "math.floor", "max", "min", "range", "round",
})  # fmt: skip
"""What a condition may call that is computed ahead of its time."""
_PURE = (
    ast.Name, ast.Constant, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare,
    ast.IfExp, ast.Tuple, ast.List, ast.Set, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
    ast.expr_context,
)  # fmt: skip
_LITERALS = (
    ast.List, ast.Tuple, ast.Dict, ast.Set, ast.Constant, ast.JoinedStr,
    ast.ListComp, ast.SetComp, ast.DictComp,
)  # fmt: skip
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Read = Callable[["bytes | str", str], tuple[ast.Module, Names]]
"""Takes a file's content and path."""


@dataclass(frozen=True)
class Site:
    """A loop in a file, and what its text says of it."""

    place: str
    """`train.py, line 40`."""
    says_step: bool
    """Whether something that trains is called in its body by name."""
    restarts: bool
    """Whether the file's text can begin a data set anew after its end."""
    target: str = ""
    """Text of what a `for` statement gives its items to, or the places that `enumerate` counts:
    `epoch`; empty if that is several."""
    conditions: tuple[str, ...] = ()
    """Texts of the file's conditions without effects, those that stand within others after them."""
    limits: tuple[Limit, ...] = ()
    """What ends a `while` statement that counts its iterations."""


@dataclass(frozen=True)
class Rewritten:
    """A module's syntax tree with its sites, numbered from the first number asked for."""

    tree: ast.Module
    sites: tuple[Site, ...]
    learns: bool
    """Whether the text calls something without which no script trains."""
    marks: tuple[Mark, ...] = ()
    """The marked branches, numbered likewise."""


def rewrite(
    source: bytes | str,
    path: str,
    first: int = 0,
    first_mark: int = 0,
    generators: bool = False,
    read: Read | None = None,
    channel: Report | None = None,
) -> Rewritten:
    """Return the tree of a module, its loops rewritten. Raises what `ast.parse` raises.

    `generators` says whether loops that yield may end early, as those of libraries may; their
    branches are not marked. In a user's own generator they may not: who draws from it counts on its
    next item. `read` gives the tree and the names of a file, where others say more of these.
    Branches may be written in ways that nobody thought of: `channel` is told of a file whose
    branches could not be marked, but not of its own mistakes.
    """
    if not generators:
        with guarded(channel, f"watch the branches of {PurePath(path).name}"):
            try:
                tree, names = (read or _read_alone)(source, path)
                return _rewrite(tree, names, path, first, first_mark, generators)
            except SyntaxError:
                if not is_faulty(source, path):
                    raise
    return _rewrite(ast.parse(source, path), None, path, first, first_mark, generators)


def _read_alone(source: bytes | str, path: str) -> tuple[ast.Module, Names]:
    tree = ast.parse(source, path)
    return tree, Names(tree)


def _rewrite(
    tree: ast.Module, names: Names | None, path: str, first: int, first_mark: int, generators: bool
) -> Rewritten:
    name = PurePath(path).name
    rewriter = _Rewriter(tree, name, first, generators)
    rewriter.visit(tree)
    marks: list[Mark] = []
    if names is not None:
        marker = Marker(names, name, first_mark, rewriter.is_left_alone, _site_of)
        tree.body, marks = marker.statements(tree.body), marker.marks
    return Rewritten(tree, tuple(rewriter.sites), rewriter.learns, tuple(marks))


def _site_of(node: ast.AST) -> int | None:
    """Return the number of a loop that was rewritten, and None of any other."""
    if isinstance(node, ast.For):
        call = node.iter
        is_ours = isinstance(call, ast.Call) and _last_name(call.func) == LOOP
        return call.args[1].value if is_ours else None  # type: ignore[attr-defined]
    test = getattr(node, "test", None)
    if isinstance(node, ast.While) and isinstance(test, ast.BoolOp):
        name = _last_name(getattr(test.values[0], "func", test))
        if name.startswith("__gpuadvisor_"):
            return int(name.strip("_").rpartition("_")[2])
    return None


class _Rewriter(ast.NodeTransformer):
    def __init__(self, tree: ast.Module, name: str, first: int, generators: bool) -> None:
        self._name = name
        self._first = first
        self._generators = generators
        self._traced = _traced_names(tree)
        self._restarts = _restarts(tree)
        self._conditions = _conditions(tree)
        self._training = _training_functions(tree)
        self.learns = bool(_called(tree) & LEARNING_CALLS)
        self.sites: list[Site] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        if not self.is_left_alone(node):
            self.generic_visit(node)
        return node

    def is_left_alone(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """Say whether a compiler reads a function's code, or it runs for each sample."""
        if node.name in TRACED_METHODS or node.name in self._traced:
            return True
        return any(_names_in(decorator) & TRACERS for decorator in node.decorator_list)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = [self.visit(s) if isinstance(s, (*_FUNCTIONS, ast.ClassDef)) else s
                     for s in node.body]  # fmt: skip
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        if self._can_end(node) and not _is_short(node.iter):
            call = _call(LOOP, node.iter, ast.Constant(self._new_site(node)))
            node.iter = _placed(call, node.iter)
        self.generic_visit(node)
        return node

    def visit_While(self, node: ast.While) -> Any:
        begin = None
        forever = isinstance(node.test, ast.Constant) and bool(node.test.value)
        # A loop that only `return` leaves has no end that could come earlier, and the `else` of an
        # endless one is never run.
        if self._can_end(node) and (not forever or (breaks(node.body) and not node.orelse)):
            site = self._new_site(node)
            name = f"__gpuadvisor_{site}__"
            begin = ast.Assign(
                [ast.Name(name, ast.Store())],
                _call(WHILE, ast.Constant(site)),
            )
            begin = _placed(begin, node.test)
            more = _placed(_call(name), node.test)
            node.test = _placed(ast.BoolOp(ast.And(), [more, node.test]), node.test)
        self.generic_visit(node)
        return node if begin is None else [begin, node]

    def _can_end(self, node: ast.For | ast.While) -> bool:
        inner = list(_own(node.body))
        if not any(isinstance(each, ast.Call) for each in inner):
            return False  # nothing in it takes a step
        if any(isinstance(each, (ast.Await, ast.AsyncFor, ast.AsyncWith)) for each in inner):
            return False  # other tasks run meanwhile
        yields = any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in inner)
        return self._generators or not yields

    def _new_site(self, node: ast.For | ast.While) -> int:
        called = set().union(*map(_called, node.body))
        says_step = any(STEP_WORDS & set(name.lower().split("_")) for name in called)
        says_step = says_step or bool(called & self._training)
        place = f"{self._name}, line {node.lineno}"
        counter = _counter(node)
        target = "" if counter is None else ast.unparse(counter)
        limits = limits_of(node) if isinstance(node, ast.While) else ()
        site = Site(place, says_step, self._restarts, target, self._conditions, limits)
        self.sites.append(site)
        return self._first + len(self.sites) - 1


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _placed(new: Any, old: ast.AST) -> Any:
    """Give a new node, and those new ones in it, the place of an old one."""
    for node in ast.walk(new):
        if "lineno" in node._attributes and not hasattr(node, "lineno"):
            ast.copy_location(node, old)
    return new


def _is_short(iterable: ast.expr) -> bool:
    """Say whether the text shows that every item counts: a literal, a dictionary's view."""
    if isinstance(iterable, _LITERALS):
        return True
    if not isinstance(iterable, ast.Call):
        return False
    function, arguments = iterable.func, iterable.args
    if isinstance(function, ast.Attribute):
        return function.attr in VIEWS and not arguments
    name = function.id if isinstance(function, ast.Name) else ""
    if name in ("enumerate", "reversed", "sorted", "list", "tuple", "set") and arguments:
        return _is_short(arguments[0])
    return name == "zip" and any(map(_is_short, arguments))


def _called(tree: ast.AST) -> set[str]:
    """Return the last names of all that is called: `step` for `optimizer.step()`."""
    return {_last_name(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def _names_in(tree: ast.AST) -> set[str]:
    return {_last_name(node) for node in ast.walk(tree)}


def _traced_names(tree: ast.AST) -> set[str]:
    """Return the names of functions given to a compiler: `f` of `torch.compile(f)`."""
    return {
        _last_name(argument)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _last_name(node.func) in TRACERS
        for argument in node.args[:1]
    } - {""}


def _training_functions(tree: ast.AST) -> set[str]:
    """Return the names of functions that call something that trains, or each other."""
    calls = {n.name: _called(n) for n in ast.walk(tree) if isinstance(n, _FUNCTIONS)}
    found: set[str] = set()
    while True:
        more = {n for n, called in calls.items() if called & (found | {"step", "backward"})}
        if more <= found:
            return found
        found |= more


def _restarts(tree: ast.AST) -> bool:
    """Say whether a text shows a way to go on after a data set's end."""
    for node in ast.walk(tree):
        if _last_name(node) in ("StopIteration", "cycle"):
            return True
        if isinstance(node, ast.While) and isinstance(node.test, ast.Constant):
            inner = _own(node.body)
            if any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in inner):
                return True
    return False


def _conditions(tree: ast.AST) -> tuple[str, ...]:
    """Return the texts of conditions on what loops count that can be computed at any time."""
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.For))
    counted = {_last_name(_counter(loop)) for loop in loops} - {""}
    found = (
        node.test if isinstance(node, (ast.If, ast.IfExp)) else node
        for node in ast.walk(tree)
        if isinstance(node, (ast.If, ast.IfExp, ast.BoolOp, ast.Compare))
    )
    pure = (n for n in found if _names_in(n) & counted and all(map(_is_pure, _parts(n))))
    return tuple(dict.fromkeys(map(ast.unparse, pure)))


def _counter(node: ast.For | ast.While) -> ast.expr | None:
    """Return what a `for` statement gives single items to, or the places that it enumerates."""
    target = node.target if isinstance(node, ast.For) else None
    if isinstance(target, ast.Tuple) and isinstance(node, ast.For):
        over = node.iter
        is_enumerated = isinstance(over, ast.Call) and _last_name(over.func) == "enumerate"
        target = target.elts[0] if is_enumerated else None
    return target if isinstance(target, (ast.Name, ast.Attribute)) else None


def _parts(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of an expression, but not the names of what it calls."""
    yield tree
    children = ast.iter_child_nodes(tree)
    if isinstance(tree, ast.Call):
        children = iter((*tree.args, *tree.keywords))
    for child in children:
        yield from _parts(child)


def _is_pure(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant)
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in PURE_CALLS and not node.keywords
    return isinstance(node, _PURE)


def is_faulty(source: bytes | str, path: str) -> bool:
    """Say whether a file is no Python, which the interpreter is to tell of."""
    try:
        compile(source, path, "exec", dont_inherit=True)
    except SyntaxError:
        return True
    return False


def compiled(rewritten: Rewritten, path: str) -> Any:
    """Return the code of a rewritten module."""
    return compile(rewritten.tree, path, "exec", dont_inherit=True)

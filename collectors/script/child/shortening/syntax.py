"""Questions about Python's syntax trees: what a statement runs and stores."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from typing import Any

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.While, ast.AsyncFor)
MUTATING = frozenset({"add", "append", "clear", "extend", "insert", "pop", "remove", "update"})
"""Methods that change lists, dictionaries and sets."""
SIZES = frozenset({"device", "dtype", "numel", "shape", "size"})
"""What scripts ask weights for without a change to them."""
WRITING = frozenset({
    "replace", "rename", "save", "savetxt", "savez", "to_csv", "write_bytes", "write_text",
})  # fmt: skip
"""Functions and methods that write a file of a name that they are given, beside `open`."""
MOVING = frozenset({"rename", "replace"})
"""Functions and methods that put a file in the place of another, and write none anew."""
_FILE_NAME = re.compile(r"\w[./]\S*$")
_SCOPES = (*DEFINITIONS, ast.ClassDef, ast.Lambda)


class Function:
    """A function, method or lambda of the script's own files."""

    def __init__(self, node: Any, owner: ast.ClassDef | None) -> None:
        self.node = node
        self.owner = owner
        """The class whose method it is."""
        is_lambda = isinstance(node, ast.Lambda)
        self.body = [ast.copy_location(ast.Expr(node.body), node)] if is_lambda else node.body

    @property
    def is_special(self) -> bool:
        """Whether it is a method that the language calls: `__init__`, `__getitem__`."""
        return self.owner is not None and self.node.name.endswith("__")

    @property
    def own_names(self) -> set[str]:
        """What it stores in names, and its parameters but `self`."""
        nodes = list(ast.walk(self.node))
        names = (n for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load))
        arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
        return {node.id for node in names} | (arguments - {"self"})

    @property
    def parameters(self) -> list[str]:
        """Names that positional arguments of its calls are given."""
        taken = self.node.args
        names = [each.arg for each in (*taken.posonlyargs, *taken.args)]
        return [name for name in names if name not in ("self", "cls")]


def own_nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of statements, without those of functions and classes defined in them."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _SCOPES):
            waiting.extend(ast.iter_child_nodes(node))


def asked(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what an expression only asks for its size: `weight` of `weight.numel()`."""
    if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
        is_asked = any(last_name(each) in SIZES for each in ast.walk(node.elt))
        yield from [each.iter for each in node.generators] if is_asked else []
    elif isinstance(node, ast.Attribute) and node.attr in SIZES:
        yield node.value


def breaks(body: Iterable[ast.AST]) -> bool:
    """Say whether a `break` leaves the loop that statements stand in, and not one within it."""
    waiting = list(body)
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, ast.Break):
            return True
        if isinstance(inner, LOOPS):
            waiting.extend(inner.orelse)
        elif not isinstance(inner, _SCOPES):
            waiting.extend(ast.iter_child_nodes(inner))
    return False


def raised(body: Iterable[ast.AST]) -> set[str]:
    """Return the names of exceptions that statements raise."""
    nodes = list(own_nodes(body))
    given = (node.exc for node in nodes if isinstance(node, ast.Raise))
    found = {last_name(getattr(each, "func", each)) for each in given}
    return found | {"AssertionError" for node in nodes if isinstance(node, ast.Assert)}


def last_name(node: ast.AST | None) -> str:
    """Return `step` for `optimizer.step`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def chain(node: ast.AST) -> list[str]:
    """Return the names on the way to a value: `self`, `loader`, `dataset`."""
    names: list[str] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Subscript):
            if ast.unparse(node.value) == "globals()" and isinstance(node.slice, ast.Constant):
                node = ast.Name(str(node.slice.value))
            else:
                node = node.value
        elif isinstance(node, ast.Call):
            is_of = isinstance(node.func, ast.Name) and hasattr(builtins, node.func.id)
            node = node.args[0] if is_of and node.args else node.func  # `vars(data)`, `type(data)`
        else:
            return names[::-1]
    return [node.id, *names[::-1]]


def bare_names(node: ast.AST) -> Iterator[str]:
    """Yield the names in an expression that are not only the way to an attribute."""
    if isinstance(node, ast.Name):
        yield node.id
    elif not isinstance(node, ast.Attribute):
        for each in ast.iter_child_nodes(node):
            yield from bare_names(each)


def makes_loader(node: ast.AST) -> bool:
    """Say whether an expression makes a DataLoader, or a class named after it."""
    return isinstance(node, ast.Call) and last_name(node.func).endswith("Loader")


def made_of(value: ast.AST) -> Iterator[str]:
    """Yield the names that a value consists of: `Subset` and `pool` of `Subset(pool, 5)`."""
    if isinstance(value, ast.Name):
        yield value.id
    elif isinstance(value, ast.Attribute):
        yield value.attr
    elif isinstance(value, ast.Call):
        if isinstance(value.func, ast.Name):
            yield value.func.id
        for each in (*value.args, *(k.value for k in value.keywords)):
            yield from made_of(each)


def assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what a statement stores in, and the value that is stored there."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(target.elts, node.value.elts, strict=False)
            else:
                yield target, node.value
    elif isinstance(node, (ast.AugAssign, ast.NamedExpr, ast.AnnAssign)) and node.value:
        yield node.target, node.value


def stored_names(target: ast.expr) -> Iterator[str]:
    """Yield the names, or the last ones of paths, that an assignment gives a value to."""
    if isinstance(target, ast.Tuple):
        for each in target.elts:
            yield from stored_names(each)
    elif isinstance(target, (ast.Name, ast.Attribute)):
        yield last_name(target)
    elif isinstance(target, ast.Subscript):
        yield last_name(target.value)


def named_part(owner: ast.expr, name: ast.expr) -> ast.expr:
    """Return the target that `setattr(owner, name, ...)` stores in."""
    text = name.value if isinstance(name, ast.Constant) else "*"
    return ast.Attribute(owner, str(text), ast.Store())


def file_text(node: ast.AST) -> str:
    """Return a text as it is written if it may name a file or a folder; else an empty one."""
    text = node.value if isinstance(node, ast.Constant) else None
    return repr(text) if isinstance(text, str) and _FILE_NAME.search(text) else ""


def written_anew(call: ast.Call) -> list[ast.expr]:
    """Return what may be the name of a file that a call writes from its start; else none."""
    modes = [node.value for node in (*call.args, *(each.value for each in call.keywords))
             if isinstance(node, ast.Constant)]  # fmt: skip
    name = last_name(call.func)
    opens = name == "open" and {"w", "wb", "w+", "wb+", "x", "xb"} & set(map(str, modes))
    owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return [*owner, *call.args] if opens or name in WRITING - MOVING else []


def written_files(call: ast.Call) -> list[ast.AST]:
    """Return the nodes of a call that writes a file, among which its name is; else none."""
    modes = [node.value for node in (*call.args[1:], *(each.value for each in call.keywords))
             if isinstance(node, ast.Constant)]  # fmt: skip
    opens = last_name(call.func) == "open" and set("awx+") & set("".join(map(str, modes)))
    return list(ast.walk(call)) if opens or last_name(call.func) in WRITING else []

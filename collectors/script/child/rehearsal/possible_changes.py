"""What code that reads samples changes only for some: its source tells what no sample may show.

Only statements in a branch count, as others ran for any sample; of branches that settings alone
decide, those that are taken. An attribute that is simply assigned is made again in each process.
So does an error of the script's own that it catches elsewhere and that has more than a text: torch
passes on the text alone of what a worker raises, as a `RuntimeError` where it makes no such error.
A branch that asks the clock and makes another sample counts anyway: others take longer beside it.
So does one that asks how often samples were read, where reading counts them: workers that live on
have a count that others begin anew, and in a stream what was left in a buffer. And so does what no
worker can send: a function that was made on the way, or an open file. A file that each sample is
written to, whatever its number, counts without any branch: workers would write it at the same time.
So does what is logged to a handler that keeps it, which is no part of the data set. For some
samples, so do processes that are started, and attributes that a tensor is given.

What is stored in at all is told by its name, too: in memory that processes share, workers may have
changed that.
"""

from __future__ import annotations

import ast
import linecache
import re
import sys
import types
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from gpuadvisor.collectors.script.child.imports import is_library
from gpuadvisor.collectors.script.child.rehearsal.code_references import (
    ENTRY_METHODS,
    LEVELS,
    is_own,
    method_named,
)
from gpuadvisor.collectors.script.child.rehearsal.content import PLAIN
from gpuadvisor.collectors.script.child.rehearsal.inspection import (
    attributes_of,
    class_dict,
    module_dict,
    module_of,
    mro_of,
)
from gpuadvisor.collectors.script.child.rehearsal.kept_logs import is_kept
from gpuadvisor.collectors.script.child.shortening.branch_clock import Clock
from gpuadvisor.collectors.script.child.shortening.syntax import (
    MUTATING,
    assigned,
    file_text,
    last_name,
    stored_names,
    written_anew,
)
from gpuadvisor.domain.rehearsal import (
    ATTRIBUTES,
    CHILDREN,
    COUNTED,
    LEFT,
    OF_ITS_TIME,
    OF_ITS_WORKER,
    ONE_FILE,
    RAISES,
    REPORTED,
    UNSENT,
)

WORKER_NAMES = frozenset({"current_process", "get_worker_info"})
"""Functions of torch's and of multiprocessing that tell a worker from the script's process."""
WRITES = "writes "
"""How a path begins of what reading any sample may store in."""
PATHS = frozenset({"Path", "absolute", "as_posix", "fspath", "join", "resolve", "str"})
"""Functions and methods that make of the same names the same path each time."""
STARTING = frozenset({"Pool", "Process", "ProcessPoolExecutor"})
"""What starts processes of multiprocessing's. A worker is a daemon, which may not."""
OF_TENSORS = frozenset({"data", "grad", "grad_fn", "imag", "names", "real", "requires_grad"})
"""Attributes by which a tensor's own content is set."""
MOVING = (MUTATING | {"appendleft", "popleft"}) - {"clear", "update"}
"""Methods that put something into a list or set, or take it out."""
_STREAMS = ("__iter__", "__next__")
"""Methods that must ask for their worker: each gives its share of all samples."""


def of_object(path: str, kind: type, own: Mapping[str, Any]) -> dict[str, str]:
    """Return what reading samples through an object may change: attribute path to the method.

    `own` are the object's attributes. Of which kind such a part is, is not known here.
    """
    found: dict[str, str] = {}
    classes = (item for base in reversed(mro_of(kind)) for item in class_dict(base).items())
    values = {**{name: value for name, value in classes if type(value) in PLAIN}, **own}
    counts = _Counts()
    for name in ENTRY_METHODS:
        method = method_named(kind, name) if name != "__len__" else None
        if method is not None:
            more: dict[str, str] = {}
            counts.is_stream = name in _STREAMS
            _Reader(path, f"{path}.{name}", method, kind, values, more, counts).read()
            if name in _STREAMS:
                more.pop(OF_ITS_WORKER, None)
            found = {**found, **{p: code for p, code in more.items() if p not in found}}
    decisive = {f"{COUNTED}{p}": code for p, code in counts.decisive().items()}
    left = {f"{LEFT}{p}": code for p, code in counts.left().items()}
    return {**found, **decisive, **left, **counts.stores(path)}


def of_function(path: str, function: types.FunctionType) -> dict[str, str]:
    """Return what a function may change that is not its own: attribute path to the function."""
    found: dict[str, str] = {}
    counts = _Counts()
    _Reader("", path, function, None, {}, found, counts).read()
    return {**found, **counts.stores(path)}


@lru_cache(maxsize=64)
def _functions(file: str) -> dict[tuple[str, int], ast.FunctionDef]:
    """Return the functions of a source file by name and first line; none where it has no source."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {
        (n.name, min([n.lineno, *(each.lineno for each in n.decorator_list)])): n for n in nodes
    }


@dataclass
class _Counts:
    """What reading any sample counts, by attribute paths."""

    counted: set[str] = field(default_factory=set)
    """What is counted up or down."""
    begun: set[str] = field(default_factory=set)
    """What is simply assigned, as where a count begins."""
    asked: dict[str, str] = field(default_factory=dict)
    """What decides which sample is made, to the function that asks for it."""
    stored: set[str] = field(default_factory=set)
    """What is stored in, or changed by a method."""
    is_stream: bool = False
    """Whether a stream is read, of which samples have no number."""
    moved: dict[str, str] = field(default_factory=dict)
    """What a stream puts samples into, or takes them out of, to the function that does."""
    loads: Counter[str] = field(default_factory=Counter)
    """How often what is used in a stream."""
    dropped: Counter[str] = field(default_factory=Counter)
    """How often of these something is only added to it, or removed from it."""

    def left(self) -> dict[str, str]:
        """Return in what a stream leaves samples for its next pass, to the function."""
        paths = (p for p in self.moved if p and p not in self.begun)
        return {p: self.moved[p] for p in paths if self.loads[p] > self.dropped[p]}

    def stores(self, code: str) -> dict[str, str]:
        """Return what is stored in that is no local name, to the code that does it."""
        return {f"{WRITES}{path}": code for path in self.stored - {""}}

    def decisive(self) -> dict[str, str]:
        """Return what is counted over all samples and decides, to the function."""
        paths = self.counted - self.begun - {""}  # a local name
        return {path: code for path, code in self.asked.items() if path in paths}


@dataclass
class _Reader:
    """Reads a function and those that it calls."""

    owner: str
    """Path of the object whose methods are read; empty for a function."""
    place: str
    function: types.FunctionType
    kind: type | None
    values: Mapping[str, Any]
    """The object's attributes that settings may be among."""
    found: dict[str, str]
    counts: _Counts
    levels: int = LEVELS
    """Calls that are followed yet."""
    is_rare: bool = False
    """Whether what is read next runs for some samples only."""
    is_caught: bool = False
    """Whether an error that it raises is caught where samples are read."""
    is_over: bool = False
    """Whether it cannot be reached."""

    def read(self) -> None:
        """Note what the function changes for some samples only."""
        code = self.function.__code__
        self._locals = {*code.co_varnames, *code.co_cellvars}
        self._self = code.co_varnames[0] if self.kind is not None and code.co_argcount else ""
        tree = _functions(code.co_filename).get((code.co_name, code.co_firstlineno))
        if tree is None or not self.levels or not is_own(self.function):
            return
        nodes = list(ast.walk(tree))
        stored = [n.value for n in nodes if isinstance(n, ast.Subscript) and _is_changed(n)]
        names = (n for n in nodes if isinstance(n, (ast.Name, ast.Attribute)) and n not in stored)
        self._loaded = {self._path(name) for name in names if not _is_changed(name)}
        if self.counts.is_stream:
            self._count_uses(nodes)
        self._made = {n.name for n in nodes if isinstance(n, ast.FunctionDef) and n is not tree}
        given_back = [n.value for n in nodes if isinstance(n, (ast.Return, ast.Yield)) and n.value]
        self._given = {value.id for value in given_back if isinstance(value, ast.Name)}
        pairs = [pair for node in nodes for pair in assigned(node)]
        given = [(name, value) for to, value in pairs for name in stored_names(to)]
        self._assigned: dict[str, list[ast.expr]] = {}
        for name, value in given:
            self._assigned.setdefault(name, []).append(value)
        self._clock = Clock(given, {})
        self._branch(tree.body, False)

    def _count_uses(self, nodes: Sequence[ast.AST]) -> None:
        """Count how often a stream uses what it keeps; what it empties itself begins anew."""
        used = (n for n in nodes if isinstance(n, ast.Attribute) and not _is_changed(n))
        self.counts.loads.update(map(self._path, used))
        for node in nodes:
            called = getattr(getattr(node, "value", None), "func", None)
            if isinstance(node, ast.Expr) and isinstance(called, ast.Attribute):
                self.counts.dropped.update([self._path(called.value)] * (called.attr in MOVING))
                self.counts.begun.update([self._path(called.value)] * (called.attr == "clear"))
            elif isinstance(node, ast.While):
                tests = (n for n in ast.walk(node.test) if isinstance(n, ast.Attribute))
                self.counts.begun.update(map(self._path, tests))

    def _branch(self, body: Iterable[ast.AST], is_rare: bool) -> bool:
        """Visit code; return whether what comes after it cannot be reached from it."""
        before = self.is_rare, self.is_over
        self.is_rare |= is_rare
        for node in body:
            self._visit(node)
        is_over = self.is_over
        self.is_rare, self.is_over = before
        return is_over

    def _visit(self, node: ast.AST) -> None:
        if self.is_over or isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda)):
            return
        if isinstance(node, ast.If):
            self._visit(node.test)
            if self._clock.is_asked(node.test) and _gives_another(node):
                self.found.setdefault(OF_ITS_TIME, self._name)
            known = self._known(node.test)
            if known is None and (_gives_another(node) or self._fills(node)):
                self._ask(node.test)
            sides = [s for s, when in ((node.body, 1), (node.orelse, 0)) if known in (None, when)]
            over = [self._branch(side, known is None) for side in sides]
            self.is_over, self.is_rare = all(over), self.is_rare or any(over)
        elif isinstance(node, ast.Try):
            before, self.is_caught = self.is_caught, self.is_caught or bool(node.handlers)
            is_left = self._branch([*node.body, *node.orelse], False)
            self.is_caught = before
            caught = [self._branch(handler.body, True) for handler in node.handlers]
            self.is_rare |= is_left
            is_over = is_left and all(caught)
            self.is_over = self._branch(node.finalbody, False) or is_over
        elif isinstance(node, (ast.For, ast.While)):
            self._branch(ast.iter_child_nodes(node), False)
        elif isinstance(node, ast.match_case):
            self.is_rare |= self._branch(node.body, True)
        else:
            self._statement(node)
            for child in ast.iter_child_nodes(node):
                self._visit(child)
            self.is_over |= isinstance(node, (ast.Return, ast.Raise, ast.Continue, ast.Break))

    def _statement(self, node: ast.AST) -> None:
        """Note what one statement or expression changes, or the functions that it calls do."""
        if self.is_rare and self._gives_unsendable(node):
            self.found.setdefault(UNSENT, self._name)
        if self.is_rare and isinstance(node, ast.Assign) and any(map(self._marks, node.targets)):
            self.found.setdefault(ATTRIBUTES, self._name)
        if isinstance(node, ast.AugAssign):
            self._note(node.target)
            self.counts.stored.add(self._path(node.target))
            self.counts.counted.add(self._path(node.target))
        elif isinstance(node, ast.Assign):
            whole = (each for each in node.targets if not isinstance(each, ast.Subscript))
            self.counts.begun.update(map(self._path, whole))
            self.counts.stored.update(map(self._path, node.targets))
        elif isinstance(node, ast.IfExp):
            self._ask(node.test)
        elif isinstance(node, ast.Subscript) and _is_changed(node):
            if self._path(node) not in self._loaded:  # else it is a cache
                self._note(node)
        elif isinstance(node, ast.Raise) and self.is_rare and not self.is_caught:
            name = last_name(getattr(node.exc, "func", node.exc or node))
            if _loses_more(self.function.__globals__.get(name), getattr(node.exc, "args", ())):
                self.found.setdefault(f"{RAISES}{name}", self._name)
        elif isinstance(node, ast.Call):
            called, place, function, kind = node.func, "", None, None
            if not self.is_rare and any(map(self._is_one_file, written_anew(node))):
                self.found.setdefault(ONE_FILE, self._name)
            if last_name(called) in WORKER_NAMES:
                self.found.setdefault(OF_ITS_WORKER, self._name)
            if self.is_rare and last_name(called) in STARTING:
                self.found.setdefault(CHILDREN, self._name)
            if self._is_kept_log(called):
                self.found.setdefault(REPORTED, self._name)
            values, owner = self.values, self.owner
            if isinstance(called, ast.Attribute):
                if called.attr in MUTATING:
                    self._note(called.value)
                if called.attr in MUTATING or called.attr.endswith("_"):
                    self.counts.stored.add(self._path(called.value))
                if called.attr in MOVING and self.counts.is_stream:
                    self.counts.moved.setdefault(self._path(called.value), self._name)
                if self.kind is not None and self._is_self(called.value):
                    function, kind = method_named(self.kind, called.attr), self.kind
                    place = f"{self.owner}.{called.attr}"
                elif is_own(type(part := self._value(called.value))):
                    function, kind = method_named(type(part), called.attr), type(part)
                    owner, values = self._path(called.value), attributes_of(part)
                    place = f"{owner}.{called.attr}"
            elif isinstance(called, ast.Name) and called.id not in self._locals:
                function, place = self.function.__globals__.get(called.id), f"global {called.id}"
            if type(function) is types.FunctionType:
                to = self.counts, self.levels - 1, self.is_rare, self.is_caught
                _Reader(owner, place, function, kind, values, self.found, *to).read()

    def _marks(self, target: ast.expr) -> bool:
        """Say whether an assignment gives a tensor an attribute of the script's own."""
        if not isinstance(target, ast.Attribute) or target.attr in OF_TENSORS:
            return False
        return isinstance(target.value, ast.Name) and self._is_tensor(target.value, LEVELS)

    def _is_tensor(self, node: ast.expr, levels: int) -> bool:
        """Say whether an expression is made by a function of torch's, or part of a tensor."""
        while isinstance(node, (ast.Call, ast.Subscript)):
            node = node.func if isinstance(node, ast.Call) else node.value
        if isinstance(node, ast.Name) and node.id in self._locals and node.id != self._self:
            values = self._assigned.get(node.id, []) if levels else []
            return any(self._is_tensor(value, levels - 1) for value in values)
        if isinstance(node, ast.Attribute) and not self._is_self(node.value):
            return self._is_tensor(node.value, levels)
        value = self._value(node)
        if issubclass(type(value), types.ModuleType):
            return str(module_dict(value).get("__name__")).partition(".")[0] == "torch"
        return any((module_of(each), each.__name__) == ("torch", "Tensor")
                   for each in mro_of(type(value)))  # fmt: skip

    def _is_kept_log(self, called: ast.expr) -> bool:
        """Say whether a call logs or warns to what is kept in the script's process."""
        owner = self._value(called.value) if isinstance(called, ast.Attribute) else None
        return is_kept(owner, last_name(called), _keeps)

    def _gives_unsendable(self, node: ast.AST) -> bool:
        """Say whether a statement puts into a sample what cannot be pickled."""
        if isinstance(node, ast.Assign):
            members = (each for each in node.targets if isinstance(each, ast.Subscript))
            is_given = any(last_name(each.value) in self._given for each in members)
            return is_given and self._is_unsendable(node.value)
        given = node.value if isinstance(node, (ast.Return, ast.Yield)) else None
        held: list[ast.expr | None] = [given]
        if isinstance(given, ast.Dict):
            held = list(given.values)
        elif isinstance(given, (ast.List, ast.Tuple)):
            held = list(given.elts)
        return any(each is not None and self._is_unsendable(each) for each in held)

    def _is_unsendable(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Call):
            return isinstance(value.func, ast.Name) and value.func.id == "open"
        is_made = isinstance(value, ast.Name) and value.id in self._made
        return is_made or isinstance(value, (ast.Lambda, ast.GeneratorExp))

    def _is_one_file(self, node: ast.expr) -> bool:
        """Say whether an expression is the name of a file that does not depend on the sample."""
        return bool(file_text(ast.Constant(self._path_text(node, LEVELS))))

    def _path_text(self, node: ast.expr, levels: int) -> str | None:
        """Return the path that an expression gives for any sample; None where it depends on it."""
        if isinstance(node, ast.Name) and node.id in self._locals:
            values = self._assigned.get(node.id, [])
            one = values[0] if len(values) == 1 and levels else None
            return None if one is None else self._path_text(one, levels - 1)
        if isinstance(node, ast.FormattedValue):
            return self._path_text(node.value, levels)
        parts: list[ast.expr] = []
        if isinstance(node, ast.BinOp):
            parts = [node.left, node.right]
        elif isinstance(node, ast.JoinedStr):
            parts = node.values
        elif isinstance(node, ast.Call) and last_name(node.func) in PATHS:
            parts = node.args or [getattr(node.func, "value", node.func)]
        if parts:
            texts = [self._path_text(part, levels) for part in parts]
            return None if None in texts else "/".join(map(str, texts))
        value = node.value if isinstance(node, ast.Constant) else self._value(node)
        is_path = type(value) is str or module_of(type(value)).partition(".")[0] == "pathlib"
        return str(value) if is_path else None

    def _fills(self, branch: ast.If) -> bool:
        """Say whether a branch writes into what a local name has: `x[:9] = 0`, `x.zero_()`."""
        return any(
            (isinstance(n, ast.Subscript) and _is_changed(n) and not self._path(n))
            or (isinstance(n, ast.Attribute) and n.attr.endswith("_") and not self._path(n.value))
            for n in ast.walk(branch)
        )

    def _ask(self, test: ast.expr) -> None:
        """Note of which attributes a sample depends by a test."""
        for node in ast.walk(test):
            if isinstance(node, (ast.Attribute, ast.Subscript, ast.Name)):
                self.counts.asked.setdefault(self._path(node), self._name)

    def _note(self, target: ast.expr) -> None:
        path = self._path(target)
        if self.is_rare and path:
            self.found.setdefault(path, self._name)

    @property
    def _name(self) -> str:
        return self.function.__qualname__.rpartition("<locals>.")[2]

    def _is_self(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id == self._self

    def _path(self, node: ast.expr) -> str:
        """Return the attribute path of what is changed with a target; empty for a local name."""
        names: list[str] = []
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            names = [node.attr, *names] if isinstance(node, ast.Attribute) else []
            node = node.value
        root = node.id if isinstance(node, ast.Name) else ""
        if root in self._locals:
            return ".".join((self.owner, *names)) if root == self._self and names else ""
        if root in self.function.__code__.co_freevars:
            return ".".join((self.place, root, *names))
        return ".".join((f"global {root}", *names)) if root in self.function.__globals__ else ""

    def _known(self, test: ast.expr) -> bool | None:
        """Return what a test of settings alone gives; None where samples may decide it."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            known = self._known(test.operand)
            return None if known is None else not known
        if isinstance(test, ast.BoolOp):
            each, decides = [self._known(v) for v in test.values], isinstance(test.op, ast.Or)
            return decides if decides in each else None if None in each else not decides
        if isinstance(test, ast.Compare) and ast.unparse(test).endswith((" is None", " not None")):
            value = self._value(test.left)
            return None if value is ... else (value is None) is isinstance(test.ops[0], ast.Is)
        value = self._value(test)
        return bool(value) if type(value) in PLAIN and value is not ... else None

    def _value(self, node: ast.expr) -> Any:
        """Return the value of an attribute of the object, or of a global; `...` for all else."""
        if isinstance(node, ast.Attribute) and self._is_self(node.value):
            return self.values.get(node.attr, ...)
        if isinstance(node, ast.Name) and node.id not in self._locals:
            return self.function.__globals__.get(node.id, ...)
        return ...


def _keeps(method: types.FunctionType, kind: type, own: Mapping[str, Any]) -> bool:
    """Say whether a method stores in its object, which has these attributes."""
    counts = _Counts()
    _Reader("self", "self", method, kind, own, {}, counts).read()
    return any(path.startswith("self.") for path in counts.stored)


def _loses_more(error: Any, given: Sequence[ast.expr]) -> bool:
    """Say whether the script catches an error by name that has more than a text."""
    own = [each for each in mro_of(error) if is_own(each)] if type(error) is type else []
    if not own or (method_named(error, "__init__") is None and len(given) < 2):
        return False
    return _is_caught("|".join(each.__name__ for each in own))


@lru_cache(maxsize=64)
def _is_caught(names: str) -> bool:
    """Say whether any of the script's files catches an error of one of these names."""
    caught = re.compile(rf"\bexcept\b.*\b({names})\b")
    files = {module_dict(module).get("__file__") for module in list(sys.modules.values())}
    scripts = (file for file in files if type(file) is str and not is_library(file))
    return any(caught.search(line) for file in scripts for line in linecache.getlines(file))


def _gives_another(branch: ast.If) -> bool:
    """Say whether a branch ends the reading of a sample, or makes another value of it."""
    nodes = list(ast.walk(branch))
    is_stored = any(isinstance(n, ast.Name) and _is_changed(n) for n in nodes)
    return is_stored or any(isinstance(n, (ast.Break, ast.Continue, ast.Return)) for n in nodes)


def _is_changed(node: Any) -> bool:
    return not isinstance(node.ctx, ast.Load)

"""Marks branches of the script that may run late, and change what settings rely on.

A shortened life takes no branch that waits for a value: `if loss < 0.9: dataset.level += 1`. Which
were reached and not taken is said by calls that are put into the syntax tree, before a branch and
in it: `__gpuadvisor_branch__(number, taken)`. Only branches are marked that have something to do
with data that a DataLoader was given, with a model's or an optimizer's parts, or with the end of a
loop; and only if what decides on them can change: options that a script is given do not.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gpuadvisor.collectors.script.child.shortening.branch_clock import TIME_LIMITS
from gpuadvisor.collectors.script.child.shortening.branch_names import STORES, Names
from gpuadvisor.collectors.script.child.shortening.syntax import (
    breaks,
    last_name,
    makes_loader,
    own_nodes,
    raised,
)
from gpuadvisor.domain.rehearsal import Touch

BRANCH, VALUE = "__gpuadvisor_branch__", "__gpuadvisor_stored__"
"""Built-in functions that the runtime provides, as `loop_rewriting.LOOP` is one."""
FAILURES = frozenset({"Exception", "KeyboardInterrupt", "OutOfMemoryError", "RuntimeError"})
"""Exceptions that tell of an accident. A run that has none does not take their branch."""
ANYTHING = frozenset({"", "Exception"})
"""What catches each exception that the script raises itself; nothing is written in `except:`."""
TELLING = frozenset({"debug", "info", "log", "print", "warning"})
"""Functions that tell people what they are given."""
_LEAVING = (ast.Break, ast.Continue, ast.Return, ast.Raise)
_TRIES: Any = (ast.Try, getattr(ast, "TryStar", ast.Try))
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Mark:
    """A marked branch of a file."""

    place: str
    """`train.py, line 40`."""
    what: str
    """Text of its condition: `bad >= 3`."""
    touches: tuple[Touch, ...]
    outer: int | None
    """Number of the marked branch that it stands in."""
    site: int | None
    """Number of the loop that it leaves, where it touches `Touch.ROWS`; None if that is any."""
    is_function: bool = False
    """Whether it is a function that a library calls when it sees fit, however early it is known."""
    is_limit: bool = False
    """Whether it is a value, other than None, by which a library ends its loop."""


@dataclass
class Marker:
    """Puts marks into a file's tree."""

    names: Names
    """What the tree's text says, read before it was changed."""
    file: str
    first: int
    """Number of the first mark."""
    is_left_alone: Callable[[Any], bool]
    """Says which functions are not entered."""
    site_of: Callable[[ast.AST], int | None]
    """Gives the number of a rewritten loop."""
    marks: list[Mark] = field(default_factory=list)
    _outer: int | None = None
    _loop: int | None = None
    """Number of the innermost loop."""
    _passes: set[str] = field(default_factory=set)
    """Loaders of the passes that loops around are in, by their names."""
    told: set[int] = field(default_factory=set)
    """Identities of attributes that are only printed, or given to a DataLoader."""

    def statements(self, body: list[Any]) -> list[Any]:
        """Return statements with marks before and in their branches."""
        done: list[Any] = []
        for place, node in enumerate(body):
            if isinstance(node, _DEFINITIONS):
                self._definition(node)
                done.append(node)
                continue
            rest = body[place + 1 :]
            if isinstance(node, ast.If) and rest and not node.orelse and _always_leaves(node.body):
                # What follows is its other branch.
                node.orelse = rest
                done += [*self._statement(node), *node.orelse]
                node.orelse = []
                return done
            if isinstance(node, ast.Assert) and rest:  # which something may catch
                before: list[Any] = []
                after = self._branch(node, rest, ast.unparse(node.test), before,
                                     self.names.varies(node.test))  # fmt: skip
                return [*done, *before, node, *after]
            done += self._statement(node)
        return done

    def _definition(self, node: Any) -> None:
        if isinstance(node, ast.ClassDef) or not self.is_left_alone(node):
            before = self._outer, self._loop, self._passes
            self._outer = self._loop = None
            self._passes = set()
            documented = ast.get_docstring(node, clean=False) is not None
            entered = self._entry(node)
            rest = self.statements(node.body[documented:])
            node.body = [*node.body[:documented], *map(_statement_of, entered), *rest]
            self._outer, self._loop, self._passes = before

    def _entry(self, node: Any) -> list[ast.Call]:
        """Return the mark of a function that a library may call late, or nothing."""
        if not self.names.is_callback(node):
            return []
        text = f"a call of {getattr(node, 'name', 'a lambda')}"
        number = self._new(text, node, (Touch.DATA,), None, is_function=True)
        return [_call(BRANCH, number, True, at=node)]

    def _statement(self, node: Any) -> list[Any]:
        """Return a statement, the marks that come before it, and itself with those in it."""
        before: list[Any] = []
        if isinstance(node, (ast.If, ast.While, ast.For)):
            self._conditional(node, before)
        elif isinstance(node, _TRIES):
            names = raised(node.body)
            node.body = self.statements(node.body)
            for handler in node.handlers:
                caught = set(map(last_name, _members(handler.type)))
                text = f"except {ast.unparse(handler.type)}" if handler.type else "except"
                is_meant = bool(caught & names) or bool(names and caught & ANYTHING)
                is_meant |= handler.type is not None and not caught & FAILURES
                also = self.names.errors.touches(handler)
                handler.body = self._branch(
                    handler, handler.body, text, before, is_meant, also=also
                )
            node.orelse, node.finalbody = map(self.statements, (node.orelse, node.finalbody))
        elif isinstance(node, ast.Match):
            varies = self.names.varies(node.subject)
            for case in node.cases:
                text = ast.unparse(case).partition(":\n")[0]
                varied = varies or (case.guard is not None and self.names.varies(case.guard))
                case.body = self._branch(case.pattern, case.body, text, before, varied)
        elif isinstance(node, (ast.With, ast.AsyncWith, ast.AsyncFor)):
            node.body = self.statements(node.body)
        else:
            self._expressions(node)
        return [*before, node]

    def _conditional(self, node: ast.If | ast.While | ast.For, before: list[Any]) -> None:
        test = node.iter if isinstance(node, ast.For) else node.test
        site = self.site_of(node)
        if site is not None:  # its rewritten form asks whether the loop goes on
            test = test.args[0] if isinstance(test, ast.Call) else test.values[1]  # type: ignore[attr-defined]
        text, varies = ast.unparse(test), self.names.varies(test)
        if isinstance(node, ast.If):
            reached: list[Any] = []
            node.body = self._branch(node, node.body, text, reached, varies, test)
            steady = self._steady(test)
            if reached and steady:  # an option that is off keeps it from being reached
                test.values[steady] = _either(reached.pop().value, test.values[steady])  # type: ignore[attr-defined]
            before += reached
            if node.orelse:
                text = f"not ({text})"
                node.orelse = self._branch(node, node.orelse, text, before, varies, test)
            node.test = _Expressions(self).visit(node.test)
            return
        outside, self._loop = (self._loop, self._passes), site
        if isinstance(node, ast.For):
            self._passes = self._passes | self.names.loaders.passes(test)
        node.body = self._branch(node, node.body, text, before, varies)
        self._loop, self._passes = outside
        if isinstance(node, ast.For):
            node.iter = _Expressions(self).visit(node.iter)
        node.orelse = self.statements(node.orelse)
        if isinstance(node, ast.While) and site is not None and self.names.decides(test):
            touches = tuple(sorted(self.names.left(test)))
            number = self._new(f"not ({text})", node, touches, site)
            said = [_call(BRANCH, number, taken, at=test) for taken in (False, True)]
            node.test.values[1] = _either(said[0], test, said[1])  # type: ignore[attr-defined]

    def _steady(self, test: Any) -> int:
        """Return how many of the first conditions that must all hold cannot change in a run."""
        values = test.values if isinstance(getattr(test, "op", None), ast.And) else []
        return next((n for n, each in enumerate(values) if self.names.varies(each)), 0)

    def _branch(
        self,
        at: Any,
        body: list[Any],
        text: str,
        before: list[Any],
        may_turn: bool,
        test: ast.expr | None = None,
        also: Iterable[Touch] = (),
    ) -> list[Any]:
        """Return a branch with a mark at its start, where it is one that matters.

        `also` is what it touches beside what its statements do.
        """
        touches = self.names.touched(body).union(also)
        touches -= {Touch.THRESHOLD}  # said where it is stored
        site = self._loop if _leaves(body) else None
        if site is not None or self.names.stops(body):
            touches |= self.names.left(test)
        if self._passes and test is not None and self.names.loaders.begins_pass(body, self._passes):
            touches.add(Touch.PASS)
        if not may_turn or not touches:
            return self.statements(body)
        number = self._new(text, at, tuple(sorted(touches)), site, before)
        outer, self._outer = self._outer, number
        body = self.statements(body)
        self._outer = outer
        return [_statement_of(_call(BRANCH, number, True, at=body[0])), *body]

    def _new(
        self,
        text: str,
        at: Any,
        touches: tuple[Touch, ...],
        site: int | None,
        before: list[Any] | None = None,
        is_function: bool = False,
        is_limit: bool = False,
    ) -> int:
        """Note a mark; say before the statement that it is reached, where `before` is given."""
        number = self.first + len(self.marks)
        place = f"{self.file}, line {at.lineno}"
        self.marks.append(Mark(place, text, touches, self._outer, site, is_function, is_limit))
        if before is not None:
            before.append(_statement_of(_call(BRANCH, number, False, at=at)))
        return number

    # -- within a statement ----------------------------------------------------------------

    def _expressions(self, node: Any) -> None:
        """Mark branches of expressions, and values that are stored where that matters."""
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            touches = set().union(*map(self.names.stored, targets))
            if touches and self.names.varies(node.value):
                text = f"another value of {ast.unparse(targets[0])}"
                number = self._new(text, node, tuple(sorted(touches)), None)
                node.value = _call(VALUE, number, node.value, at=node.value)
            for each in targets:
                if isinstance(each, ast.Subscript) and self.names.varies(each.slice):
                    each.slice = self.value(each.slice, self.names.stored(each), "item")
        _Expressions(self).visit(node)

    def value(self, node: Any, touches: set[Touch], kind: str) -> Any:
        """Return an expression with a mark that compares what it gives, where that matters."""
        if not touches:
            return node
        text = f"another {kind} of {ast.unparse(node)}"
        number = self._new(text, node, tuple(sorted(touches)), None)
        return _call(VALUE, number, node, at=node)

    def limit(self, given: ast.keyword) -> None:
        """Mark an argument that gives a library's loop a time, of whatever value it has then."""
        text = f"{given.arg}={ast.unparse(given.value)}"
        number = self._new(text, given.value, (Touch.CLOCK,), None, is_limit=True)
        given.value = _call(VALUE, number, given.value, at=given.value)

    def expression(self, node: Any, test: ast.expr, branches: Sequence[tuple[Any, bool]]) -> Any:
        """Return an expression with marks before it, and around those of its branches that matter.

        Each branch is given with what the test is where it is evaluated.
        """
        said: list[ast.expr] = []
        for branch, outcome in branches:
            touches = self.names.touched([ast.copy_location(ast.Expr(branch), branch)])
            if touches and self.names.varies(test):
                text = ast.unparse(test) if outcome else f"not ({ast.unparse(test)})"
                number = self._new(text, node, tuple(sorted(touches)), None)
                said.append(_call(BRANCH, number, False, at=node))
                _replace(node, branch, _either(_call(BRANCH, number, True, at=branch), branch))
        return _either(*said, node) if said else node


class _Expressions(ast.NodeTransformer):
    """Marks `a and f()`, `f() if a else g()`, `[f() for _ in b if a]` and `TABLE[a]()`."""

    def __init__(self, marker: Marker) -> None:
        self._marker = marker

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        before, self._marker._outer = self._marker._outer, None
        entered = self._marker._entry(node)
        self.generic_visit(node)
        self._marker._outer = before
        node.body = _either(*entered, node.body) if entered else node.body
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        self.generic_visit(node)
        outcome = isinstance(node.op, ast.And)
        branches = [(branch, outcome) for branch in node.values[1:]]
        return self._marker.expression(node, node.values[0], branches)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        self.generic_visit(node)
        branches = [(node.body, True), (node.orelse, False)]
        return self._marker.expression(node, node.test, branches)

    def visit_ListComp(self, node: Any) -> Any:
        self.generic_visit(node)
        first, *inner = node.generators
        tests = [*first.ifs, *(test for each in inner for test in (each.iter, *each.ifs))]
        test = ast.Tuple(tests, ast.Load()) if tests else first.iter
        return self._marker.expression(node, test, [(node.elt, True)])

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        self.generic_visit(node)
        marker = self._marker
        if id(node) in marker.told:
            return node
        if marker.names.samplers.asks(node):
            number = marker._new(ast.unparse(node), node, (Touch.AHEAD,), None)
            said = [_call(BRANCH, number, taken, at=node) for taken in (False, True)]
            return _either(*said, node)
        if not marker.names.loaders.asks_workers(node):
            return node
        number = marker._new(ast.unparse(node), node, (Touch.WORKERS,), None, is_function=True)
        return _either(_call(BRANCH, number, True, at=node), node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        self._marker.told |= set(map(id, ast.walk(node)))
        return self.generic_visit(node)

    visit_SetComp = visit_ListComp  # noqa: N815 - what ast calls it
    visit_GeneratorExp = visit_ListComp  # noqa: N815

    def visit_Subscript(self, node: Any) -> Any:
        self.generic_visit(node)
        return self._marker.value(node, self._marker.names.chosen(node), "choice")

    def visit_Call(self, node: ast.Call) -> Any:
        if last_name(node.func) in TELLING or makes_loader(node):
            self._marker.told |= set(map(id, ast.walk(node)))
        self.generic_visit(node)
        names = self._marker.names
        limit = TIME_LIMITS.get(last_name(node.func), "")
        for each in (given for given in node.keywords if limit and given.arg == limit):
            self._marker.limit(each)
        if last_name(node.func).strip("_") in STORES and len(node.args) > 1:
            touches = names.touched([ast.Expr(node)]) if names.varies(node.args[-1]) else set()
            node.args[-1] = self._marker.value(node.args[-1], touches, "value")
        first: Any = node.args[0] if node.args else None
        answer = partial(self._marker.value, touches={Touch.ROWS}, kind="answer")
        if last_name(node.func) == "takewhile" and isinstance(first, ast.Lambda):
            first.body = answer(first.body)
        elif last_name(node.func) in ("all", "any", "next") and isinstance(first, ast.GeneratorExp):
            source = first.generators[0]
            if names.is_data(source.iter) and source.ifs:
                source.ifs[0] = answer(source.ifs[0])
            elif names.is_data(source.iter):
                first.elt = answer(first.elt)
        return self._marker.value(node, names.chosen(node), "choice")


def _either(*values: ast.expr) -> ast.BoolOp:
    """Return the last of values, after calls that give None."""
    return ast.copy_location(ast.BoolOp(ast.Or(), list(values)), values[-1])


def _replace(owner: ast.AST, old: ast.expr, new: ast.expr) -> None:
    if isinstance(owner, ast.BoolOp):
        owner.values = [new if each is old else each for each in owner.values]
    elif isinstance(owner, ast.IfExp):
        owner.body, owner.orelse = (
            new if each is old else each for each in (owner.body, owner.orelse)
        )
    else:
        owner.elt = new  # type: ignore[attr-defined]


def _call(name: str, number: int, value: Any, at: Any) -> ast.Call:
    if not isinstance(value, ast.AST):
        value = ast.Constant(value)
    call = ast.Call(ast.Name(name, ast.Load()), [ast.Constant(number), value], [])
    for node in (call, call.func, *call.args):
        if not hasattr(node, "lineno"):
            ast.copy_location(node, at)
    return call


def _statement_of(call: ast.Call) -> ast.Expr:
    return ast.copy_location(ast.Expr(call), call)


def _members(node: ast.expr | None) -> Sequence[ast.expr | None]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _always_leaves(body: list[ast.stmt]) -> bool:
    return isinstance(body[-1], _LEAVING)


def _leaves(body: list[Any]) -> bool:
    """Say whether statements may leave the loop that they stand in, before its end."""
    return breaks(body) or any(isinstance(node, ast.Return) for node in own_nodes(body))

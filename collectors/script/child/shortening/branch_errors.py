"""Which handlers wait for an error that arrives as another one under some settings.

Of what a worker raises torch passes on a text and its traceback, in an error of the same type
where that is made of one text, else in a `RuntimeError`. And an `assert` on a tensor in a model's
code raises a `RuntimeError` where that is compiled.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpuadvisor.collectors.script.child.shortening.branch_loaders import Loaders
from gpuadvisor.collectors.script.child.shortening.branch_models import asserts_tensors
from gpuadvisor.collectors.script.child.shortening.syntax import Function, last_name, own_nodes
from gpuadvisor.domain.rehearsal import Touch

LOST = frozenset({
    "CalledProcessError", "IncompleteReadError", "JSONDecodeError", "SubprocessError",
    "TimeoutExpired", "UnicodeDecodeError", "UnicodeEncodeError", "UnicodeError",
    "UnicodeTranslateError", "ValueError",
})  # fmt: skip
"""Errors that are not made of one text, and those that they are kinds of."""
ENDS = frozenset({"StopAsyncIteration", "StopIteration"})
"""What tells that there is no more, which a loader does itself."""
TELLING = frozenset({"critical", "debug", "error", "exception", "info", "print", "warn", "warning"})
"""Functions that tell people of an error."""
COMPILED_AS = frozenset({"", "BaseException", "Exception", "RuntimeError"})
"""What catches an assertion of compiled code."""
TRIES: Any = (ast.Try, getattr(ast, "TryStar", ast.Try))


class Errors:
    """The handlers of a script's files, by what they wait for."""

    def __init__(
        self,
        nodes: Sequence[ast.AST],
        loaders: Loaders,
        functions: Mapping[str, Sequence[Function]],
        key: Callable[[ast.AST], str],
        reading: Iterable[Function],
    ) -> None:
        """Take all nodes, functions by the key that a call of them has, and those that run where
        samples are read."""
        self._loaders, self._functions, self._key = loaders, functions, key
        beside = {id(n) for each in reading for n in ast.walk(each.node)}
        asserts = any(asserts_tensors(each) for each in nodes if isinstance(each, ast.ClassDef))
        tries = [each for each in nodes if isinstance(each, TRIES) and id(each) not in beside]
        reads = {id(each) for each in tries if self._reads(each.body)}
        self._of = {
            id(handler): set(_touches(handler, id(node) in reads, asserts, node.handlers))
            for node in tries
            for handler in node.handlers
        }
        """What handlers touch, by their identities."""

    def touches(self, handler: ast.ExceptHandler) -> set[Touch]:
        """Return what a handler touches by being one."""
        return self._of.get(id(handler), set())

    def _reads(self, body: Iterable[ast.AST], levels: int = 1) -> bool:
        """Say whether statements take batches of a loader, or functions that they call do."""
        for node in own_nodes(body):
            if isinstance(node, (ast.For, ast.comprehension)) and self._loaders.passes(node.iter):
                return True
            if isinstance(node, ast.Call):
                inner = self._functions.get(self._key(node), ()) if levels else ()
                if last_name(node.func) == "next":
                    return True
                if any(self._reads(each.body, levels - 1) for each in inner):
                    return True
        return False


def _touches(
    handler: ast.ExceptHandler, reads: bool, asserts: bool, beside: Iterable[ast.ExceptHandler]
) -> Iterator[Touch]:
    """Yield what a handler touches, of a statement that reads batches or not and has those
    `beside` it, in files whose models assert something or not."""
    caught = _caught(handler)
    is_asserted = asserts and "AssertionError" in caught
    if is_asserted and COMPILED_AS.isdisjoint(name for each in beside for name in _caught(each)):
        yield Touch.ASSERTIONS
    if reads and not caught & (ENDS | {""}) and (caught & LOST or _uses(handler)):
        yield Touch.ERRORS


def _caught(handler: ast.ExceptHandler) -> set[str]:
    kind = handler.type
    return set(map(last_name, kind.elts if isinstance(kind, ast.Tuple) else [kind]))


def _uses(handler: ast.ExceptHandler) -> bool:
    """Say whether a handler uses the error for more than to tell of it."""
    nodes = list(own_nodes(handler.body))
    calls = (each for each in nodes if isinstance(each, ast.Call))
    telling = (each for each in calls if last_name(each.func) in TELLING)
    told = {id(n) for each in telling for n in ast.walk(each)}
    return any(isinstance(n, ast.Name) and n.id == handler.name and id(n) not in told
               for n in nodes)  # fmt: skip

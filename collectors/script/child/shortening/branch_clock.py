"""Which conditions ask the clock, by a file's text: where they end a loop, faster is more steps."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence

from gpuadvisor.collectors.script.child.shortening.syntax import Function, last_name, own_nodes

CLOCKS = frozenset({
    "default_timer", "monotonic", "monotonic_ns", "now", "perf_counter", "perf_counter_ns",
    "process_time", "time", "time_ns", "utcnow",
})  # fmt: skip
"""Functions of Python's `time`, `timeit` and `datetime` that tell the time."""
NUMBERS = frozenset({"abs", "float", "int", "max", "min", "round", "sum", "total_seconds"})
"""Functions that make a time of times; what others make of one is none: a name, or a seed."""

TIME_LIMITS = {"Trainer": "max_time", "generate": "max_time"}
"""Functions of libraries whose loop ends after the time in an argument: Lightning's and those of
transformers. A download that is tried again for a while has such an argument, too."""


class Clock:
    """Knows the names that stand for times, wherever in the files, and functions that tell one."""

    def __init__(
        self, bound: Iterable[tuple[str, ast.expr]], functions: Mapping[str, Sequence[Function]]
    ) -> None:
        """Read what is given to names, and functions by what calls of them look like."""
        self._names: set[str] = set()
        given = [*bound, *_returned(functions)]
        while more := {name for name, value in given if self.is_asked(value)} - self._names:
            self._names |= more

    def is_asked(self, value: ast.expr) -> bool:
        """Say whether a value comes of the time, as `time.time() - start > 60` does."""
        if isinstance(value, ast.Call):
            called = last_name(value.func)
            if called in NUMBERS:
                owner = [value.func.value] if isinstance(value.func, ast.Attribute) else []
                return any(map(self.is_asked, (*value.args, *owner)))
            return (called in CLOCKS and not value.args) or f"{called}()" in self._names
        if isinstance(value, (ast.Name, ast.Attribute)):
            is_part = isinstance(value, ast.Attribute) and self.is_asked(value.value)
            return is_part or last_name(value) in self._names
        parts = (ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.NamedExpr, ast.UnaryOp)
        inner = ast.iter_child_nodes(value) if isinstance(value, parts) else ()
        return any(self.is_asked(each) for each in inner if isinstance(each, ast.expr))


def _returned(functions: Mapping[str, Sequence[Function]]) -> list[tuple[str, ast.expr]]:
    """Return what functions return, each with its name and `()`."""
    return [
        (f"{name.lstrip('.')}()", node.value)
        for name, members in functions.items()
        for function in members
        for node in own_nodes(function.body)
        if isinstance(node, ast.Return) and node.value is not None
    ]

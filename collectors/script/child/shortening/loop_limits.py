"""How many iterations a `while` statement means to make, as its text and its counter tell.

`while step < steps` says so, and `while True` with `if step > steps: break` in its body does, too,
where each iteration adds one to the count.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from gpuadvisor.collectors.script.child.shortening.syntax import own_nodes

_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE,
    ast.Eq: ast.Eq, ast.NotEq: ast.NotEq,
}  # fmt: skip
"""What a comparison is with its sides exchanged."""
_GOES_ON: dict[type[ast.cmpop], int] = {ast.Lt: 0, ast.LtE: 1, ast.NotEq: 0}
_ENDS: dict[type[ast.cmpop], int] = {ast.GtE: 0, ast.Gt: 1, ast.Eq: 0}
"""Iterations beyond the difference of limit and counter that a loop makes which goes on, or ends,
by such a comparison of the counter."""


@dataclass(frozen=True)
class Limit:
    """Says that a loop ends once what it counts has come to a limit."""

    counter: str
    """Text of a name, or of attributes: `self.iter_num`."""
    end: str
    """Likewise, or of a number."""
    more: int
    """Iterations beyond their difference: 1 where that of the limit itself is made, too."""


def limits_of(node: ast.While) -> tuple[Limit, ...]:
    """Return the limits of a `while` statement, each of which ends it by itself."""
    stores = [
        ast.unparse(each)
        for each in own_nodes(node.body)
        if isinstance(each, (ast.Name, ast.Attribute)) and isinstance(each.ctx, ast.Store)
    ]
    counted = [text for text in _increased(node.body) if stores.count(text) == 1]
    found = [(test, _GOES_ON) for test in _parts(node.test, ast.And)]
    for statement in node.body:
        if isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Break):
            found += [(test, _ENDS) for test in _parts(statement.test, ast.Or)]
    limits = (_limit(_without_none(test), ways, counted) for test, ways in found)
    return tuple(each for each in limits if each is not None and each.end not in stores)


def planned(limits: Iterable[Limit], frame: FrameType) -> int | None:
    """Return how many iterations a loop makes at most that begins in a frame; None where its text
    does not say. Nothing of the script's is run to know it."""
    counts = []
    for limit in limits:
        begin, end = _value(limit.counter, frame), _value(limit.end, frame)
        if begin is not None and end is not None:
            counts.append(max(0, math.ceil(end - begin) + limit.more))
    return min(counts, default=None)


def _increased(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield what each iteration adds one to, once."""
    for node in body:
        if isinstance(node, (ast.With, ast.Try)):
            yield from _increased(node.body)
        elif (
            isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and _is_one(node.value)
        ):
            yield ast.unparse(node.target)


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and bool(node.value == 1)


def _parts(test: ast.expr, kind: type[ast.boolop]) -> list[ast.expr]:
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, kind) else [test]


def _without_none(test: ast.expr) -> ast.expr:
    """Return what is left of a condition without parts that ask whether something is None, which
    no limit is that is a number."""
    rest = [each for each in _parts(test, ast.And) if not _asks_none(each)]
    return rest[0] if len(rest) == 1 else test


def _asks_none(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and any(
        isinstance(each, ast.Constant) and each.value is None for each in test.comparators
    )


def _limit(
    test: ast.expr, ways: dict[type[ast.cmpop], int], counted: Iterable[str]
) -> Limit | None:
    """Return the limit that a comparison is, if one of its sides is counted."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left, right, way = test.left, test.comparators[0], type(test.ops[0])
    counter, end = ast.unparse(left), right
    if counter not in counted:
        counter, end, way = ast.unparse(right), left, _MIRRORED.get(way, way)
    is_number = isinstance(end, ast.Constant) and type(end.value) in (int, float)
    if counter not in counted or way not in ways or not (is_number or _is_dotted(end)):
        return None
    return Limit(counter, ast.unparse(end), ways[way])


def _is_dotted(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _value(text: str, frame: FrameType) -> int | float | None:
    """Return the number that a text stands for in a frame; None for anything else, such as what a
    property would have to compute."""
    try:
        return float(text)
    except ValueError:
        name, *attributes = text.split(".")
    value: Any = frame.f_locals.get(name, frame.f_globals.get(name))
    for attribute in attributes:
        value = inspect.getattr_static(value, attribute, None)
    is_number = type(value) in (int, bool) or (type(value) is float and math.isfinite(value))
    return value if is_number else None

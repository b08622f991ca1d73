"""Steep functions that losses take of numbers with 16 bits, as autocast makes them.

Close to 0 such numbers are as dense as others, close to 1 they are 2^-8 apart (bfloat16) or 2^-11:
`log(1 - p)` of a probability above 0.998 is minus infinity, `acos` of a cosine has no slope. In
float32 that takes far longer, so that a short life shows nothing of it. (torch itself refuses
`binary_cross_entropy` within autocast on CUDA, as it is unsafe there: docs.pytorch.org/docs/stable/
amp.html.) The graph of the gradients tells what was computed of what, and in which type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MOST_NODES = 20_000
"""Nodes of a graph that are looked at: some 50 ms."""
MOST_LOSSES = 8
"""Losses of a life whose graphs are looked at: more than a script has different ones."""
_NEAR_ONE = ("Acos", "Asin", "Atanh", "BinaryCrossEntropy", "Logit")
"""What is steep where its input is near 1."""
_NEAR_MINUS_ONE = ("Log1P", "SpecialXlog1Py")
"""What is steep where its input is near -1, and not where it is positive."""
_NEAR_ZERO = ("Log", "Log10", "Log2", "Rsqrt", "Sqrt")
"""What is steep near 0, which only differences of such numbers reach before others do."""
_DIFFERENCES = ("Rsub", "Sub")
_PASSED_ON = (
    "Alias", "Clamp", "ClampMax", "ClampMin", "Clone", "Expand", "Gather", "Index", "IndexSelect",
    "MaskedSelect", "Permute", "ReshapeAlias", "Select", "Slice", "Squeeze", "T", "ToCopy",
    "Transpose", "UnsafeView", "Unsqueeze", "View",
)  # fmt: skip
"""What gives the numbers that it gets, or those within limits."""
_KEPT = ("_saved_result", "_saved_self", "_saved_input", "_saved_mat1")
"""Names of tensors that nodes keep for the backward pass."""


class Steepness:
    """Looks at the first losses of a life."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._looks = 0
        self._found: dict[str, None] = {}

    def look(self, loss: Any) -> None:
        """Look at what a loss was computed by, before its graph is gone."""
        if self._looks < MOST_LOSSES:
            self._looks += 1
            self._found.update(dict.fromkeys(steep_functions(self._torch, loss)))

    def names(self) -> list[str]:
        """Return the steep functions of numbers with 16 bits in all of these losses."""
        return list(self._found)


def steep_functions(torch: Any, loss: Any) -> Iterator[str]:
    """Yield the names of steep functions that a loss takes of numbers with 16 bits."""
    short = (torch.bfloat16, torch.float16)
    for node in _graph(loss.grad_fn):
        name = _name(node)
        if name in _NEAR_ONE:
            is_steep = any(_is_short(each, short, ()) for each in _inputs(node))
        elif name in _NEAR_MINUS_ONE:
            turned = [each for each in _sources(node, ("Neg",)) if _name(each) == "Neg"]
            is_steep = any(_is_short(each, short, ("Neg",)) for each in turned)
        elif name in _NEAR_ZERO:
            apart = [each for each in _sources(node, ("Add", "Div")) if _name(each) in _DIFFERENCES]
            others = (each for node in apart for each in _inputs(node))
            is_steep = any(_is_short(each, short, ("Neg", "Pow")) for each in others)
        else:
            continue
        if is_steep:
            yield name


def _graph(root: Any) -> Iterator[Any]:
    """Yield the nodes of a graph, each once."""
    waiting = [root] if root is not None else []
    seen: set[Any] = set()
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            yield node
            waiting.extend(_inputs(node))


def _inputs(node: Any) -> list[Any]:
    return [each for each, _ in node.next_functions if each is not None]


def _name(node: Any) -> str:
    """Return what a node is called without its version: `Log` of `LogBackward0`."""
    return str(node.name()).partition("Backward")[0]


def _sources(node: Any, others: tuple[str, ...]) -> Iterator[Any]:
    """Yield the inputs of a node, and behind what passes numbers on, or is one of others, its."""
    waiting = _inputs(node)
    seen: set[Any] = set()
    while waiting and len(seen) < MOST_NODES:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        yield each
        if _name(each) in (*_PASSED_ON, *others):
            waiting.extend(_inputs(each))


def _is_short(node: Any, short: tuple[Any, ...], others: tuple[str, ...]) -> bool:
    """Say whether what a node gives is of numbers with 16 bits."""
    nodes = (node, *(_sources(node, others) if _name(node) in (*_PASSED_ON, *others) else ()))
    return any(dtype in short for each in nodes for dtype in _types(each))


def _types(node: Any) -> list[Any]:
    """Return the types of what a node gives; before torch 2.5, which tells them, of what it keeps,
    and what it gives is alike."""
    made = getattr(node, "_input_metadata", None)
    if made is None:
        kept = (getattr(node, name, None) for name in _KEPT)
        made = [each for each in kept if hasattr(each, "dtype")]
    return [each.dtype for each in made]

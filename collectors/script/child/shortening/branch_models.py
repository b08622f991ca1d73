"""What a script's text shows of its models: names that reach for their parts, attributes that they
compare with, and assertions of theirs that refuse values."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from gpuadvisor.collectors.script.child.shortening.syntax import SIZES, chain, last_name

PARTS = frozenset({
    "add_param_group", "bias", "data", "grad", "jit", "named_parameters", "onnx", "parameters",
    "prune", "register_forward_hook", "requires_grad", "requires_grad_", "weight",
})  # fmt: skip
"""Names by which a script reaches for a model's weights and layers, or an optimizer's."""
CHANGES = frozenset({"add_module", "append", "apply", "half"})
"""Methods by which a model's layers or their types change."""
METHODS = frozenset({"eval", "parameters", "state_dict", "train"})
"""Methods by which a script's models are known."""
TOOLS = (["onnx"], ["prune"])
"""Names of torch's modules that change models."""
STEADY = SIZES | {"dim", "hasattr", "is_tensor", "isinstance", "len"}
"""What an assertion asks that Dynamo knows when it compiles."""


def is_part(names: list[str]) -> bool:
    """Say whether a script reaches for a model's weights and layers, or an optimizer's, by an
    attribute with these names on the way, its own last."""
    if names[-1] == "load_state_dict" and "opt" in "".join(names[-2:-1]):
        return True
    return (names[-1] in PARTS or names[:1] in TOOLS) and names != ["self", "data"]


def compared(classes: Iterable[ast.ClassDef]) -> set[str]:
    """Return the attributes of models that their code compares with."""
    models = [each for each in classes if is_model(each)]
    tests = (n for each in models for n in ast.walk(each) if isinstance(n, ast.Compare))
    parts = (n for test in tests for n in ast.walk(test) if isinstance(n, ast.Attribute))
    return {node.attr for node in parts if chain(node)[:-1] == ["self"]}


def asserts_tensors(model: ast.ClassDef) -> bool:
    """Say whether a model asserts something of the values that it is given, not of their shape."""
    tests = (n.test for n in ast.walk(model) if is_model(model) and isinstance(n, ast.Assert))
    calls = (n for test in tests for n in ast.walk(test) if isinstance(n, ast.Call))
    return any(last_name(call.func) not in STEADY for call in calls)


def is_model(node: ast.ClassDef) -> bool:
    """Say whether a class is a model, or a layer of one."""
    return any(getattr(part, "name", "") == "forward" for part in node.body)

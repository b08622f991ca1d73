"""Constructors whose arguments knobs may change: DataLoaders and optimizers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from gpuadvisor.collectors.script.child.registry import KnobTarget

Adjust = Callable[[type, "dict[str, Any]"], "list[KnobTarget]"]
"""Takes the class and the keyword arguments, and returns the knobs that changed some."""


def patch_constructor(
    cls: type, adjust: Adjust, built: Callable[[Any, dict[str, Any]], None]
) -> None:
    """Let `adjust` change how instances of `cls` are built, and call `built` with each.

    When the constructor refuses the changed arguments, the script's own are used and each knob
    that changed some is told why.
    """
    original = cls.__init__  # type: ignore[misc]
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        # `AdamW` calls `Adam.__init__`: only the outermost call is the script's.
        if getattr(self, "_gpuadvisor_building", False):
            original(self, *args, **kwargs)
            return
        named = _named(signature, self, args, kwargs)
        if named is None:  # a subclass with other ideas: leave it alone
            original(self, *args, **kwargs)
            return
        object.__setattr__(self, "_gpuadvisor_building", True)
        try:
            own = dict(named)
            if "params" in named:  # a generator can be read once, and a refusal reads it
                own["params"] = named["params"] = list(named["params"])
            changed = adjust(type(self), named)
            try:
                original(self, **named)
            except Exception as error:
                if not changed:
                    raise
                for target in changed:
                    target.refuse(f"{cls.__name__} refused it: {str(error)[:200]}")
                named = own
                original(self, **own)
        finally:
            object.__delattr__(self, "_gpuadvisor_building")
        built(self, named)

    cls.__init__ = init  # type: ignore[misc]


def _named(
    signature: inspect.Signature, self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any] | None:
    """Return all arguments by name, defaults too; None if they cannot be passed by name."""
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    if inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.VAR_KEYWORD in kinds:
        return None
    try:
        bound = signature.bind(self, *args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    del arguments[next(iter(signature.parameters))]
    return arguments


def adjuster(callbacks: list[tuple[KnobTarget, Callable[..., None]]], with_class: bool) -> Adjust:
    """Return an `Adjust` that asks each knob in turn and notes which changed something."""

    def adjust(cls: type, named: dict[str, Any]) -> list[KnobTarget]:
        changed = []
        for target, callback in callbacks:
            before = dict(named)
            with target:
                callback(cls, named) if with_class else callback(named)
            if any(named[key] is not before.get(key) for key in named):
                changed.append(target)
        return changed

    return adjust

"""Find the modules that the script itself calls, and stand around their calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gpuadvisor.collectors.script.child.registry import Around, Registry

SETTLED_CALLS = 6
"""Calls of the first root after which no new roots are looked for: a GAN has shown its two by
then, and looking costs time in every module's call."""

Observe = Callable[[Any, bool, "tuple[Any, ...]", "dict[str, Any]", Any], None]
"""Takes the root, whether it is the first one, the call's arguments and its result."""


class Roots:
    """Replaces `Module.__call__` until the roots are known; then each root stands for itself.

    A root is wrapped at `_compiled_call_impl`, the slot that `Module.compile` uses. It is an
    attribute of the instance that pickling and `deepcopy` leave out, so checkpoints of whole
    modules still work, and it stands outside of compiled code, so Dynamo never traces it.
    `Module.__call__` itself is not what Dynamo inlines (that is `_call_impl`), unlike global
    forward hooks, which make compiled code recompile and then run eagerly.
    """

    def __init__(self, torch: Any, registry: Registry, observe: Observe | None) -> None:
        self._torch = torch
        self._registry = registry
        self._observe = observe
        self._known: set[int] = set()
        self._first: Any = None
        self._calls = 0
        self._original = torch.nn.Module.__call__
        self.modules: list[Any] = []

    def look(self) -> None:
        """Start to look for roots."""
        original, known = self._original, self._known
        is_compiling = self._torch.compiler.is_compiling

        @functools.wraps(original)
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if not is_compiling() and id(module) not in known:
                self.adopt(module)
            return original(module, *args, **kwargs)

        self._torch.nn.Module.__call__ = call

    def adopt(self, module: Any) -> None:
        """Make a module a root, unless it has nothing to compute with, as a loss has not."""
        members = list(module.modules())
        self._known.update(map(id, members))
        if not any(True for _ in module.parameters()) or isinstance(
            module, self._torch.jit.ScriptModule
        ):
            return
        inner = self._unwrapped(module)
        self.modules.append(inner)
        if self._first is None or any(member is self._first for member in members):
            self._first = inner
        for target, prepare in self._registry.root_preparers:
            with target:
                prepare(inner)
        self._stand_around(inner)

    def _unwrapped(self, module: Any) -> Any:
        """Return what a data-parallel wrapper for a single device wraps, else the module."""
        parallel = self._torch.nn.parallel
        if isinstance(module, parallel.DistributedDataParallel):
            return module.module
        if isinstance(module, self._torch.nn.DataParallel) and len(module.device_ids) <= 1:
            return module.module
        return module

    def _stand_around(self, module: Any) -> None:
        if hasattr(module, "_orig_mod"):  # torch.compile's wrapper passes other attributes on
            module.forward = self._wrapped(module, module.forward)
        else:
            inner = module._compiled_call_impl or module._call_impl
            module._compiled_call_impl = self._wrapped(module, inner)

    def _wrapped(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        call = inner
        for around in reversed(self._registry.root_arounds):
            call = _bound(around, module, call)
        is_compiling, observe = self._torch.compiler.is_compiling, self._observe

        @functools.wraps(inner)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return inner(*args, **kwargs)
            result = call(*args, **kwargs)
            first = module is self._first
            if first and self._calls < SETTLED_CALLS:
                self._calls += 1
                if self._calls == SETTLED_CALLS:
                    self._torch.nn.Module.__call__ = self._original
            if observe is not None:
                observe(module, first, args, kwargs, result)
            return result

        return wrapped


def _bound(around: Around, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return around(module, inner, args, kwargs)

    return call

"""Find the modules that the script itself calls, and stand around their calls."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

from gpuadvisor.collectors.script.child.counters import Counters
from gpuadvisor.collectors.script.child.registry import Around, Registry
from gpuadvisor.collectors.script.child.trace import new_rows_in

SETTLED_CALLS = 6
"""Calls of the first root after which no new roots are looked for: a GAN has shown its two by
then, and looking costs time in every module's call."""
OTHER_CALLS = 64
"""Calls of other roots without one of the first, after which the last one called takes its place:
the first was for preparation, as an encoder of the prompt."""
OTHER_CALLS_EACH = 8
"""Calls of other roots for each call of the first that have this effect while those are few."""
DYNAMO_COPIES = ("torch._dynamo.utils", "torch._dynamo.variables.nn_module")
"""Where Dynamo keeps the `Module.__call__` of its import, to trace unpatched modules faster."""

GRAPH_CODE = "<eval_with_key>"
"""Begin of the file name of the code that torch.fx writes for a graph. That of torch 2.4 calls
parts of what was compiled, as objects of its own with their attributes (`nn_module_proxy`)."""

DATALESS = "torch._subclasses."
"""Where torch keeps the tensors with which it follows a computation: fake and functional ones."""

Observe = Callable[[Any, bool, "tuple[Any, ...]", "dict[str, Any]", Any], None]
"""Takes the root, whether it is the first one, the call's arguments and its result."""


class Roots:
    """Replaces `Module.__call__` until the roots are known; then each root stands for itself.

    A root is wrapped at `_compiled_call_impl`, the slot that `Module.compile` uses. It is an
    attribute of the instance that pickling and `deepcopy` leave out, so checkpoints of whole
    modules still work, and it stands outside of compiled code. Where Dynamo traces a call, it
    goes straight to `forward`, unlike with global forward hooks, which make compiled code
    recompile and then run eagerly.

    Nothing here keeps a module alive that the script has dropped.
    """

    def __init__(
        self,
        torch: Any,
        registry: Registry,
        counters: Counters,
        observe: Observe | None = None,
        found: Callable[[Any], None] | None = None,
        observes_all: bool = False,
    ) -> None:
        """Stand around roots; with `observes_all` also those that come once nothing more is
        looked for, which settings leave alone."""
        self.counters = counters
        self._torch = torch
        self._registry = registry
        self._observe = observe
        self._found = found
        self._observes_all = observes_all
        self._known: dict[int, weakref.ref[Any]] = {}
        self._roots: list[weakref.ref[Any]] = []
        self._first: weakref.ref[Any] | None = None
        self._calls = 0
        self._other_calls = 0
        self._original = torch.nn.Module.__call__
        self._looking: Callable[..., Any] | None = None

    def look(self) -> None:
        """Start to look for roots.

        RuntimeError, told to the knobs of roots too, where this torch calls modules in another way.
        """
        reason = _other_calls(self._torch)
        if reason is not None:
            for target, _ in self._registry.root_preparers:
                target.refuse(reason)
            raise RuntimeError(reason)
        original, known, adopt = self._original, self._known, self.adopt
        is_compiling = self._torch.compiler.is_compiling

        # The module is `self`, as torch's profiler reads it from what stands here, with stacks.
        @functools.wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not is_compiling():
                seen = known.get(id(self))
                if (seen is None or seen() is not self) and not _calls_from_graph():
                    adopt(self)
            return original(self, *args, **kwargs)

        self._torch.nn.Module.__call__ = self._looking = call
        _tell_dynamo(original, call)
        self._hide_from_script()

    def _hide_from_script(self) -> None:
        """Step aside while TorchScript reads a module: it would compile what stands in it, too.

        Only where that is us alone: what a knob has compiled stays, and fails as it would without
        us.
        """
        original = self._torch.jit.script

        @functools.wraps(original)
        def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
            hidden = []
            for module in obj.modules() if isinstance(obj, self._torch.nn.Module) else ():
                standing = vars(module).get("_compiled_call_impl")
                if isinstance(standing, Standing) and standing.is_alone:
                    hidden.append((module, vars(module).pop("_compiled_call_impl")))
            try:
                return original(obj, *args, **kwargs)
            finally:
                for module, standing in hidden:
                    object.__setattr__(module, "_compiled_call_impl", standing)

        self._torch.jit.script = script

    def _settle(self) -> None:
        """Stop to look, unless something else has patched our patch meanwhile."""
        module = self._torch.nn.Module
        if self._looking is not None and module.__call__ is self._looking:
            module.__call__ = self._original
            _tell_dynamo(self._looking, self._original)
            self._looking = None

    def adopt(self, module: Any) -> None:
        """Make a module a root, unless it has nothing to compute with, as a loss has not."""
        members = list(module.modules())
        self._known.update((id(member), weakref.ref(member)) for member in members)
        parameter = next(module.parameters(), None)
        # To compile a module, torch 2.4 calls copies and parts of it, with tensors without data.
        if parameter is None or type(parameter).__module__.startswith(DATALESS):
            return
        if self._is_part(module):
            return
        inner = self._unwrapped(module)
        self._roots.append(weakref.ref(inner))
        first = self._first() if self._first is not None else None
        is_late = self._calls >= SETTLED_CALLS
        if first is None or any(member is first for member in members):
            self._first, self.counters.usual_root = weakref.ref(inner), None
        if self._found is not None:
            self._found(inner)
        for target, prepare in () if is_late else self._registry.root_preparers:
            with target:
                prepare(inner)
        self._stand_around(inner, [] if is_late else self._registry.root_arounds)

    def _is_part(self, module: Any) -> bool:
        """Say whether a root was given the module later, as a new head."""
        self._roots = [root for root in self._roots if root() is not None]
        return any(m is module for root in self._roots for m in _members(root()))

    def compiled(self, module: Any) -> None:
        """The script has compiled a module in place, and with that thrown our call out."""
        if any(root() is module for root in self._roots):
            self._stand_around(module, self._registry.root_arounds)

    def _unwrapped(self, module: Any) -> Any:
        """Return what a data-parallel wrapper for a single device wraps, else the module."""
        parallel = self._torch.nn.parallel
        if isinstance(module, parallel.DistributedDataParallel):
            return module.module
        if isinstance(module, self._torch.nn.DataParallel) and len(module.device_ids) <= 1:
            return module.module
        return module

    def _stand_around(self, module: Any, arounds: list[Around]) -> None:
        standing = Standing(self, module, arounds)
        if "_orig_mod" in vars(module).get("_modules", {}):
            module.forward = standing  # torch.compile's wrapper passes other attributes on
        else:  # past `__setattr__`, which a scripted module has of its own
            object.__setattr__(module, "_compiled_call_impl", standing)

    def called(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Note that a root was called."""
        self.counters.usual_root = None
        current = self._first() if self._first is not None else None
        if current is not module:
            self._other_calls += 1
            if current is None or self._other_calls > min(
                OTHER_CALLS, OTHER_CALLS_EACH * self._calls
            ):
                self._first, current = weakref.ref(module), module
        if current is module:
            self._other_calls = 0
            self._calls += 1
            if self._calls == SETTLED_CALLS and not self._observes_all:
                self._settle()
        if self._observe is not None:
            self._observe(module, current is module, args, kwargs, result)


class Standing:
    """Stands in a module for its call. Copied or pickled it is None, as in a fresh module."""

    __slots__ = (
        "_call", "_called", "_compiled", "_counters", "_is_grad_enabled", "_is_traced", "_module",
        "_torch",
    )  # fmt: skip

    def __init__(self, roots: Roots, module: Any, arounds: list[Around]) -> None:
        self._called = roots.called
        self._counters = roots.counters
        self._module = weakref.ref(module)
        self._torch = roots._torch
        self._is_grad_enabled = self._torch.is_grad_enabled
        compiler = self._torch.compiler  # of whose two the second is the slow one
        self._is_traced = compiler.is_compiling if arounds else compiler.is_dynamo_compiling
        compiled = "_orig_mod" in vars(module).get("_modules", {})
        # A bound method would keep the module alive; what is compiled keeps it anyway.
        self._compiled = module.forward if compiled else module._compiled_call_impl
        if isinstance(self._compiled, Standing):
            self._compiled = self._compiled._compiled
        self._call: Callable[..., Any] | None = self._compiled
        if arounds:
            self._call = self._inner
        for around in reversed(arounds):
            self._call = functools.partial(self._through, around, self._call)

    @property
    def is_alone(self) -> bool:
        """Whether nothing else was there before: no compiled form of the module."""
        return self._compiled is None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._is_traced():
            return self._inner(*args, **kwargs)
        module: Any = self._module()
        # No more frames than needed: each costs a small model a part of its step.
        result = (self._call or module._call_impl)(*args, **kwargs)
        counters = self._counters
        # A module has one weak reference without a callback, however often it is asked for.
        if counters.usual_root is self._module and self._is_grad_enabled():
            loaded = counters.loader_samples
            if loaded == counters.loader_samples_seen:  # else those count: a shape takes 5 us
                counters.rows = new_rows_in(self._torch, args, kwargs)
            counters.loader_samples_seen = loaded
            counters.root_samples += counters.rows
        else:
            self._called(module, args, kwargs, result)
        return result

    def _inner(self, *args: Any, **kwargs: Any) -> Any:
        module: Any = self._module()
        return (self._compiled or module._call_impl)(*args, **kwargs)

    def _through(
        self, around: Around, inner: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        return around(self._module(), inner, args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(None), ()


def _other_calls(torch: Any) -> str | None:
    """Return why nothing can stand around a module's call in this torch, or None if it can."""
    module = torch.nn.Module()
    object.__setattr__(module, "_compiled_call_impl", lambda: module)
    try:
        works = module() is module and callable(module._call_impl)
        works = works and torch.nn.Module()._compiled_call_impl is None
    except Exception:  # whatever this torch makes of it
        works = False
    return None if works else f"torch {torch.__version__} calls modules in another way"


def _calls_from_graph() -> bool:
    """Say whether the module whose call asks is called by a graph, and not by the script."""
    return sys._getframe(2).f_code.co_filename.startswith(GRAPH_CODE)


def _members(root: Any) -> list[Any]:
    return list(root.modules()) if root is not None else []


def _tell_dynamo(before: Any, after: Any) -> None:
    """Keep Dynamo's short way through `Module.__call__`, which it takes where none is patched."""
    for name in DYNAMO_COPIES:
        module = sys.modules.get(name)
        if module is not None and getattr(module, "unpatched_nn_module_call", None) is before:
            module.unpatched_nn_module_call = after  # type: ignore[attr-defined]

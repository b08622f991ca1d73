"""The places in torch where the harness stands. Each patch keeps to the original's behaviour."""

from __future__ import annotations

import functools
import inspect
import os
import time
import types
import weakref
from collections.abc import Callable
from typing import Any

from gpuadvisor.collectors.script.child.counters import Counters, nothing
from gpuadvisor.collectors.script.child.markers import StepMarkers
from gpuadvisor.collectors.script.child.registry import KnobTarget, Registry
from gpuadvisor.collectors.script.child.script_facts import FactsRecorder, UsedLoader
from gpuadvisor.collectors.script.child.trace import samples_in

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


def surround_backward(torch: Any, registry: Registry) -> None:
    """Let knobs stand around every `tensor.backward()`."""
    arounds = registry.backward_arounds
    if not arounds:
        return
    original, is_compiling = torch.Tensor.backward, torch.compiler.is_compiling

    @functools.wraps(original)
    def backward(self: Any, *args: Any, **kwargs: Any) -> None:
        if is_compiling():  # anything else here would end up in the graph, or break it
            original(self, *args, **kwargs)
            return
        run = functools.partial(_call, original, args, kwargs)
        for around in reversed(arounds):
            run = functools.partial(_around, around, run)
        run(self)

    torch.Tensor.backward = backward


def watch_backward(
    torch: Any, registry: Registry, counters: Counters, markers: StepMarkers
) -> None:
    """See those backward passes that are of interest."""
    # `is_compiling` is 5 us slower where a step has emptied the caches.
    is_traced, inside = torch.compiler.is_dynamo_compiling, False

    def watched(original: Any) -> Any:
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            nonlocal inside
            if is_traced() or inside:
                original(tensors, *args, **kwargs)
                return
            counters.passes = left = counters.passes - 1
            if left <= 0:
                one = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors))
                markers.before_backward(one)
            inside = True
            try:
                original(tensors, *args, **kwargs)
            finally:
                inside = False
            if left <= 0:
                markers.backward_done()

        return backward

    # Called by `tensor.backward()`, too, and by a few scripts themselves.
    torch.autograd.backward = watched(torch.autograd.backward)
    if registry.backward_arounds:  # the script's tensor is seen outside of them
        torch.Tensor.backward = watched(torch.Tensor.backward)


def _call(original: Any, args: Any, kwargs: Any, tensor: Any) -> None:
    original(tensor, *args, **kwargs)


def _around(around: Callable[[Any, Any], None], inner: Any, tensor: Any) -> None:
    around(tensor, inner)


def patch_loaders(torch: Any, registry: Registry) -> None:
    """Let knobs change the arguments of `DataLoader`."""
    if registry.loader_adjusters:
        adjust = adjuster(registry.loader_adjusters, with_class=False)
        patch_constructor(torch.utils.data.DataLoader, adjust, lambda *_: None)


def patch_optimizers(torch: Any, registry: Registry, built: Callable[[Any], None]) -> None:
    """Let knobs change the arguments of torch's optimizers, and see every optimizer built."""
    original = torch.optim.Optimizer.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        built(self)
        for target, adopt in registry.optimizer_adopters:
            with target:
                adopt(self)

    torch.optim.Optimizer.__init__ = init
    if not registry.optimizer_adjusters:
        return
    adjust = adjuster(registry.optimizer_adjusters, with_class=True)
    classes = {cls for cls in vars(torch.optim).values() if isinstance(cls, type)}
    for cls in classes - {torch.optim.Optimizer}:
        if issubclass(cls, torch.optim.Optimizer):
            patch_constructor(cls, adjust, lambda *_: None)


def patch_scaler(torch: Any, markers: StepMarkers) -> None:
    """See the steps that a `GradScaler` leaves out, and the loss before it is scaled."""
    scaler = torch.amp.GradScaler
    step, scale = scaler.step, scaler.scale

    @functools.wraps(step)
    def observed_step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        markers.scaler_enters()
        try:
            return step(self, optimizer, *args, **kwargs)
        finally:
            markers.scaler_leaves(optimizer)

    @functools.wraps(scale)
    def observed_scale(self: Any, outputs: Any) -> Any:
        scaled = scale(self, outputs)
        markers.loss_scaled()
        if isinstance(scaled, torch.Tensor) and scaled is not outputs:
            scaled._gpuadvisor_unscaled = outputs.detach()
        return scaled

    scaler.step, scaler.scale = observed_step, observed_scale


def patch_batches(counters: Counters, facts: FactsRecorder, alive: Callable[[float], None]) -> None:
    """Count samples and the time spent waiting for them, in every loader's iterator."""
    from torch.utils.data import dataloader

    from gpuadvisor.collectors.script.child.counters import LONG_WAIT_S

    base: Any = dataloader._BaseDataLoaderIter  # AttributeError where there is none any more
    original, clock = base.__next__, time.perf_counter
    used: UsedLoader
    batch_size: int | None = None
    full = full_size = 0
    newest: Callable[[], Any] = nothing

    @functools.wraps(original)
    def following(self: Any) -> Any:
        nonlocal newest, used, batch_size, full, full_size
        began = clock()
        mark = counters.begin_wait() if counters.watched else None
        batch = original(self)
        now = clock()
        counters.data_wait_s += now - began
        if now - began > LONG_WAIT_S:
            counters.waited(mark, now - began)
        if newest() is not self:
            newest, used = weakref.ref(self), facts.loader(self)
            batch_size, full = used.facts.batch_size, 0
            if workers := used.facts.num_workers:
                counters.loaded_by(self, workers, used.facts.prefetch_factor or 0)
        used.batches += 1
        if full and self._num_yielded <= full:  # to read a tensor's shape takes 5 us
            counters.loader_samples += full_size
        else:
            try:
                samples = samples_in(batch, batch_size)
            except Exception:  # objects of the script's, whose attributes may do anything
                samples = 0  # and nothing is said of samples
            counters.loader_samples += samples
            full, full_size = used.full if samples == batch_size else 0, samples
        if now >= counters.heartbeat_s:
            alive(now)
        return batch

    base.__next__ = following


def note_compilation(
    torch: Any,
    registry: Registry,
    facts: FactsRecorder,
    compiled: Callable[[Any], None],
    called: Callable[[Any, Any], None],
) -> None:
    """Note whether the script compiles itself, in its own code and not because a knob does.

    `compiled` is told of each module that the script compiles in place, `called` of each function
    that it compiles, with its result, at each call.
    """
    compile_function, compile_module = torch.compile, torch.nn.Module.compile
    at_module = False

    @functools.wraps(compile_function)
    def observed(*args: Any, **kwargs: Any) -> Any:
        result = compile_function(*args, **kwargs)
        if registry.at_work or at_module:
            return result
        facts.compiles = True
        # A decorator with arguments comes here again with the function.
        compiled_one = args[0] if args else kwargs.get("model")
        is_function = isinstance(compiled_one, (types.FunctionType, types.MethodType))
        return _observed(torch, result, called) if is_function else result

    @functools.wraps(compile_module)
    def observed_module(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal at_module
        at_module = True
        try:
            compile_module(self, *args, **kwargs)
        finally:
            at_module = False
        if not registry.at_work:
            facts.compiles = True
            compiled(self)

    torch.compile, torch.nn.Module.compile = observed, observed_module


def _observed(torch: Any, function: Any, called: Callable[[Any, Any], None]) -> Any:
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if not is_compiling():
            called(call, result)
        return result

    return call


def patch_exit(ended: Callable[[], None]) -> None:
    """Call `ended` before `os._exit`, which ends a process without its exit handlers."""
    original = os._exit

    @functools.wraps(original)
    def leave(status: int) -> None:
        try:
            ended()
        finally:
            original(status)

    os._exit = leave  # type: ignore[assignment]


def peak_memory(torch: Any) -> dict[str, int]:
    """Return the most memory in use and held, in bytes: the GPU's, else the process's.

    `torch` may be None, where a script does not use it.
    """
    if torch and torch.cuda.is_initialized() and torch.cuda.max_memory_allocated():
        return {
            "peak_memory_bytes": torch.cuda.max_memory_allocated(),
            "reserved_memory_bytes": torch.cuda.max_memory_reserved(),
        }
    resident = _most_resident()
    return {"peak_memory_bytes": resident, "reserved_memory_bytes": resident}


def _most_resident() -> int:
    """Return the most memory that this process has held, in bytes.

    The system's own count for a process (`getrusage`) begins at what its parent held when it was
    started, which is no part of the script; that of its memory map does not.
    """
    import resource

    try:
        with open("/proc/self/status", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123
            return next(int(each.split()[1]) for each in lines if each.startswith("VmHWM")) * 1024
    except (OSError, StopIteration):  # another system
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

"""The places in torch where the harness stands. Each patch keeps to the original's behaviour."""

from __future__ import annotations

import functools
import os
import time
import types
from collections.abc import Callable
from typing import Any

from gpuadvisor.collectors.script.child.builders import adjuster, patch_constructor
from gpuadvisor.collectors.script.child.counters import Counters
from gpuadvisor.collectors.script.child.facts import FactsRecorder
from gpuadvisor.collectors.script.child.markers import StepMarkers
from gpuadvisor.collectors.script.child.registry import Registry
from gpuadvisor.collectors.script.child.samples import samples_in


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


def after_every_step(stepped: Callable[[Any, Any, Any], None]) -> None:
    """Call `stepped(optimizer, args, kwargs)` after every step of any optimizer."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(stepped)


def patch_backward(
    torch: Any,
    registry: Registry,
    before: Callable[[Any], None] | None,
    done: Callable[[], None] | None,
) -> None:
    """See every backward pass, and let knobs stand around every `tensor.backward()`."""
    if before is None and not registry.backward_arounds:
        return
    original, engine = torch.Tensor.backward, torch.autograd.backward
    is_compiling = torch.compiler.is_compiling
    arounds, inside = registry.backward_arounds, False

    @functools.wraps(original)
    def backward(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal inside
        if is_compiling():  # traced: anything else here would end up in the graph, or break it
            original(self, *args, **kwargs)
            return
        if before is not None:
            before(self)
        inside = True
        try:
            if arounds:
                run = functools.partial(_call, original, args, kwargs)
                for around in reversed(arounds):
                    run = functools.partial(_around, around, run)
                run(self)
            else:
                original(self, *args, **kwargs)
        finally:
            inside = False
        if done is not None:
            done()

    @functools.wraps(engine)
    def direct(tensors: Any, *args: Any, **kwargs: Any) -> None:
        """Called by `tensor.backward()`, and by a few scripts themselves."""
        if inside or is_compiling() or before is None or done is None:
            engine(tensors, *args, **kwargs)
            return
        before(tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors)))
        engine(tensors, *args, **kwargs)
        done()

    torch.Tensor.backward = backward
    if before is not None:
        torch.autograd.backward = direct


def _call(original: Any, args: Any, kwargs: Any, tensor: Any) -> None:
    original(tensor, *args, **kwargs)


def _around(around: Callable[[Any, Any], None], inner: Any, tensor: Any) -> None:
    around(tensor, inner)


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

    base: Any = dataloader._BaseDataLoaderIter
    original = base.__next__

    @functools.wraps(original)
    def following(self: Any) -> Any:
        began = time.perf_counter()
        batch = original(self)
        now = time.perf_counter()
        counters.data_wait_s += now - began
        counters.loader_samples += samples_in(batch, facts.batch(self))
        workers = self._num_workers
        if workers:
            counters.loaded_by(self)
            counters.workers = max(counters.workers, workers)
            counters.stock = max(counters.stock, workers * (self._prefetch_factor or 0))
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
    """Return the most memory in use and held, in bytes: the GPU's, else the process's."""
    if torch.cuda.is_initialized() and torch.cuda.max_memory_allocated():
        return {
            "peak_memory_bytes": torch.cuda.max_memory_allocated(),
            "reserved_memory_bytes": torch.cuda.max_memory_reserved(),
        }
    import resource

    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"peak_memory_bytes": resident, "reserved_memory_bytes": resident}

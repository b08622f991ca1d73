"""The places in torch where the harness stands. Each patch keeps to the original's behaviour."""

from __future__ import annotations

import functools
import os
import time
import types
import weakref
from collections.abc import Callable
from typing import Any

from gpuadvisor.collectors.script.child.builders import adjuster, patch_constructor
from gpuadvisor.collectors.script.child.counters import Counters, nothing
from gpuadvisor.collectors.script.child.facts import FactsRecorder, UsedLoader
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
    original, clock = base.__next__, time.perf_counter
    used: UsedLoader
    batch_size: int | None = None
    full = full_size = 0
    newest: Callable[[], Any] = nothing

    @functools.wraps(original)
    def following(self: Any) -> Any:
        nonlocal newest, used, batch_size, full, full_size
        began = clock()
        batch = original(self)
        now = clock()
        counters.data_wait_s += now - began
        if newest() is not self:
            newest, used = weakref.ref(self), facts.loader(self)
            batch_size, full = used.facts.batch_size, 0
            if workers := self._num_workers:
                counters.loaded_by(self, workers, self._prefetch_factor or 0)
        used.batches += 1
        if full and self._num_yielded <= full:  # to read a tensor's shape takes 5 us
            counters.loader_samples += full_size
        else:
            samples = samples_in(batch, batch_size)
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
    """Return the most memory in use and held, in bytes: the GPU's, else the process's."""
    if torch.cuda.is_initialized() and torch.cuda.max_memory_allocated():
        return {
            "peak_memory_bytes": torch.cuda.max_memory_allocated(),
            "reserved_memory_bytes": torch.cuda.max_memory_reserved(),
        }
    import resource

    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"peak_memory_bytes": resident, "reserved_memory_bytes": resident}

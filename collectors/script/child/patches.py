"""The places in torch where the harness stands. Each patch keeps to the original's behaviour."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from gpuadvisor.collectors.script.child.builders import adjuster, patch_constructor
from gpuadvisor.collectors.script.child.counters import Counters
from gpuadvisor.collectors.script.child.facts import FactsRecorder
from gpuadvisor.collectors.script.child.markers import StepMarkers
from gpuadvisor.collectors.script.child.registry import Registry


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
    for cls in set(vars(torch.optim).values()):
        is_optimizer = isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer)
        if is_optimizer and cls is not torch.optim.Optimizer:
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
    """See every `tensor.backward()`, and let knobs stand around it."""
    if before is None and not registry.backward_arounds:
        return
    original = torch.Tensor.backward
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original)
    def backward(self: Any, *args: Any, **kwargs: Any) -> None:
        if is_compiling():  # traced: anything else here would end up in the graph, or break it
            original(self, *args, **kwargs)
            return
        if before is not None:
            before(self)
        run = functools.partial(_call, original, args, kwargs)
        for around in reversed(registry.backward_arounds):
            run = functools.partial(_around, around, run)
        run(self)
        if done is not None:
            done()

    torch.Tensor.backward = backward


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


def patch_batches(counters: Counters, facts: FactsRecorder) -> None:
    """Count samples and the time spent waiting for them, in every loader's iterator."""
    from torch.utils.data import dataloader

    base: Any = dataloader._BaseDataLoaderIter
    original = base.__next__

    @functools.wraps(original)
    def following(self: Any) -> Any:
        began = time.perf_counter()
        batch = original(self)
        counters.data_wait_s += time.perf_counter() - began
        counters.loader_samples += _samples(batch)
        workers = getattr(self, "_num_workers", 0)
        counters.workers = max(counters.workers, workers)
        counters.stock = max(counters.stock, workers * (getattr(self, "_prefetch_factor", 0) or 0))
        facts.batch(self)
        return batch

    base.__next__ = following


def _samples(batch: Any) -> int:
    """Return the samples in a batch: its graphs, or the length of its first tensor."""
    graphs = getattr(batch, "num_graphs", None)  # PyTorch Geometric
    if isinstance(graphs, int):
        return graphs
    while isinstance(batch, (list, tuple, dict)) and batch:
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    shape = getattr(batch, "shape", None)
    return int(shape[0]) if shape else 1


def note_compilation(torch: Any, registry: Registry, facts: FactsRecorder) -> None:
    """Note whether the script compiles itself, in its own code and not because a knob does."""
    compile_function, compile_module = torch.compile, torch.nn.Module.compile

    @functools.wraps(compile_function)
    def observed(*args: Any, **kwargs: Any) -> Any:
        facts.compiles = facts.compiles or not registry.at_work
        return compile_function(*args, **kwargs)

    @functools.wraps(compile_module)
    def observed_module(self: Any, *args: Any, **kwargs: Any) -> None:
        facts.compiles = facts.compiles or not registry.at_work
        compile_module(self, *args, **kwargs)

    torch.compile, torch.nn.Module.compile = observed, observed_module


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

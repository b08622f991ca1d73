"""Backward passes: knobs stand around them, and the harness sees those that are of interest."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gpuadvisor.collectors.script.child.counters import Counters
from gpuadvisor.collectors.script.child.markers import StepMarkers
from gpuadvisor.collectors.script.child.registry import Registry


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

"""From what torch does to ticks of the clock: what is a step of this script?"""

from __future__ import annotations

import time
from typing import Any

from gpuadvisor.collectors.script.child.clock import Clock
from gpuadvisor.collectors.script.child.counters import Counters
from gpuadvisor.collectors.script.child.facts import FactsRecorder
from gpuadvisor.collectors.script.child.trace import TraceRecorder, tensors_in

IDLE_OPTIMIZER_BACKWARDS = 128
"""Backward passes without a step of the optimizer that exists, after which the update must be
hand-written. More than any usual gradient accumulation (nanoGPT: 40)."""
IDLE_OPTIMIZER_S = 30.0
"""Time of forward passes alone, with an optimizer there, after which the script only evaluates.
Longer than the sanity check that trainers run before training."""


class StepMarkers:
    """Decides which events count a step, and feeds the counters, facts and trace on the way."""

    def __init__(
        self,
        torch: Any,
        clock: Clock,
        counters: Counters,
        facts: FactsRecorder,
        trace: TraceRecorder,
    ) -> None:
        self._torch = torch
        self._clock = clock
        self._counters = counters
        self._facts = facts
        self._trace = trace
        self._first_optimizer: Any = None
        self._backwards = 0
        self._first_forward_s = 0.0
        self._in_scaler = False

    # -- optimizers ------------------------------------------------------------------------

    def optimizer_built(self, optimizer: Any) -> None:
        self._facts.optimizers.append(type(optimizer).__name__)

    def optimizer_stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Count a step of the first optimizer that steps; a GAN's second one does not count."""
        if self._torch.compiler.is_compiling() or self._in_scaler:
            return
        self._step(optimizer)

    def scaler_enters(self) -> None:
        """A GradScaler leaves a step out when gradients overflow; it is a step all the same."""
        self._in_scaler = True

    def loss_scaled(self) -> None:
        self._facts.scales = True

    def scaler_leaves(self, optimizer: Any) -> None:
        self._in_scaler = False
        self._step(optimizer)

    def _step(self, optimizer: Any) -> None:
        optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper
        if self._first_optimizer is None:
            self._first_optimizer = optimizer
        if optimizer is self._first_optimizer:
            self._clock.tick("optimizer")

    # -- backward --------------------------------------------------------------------------

    def before_backward(self, tensor: Any) -> None:
        self._facts.trains = True
        self._trace.loss(getattr(tensor, "_gpuadvisor_unscaled", tensor))

    def backward_done(self) -> None:
        self._backwards += 1
        if self._first_optimizer is not None:
            return
        if not self._facts.optimizers or self._backwards > IDLE_OPTIMIZER_BACKWARDS:
            self._clock.tick("backward")

    # -- forward ---------------------------------------------------------------------------

    def root_called(
        self, module: Any, first: bool, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Note a call of a root; in a script that never trains it is a step."""
        grad = self._torch.is_grad_enabled()
        if not grad:
            self._counters.evaluations += 1
        if not first:
            return
        if grad or not self._facts.trains:
            if self._facts.root_input(args, kwargs):
                self._note_autocast(module)
            tensor = next(tensors_in(self._torch, (args, kwargs)), None)
            if tensor is not None and tensor.dim():
                self._counters.root_samples += tensor.shape[0]
        if self._facts.trains:
            return
        self._trace.output(result)
        if self._only_evaluates():
            self._clock.tick("forward")

    def _only_evaluates(self) -> bool:
        """Say whether forward passes are steps: nothing suggests that training will begin."""
        if not self._facts.optimizers:
            return True
        now = time.perf_counter()
        self._first_forward_s = self._first_forward_s or now
        return now - self._first_forward_s >= IDLE_OPTIMIZER_S

    def _note_autocast(self, module: Any) -> None:
        parameter = next(iter(module.parameters()), None)
        device = parameter.device.type if parameter is not None else "cpu"
        if device in ("cuda", "cpu") and self._torch.is_autocast_enabled(device):
            self._facts.autocasts = True

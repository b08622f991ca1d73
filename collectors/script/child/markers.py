"""Turns what torch does into ticks of the step clock, by what a step of this script is."""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.script.child.channel import guarded
from gpuadvisor.collectors.script.child.clock import StepClock
from gpuadvisor.collectors.script.child.counters import Counters, nothing
from gpuadvisor.collectors.script.child.script_facts import FactsRecorder
from gpuadvisor.collectors.script.child.trace import TraceRecorder, new_rows_in

IDLE_OPTIMIZER_BACKWARDS = 128
"""Backward passes without a step of the optimizer that exists, after which the update must be
hand-written. More than any usual gradient accumulation (nanoGPT: 40)."""
OTHER_OPTIMIZER_STEPS = 256
"""Steps of other optimizers without one of the first, after which the first is out of use. More
than any critic takes for a step of its generator (Wasserstein GANs begin with 100)."""
FUNCTION_CALLS = 8
"""Calls of compiled functions without one of a module, after which the functions are what a
script that never trains computes with."""
EVALUATION_S = 30.0
"""Time of forward passes alone, in a script that could train, after which it only evaluates.
Longer than the sanity check that trainers run before training."""
TRAINING_WORDS = (".backward(", ".fit(", "Trainer(")
"""Text that stands in the main file of a script that trains."""


class StepMarkers:
    """Decides which events count a step, and feeds the counters, facts and trace on the way."""

    def __init__(
        self,
        torch: Any,
        clock: StepClock,
        counters: Counters,
        facts: FactsRecorder,
        trace: TraceRecorder,
    ) -> None:
        self._torch = torch
        self._is_compiling = torch.compiler.is_compiling
        self._clock = clock
        self._counters = counters
        self._facts = facts
        self._trace = trace
        self.restart()

    def restart(self) -> None:
        """Forget everything, as a forked process does about its parent's steps."""
        self._optimizer: Callable[[], Any] = nothing
        self._other_steps = 0
        self._backwards = 0
        self._counters.usual_root = None
        self._unseen = self._counters.passes = 1
        self._first_forward_s = 0.0
        self._may_train: bool | None = None
        self._in_scaler = False
        self._stepped_in_graph = False
        self._function_calls = 0

    # -- optimizers ------------------------------------------------------------------------

    def optimizer_built(self, optimizer: Any) -> None:
        self._facts.optimizers.append(type(optimizer).__name__)

    def after_optimizer(self) -> Callable[[Any, Any, Any], None]:
        """Return what to call after each step of any optimizer.

        It counts the steps of the first one; a GAN's second one does not count.
        """
        counters, clock, time_s = self._counters, self._clock, time.perf_counter
        is_traced = self._torch.compiler.is_dynamo_compiling

        def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
            if is_traced():
                self._stepped_in_graph = True  # compiled code does this, too, at each call
            elif optimizer is counters.counted():
                now = counters  # a call of its `add_step` would take 2 us
                unmarked = now.unmarked
                if unmarked:
                    now.unmarked = unmarked - 1
                    return
                now.number = number = now.number + now.distance
                step = (
                    now.mark(),
                    now.loader_samples,
                    now.root_samples,
                    now.data_wait_s,
                    now.interruptions,
                    number,
                )
                now.open.append(step)
                now.distance = distance = next(now.distances)
                now.unmarked = distance - 1
                if time_s() >= now.window_ends_s:
                    clock.end_window()
            elif not self._in_scaler:
                self._step(optimizer)

        return stepped

    def scaler_enters(self) -> None:
        """A GradScaler leaves a step out when gradients overflow; it is a step all the same."""
        self._in_scaler = True
        self._counters.counted = nothing

    def loss_scaled(self) -> None:
        self._facts.scales = True

    def scaler_leaves(self, optimizer: Any) -> None:
        self._in_scaler = False
        self._step(optimizer)

    def _step(self, optimizer: Any) -> None:
        self._counters.counted = nothing
        optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper
        counted = self._optimizer()
        if optimizer is not counted:
            self._other_steps += 1
            if counted is not None and self._other_steps <= OTHER_OPTIMIZER_STEPS:
                return
            if self._optimizer is not nothing:  # a new phase: the time in between is no step
                self._counters.interrupt()
            self._optimizer = weakref.ref(optimizer)
        self._other_steps = 0
        self._facts.trains = True
        self._clock.tick("optimizer")
        if self._clock.fills_windows and self._clock.marker == "optimizer":
            self._counters.counted = self._optimizer

    # -- backward --------------------------------------------------------------------------

    def before_backward(self, tensor: Any) -> None:
        """Note the loss, and from when on passes are of interest again."""
        self._facts.trains = True
        passes = self._trace.loss(tensor, self._unseen)
        self._unseen = self._counters.passes = 1 if self._optimizer is nothing else passes

    def backward_done(self) -> None:
        self._backwards += 1
        if self._optimizer is not nothing:  # it stepped in the pass
            return
        if not self._facts.optimizers or self._backwards > IDLE_OPTIMIZER_BACKWARDS:
            self._clock.tick("backward")

    # -- forward ---------------------------------------------------------------------------

    def root_called(
        self, module: Any, first: bool, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Note a call of a root; in a script that never trains it is a step."""
        if self._is_compiling():
            return
        self._function_calls = 0
        grad, facts, counters = self._torch.is_grad_enabled(), self._facts, self._counters
        if not grad:
            counters.interrupt()
            self._clock.alive(time.perf_counter())
        if not first:
            return
        if grad or not facts.trains:
            if not facts.knows_shapes:
                facts.root_input(args, kwargs)
                with guarded(self._trace.report, "look at the module that the script calls"):
                    self._note_call(module, grad)
            counters.root_took(new_rows_in(self._torch, args, kwargs))
        if not facts.trains:
            self.forward_done(result)
        elif facts.knows_shapes:
            counters.usual_root = weakref.ref(module)

    def function_called(self, function: Any, result: Any) -> None:
        """Note a call of a function that the script compiled, which may be its whole step."""
        if self._stepped_in_graph:
            self._stepped_in_graph = False
            self._trace.loss_in(result)
            self._step(function)
            return
        self._function_calls += 1
        needed = FUNCTION_CALLS if self._facts.has_roots else 0
        if self._function_calls > needed and not self._facts.trains:
            self.forward_done(result)

    def forward_done(self, result: Any) -> None:
        """Count a call of what the script computes with, when nothing shows that it trains."""
        self._trace.output(result)
        self._clock.tick("forward", doubtful=not self._only_evaluates())

    def _only_evaluates(self) -> bool:
        """Say whether forward passes are steps: nothing suggests that training will begin."""
        if self._may_train is None:
            self._may_train = _main_file_trains()
        if not self._facts.optimizers and not self._may_train:
            return True
        now = time.perf_counter()
        self._first_forward_s = self._first_forward_s or now
        return now - self._first_forward_s >= EVALUATION_S

    def _note_call(self, module: Any, grad: bool) -> None:
        parameter = next(iter(module.parameters()), None)
        if parameter is None:
            return
        device = parameter.device.type
        if device in ("cuda", "cpu") and self._torch.is_autocast_enabled(device):
            self._facts.autocasts = True
        if grad and module.training and parameter.requires_grad:
            self._facts.learning_calls += 1


def _main_file_trains() -> bool:
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        text = Path(file).read_text("utf-8", "ignore") if file else ""
    except OSError:
        return False
    return any(word in text for word in TRAINING_WORDS)

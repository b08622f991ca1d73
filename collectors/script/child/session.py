"""The harness inside the script's process: patches, knobs and the step clock, put together."""

from __future__ import annotations

import atexit
import os
import warnings
from typing import Any

from gpuadvisor.collectors.script.child import patches
from gpuadvisor.collectors.script.child.channel import Channel
from gpuadvisor.collectors.script.child.clock import Clock
from gpuadvisor.collectors.script.child.counters import Counters
from gpuadvisor.collectors.script.child.facts import FactsRecorder
from gpuadvisor.collectors.script.child.markers import StepMarkers
from gpuadvisor.collectors.script.child.registry import Registry
from gpuadvisor.collectors.script.child.roots import Roots
from gpuadvisor.collectors.script.child.timers import timer_for
from gpuadvisor.collectors.script.child.trace import TraceRecorder
from gpuadvisor.collectors.script.specification import Specification


class Session:
    """One process's harness. With no channel it only applies settings (`gpuadvisor run`)."""

    def __init__(self, specification: Specification, channel: Channel | None) -> None:
        import torch

        self._torch: Any = torch
        self._specification = specification
        self._channel = channel
        self._registry = Registry(self._report_knob)
        self._process = os.getpid()
        self._ended = False

    def install(self) -> None:
        """Hook torch, which has just been imported."""
        if self._specification.seed is not None:
            self._torch.manual_seed(self._specification.seed)
        self._registry.apply(self._specification.applications)
        patches.patch_loaders(self._torch, self._registry)
        if self._channel is None:
            patches.patch_optimizers(self._torch, self._registry, lambda _: None)
            patches.patch_backward(self._torch, self._registry, None, None)
            Roots(self._torch, self._registry, None).look()
        else:
            self._observe(self._channel)

    def _observe(self, channel: Channel) -> None:
        torch, counters = self._torch, Counters()
        self._counters = counters
        self._facts = FactsRecorder(torch)
        self._trace = TraceRecorder(torch)
        self._clock = Clock(
            self._specification.schedule,
            channel,
            counters,
            lambda: timer_for(torch),
            self._finish,
        )
        markers = StepMarkers(torch, self._clock, counters, self._facts, self._trace)
        self._roots = Roots(torch, self._registry, markers.root_called)
        patches.patch_optimizers(torch, self._registry, markers.optimizer_built)
        patches.patch_backward(torch, self._registry, markers.before_backward, markers.backward_done)
        patches.patch_scaler(torch, markers)
        patches.patch_batches(counters, self._facts)
        patches.note_compilation(torch, self._registry, self._facts)
        patches.after_every_step(markers.optimizer_stepped)
        self._roots.look()
        _explicit_steps(self._clock)
        # The wrapper of `torch.compile` warns of hooks that are ours, not the script's.
        warnings.filterwarnings("ignore", message=".*there are global hooks on modules.*")
        atexit.register(self._script_ended)

    def _report_knob(self, knob: str, state: str, detail: str) -> None:
        if self._channel is not None:
            self._channel.send("knob", knob=knob, state=state, detail=detail[:500])
        elif state == "refused":
            print(f"gpuadvisor: {knob} was not applied: {detail}", file=_stderr())

    def _finish(self) -> None:
        """Report and leave at once: `finally` blocks would save a half-trained checkpoint."""
        self._report("done")
        os._exit(0)

    def _script_ended(self) -> None:
        if os.getpid() != self._process or self._ended or not self._clock.steps:
            return
        self._report("done" if self._clock.end() else "ended", short=True)

    def _report(self, event: str, short: bool = False) -> None:
        assert self._channel is not None  # without one nothing is observed
        self._ended = True
        if self._clock.windows is not None:
            self._clock.windows.flush(wait=True)
        if event == "done":
            # First the end, so that the parent reads the energy counter before slow copies.
            self._channel.send("measured")
            self._channel.send_list("losses", self._trace.losses())
            for shape, values in self._trace.outputs():
                self._channel.send("output", shape=shape)
                self._channel.send_list("output_values", values)
            self._channel.send("facts", **self._facts.report(self._roots.modules))
        self._channel.send(
            event,
            short=short,
            last_loss=self._trace.last_loss(),
            **patches.peak_memory(self._torch),
            **self._clock.report(),
        )


def _explicit_steps(clock: Clock) -> None:
    """Let `gpuadvisor.step()` in the script tick the clock."""
    from gpuadvisor import steps

    steps.listen(lambda: clock.tick("explicit"))


def _stderr() -> Any:
    import sys

    return sys.stderr

"""The harness inside the script's process: patches, knobs and the step clock, put together."""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from gpuadvisor import steps
from gpuadvisor.collectors.script.child import patches
from gpuadvisor.collectors.script.child.channel import Channel, guarded, leave
from gpuadvisor.collectors.script.child.clock import StepClock, StepHandover
from gpuadvisor.collectors.script.child.counters import Counters, dynamo_counts
from gpuadvisor.collectors.script.child.dynamo_disable import disable_dynamo
from gpuadvisor.collectors.script.child.file_reads import stop_watching
from gpuadvisor.collectors.script.child.markers import StepMarkers
from gpuadvisor.collectors.script.child.patches import surround_backward, watch_backward
from gpuadvisor.collectors.script.child.registry import Registry
from gpuadvisor.collectors.script.child.roots import Roots
from gpuadvisor.collectors.script.child.script_facts import FactsRecorder
from gpuadvisor.collectors.script.child.trace import TraceRecorder
from gpuadvisor.collectors.script.child.turns import Turns
from gpuadvisor.collectors.script.child.windows import HostTimer, timer_for
from gpuadvisor.collectors.script.specification import Specification
from gpuadvisor.domain.target import StepTaker

MOST_COUNTED = 64
"""Things of a kind whose number is told; a script with more graph breaks has other troubles."""
MOST_SAID, MOST_TOLD = 500, 2000
"""Characters of what a knob says to the user, and of what goes between it and gpuadvisor: a line
of the channel has 4,096 bytes."""
ENDED_S = 5.0
"""How long gpuadvisor may take to end a process that was measured, and all of its run with it: some
milliseconds, as a rule. A worker of a loader that outlived it would tell of an error."""
OWNER_S = 5.0
"""How long gpuadvisor may take to say whose steps it counts; it does so at the first step."""


class Session:
    """One process's harness. With no channel it only applies settings (`gpuadvisor run`)."""

    def __init__(self, specification: Specification, channel: Channel | None) -> None:
        self._torch: Any = sys.modules.get("torch")
        self._specification = specification
        self._channel = channel
        self._registry = Registry(self._report_knob)
        self._process = os.getpid()
        self._ended = False
        self._memory: dict[str, int] = {}
        """Peak memory when the measurement ended, where the script goes on after it."""
        self.on_first_root: Callable[[], None] | None = None
        """Called before the script's model is called for the first time."""

    def install(self) -> None:
        """Hook torch, which has just been imported."""
        if self._specification.seed is not None:
            self._torch.manual_seed(self._specification.seed)
        self._registry.apply(self._specification.applications)
        patches.patch_loaders(self._torch, self._registry)
        if self._channel is None:
            patches.patch_optimizers(self._torch, self._registry, lambda _: None)
            surround_backward(self._torch, self._registry)
            if self._registry.root_preparers or self._registry.root_arounds:
                with guarded(None, "see the modules that the script calls"):
                    Roots(self._torch, self._registry, Counters()).look()
            disable_dynamo(self._applied_packages(), None)
        else:
            self._observe(self._channel)

    def _observe(self, channel: Channel) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        torch, registry, counters = self._torch, self._registry, Counters()
        registry.batches_ready = counters.ready
        self._facts = facts = FactsRecorder(torch, self._specification.visible_gpus)
        # Its copies of losses are not the script's, so they must not be among steps taken.
        self._trace = TraceRecorder(torch, registry.step_taker is None, channel)
        self._clock = clock = StepClock(
            self._specification.schedule,
            channel,
            counters,
            lambda: timer_for(torch),
            self._finish,
            self._handover(registry.step_taker),
            self._handover(registry.later_taker),
            self._turns(self._specification.turns, channel),
            self._turns(self._specification.line, channel),
            self._specification.begins_early,
        )
        clock.on_measured = self._measured
        clock.on_warm = stop_watching
        self._markers = markers = StepMarkers(torch, clock, counters, facts, self._trace)
        self._roots = roots = Roots(
            torch, registry, counters, markers.root_called, self._found_root
        )
        channel.send("torch", version=str(torch.__version__))
        patches.patch_optimizers(torch, registry, markers.optimizer_built)
        surround_backward(torch, registry)
        watch_backward(torch, registry, counters, markers)
        patches.patch_scaler(torch, markers)
        # Each of these stands on private names of torch, and the others do without it.
        with guarded(channel, "see the batches of the script's DataLoaders"):
            patches.patch_batches(counters, facts, clock.alive)
        patches.note_compilation(torch, registry, facts, roots.compiled, markers.function_called)
        register_optimizer_step_post_hook(markers.after_optimizer())
        patches.patch_exit(self._script_ended)
        with guarded(channel, "see the modules that the script calls"):
            roots.look()
        disable_dynamo(self._applied_packages(), channel)
        steps.listen(lambda: clock.tick("explicit"))
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self._script_ended)
        self._at_process_exit()

    def _turns(self, path: str | None, channel: Channel) -> Turns | None:
        return Turns(path, channel, self._is_owner) if path is not None else None

    def _handover(self, taker: StepTaker | None) -> StepHandover | None:
        return StepHandover(taker, self._is_owner) if taker is not None else None

    def _measured(self) -> None:
        """Keep what was measured from what comes after it."""
        self._trace.stop()
        self._memory = patches.peak_memory(self._torch)
        if self._channel is not None:
            self._channel.send("measured", steps=self._clock.steps)

    def _applied_packages(self) -> set[str]:
        """Return the packages of what is applied to the script, or stands around its modules, or
        on what it imports."""
        registry = self._registry
        appliers = [application.applier for application in self._specification.applications]
        appliers += [str(around.__module__) for around in registry.root_arounds]
        appliers += [str(call.__module__) for call in registry.import_watchers]
        return {applier.rpartition(".")[0] for applier in appliers} - {""}

    def _found_root(self, module: Any) -> None:
        if self.on_first_root is not None:
            noted, self.on_first_root = self.on_first_root, None
            with guarded(self._channel, "note what it imports"):
                noted()
        if self._specification.reseed is not None and not self._facts.has_roots:
            self._reseed(self._specification.reseed)
        with guarded(self._channel, "look at the module that the script calls"):
            self._facts.root(module)

    def _reseed(self, seed: int) -> None:
        """Draw other random numbers from here on, also those that augmentation is made of."""
        self._torch.manual_seed(seed)
        random.seed(seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(seed % 2**32)

    def _at_process_exit(self) -> None:
        """Children of `multiprocessing` skip `atexit`, but run their finalizers."""
        multiprocessing.util.Finalize(None, self._script_ended, exitpriority=1000)
        multiprocessing.util.register_after_fork(self, Session._at_process_exit)

    def _forked(self) -> None:
        """Begin anew in a child: the steps so far were its parent's."""
        self._process = os.getpid()
        self._ended = False
        # Kept, because a process that did not open them must not destroy the parent's CUDA events:
        # that aborts forked loader workers.
        self._inherited = self._clock.windows
        self._clock.restart()
        self._markers.restart()

    def _report_knob(self, knob: str, state: str, detail: str) -> None:
        if self._channel is not None:
            most = MOST_TOLD if state == "told" else MOST_SAID
            self._channel.send("knob", knob=knob, state=state, detail=detail[:most])
        elif state == "refused":
            print(f"gpuadvisor: {knob} was not applied: {detail}", file=sys.stderr)

    def _finish(self) -> None:
        """Report and leave at once: `finally` blocks would save a half-trained checkpoint."""
        assert self._channel is not None  # without one nothing is observed
        if self._specification.stay:
            self._ended = True
            self._channel.send("released", steps=self._clock.steps)
        elif self._is_owner():
            self._report("done")
            if not self._specification.leaves:
                time.sleep(ENDED_S)
            leave(0)
        self._clock.stop()

    def _is_owner(self) -> bool:
        """Say whether gpuadvisor counts this process's steps; an evaluator's goes on instead."""
        assert self._channel is not None  # without one nothing is observed
        deadline = time.monotonic() + OWNER_S
        while (owner := self._channel.owner()) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return owner in (None, os.getpid())

    def _script_ended(self) -> None:
        if os.getpid() != self._process or self._ended or not self._clock.steps:
            return
        with guarded(self._channel, "report the last steps"):
            self._report("done" if self._clock.end() else "ended", short=True)

    def _report(self, event: str, short: bool = False) -> None:
        assert self._channel is not None  # without one nothing is observed
        self._ended = True
        if self._clock.windows is not None:
            self._clock.windows.flush(wait=True)
        if event == "done":
            # First the end, so that the parent reads the energy counter before slow copies.
            if not self._memory:
                self._channel.send("measured", steps=self._clock.steps)
            self._tell_results(self._channel)
        self._channel.send(
            event,
            short=short,
            last_loss=self._last_loss(),
            **(self._memory or patches.peak_memory(self._torch)),
            **self._clock.report(),
        )

    def _tell_results(self, channel: Channel) -> None:
        channel.send_list("losses", self._trace.losses())
        for shape, values in self._trace.outputs():
            channel.send("output", shape=shape)
            channel.send_list("output_values", values)
        idle = self._clock.idle_while_waiting()
        channel.send("facts", **self._facts.report(), idle_while_waiting=idle)
        with guarded(channel, "count what Dynamo compiled"):
            for kind, counts in dynamo_counts().items():
                for name, count in list(counts.items())[:MOST_COUNTED]:
                    channel.send("counted", kind=kind, name=name, count=count)

    def _last_loss(self) -> float | None:
        return self._trace.last_loss()


class SessionWithoutTorch(Session):
    """The harness in a process that calls `gpuadvisor.step()` and has not imported torch.

    It counts these steps and applies no settings, until torch is imported: then another one does.
    """

    def install(self) -> None:
        assert self._channel is not None  # without one nothing is observed
        schedule, counters = self._specification.schedule, Counters()
        self._clock = StepClock(
            schedule,
            self._channel,
            counters,
            HostTimer,
            self._finish,
            turns=self._turns(self._specification.turns, self._channel),
            line=self._turns(self._specification.line, self._channel),
            begins_early=self._specification.begins_early,
        )
        self._clock.on_warm = stop_watching
        steps.listen(self.step)
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self._script_ended)
        self._at_process_exit()

    def step(self) -> None:
        """Take the end of a step."""
        if "torch" in sys.modules:
            self._ended = True
            self._clock.stop()
            steps.ignore(self.step)
        else:
            self._clock.tick("explicit")

    def _forked(self) -> None:
        self._process, self._ended = os.getpid(), False
        self._clock.restart()

    def _tell_results(self, channel: Channel) -> None:
        """There are no losses, outputs or facts."""

    def _last_loss(self) -> float | None:
        return None

"""The harness of a rehearsal: shortens the script's life and writes down what happens in it."""

from __future__ import annotations

import atexit
import functools
import os
import resource
import time
import weakref
from contextlib import contextmanager
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

from gpuadvisor.collectors.script.child import patches
from gpuadvisor.collectors.script.child.channel import Channel, guarded
from gpuadvisor.collectors.script.child.clock import HEARTBEAT_S
from gpuadvisor.collectors.script.child.counters import Counters
from gpuadvisor.collectors.script.child.dynamo_disable import disable_dynamo
from gpuadvisor.collectors.script.child.patches import surround_backward
from gpuadvisor.collectors.script.child.rehearsal.equal_weights import (
    EQUAL_AFTER,
    MOST_SWITCHES,
    EqualWeights,
    kept_of,
    numbers_of,
    parameters_of,
)
from gpuadvisor.collectors.script.child.rehearsal.generators import (
    global_digests,
    reseed,
    torch_digest,
)
from gpuadvisor.collectors.script.child.rehearsal.kept_tensors import KeptTensors
from gpuadvisor.collectors.script.child.rehearsal.learning import Learning
from gpuadvisor.collectors.script.child.rehearsal.memory import available_bytes
from gpuadvisor.collectors.script.child.rehearsal.outputs import outputs_of
from gpuadvisor.collectors.script.child.rehearsal.passes import Part, Passes
from gpuadvisor.collectors.script.child.rehearsal.record import Record
from gpuadvisor.collectors.script.child.rehearsal.steepness import Steepness
from gpuadvisor.collectors.script.child.roots import Roots
from gpuadvisor.collectors.script.child.session import Session
from gpuadvisor.collectors.script.child.shortening import loops
from gpuadvisor.collectors.script.child.shortening.progress import Progress
from gpuadvisor.collectors.script.child.trace import rows_in
from gpuadvisor.collectors.script.specification import Shortening, Specification

MOST_CALLS = 20_000
"""Calls of roots that are written down. A life of two epochs of 16 batches has some hundred."""
FLUSH_STEPS = 16
"""Losses kept on the device until they are written down: each copy waits for it."""
MOST_BEFORE_STEP = 8
"""Losses before a step that are held against those of other lives."""
PROBES = 2
"""Roots that are probed: the generator and the discriminator of a GAN."""


class LifeSession(Session):
    """One process's harness in a rehearsal."""

    def __init__(self, specification: Specification, channel: Channel | None) -> None:
        super().__init__(specification, channel)
        assert specification.shortening is not None  # else `Session` itself
        self._shortening: Shortening = specification.shortening
        self._record = Record(self._shortening.record)
        self._losses: list[Any] = []
        self._has_losses = False
        self._calls = self._steps = 0
        self._marker = ""
        self._spoken_s = 0.0
        self._inside = False
        """Whether it is the harness that calls a root module now, not the script."""
        self._probed: set[int] = set()
        self._root_places: dict[int, int] = {}
        """Places of the roots by their identity."""
        self._batches = 0
        self._steps_before = 0
        """Steps of the optimizers up to when the weights of all lives were last made equal."""
        self._trained_passes = 0
        """How often a pass over a loader began or ended with steps since the last time."""
        self._switches = 0
        """How often a model was switched to evaluation with steps since the last time."""
        self._before_step: Any = None
        """Losses, some gradients and weights before the first step on equal weights."""
        self._modules: list[weakref.ref[Any]] = []
        self._optimizers: list[weakref.ref[Any]] = []
        """The optimizers that took steps, in the order of their first steps."""
        self._equal: EqualWeights | None = None
        self._facts: Any = SimpleNamespace(compiles=False)
        self._before: dict[int, int | None] = {}
        """Root module (by identity) to the digest of the random numbers' state before its first
        call; None once it was called."""
        self._generators: dict[int, dict[str, str]] = {}
        """Root module (by identity) to digests of the states of the random generators that modules
        share, as they were before its first call; gone once it was called."""

    def _observe(self, channel: Channel) -> None:
        from torch.optim import optimizer

        torch, registry = self._torch, self._registry
        self._kept = KeptTensors(torch)
        self._steepness = Steepness(torch)
        self._learning = Learning(torch)
        if self._shortening.weights:
            folder, takes = self._shortening.weights, self._shortening.takes_weights
            self._equal = EqualWeights(torch, folder, takes)
        channel.send("torch", version=str(torch.__version__))
        self._loops = loops.current()
        loops.look_out_for_dynamo(torch)
        self._progress = progress = self._loops.progress if self._loops else Progress()
        patches.patch_optimizers(torch, registry, lambda _: progress.optimizer_built())
        surround_backward(torch, registry)
        self._watch_backward()
        self._watch_switches()
        roots = Roots(torch, registry, Counters(), self._root_called, self._found_module, True)
        patches.note_compilation(
            torch, registry, self._facts, roots.compiled, self._function_called
        )
        optimizer.register_optimizer_step_pre_hook(self._stepping)
        optimizer.register_optimizer_step_post_hook(self._stepped)
        self._passes = Passes(
            torch,
            self._record,
            self._shortening.batches,
            self._read,
            lambda: self._steps,
            self._between_passes,
            progress,
            self._shortening.fewer_samples,
        )
        self._passes.install()
        patches.patch_exit(self._script_ended)
        roots.look()
        disable_dynamo(self._applied_packages(), channel)
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self._script_ended)
        self._at_process_exit()

    def _forked(self) -> None:
        """Begin anew in a child: what was seen so far was its parent's."""
        self._process = os.getpid()
        self._ended = False
        self._losses.clear()
        self._passes.restart()
        if self._loops is not None:
            self._loops.restart()
        self._calls = self._steps = self._steps_before = self._trained_passes = 0
        self._switches = 0
        self._marker = ""
        if self._equal is not None:
            self._equal.forked()

    # -- steps -----------------------------------------------------------------------------

    def _is_recorded(self) -> bool:
        """Say whether what is done now becomes a part of a compiled function or a CUDA graph."""
        cuda = self._torch.cuda
        is_captured = cuda.is_initialized() and cuda.is_current_stream_capturing()
        return bool(is_captured or self._torch.compiler.is_dynamo_compiling())

    def _stepping(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._steps == self._steps_before and not self._is_recorded():
            with guarded(self._channel, "look at the weights"):
                losses = [float(value) for value in self._losses[-MOST_BEFORE_STEP:]]
                weights = parameters_of(optimizer)
                gradients = numbers_of(self._torch, map(self._slope, weights)).tolist()
                self._before_step = losses, gradients, numbers_of(self._torch, weights)

    def _slope(self, weight: Any) -> Any:
        """Return the gradient of a weight: of one without, which is not stepped, as many numbers of
        0 as are kept of it."""
        if weight.grad is not None:
            return weight.grad
        return self._torch.zeros(kept_of(weight))

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._torch.compiler.is_dynamo_compiling():
            return
        known, self._before_step = self._before_step, None
        if known is not None:
            with guarded(self._channel, "look at the weights"):
                losses, gradients, before = known
                change = numbers_of(self._torch, parameters_of(optimizer)) - before
                self._record.send(
                    "update",
                    gradients=gradients,
                    change=change.tolist(),
                    counts=[kept_of(weight) for weight in parameters_of(optimizer)],
                    losses=losses,
                    passes=self._trained_passes,
                )
        if all(find() is not optimizer for find in self._optimizers):
            self._optimizers.append(weakref.ref(optimizer))
        self._steps += 1
        self._learning.stepped(optimizer, self._batches)
        self._progress.stepped(optimizer)
        self._alive("optimizer")
        if self._steps == self._shortening.ends_after:
            self._end_by_force()
        if self._steps in EQUAL_AFTER and not self._is_recorded():
            self._make_equal_within_a_pass(f"step {self._steps}")
        elif len(self._losses) >= FLUSH_STEPS:
            self._flush()

    def _alive(self, marker: str) -> None:
        """Say whose steps these are, and at times that the script is alive."""
        assert self._channel is not None  # without one nothing is observed
        now = time.perf_counter()
        if marker != self._marker and self._marker != "optimizer":
            self._marker = marker
            self._channel.send("step", marker=marker)
            self._record.send("first", marker=marker)
            self._spoken_s = now
        elif now - self._spoken_s > HEARTBEAT_S:
            self._channel.send("alive", steps=self._steps)
            self._spoken_s = now

    def _watch_backward(self) -> None:
        torch = self._torch
        is_traced = torch.compiler.is_dynamo_compiling

        def watched(original: Any) -> Any:
            def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
                if not is_traced() and not self._inside:
                    with guarded(self._channel, "keep a loss"):
                        one = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors))
                        value = getattr(one, "_gpuadvisor_unscaled", one).detach()
                        self._losses.append(value.float().mean())
                        self._has_losses = True
                        self._steepness.look(one)
                    self._inside = True
                    try:
                        original(tensors, *args, **kwargs)
                    finally:
                        self._inside = False
                    self._progress.backward_done()
                    return
                original(tensors, *args, **kwargs)

            return backward

        torch.autograd.backward = watched(torch.autograd.backward)
        if self._registry.backward_arounds:  # the script's tensor is seen outside of them
            torch.Tensor.backward = watched(torch.Tensor.backward)

    def _watch_switches(self) -> None:
        """Make weights equal before a model is evaluated; some scripts do so within an endless pass
        over their data."""
        original = self._torch.nn.Module.train

        @functools.wraps(original)
        def train(module: Any, mode: bool = True) -> Any:
            if not mode and self._steps != self._steps_before and self._is_switched(module):
                self._switches += 1
                self._make_equal_within_a_pass(f"switch {self._switches}")
            return original(module, mode)

        self._torch.nn.Module.train = train

    def _is_switched(self, module: Any) -> bool:
        is_root = any(find() is module for find in self._modules)
        is_new = module.training and self._switches < MOST_SWITCHES
        return is_root and is_new and not self._inside and not self._is_recorded()

    def _flush(self) -> None:
        if self._losses:
            self._record.send("losses", values=[float(value) for value in self._losses])
            self._losses.clear()

    # -- roots -----------------------------------------------------------------------------

    def _found_module(self, module: Any) -> None:
        self._progress.roots += 1
        self._modules.append(weakref.ref(module))
        if self._specification.reseed is not None and not self._before:
            reseed(self._torch, self._specification.reseed, self._shortening.redraws_data)
        if not self._is_traced():
            with guarded(self._channel, "look at the random numbers"):
                self._before[id(module)] = torch_digest(self._torch)
                self._generators[id(module)] = global_digests()
            with guarded(self._channel, "look at what a model keeps"):
                self._kept.found(module)
        if self._shortening.nudge:
            with guarded(self._channel, "change the weights a little"), self._torch.no_grad():
                self._nudge(module)
        with guarded(self._channel, "look at the weights"):
            self._learning.found(module)

    def _nudge(self, module: Any) -> None:
        """Change weights at random by a relative amount, without a draw from the script's numbers.

        As their shapes and order say which numbers, each life is changed alike.
        """
        torch = self._torch
        for number, weights in enumerate(module.parameters()):
            if weights.is_floating_point():
                generator = torch.Generator(weights.device).manual_seed(number)
                noise = torch.randn(weights.shape, generator=generator, device=weights.device)
                weights.mul_(1 + self._shortening.nudge * noise)

    def _function_called(self, function: Any, result: Any) -> None:
        self._progress.called(function, self._torch.is_grad_enabled())
        self._alive("forward")

    def _is_traced(self) -> bool:
        """Say whether what is looked at now would become a part of a traced or exported model."""
        torch = self._torch
        return bool(torch.jit.is_tracing() or torch.compiler.is_compiling())

    def _root_called(
        self, module: Any, is_first: bool, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
    ) -> None:
        if self._inside or self._is_traced():
            return
        self._progress.called(module, self._torch.is_grad_enabled())
        self._alive("forward")
        if self._calls >= MOST_CALLS:
            return
        self._calls += 1
        grad = self._torch.is_grad_enabled()
        with guarded(self._channel, "look at a call"), self._apart():
            random = torch_digest(self._torch)
            before, self._before[id(module)] = self._before.get(id(module)), None
            self._write_draws(module)
            self._write_call("call", module, args, kwargs, out, grad, random)
            began_s = time.perf_counter()
            self._kept.called(module, self._root_places[id(module)])
            self._passes.add_own_time(time.perf_counter() - began_s)
            if module.training and id(module) not in self._probed and len(self._probed) < PROBES:
                self._probed.add(id(module))
                if before != random:
                    self._probe("probe", module, args, kwargs)
                elif self._shortening.evaluate and not self._facts.compiles:
                    self._probe("evaluation", module, args, kwargs)

    def _write_draws(self, module: Any) -> None:
        """Write down from which of the generators that modules share a root's first call drew."""
        before = self._generators.pop(id(module), {})
        for path, digest in global_digests().items() if before else ():
            if before.get(path, digest) != digest:
                self._record.send("draw", root=self._place(module), path=path)

    def _place(self, module: Any) -> int:
        return self._root_places.setdefault(id(module), len(self._root_places))

    def _write_call(
        self,
        kind: str,
        module: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        grad: bool = False,
        random: int = 0,
    ) -> None:
        self._record.send(
            kind,
            input=self._fingerprint((args, kwargs)),
            rows_in=rows_in(self._torch, args, kwargs),
            grad=grad,
            random=random,
            root=self._place(module),
            batch=self._batches,
            steps=self._steps - self._steps_before,
            **outputs_of(self._torch, out, (args, kwargs)),
        )

    @contextmanager
    def _apart(self) -> Any:
        """Look at tensors without a trace in autograd, in autocast or in the random numbers."""
        self._inside = True
        try:
            with self._torch.no_grad():
                yield
        finally:
            self._inside = False

    def _probe(self, kind: str, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compute a call once more in evaluation mode, where dropout draws no random numbers."""
        torch = self._torch
        modes = [(member, member.training) for member in module.modules()]
        devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
        with torch.random.fork_rng(devices):
            for member, _ in modes:  # not by `eval()`, which may do more: LoRA merges weights there
                member.training = False
            try:
                result = module(*args, **kwargs)
            finally:
                for member, training in modes:
                    member.training = training
        self._write_call(kind, module, args, kwargs, result)

    # -- data ------------------------------------------------------------------------------

    def _read(self, batch: Any) -> list[Part]:
        from gpuadvisor.collectors.script.child.rehearsal.fingerprints import samples_of, unpadded

        self._batches += 1
        read: list[Part] = []
        with guarded(self._channel, "look at a batch"), self._apart():
            parts = _parts(batch)
            size = max((rows_in(self._torch, (part,), {}) for part in parts), default=0)
            for part in _divided(parts, size):
                samples, moments = samples_of(part, size)
                read.append(Part(list(samples), list(moments), unpadded(part, size)))
        return read

    def _fingerprint(self, value: Any) -> int:
        from gpuadvisor.collectors.script.child.rehearsal.fingerprints import fingerprint

        return fingerprint(value)

    def _trains(self) -> bool:
        """Say whether the script trains, where that is not known yet by a look at its weights."""
        if self._has_losses and not self._learning.is_seen:
            for module in (find() for find in self._modules):
                if module is not None:
                    self._learning.look(module)
        return self._learning.is_seen

    def _between_passes(self) -> None:
        self._flush()
        with guarded(self._channel, "look at the weights"):
            self._trains()
        if self._marker:
            self._alive(self._marker)
        if self._steps != self._steps_before:
            self._trained_passes += 1
            self._make_equal(f"pass {self._trained_passes}")

    def _make_equal_within_a_pass(self, moment: str) -> None:
        began_s = time.perf_counter()
        self._make_equal(moment)
        self._passes.add_own_time(time.perf_counter() - began_s)

    def _make_equal(self, moment: str) -> None:
        """Keep weights for another life, or take those of one; losses from here on are of them.

        `moment` is what this one has in common with that of the other life.
        """
        self._flush()
        self._steps_before = self._steps
        if self._equal is not None:
            with guarded(self._channel, "make the weights equal"), self._apart():
                modules, optimizers = (
                    [each for find in found if (each := find()) is not None]
                    for found in (self._modules, self._optimizers)
                )
                if (
                    self._equal.exchange(moment, modules, optimizers)
                    and self._shortening.takes_weights
                ):
                    self._record.send("equalled")

    # -- the end ---------------------------------------------------------------------------

    def _end_by_force(self) -> None:
        """End the process where another life was, which had no end of its own."""
        self._record.send("cut")
        os._exit(0)  # writes down the end

    def _script_ended(self) -> None:
        if os.getpid() != self._process or self._ended:
            return
        self._ended = True
        with guarded(self._channel, "write down the end"):
            self._passes.finish()
            self._flush()
            for each in self._loops.report() if self._loops is not None else ():
                self._record.send("loop", **asdict(each))
            for branch in self._loops.report_branches() if self._loops is not None else ():
                self._record.send("branch", **asdict(branch))
            for kept in self._kept.report():
                self._record.send("kept", **kept)
            self._record.send(
                "end",
                trains=self._trains(),
                steep=self._steepness.names(),
                most_open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
                available_bytes=available_bytes(),
            )


def _parts(batch: Any) -> list[Any]:
    """Return the parts of a batch: the members of a tuple, a list or a mapping."""
    if isinstance(batch, (tuple, list)):
        return list(batch)
    if hasattr(batch, "values") and hasattr(batch, "keys"):
        return [batch[key] for key in batch.keys()]  # noqa: SIM118 - not all can be iterated
    return [batch]


def _divided(parts: list[Any], size: int) -> list[Any]:
    """Return parts with each pair of arrays, such as tokens and their mask, as parts of their own.

    A list of as many arrays as there are samples holds one of each.
    """
    divided = []
    for part in parts:
        members = _parts(part)
        are_arrays = all(tuple(getattr(each, "shape", ()))[:1] == (size,) for each in members)
        divided += members if members and are_arrays and len(members) != size else [part]
    return divided

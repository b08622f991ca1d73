"""Compile a script's modules in place, and keep the outputs of CUDA graphs that are replayed."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import os
import shutil
from collections.abc import Mapping, Set
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import ScriptFacts, Value
from gpuadvisor.domain.target import Call, Target, Turn
from gpuadvisor.tuners.base import Knob, Obstacle
from gpuadvisor.tuners.knobs._live import TRACED, Switch
from gpuadvisor.tuners.knobs._script import no_root, not_on_gpu
from gpuadvisor.tuners.knobs._tensors import map_tensors

CALLS_BEFORE_BACKWARD = 8
"""Calls with gradients on and no backward pass ever, after which none is waited for. A GAN's
first step makes three."""
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "dynamic": {"dynamic": True},
    "cudagraphs": {"backend": "cudagraphs"},
}
"""Values of the knobs, with the keyword arguments of `Module.compile`; all others name a mode."""
MOST_FORMS = 64
"""Times that Dynamo compiles one code in a process in which knobs are turned, as against 8: twice
for training and evaluating, under up to 32 settings of other knobs."""
FRAMES = itertools.count()
REPLAYED = {"reduce-overhead", "cudagraphs", "max-autotune"}
"""Values with which CUDA graphs are replayed."""


def _own_or_no_compiler(device: Device, facts: ScriptFacts) -> str | None:
    """Return why modules cannot be compiled here, or need not be, or None if they can."""
    if facts.compiles_itself:
        return "the script compiles its model itself"
    if reason := no_root(device, facts):
        return reason
    if not_on_gpu(device, facts):
        if not _found("CXX", "g++", "clang++"):
            return "torch.compile needs a C++ compiler on the CPU, and none was found"
    elif not device.at_least(7):
        return "torch.compile needs a GPU of compute capability 7.0 (Volta) or newer"
    elif not _found("CC", "gcc", "clang"):
        return "torch.compile needs a C compiler for its GPU kernels, and none was found"
    return None


class CompileKnob(Knob):
    """Compiles roots in place, so that they stay the same objects with the same state dict."""

    changes_model = True
    obstacles: ClassVar[tuple[Obstacle, ...]] = (_own_or_no_compiler,)

    def apply(self, value: Value, target: Target) -> None:
        owner = os.getpid()

        def prepare(module: Any) -> None:
            if not _is_to_compile(module, owner):
                return
            if reason := _no_compiler(module):
                target.refuse(reason)
                return
            _compile_in_place(module, _options(value))
            target.effective()

        target.on_root(prepare)
        if value in REPLAYED:
            Replays(target)

    def live(self, target: Target) -> Turn | None:
        forms = _Forms(target, REPLAYED.intersection(self.plausible))
        return forms.turn

    def snippet(self, value: Value) -> str:
        arguments = ", ".join(f"{name}={option!r}" for name, option in _options(value).items())
        beside = f", {arguments}" if arguments else ""
        return (
            f"model.compile({arguments})\n"
            f"# or, where the model is a bare nn.Sequential: model = torch.compile(model{beside})"
        )


def _options(value: Value) -> Mapping[str, Any]:
    return OPTIONS.get(str(value), {"mode": value})


def _is_to_compile(module: Any, owner: int) -> bool:
    """Say whether it is left to us, in the process `owner`, to compile a module."""
    # Dynamo reads the state of CUDA's random numbers, which a forked loader worker that
    # runs a module of its own cannot: "Cannot re-initialize CUDA in forked subprocess".
    if os.getpid() != owner:
        return False
    # The script may have compiled it, with `torch.compile` or `Module.compile`.
    return not hasattr(module, "_orig_mod") and module._compiled_call_impl is None


def _no_compiler(module: Any) -> str | None:
    """Return why a module cannot be compiled, or None if it can."""
    parameter = next(module.parameters(), None)
    is_on_gpu = parameter is not None and parameter.device.type == "cuda"
    if is_on_gpu and importlib.util.find_spec("triton") is None:
        return "torch.compile needs the package triton for the GPU"
    return None


def _compile_in_place(module: Any, options: Mapping[str, Any]) -> None:
    import torch

    module.compile(**options)
    if type(module).__module__.startswith("torch.nn."):
        # Dynamo skips frames of torch's own modules, so `nn.Sequential(...).compile()` compiles
        # nothing, without a word (torch 2.13). Called from a frame of ours it is traced.
        module._compiled_call_impl = torch.compile(_frame(module), **options)


def _frame(module: Any) -> Call:
    """Return a function that calls the module, with code that no other has.

    Dynamo counts what it compiles of each code, and runs it as it is from the ninth time on.
    """
    call = module._call_impl

    def forward(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    forward.__code__ = forward.__code__.replace(co_name=f"forward_{next(FRAMES)}")
    return forward


def _found(variable: str, *names: str) -> bool:
    return any(shutil.which(name) for name in (os.environ.get(variable, "").split(" ")[0], *names))


class _Forms:
    """The compiled forms of the script's roots, kept (and these with them) until it ends.

    One for each value and each setting of the knobs that the code has within it. With one form
    for all, Dynamo would take a layout that changed for one that varies.
    """

    def __init__(self, target: Target, replayed: Set[Value]) -> None:
        self.turn = Switch(self._on, self._off)
        self._target = target
        self._owner = os.getpid()
        self._limit = 0
        """What Dynamo's limit was before it was turned on; 0 until then."""
        self._replays = Replays(target, active=False) if replayed else None
        self._forms: WeakKeyDictionary[Any, dict[Any, Call]] = WeakKeyDictionary()
        target.on_root(self._adopt)
        target.around_root(self._around)

    def _adopt(self, module: Any) -> None:
        if _is_to_compile(module, self._owner):
            self._forms[module] = {}

    def _on(self, value: Value) -> None:
        import torch
        import torch._dynamo

        config = torch._dynamo.config
        if not hasattr(torch.nn.Module, "_call_impl") or not hasattr(config, "cache_size_limit"):
            raise RuntimeError(f"torch {torch.__version__} calls or compiles modules otherwise")
        for reason in filter(None, map(_no_compiler, self._forms)):
            raise RuntimeError(reason)
        self._limit = config.cache_size_limit
        self._raise_limit(value)
        if self._replays is not None:
            self._replays.active = value in REPLAYED

    def _raise_limit(self, value: Value | None) -> None:
        """Let Dynamo keep other forms beside this one; one alone has the script's own limit.

        Parts behind a graph break share their code, whatever is on.
        """
        import torch

        key = value, *sorted(TRACED.items())
        if any(forms.keys() - {key} for forms in self._forms.values()):
            torch._dynamo.config.cache_size_limit = max(self._limit, MOST_FORMS)

    def _off(self) -> None:
        import torch

        if self._limit:
            torch._dynamo.config.cache_size_limit = self._limit
        if self._replays is not None:
            self._replays.active = False

    def _around(
        self, module: Any, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        value, forms = self.turn.value, self._forms.get(module)
        if value is None or forms is None or os.getpid() != self._owner:
            return call(*args, **kwargs)
        key = value, *sorted(TRACED.items())
        if key not in forms:
            self._raise_limit(value)
            forms[key] = self._compiled(module, value)
        # Past `call`: nothing that stands around a root has a higher order than this knob.
        return forms[key](*args, **kwargs)

    def _compiled(self, module: Any, value: Value) -> Call:
        import torch

        self._target.effective()
        # The harness takes a call of what it has put there for one of the script.
        compiled: Call = inspect.unwrap(torch.compile)(_frame(module), **_options(value))
        return compiled


class Replays:
    """Keeps outputs of CUDA graphs usable as long as the script may want them.

    Each replay of a graph overwrites what the last one returned.
    """

    def __init__(self, target: Target, active: bool = True) -> None:
        self.active = active
        """Whether graphs are replayed now."""
        self._trains = False
        self._calls = 0
        target.around_root(self._around)
        target.around_backward(self._backward)

    def _around(
        self, module: Any, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        import torch

        if not self.active:
            return call(*args, **kwargs)
        if not torch.is_grad_enabled():
            return map_tensors(call(*args, **kwargs), _copy)
        if not self._trains:
            self._calls += 1
        if self._trains or self._calls <= CALLS_BEFORE_BACKWARD:
            # The graphs wait for the backward pass before they reuse memory. Only losses, which
            # scripts like to collect, are copied: the logits of a language model are too large.
            return map_tensors(call(*args, **kwargs), _copy_scalar)
        # Inference that forgot `no_grad`: each call would wait for a backward pass that never
        # comes, and record a graph of its own behind the last one.
        torch.compiler.cudagraph_mark_step_begin()
        return map_tensors(call(*args, **kwargs), _copy)

    def _backward(self, tensor: Any, call: Call) -> None:
        self._trains = True
        call(tensor)


def _copy(tensor: Any) -> Any:
    return tensor.clone() if tensor.is_cuda else tensor


def _copy_scalar(tensor: Any) -> Any:
    return _copy(tensor) if tensor.numel() == 1 else tensor

"""A `Target` for tests: it calls real torch, and the test plays the script."""

from __future__ import annotations

import inspect
import multiprocessing
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from gpuadvisor.domain.knobs import Value
from gpuadvisor.tuners.knobs import load_knobs


class ScriptTarget:
    """Knobs are applied to it; then the test builds, calls and steps as a script would."""

    def __init__(self, **settings: Value) -> None:
        self.details: dict[str, str] = {}
        self.refusals: dict[str, str] = {}
        self._prepare: list[Any] = []
        self._around: list[Any] = []
        self._loader: list[Any] = []
        self._optimizer: list[Any] = []
        self._adopt: list[Any] = []
        self._backward: list[Any] = []
        self._roots: list[Any] = []
        for name, knob in load_knobs().items():
            if name in settings:
                knob.apply(settings[name], self.seen_by(name))

    def seen_by(self, knob: str) -> Any:
        """Return the target as one knob sees it."""
        return _OneKnob(knob, self)

    def call(self, module: Any, *args: Any, **kwargs: Any) -> Any:
        if module not in self._roots:
            self._roots.append(module)
            for prepare in self._prepare:
                prepare(module)
        call: Any = module
        for around in reversed(self._around):
            call = _bind(around, module, call)
        return call(*args, **kwargs)

    def loader(self, dataset: Any, **kwargs: Any) -> Any:
        from torch.utils.data import DataLoader

        arguments = self.arguments(DataLoader, dataset=dataset, **kwargs)
        for adjust in self._loader:
            adjust(arguments)
        return DataLoader(**arguments)

    def optimizer(self, cls: Any, params: Any, **kwargs: Any) -> Any:
        arguments = self.arguments(cls, params=list(params), **kwargs)
        for adjust in self._optimizer:
            adjust(cls, arguments)
        optimizer = cls(**arguments)
        for adopt in self._adopt:
            adopt(optimizer)
        return optimizer

    def backward(self, loss: Any, **kwargs: Any) -> None:
        def call(tensor: Any) -> None:
            tensor.backward(**kwargs)

        for around in reversed(self._backward):
            call = _bind_backward(around, call)
        call(loss)

    @staticmethod
    def arguments(cls: Any, **kwargs: Any) -> dict[str, Any]:
        bound = inspect.signature(cls).bind(**kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)


class _OneKnob:
    """The protocol as one knob sees it."""

    def __init__(self, knob: str, script: ScriptTarget) -> None:
        self._knob, self._script = knob, script
        self.on_root = script._prepare.append
        self.around_root = script._around.append
        self.on_loader = script._loader.append
        self.on_optimizer = script._optimizer.append
        self.after_optimizer = script._adopt.append
        self.around_backward = script._backward.append

    def after_import(self, module: str, call: Any) -> None:
        if module in sys.modules:  # the test imports it before
            call()

    def effective(self, detail: str = "") -> None:
        self._script.details.setdefault(self._knob, detail)

    def refuse(self, reason: str) -> None:
        self._script.refusals[self._knob] = reason


def _bind(around: Any, module: Any, inner: Any) -> Any:
    return lambda *args, **kwargs: around(module, inner, args, kwargs)


def _bind_backward(around: Any, inner: Any) -> Any:
    return lambda tensor: around(tensor, inner)


@pytest.fixture
def script() -> type[ScriptTarget]:
    """Return what makes a script's process, given the settings to apply there."""
    return ScriptTarget


def kernel_order() -> list[int] | None:
    """Return the order in which torch asks attention kernels; None before torch 2.6."""
    import torch

    ask = getattr(torch._C, "_get_sdp_priority_order", None)
    return None if ask is None else list(ask())


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Any:
    torch = pytest.importorskip("torch")
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    benchmark, order = torch.backends.cudnn.benchmark, kernel_order()
    method = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("fork", force=True)  # else Python 3.14 imports what a test is
    copies, set_num_threads = (torch.Tensor.to, torch.Tensor.cuda), torch.set_num_threads
    torch.manual_seed(0)
    torch.set_num_threads(1)  # others would spin where they wait
    yield
    multiprocessing.set_start_method(method, force=True)
    torch.set_num_threads = set_num_threads
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.benchmark = benchmark
    if order is not None:
        torch._C._set_sdp_priority_order(order)
    torch.Tensor.to, torch.Tensor.cuda = copies


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Kernels of all kinds, made with a Triton that needs no GPU; a real one comes back."""

    def of_triton() -> list[str]:
        return [n for n in sys.modules if n.partition(".")[0] in ("triton", "odd_kernels")]

    real = {name: sys.modules.pop(name) for name in of_triton()}
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "fake_triton")
    yield import_module("odd_kernels")
    for name in of_triton():
        del sys.modules[name]
    sys.modules.update(real)

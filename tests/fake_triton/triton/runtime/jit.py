"""Functions of `triton.jit`, launched as `kernel[grid](...)`."""

import inspect
import itertools
import os

import torch

from triton import language
from triton.compiler.compiler import CompiledKernel

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
PROGRAM_S = float(os.environ.get("FAKE_TRITON_PROGRAM_S", "0"))
"""Time that each program of a grid takes by the clock of `fake_clock`: with it, a launch takes as
long as its grid is large, however busy the machine is."""

if PROGRAM_S:
    from fake_clock import spend


class KernelInterface:
    def run(self, *args, grid, warmup, **kwargs):
        raise NotImplementedError("run not implemented")

    def warmup(self, *args, grid, **kwargs):
        return self.run(*args, grid=grid, warmup=True, **kwargs)

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)


class JITFunction(KernelInterface):
    def __init__(self, fn):
        self.fn = fn
        self.signature = inspect.signature(fn)
        self.arg_names = list(self.signature.parameters)
        self.__name__ = fn.__name__
        self.options = {}
        """What of the compiler's the last launch had."""

    def run(self, *args, grid, warmup, **kwargs):
        options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
        if options.get("num_warps", 4) not in (1, 2, 4, 8, 16, 32):
            raise ValueError("num_warps must be a power of 2")
        if warmup:
            return CompiledKernel(self, kwargs)
        self.options = options
        return self.launch(args, kwargs, grid)

    def launch(self, args, kwargs, grid):
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        sizes = grid(dict(bound.arguments)) if callable(grid) else grid
        arguments = {
            name: language.Pointer.to(value) if isinstance(value, torch.Tensor) else value
            for name, value in bound.arguments.items()
        }
        for place in itertools.product(*map(range, sizes)):
            language.PLACE[:] = (*place, 0, 0)[:3]
            self.fn(**arguments)
            language.PROGRAMS[0] += 1
            if PROGRAM_S:
                spend(PROGRAM_S)


def jit(fn=None, **options):
    return JITFunction(fn) if fn is not None else JITFunction

"""What it costs to look a launch of a Triton kernel up in a plan, beside Triton's own launch.

    python benchmarks/triton_lookup.py [--rounds 15]

Kernels with 4, 12 and 30 arguments, tensors and numbers in turns, and two compiled-in blocks by
name, launched with a plan's values. Triton is stood in for by an empty function, so that no GPU is
needed: what is timed is what gpuadvisor adds to a launch on the CPU, in microseconds, the median of
the rounds. It wants Triton installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch

from gpuadvisor.tuners.knobs._triton.launched import Launched, lookup_us
from gpuadvisor.tuners.knobs._triton.launches import Kernel, Line

ARGUMENTS = (4, 12, 30)
SHAPES = 8
"""Of all arguments; of the tensors, which are every second, four: queries, keys and the like, what
is summed over them, a mask, weights."""
TEXT = """
import triton
import triton.language as tl

@triton.jit
def kernel({names}, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    pass
"""


def main() -> None:
    """Print a line for each kernel."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        for count in ARGUMENTS:
            kernel, launched = _launch(Path(folder), count)
            texts = kernel.texts(launched.grid, launched.args, launched.kwargs)
            whole = Line(kernel.name, texts, {})
            for said, line in (("all shapes", whole), ("alike ones once", whole.shortened())):
                costs_us = [lookup_us(kernel, launched, line) for _ in range(rounds)]
                print(
                    f"{count} arguments, {said}: {median(costs_us):.2f} us a launch "
                    f"({min(costs_us):.2f} to {max(costs_us):.2f})"
                )


def _launch(folder: Path, count: int) -> tuple[Kernel, Launched]:
    """Return a kernel of so many arguments, and a launch of it as a script writes it."""
    names = [f"argument_{number}" for number in range(count)]
    path = folder / f"kernel_{count}.py"
    path.write_text(TEXT.format(names=", ".join(names)))
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification and specification.loader
    module = sys.modules[path.stem] = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    tensors = [torch.zeros(8, 4 + number % SHAPES) for number in range(count)]
    args = [tensor if n % 2 else tensor.stride(0) for n, tensor in enumerate(tensors)]

    def grid(meta: Mapping[str, Any]) -> tuple[int, int]:
        return (8 // meta["BLOCK_M"], 1)

    kwargs = {"BLOCK_M": 64, "BLOCK_N": 64}
    run = module.kernel[grid]
    return Kernel.of(module.kernel), Launched(module.kernel, grid, tuple(args), kwargs, run)


if __name__ == "__main__":
    main()

"""A Triton without a compiler: its launch interface, with kernels that run on CPU tensors.

What a program calls of it is what it would call of Triton 3.6; a launch runs the kernel's Python
function once for each block of the grid, as Triton's own interpreter does.
"""

from triton.runtime.autotuner import Config, autotune, heuristics
from triton.runtime.jit import jit

__version__ = "3.6.0+fake"
__all__ = ["AsyncCompileMode", "Config", "autotune", "cdiv", "heuristics", "jit", "next_power_of_2"]


class AsyncCompileMode:
    """Not used by what is tested; Triton has it as it can compile in threads."""


def cdiv(number, by):
    return -(-number // by)


def next_power_of_2(number):
    return 1 << max(0, number - 1).bit_length()

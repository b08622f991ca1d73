"""Kernels that meet images in two orders of memory, as convolutions leave them.

cuDNN converts images in NCHW for its convolutions, and back. What comes after them and wants the
pixels' channels side by side (attention over pixels, layers over channels) then copies images into
that order, or reads two operands in two orders. PyTorch's kernels for that compute the place of
each element and reach a fraction of the bandwidth. With images in channels_last both are gone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpuadvisor.rules.facts.kernels import KernelUse, KernelUses
from gpuadvisor.rules.facts.roofline import listed

_STRIDED = re.compile(r"\bat::native::elementwise_kernel<")
"""PyTorch's kernel for operands of any strides: those in one order are read by `vectorized_` and
`unrolled_elementwise_kernel`."""
_COPIES = re.compile(r"direct_copy_kernel")
LEAST_DIMENSIONS = 3
"""Fewest dimensions of a tensor that counts as images: samples, channels, pixels, also where the
pixels have become a row."""


@dataclass(frozen=True)
class Reordered:
    """Uses of kernels that meet images in two orders."""

    copies: tuple[KernelUse, ...]
    """Kernels that copy images into the other order, and compute nothing."""
    others: tuple[KernelUse, ...]
    """Kernels that compute while they read images in two orders."""


def reordered(uses: KernelUses, conversions: Iterable[KernelUse]) -> Reordered:
    """Return those among some uses whose tensors have as many elements as the images of which there
    are conversions for convolutions."""
    images = {size for each in conversions for size in _sizes(each)}
    found = [
        each
        for each in uses.uses
        if _STRIDED.search(each.name) and images.intersection(_equal(each))
    ]
    copies = tuple(each for each in found if _COPIES.search(each.name))
    return Reordered(copies, tuple(each for each in found if each not in copies))


def _equal(use: KernelUse) -> list[int]:
    """Return the size of an operator's first two tensors where they are alike: one that is spread
    over another has no order of its own."""
    sizes = list(_sizes(use))[:2]
    return sizes[:1] if len(sizes) == 2 and sizes[0] == sizes[1] else []


def _sizes(use: KernelUse) -> Iterator[int]:
    """Yield the elements of an operator's tensors that can be images."""
    for shape in listed(use.shapes):
        if isinstance(shape, list) and len(shape) >= LEAST_DIMENSIONS:
            yield math.prod(shape)

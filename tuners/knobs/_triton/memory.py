"""Memory of a launch's tensors, and copies of it with guards around them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import copy
from typing import Any

GUARD = 1024
"""Elements before and after a copy that must keep their value. A multiple of 16 bytes, of which
Triton compiles kernels for pointers that are such multiples, too."""
CHUNK = 1 << 24
"""Elements that are compared at a time, in float64: 1 GiB with all that is made of them."""
CHUNK_BYTES = 1 << 30


class Memory:
    """A block of memory that tensors of a launch are views of, and copies of it."""

    def __init__(self, tensor: Any) -> None:
        import torch

        self.dtype = tensor.dtype
        size = tensor.untyped_storage().nbytes() // tensor.element_size()
        self.real = torch.empty(0, dtype=self.dtype, device=tensor.device).set_(
            tensor.untyped_storage(), 0, (size,), (1,)
        )
        self.elements = size
        self.is_poisoned = False
        """Whether its copy holds NaN, or zeros, before each check: the launch writes it without
        reading it."""
        self.is_written = False
        self.noise = 0.0
        self.expected: Any = None

    @property
    def bytes(self) -> int:
        return int(self.elements * self.real.element_size())

    @property
    def wide_bytes(self) -> int:
        """Bytes of a copy as `widened` makes it."""
        return 4 * self.elements if self.is_narrow else self.bytes

    @property
    def is_narrow(self) -> bool:
        """Whether it holds floating-point numbers of 16 bits or fewer."""
        return bool(self.dtype.is_floating_point) and self.real.element_size() <= 2

    def copy(self, place: int) -> None:
        """Copy it, as the one of this place among all of a launch."""
        self.before = self.real.clone()
        self._allocate(place)

    def widened(self, place: int) -> Memory:
        """Return another copy of what it was, with float32 in the place of 16 bits and fewer."""
        import torch

        wide = copy(self)
        if self.is_narrow:
            wide.dtype, wide.noise = torch.float32, 0.0
        wide._allocate(place)
        return wide

    def _allocate(self, place: int) -> None:
        import torch

        self.whole = torch.empty(
            self.elements + 2 * GUARD, dtype=self.dtype, device=self.real.device
        )
        self.work = self.whole[GUARD : GUARD + self.elements]
        self._guard = self._pattern(place)

    def _pattern(self, place: int) -> Any:
        """Return what a guard holds: no launch writes it there by copying another one's."""
        import torch

        count = torch.arange(GUARD, device=self.real.device)
        if not self.dtype.is_floating_point:
            return ((count + place) % 2).to(self.dtype)  # indices that harm nobody
        return (((7 * count + 13 * place) % 61 + 1) / 8).to(self.dtype)

    def view(self, tensor: Any) -> Any:
        """Return the copy's tensor in the place of one of the script's."""
        import torch

        place = GUARD + tensor.storage_offset()
        return torch.as_strided(self.whole, tensor.size(), tensor.stride(), place)

    def refresh(self, poisoned: bool = False) -> None:
        """Make the copy what the memory was before the launch, or poison; and its guards whole, as
        what one configuration wrote there says nothing of the next."""
        self.whole[:GUARD] = self.whole[-GUARD:] = self._guard
        if poisoned:
            self._fill(self.work)
        else:
            self.work.copy_(self.before)

    def _fill(self, tensor: Any) -> None:
        # Zero is an index, a length and a lock that harms nobody; a large number is not.
        tensor.fill_(math.nan if self.dtype.is_floating_point else 0)

    def overrun(self) -> bool:
        return not all(same(end, self._guard) for end in (self.whole[:GUARD], self.whole[-GUARD:]))


def chunks(one: Any, other: Any) -> Iterator[tuple[Any, Any]]:
    yield from zip(one.split(CHUNK), other.split(CHUNK), strict=True)


def is_poison(tensor: Any) -> Any:
    return tensor.isnan() if tensor.dtype.is_floating_point else tensor == 0


def is_unlike(one: Any, other: Any) -> bool:
    """Say whether other elements are NaN, or infinite."""
    unlike = (one.isnan() != other.isnan()) | (one.isfinite() != other.isfinite())
    return bool(unlike.any())


def same(one: Any, other: Any) -> bool:
    """Say whether two tensors hold the same bits, NaN included."""
    import torch

    bits = (each.contiguous().view(torch.uint8) for each in (one, other))
    return bool(torch.equal(*bits))

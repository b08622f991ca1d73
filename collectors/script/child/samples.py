"""How many samples a batch holds, whatever the script's collate function made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

DEPTH = 3
"""Levels of nesting that are looked into."""
OWN_COUNTS = ("num_graphs", "batch_size")
"""Attributes in which a batch says it itself: PyTorch Geometric's, and those of its loaders that
sample neighbours."""


def samples_in(batch: Any, batch_size: int | None) -> int:
    """Return the samples in a batch; `batch_size` is the loader's, if it has one.

    A length in the batch that equals it is right: a list of 4 images, each of 3 channels, holds 4
    samples. Else the first length is taken: that of a smaller last batch.
    """
    kind = type(batch)
    if batch_size and (kind is list or kind is tuple or kind is dict):  # usual cases, quickly
        first = (batch[0] if kind is not dict else next(iter(batch.values()))) if batch else None
        shape = getattr(first, "shape", None)
        if shape and shape[0] == batch_size:
            return batch_size
    for name in OWN_COUNTS:
        count = getattr(batch, name, None)
        if isinstance(count, int):
            return count
    smaller = None
    for length in _lengths(batch, DEPTH):
        if length == batch_size or batch_size is None:
            return length
        if smaller is None and length < batch_size:
            smaller = length
    return smaller or batch_size or 1


def _lengths(value: Any, depth: int) -> Iterator[int]:
    """Yield what may be the length of a batch: of tensors first, of lists after what they hold."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        if len(shape):
            yield int(shape[0])
        return
    if depth == 0 or isinstance(value, (str, bytes)):
        return
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _lengths(part, depth - 1)
    elif isinstance(value, Sequence):
        for part in value:
            yield from _lengths(part, depth - 1)
        yield len(value)

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
    if type(batch) is list or type(batch) is tuple:  # the usual case, quickly
        shape = getattr(batch[0], "shape", None) if batch else None
        if shape and shape[0] == batch_size:
            return int(shape[0])
    for name in OWN_COUNTS:
        count = getattr(batch, name, None)
        if isinstance(count, int):
            return count
    first = None
    for length in _lengths(batch, DEPTH):
        if length == batch_size or batch_size is None:
            return length
        if first is None and length < batch_size:
            first = length
    return first or batch_size or 1


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

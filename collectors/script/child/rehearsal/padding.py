"""Samples without what repeats at their ends: a batch is padded to the longest of its samples."""

from __future__ import annotations

import sys
from typing import Any

from gpuadvisor.collectors.script.child.rehearsal import inspection
from gpuadvisor.collectors.script.child.rehearsal.fingerprints import is_dense, row_fingerprint

WIDTHS = (1, 2, 4, 8)
"""Bytes of the numbers that are looked at."""


def unpadded(value: Any, count: int) -> list[tuple[int, int]]:
    """Return, for each row of an array of `count` samples, a fingerprint of it without what repeats
    at its ends, and the bits of the number that repeats.

    In each dimension all that follows the last other number is left out, so that of a padded row
    what was there before remains. It is the fingerprint that `samples_of` gives of an array that
    holds just that. Empty where no row ends in repetition, or the value is no array of samples in
    the CPU's memory.
    """
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not is_dense(value) or value.ndim < 2 or value.shape[0] != count:
        return []
    if str(getattr(value, "device", "cpu")) != "cpu" or 0 in value.shape:
        return []
    content, kept = inspection.bytes_of(value)
    shape = tuple(value.shape)
    width = len(content) // numpy.prod(shape)
    if width not in WIDTHS:
        return []
    rows = numpy.frombuffer(content, f"u{width}").reshape(shape)
    last = rows.reshape(count, -1)[:, -1].reshape(count, *[1] * (len(shape) - 1))
    axes = range(1, len(shape))
    others = {axis: tuple(each for each in axes if each != axis) for axis in axes}
    if not any((rows.take([-1], axis) == last).all((axis, *others[axis])).any() for axis in axes):
        return []  # as of pictures: their edges are not of one colour
    used = rows != last
    boxes = numpy.stack([_lengths(numpy, used.any(others[axis])) for axis in axes], 1).tolist()
    found = []
    for row, box, end in zip(rows, boxes, last.reshape(-1).tolist(), strict=True):
        part = row[tuple(slice(0, length) for length in box)]
        found.append((row_fingerprint(value.dtype, tuple(box), part.tobytes()), end))
    del kept
    return found


def _lengths(numpy: Any, used: Any) -> Any:
    """Return for each row of truth values how many there are up to the last true one."""
    return numpy.where(used.any(1), used.shape[1] - numpy.argmax(used[:, ::-1], 1), 0)

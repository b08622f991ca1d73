"""Reductions that read what the elementwise kernel before them wrote, as far as shapes tell.

Shapes of inputs were recorded of operators, and not which tensor is which: a reduction is taken to
read the result of the kernel just before it on its stream where its input has the shape of that
result, which is what the shapes of the elementwise operator's inputs make together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN, Profile
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import BoolArray, IntArray, by_key
from gpuadvisor.rules.facts.kernel_families import Family, kind_of
from gpuadvisor.rules.facts.operators import Operators
from gpuadvisor.rules.facts.roofline import is_shape, listed


@dataclass(frozen=True, eq=False)
class Reduced:
    """Elementwise kernels of a device with the reductions of what they wrote, stream by stream."""

    elementwise: IntArray
    """Rows of the device's work."""
    reduction: IntArray
    """Row of the device's work that follows each of them on its stream."""

    def __len__(self) -> int:
        return len(self.elementwise)


def reduced(profile: Profile, work: DeviceWork, ran: Operators, device: int | None) -> Reduced:
    """Return the reductions of a device that read what the kernel before them wrote; none where no
    shapes were recorded."""
    nothing = np.empty(0, np.int64)
    if device is None or not len(ran):
        return Reduced(nothing, nothing)
    before, after = [nothing], [nothing]
    rows = np.flatnonzero((work.device == device) & work.is_kernel)
    for _, at in by_key(work.stream[rows]):
        stream = rows[at]
        stream = stream[np.argsort(work.begin_ns[stream], kind="stable")]
        before.append(stream[:-1])
        after.append(stream[1:])
    first, second = np.concatenate(before), np.concatenate(after)
    known = (ran.of_work[first] != UNKNOWN) & (ran.of_work[second] != UNKNOWN)
    known &= _is_of(work, first, Family.ELEMENTWISE) & _is_of(work, second, Family.REDUCTION)
    first, second = first[known], second[known]
    shapes, texts = profile.columns("operators", ("shapes",))["shapes"], profile.header.texts

    @cache
    def reads(writer: int, reader: int) -> bool:
        told = listed(texts[reader])
        return bool(told) and is_shape(told[0]) and told[0] == result_of(listed(texts[writer]))

    columns = (shapes[ran.of_work[each]].tolist() for each in (first, second))
    asked = zip(*columns, strict=True)
    is_read = np.array([reads(*each) for each in asked], np.bool_)
    return Reduced(first[is_read], second[is_read])


def _is_of(work: DeviceWork, rows: IntArray, family: Family) -> BoolArray:
    used, place = np.unique(work.name[rows], return_inverse=True)
    fits = [kind_of(work.texts[name]).family is family for name in used.tolist()]
    return np.array(fits, np.bool_)[place]


def result_of(shapes: Sequence[object]) -> list[int] | None:
    """Return the shape that inputs of these shapes have together by broadcasting; None where they
    have none, or nothing tells it."""
    known = [each for each in shapes if isinstance(each, list) and each and is_shape(each)]
    if not known:
        return None
    padded = [[1] * (max(map(len, known)) - len(each)) + each for each in known]
    found = [max(sizes) for sizes in zip(*padded, strict=True)]
    fit = all(size in (1, most) for each in padded for size, most in zip(each, found, strict=True))
    return found if fit else None

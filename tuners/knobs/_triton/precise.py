"""A launch repeated in float32, which tells other rounding from another function.

Sums that atomics make in 16 bits lose what is small beside what is there: results of two blocks may
differ by far more than either's from launch to launch, and the script's own may be the worse ones.
So both are launched on the same arguments in float32, too. Where they agree there, they compute the
same; and in the script's own types a configuration has to be as near to float32's results as the
script's own is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gpuadvisor.tuners.knobs._triton.launched import Launched
from gpuadvisor.tuners.knobs._triton.launches import Kernel, NotTunable
from gpuadvisor.tuners.knobs._triton.memory import Memory, chunks, is_unlike

OWN_LAUNCHES, LAUNCHES = 10, 5
"""Launches of the script's own configuration, and of another, in the script's own types. No error
of these may exceed the largest of those by more than those lie apart: of two configurations that
round alike, with errors spread normally, that refuses one in 200 (simulated)."""
NEAREST = 0.5
"""Part of an element, or of the root mean square of all, from which on a result is nearer to zero
than to the reference, which it then says nothing of."""
IMPRECISE = "it computes the same less precisely"
"""How a reason begins for what has larger rounding errors than the script's own configuration."""
ROUNDED = "its sums are rounded otherwise, no less precisely"
"""What is said of results that differ and are as good."""
_Errors = tuple[float, float]
"""Root mean square and largest of the errors of one memory's elements."""
_NAMES = ("root mean square of its errors", "largest of its errors")


class Precise:
    """What a launch gives in float32, and how far from that it is in the script's own types."""

    def __init__(
        self,
        kernel: Kernel,
        memories: Sequence[tuple[Memory, Memory]],
        wide: Launched,
        relaunch: Callable[[Callable[[], object], Iterable[Memory]], None],
        differs: Callable[[Memory, Any, Any], str | None],
        rounding: Callable[[Any, int], float],
    ) -> None:
        """Nothing is launched yet.

        Each memory comes with its copy of float32, of which the arguments of `wide` are views.
        `relaunch` launches after it has made copies what they were; `differs` says by how much more
        than `rounding` of its type, in the order of terms, a memory is not what it should be.
        """
        self._kernel = kernel
        self._narrow = {id(own): other for own, other in memories if own.is_narrow}
        self._all = memories
        self._wide = wide
        self._relaunch = relaunch
        self._differs = differs
        self._rounding = rounding
        self._most: dict[int, _Errors] = {}
        """The largest errors that are no larger than the script's own, of each narrow memory."""

    def learn(self, own: Mapping[str, Any], plain: Callable[[], object], terms: int) -> None:
        """Launch the script's own configuration: by its values in float32, and as it is.

        NotTunable where that gives no reference: it differs from launch to launch by more than the
        order of its terms makes of it, or is not what the launch computes but for its rounding.
        """
        self._launch_wide(own)
        for _, wide in self._all:
            if wide.overrun():
                raise NotTunable("in float32 it writes outside of its arguments")
            wide.expected = wide.work.clone()
        self._launch_wide(own)
        if self._wrong_wide() is not None:
            raise NotTunable("in float32 it gives other results from launch to launch")
        narrow = [memory for memory, _ in self._all if memory.is_narrow]
        errors = self._errors(plain, narrow, OWN_LAUNCHES)
        for memory in narrow:
            step = self._step_if_near(memory, terms)
            squares, largest = zip(*errors[id(memory)], strict=True)
            if step is None or math.inf in largest:
                raise NotTunable("in float32 it computes something else")
            # An element of each configuration is rounded by half a step in any case.
            most = 2 * max(squares) - min(squares), 2 * max(largest) - min(largest) + step
            self._most[id(memory)] = most

    def wrong(
        self, values: Mapping[str, Any], changed: Callable[[], object], unlike: Sequence[Memory]
    ) -> str | None:
        """Say why a configuration's results, which differ in these memories by more than rounding
        in the order of terms makes of them, are not as good; None where they are.
        """
        self._launch_wide(values)
        said = self._wrong_wide()
        if said is not None:
            return f"in float32, too: {said}"
        for place, found in self._errors(changed, unlike, LAUNCHES).items():
            for name, ours, most in zip(
                _NAMES, zip(*found, strict=True), self._most[place], strict=True
            ):
                if max(ours) > most:
                    return f"{IMPRECISE}: {name} {max(ours):.3g}, at most {most:.3g} as it is"
        return None

    # -- in float32 --------------------------------------------------------------------------------

    def _launch_wide(self, values: Mapping[str, Any]) -> None:
        self._relaunch(
            lambda: self._wide.changed(self._kernel, values), (wide for _, wide in self._all)
        )

    def _wrong_wide(self) -> str | None:
        for _, wide in self._all:
            if wide.overrun():
                return "it writes outside of its arguments"
            said = self._differs(wide, wide.work, wide.expected)
            if said is not None:
                return said
        return None

    # -- in the script's own types -----------------------------------------------------------------

    def _errors(
        self, launch: Callable[[], object], memories: Sequence[Memory], launches: int
    ) -> dict[int, list[_Errors]]:
        """Return the errors of each of some launches, by the identity of what was written."""
        found: dict[int, list[_Errors]] = {id(memory): [] for memory in memories}
        for _ in range(launches):
            self._relaunch(launch, (memory for memory, _ in self._all))
            for memory in memories:
                found[id(memory)].append(_error(memory.work, self._narrow[id(memory)].expected))
        return found

    def _step_if_near(self, memory: Memory, terms: int) -> float | None:
        """Return how far neighbouring numbers lie apart at the root mean square of the reference;
        None where the last launch left more than rounding makes of it: half such a step at the sum
        for each of so many terms.
        """
        import torch

        limits = torch.finfo(memory.dtype)
        part = self._rounding(memory.dtype, 1) + terms * limits.eps / 2
        part, least = min(NEAREST, part), part * limits.smallest_normal
        wanted = self._narrow[id(memory)].expected
        scale = _root_mean_square(wanted)
        for one, other in chunks(memory.work, wanted):
            apart, size = (one.double() - other.double()).abs(), other.double().abs()
            beyond = apart > part * size.clamp_min(scale) + least
            if bool((beyond & other.isfinite()).any()) or is_unlike(one, other):
                return None
        return float(limits.eps * max(scale, limits.smallest_normal))


def _root_mean_square(tensor: Any) -> float:
    """Return it of those elements that are finite."""
    squares = sum(float(_finite(one).square().sum()) for one, _ in chunks(tensor, tensor))
    return math.sqrt(squares / max(1, tensor.numel()))


def _error(found: Any, wanted: Any) -> _Errors:
    """Return how far results are from what they should be; infinite where others are finite."""
    squares = most = 0.0
    for one, other in chunks(found, wanted):
        if is_unlike(one, other):
            return math.inf, math.inf
        apart = _finite(one.double() - other.double())
        squares, most = squares + float(apart.square().sum()), max(most, float(apart.abs().max()))
    return math.sqrt(squares / max(1, wanted.numel())), most


def _finite(tensor: Any) -> Any:
    return tensor.double().nan_to_num(0.0, 0.0, 0.0)

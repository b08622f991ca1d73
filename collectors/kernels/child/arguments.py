"""The arguments of a kernel: made afresh from a seed, poisoned, guarded, and compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gpuadvisor.domain.kernel_rules import Names
from gpuadvisor.domain.kernels import Array, Kernel
from gpuadvisor.errors import UsageError

NO_OUTPUT = (
    "kernel {}: nothing says what it writes: use output(...) in arguments, or outputs= with their "
    "places"
)
GUARD = 1024
"""Elements before and after an output that must keep their value: a block of threads that is off by
one lands there."""
_TOLERANCES = {"float64": 1e-10, "float32": 1e-4, "float16": 1e-2, "bfloat16": 4e-2}
"""Largest difference by dtype, relative to an element and the root mean square of all: some hundred
roundings in 32 bits, where sums of 10^6 terms in another order differ by less than 1e-5; some four
in 16 bits. TF32 and a tensor core's half precision in place of float32 are refused."""
COARSEST = 0.15
"""Tolerance of dtypes with fewer bits, such as float8."""
LAST_ROUNDINGS = 4.0
"""Units in the last place by which the same value may differ after another order of operations: one
for its last rounding, and some for what was rounded to the same dtype on the way."""
SUM_ROUNDINGS = 8.0
"""Times the square root of its terms by which a float32 sum's last place may move when they come in
another order: errors of single additions are independent, and their spread grows so (Higham,
"Accuracy and Stability of Numerical Algorithms", 4.2)."""

TF32_EPS = 2.0**-10
"""Relative distance of neighbouring numbers in TF32, which has 10 bits behind the point (NVIDIA,
Parallel Thread Execution ISA, 5.2.3). A sum of products that are rounded to it one by one moves by
as much of the root mean square of such sums, whatever the number of its terms."""


class Arguments:
    """One set of arguments, in the kernel's order."""

    def __init__(self, kernel: Kernel, names: Names, seed: int, device: str = "cuda") -> None:
        """Make them on a device, as torch names it, with random numbers from the seed."""
        import torch

        torch.manual_seed(seed)
        self._kernel = kernel
        self._device = device
        self._guarded: list[tuple[int, Any, Any]] = []
        given = kernel.arguments
        if callable(given):
            made = kernel.value("arguments", given, names)
            self.values: list[Any] = [
                each.to(device) if hasattr(each, "data_ptr") else _number(each) for each in made
            ]
            self.outputs = self._chosen(kernel.outputs or ())
        else:
            self.values = [
                self._made(torch, place, each, names) for place, each in enumerate(given)
            ]
            self.outputs = [n for n, each in enumerate(given) if _is_output(each)]
        if not self.outputs:
            raise UsageError(NO_OUTPUT.format(kernel.name))

    def poison(self) -> None:
        """Fill the outputs with what no kernel should leave there."""
        for place in self.outputs:
            given = self._kernel.arguments
            spec = None if callable(given) else given[place]
            if spec is None or (isinstance(spec, Array) and _is_poison(spec.fill)):
                _poison(self.values[place])

    def written(self) -> list[Any]:
        """Return copies of the outputs."""
        return [self.values[place].clone() for place in self.outputs]

    def overrun(self) -> str | None:
        """Say which output was written outside its bounds; None for none."""
        for place, whole, before in self._guarded:
            ends = whole[:GUARD], whole[-GUARD:]
            if any(not _same(end, before) for end in ends):
                return f"it writes outside of argument {place + 1}"
        return None

    def expected(self) -> list[Any]:
        """Return what the reference gives for them, on copies."""
        import torch

        copies = [each.clone() if hasattr(each, "data_ptr") else each for each in self.values]
        assert self._kernel.reference is not None
        try:
            found = self._kernel.reference(*copies)
        except Exception as error:
            raise UsageError(
                f"kernel {self._kernel.name}: its reference fails: {type(error).__name__}: {error}"
            ) from error
        several = list(found) if isinstance(found, list | tuple) else [found]
        if len(several) != len(self.outputs):
            raise UsageError(
                f"kernel {self._kernel.name}: its reference returns {len(several)} results, and "
                f"the kernel has {len(self.outputs)} outputs"
            )
        results = [torch.as_tensor(each).to(self._device) for each in several]
        for place, result in zip(self.outputs, results, strict=True):
            shape = tuple(self.values[place].shape)
            if result.numel() != math.prod(shape):
                raise UsageError(
                    f"kernel {self._kernel.name}: its reference returns the shape "
                    f"{tuple(result.shape)} where the output has {shape}"
                )
        return results

    def _made(self, torch: Any, place: int, spec: Any, names: Names) -> Any:
        if not isinstance(spec, Array):
            return _number(self._kernel.value(f"argument {place + 1}", spec, names))
        sides = [self._kernel.value(f"the shape of argument {place + 1}", side, names)
                 for side in spec.shape]  # fmt: skip
        shape = tuple(
            s for side in sides for s in (side if isinstance(side, list | tuple) else [side])
        )
        dtype = getattr(torch, spec.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise UsageError(f"kernel {self._kernel.name}: torch has no dtype {spec.dtype}")
        if not spec.is_output:
            return _filled(torch, shape, dtype, spec.fill, self._device)
        size = math.prod(shape)
        whole = torch.zeros(size + 2 * GUARD, dtype=dtype, device=self._device)
        inner = whole[GUARD : GUARD + size].view(shape)
        if not _is_poison(spec.fill):
            inner.copy_(_filled(torch, shape, dtype, spec.fill, self._device))
        self._guarded.append((place, whole, whole[:GUARD].clone()))
        return inner

    def _chosen(self, places: Sequence[int]) -> list[int]:
        for place in places:
            if not 0 <= place < len(self.values) or not hasattr(self.values[place], "data_ptr"):
                raise UsageError(
                    f"kernel {self._kernel.name}: outputs names argument {place}, counted from 0, "
                    "which is no tensor"
                )
        return list(places)


def difference(
    found: Sequence[Any],
    expected: Sequence[Any],
    tolerance: float | None,
    absolute: float | None = None,
) -> str | None:
    """Say how results differ by more than the tolerance; None where they do not.

    With an `absolute` one, that is added to the tolerance times the expected element; without, the
    tolerance is relative to the element or the root mean square of all, whichever is larger.
    """
    for number, (value, wanted) in enumerate(zip(found, expected, strict=True), 1):
        said = _differs(value, wanted.reshape(value.shape), tolerance, absolute)
        if said is not None:
            return said if len(found) == 1 else f"output {number}: {said}"
    return None


def _differs(
    value: Any, wanted: Any, tolerance: float | None, absolute: float | None
) -> str | None:
    import torch

    if not value.dtype.is_floating_point and not value.dtype.is_complex:
        wrong = int((value != wanted.to(value.dtype)).sum())
        return f"{wrong:,} of {value.numel():,} elements differ" if wrong else None
    limit = tolerance
    if limit is None:
        limit = _TOLERANCES.get(str(value.dtype).removeprefix("torch."), COARSEST)
    one, other = value.double(), wanted.double()
    finite = torch.isfinite(other)
    unlike = (torch.isfinite(one) != finite) | (torch.isnan(one) != torch.isnan(other))
    if bool(unlike.any()):
        place = int(unlike.flatten().int().argmax())
        left = (
            "was left unwritten or is NaN" if bool(torch.isnan(one.flatten()[place])) else "differs"
        )
        return f"{int(unlike.sum()):,} of {value.numel():,} elements: element {place} {left}"
    if absolute is not None:
        limit = absolute
        allowed = absolute + (tolerance or 0.0) * other.abs()
    else:
        scale = other[finite].square().mean().sqrt() if bool(finite.any()) else other.new_zeros(())
        allowed = limit * torch.maximum(other.abs(), scale)
    beyond = torch.where(finite, (one - other).abs() - allowed, torch.zeros_like(one))
    wrong = int((beyond > 0).sum())
    if not wrong:
        return None
    place = int(beyond.flatten().argmax())
    return (
        f"{wrong:,} of {value.numel():,} elements differ by more than {limit:g}: element {place} "
        f"is {float(one.flatten()[place]):.6g} and should be {float(other.flatten()[place]):.6g}"
    )


def rounding(dtype: Any, terms: int, multiplied: bool = False) -> float:
    """Return by how much two sums of so many terms may differ, relative to an element and to the
    root mean square of all, if only their order and the last rounding to a torch dtype do.

    Terms are added in float32, as Triton and CUDA libraries do for dtypes of 16 bits, or in float64
    for that. What adds in fewer bits differs more, and between two runs, too, where it does so with
    atomics. Where sums are `multiplied` by tensor cores, parts of them were rounded to TF32 before,
    other parts in other blocks.
    """
    import torch

    if not dtype.is_floating_point:
        return 0.0
    last = torch.finfo(dtype).eps
    within = min(last, torch.finfo(torch.float32).eps)
    sums = within * math.sqrt(max(terms, 1))
    if multiplied and dtype is torch.float32:
        sums = max(sums, TF32_EPS)
    return float(LAST_ROUNDINGS * last + SUM_ROUNDINGS * sums)


def _filled(torch: Any, shape: tuple[int, ...], dtype: Any, fill: Any, device: str) -> Any:
    if hasattr(fill, "__array__"):
        return torch.as_tensor(fill).to(device, dtype).reshape(shape).clone()
    if isinstance(fill, int | float):
        return torch.full(shape, fill, dtype=dtype, device=device)
    if fill == "arange":
        return torch.arange(math.prod(shape), device=device).to(dtype).view(shape)
    if fill not in ("normal", "uniform"):
        raise UsageError(
            f"fill is normal, uniform, arange, a number or an array of numpy, not {fill!r}"
        )
    if not dtype.is_floating_point:
        return torch.randint(0, 100, shape, device=device).to(dtype)
    make = torch.randn if fill == "normal" else torch.rand
    return make(shape, device=device).to(dtype)


def _is_poison(fill: Any) -> bool:
    return isinstance(fill, str) and fill == "poison"


def _poison(tensor: Any) -> None:
    import torch

    if tensor.dtype.is_floating_point:
        tensor.fill_(float("nan"))
    elif tensor.dtype is not torch.bool:
        tensor.fill_(torch.iinfo(tensor.dtype).max)


def _same(one: Any, other: Any) -> bool:
    return bool((one == other).all())


def check_outputs(kernel: Kernel) -> None:
    """UsageError for a kernel of which nothing says what it writes; without torch."""
    given = kernel.arguments
    if not callable(given) and not any(_is_output(each) for each in given):
        raise UsageError(NO_OUTPUT.format(kernel.name))


def _is_output(spec: Any) -> bool:
    return isinstance(spec, Array) and spec.is_output


def _number(value: Any) -> Any:
    """Return a number of numpy as Python's own."""
    return value.item() if hasattr(value, "item") and not hasattr(value, "data_ptr") else value

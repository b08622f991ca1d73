"""Launches of a running script with float32 in the place of 16 bits: what their rounding is held
against.

Sums that atomics make in 16 bits lose what is small beside what is there. With float32 the same
launch computes the same and rounds once, when its results are written back. (Gradients of a
transformer whose attention adds them so were 15 to 60 % off those of float64 in single parameters,
0.4 to 31 % with such launches; lookahead-keys-attention on an H200.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuadvisor.tuners.knobs._triton.launches import Kernel, NotTunable
from gpuadvisor.tuners.knobs._triton.memory import Memory


class Widened:
    """Launches one kernel on copies, and writes back what they hold then."""

    def __init__(self, kernel: Kernel, launched: Any, on_failure: Callable[[str], None]) -> None:
        """`launched` is the object before `[grid]`; `on_failure` is told, in words, that a launch
        did not go, which then goes as it is. NotTunable for what may compute something else."""
        if kernel.constants.tells_types or (kernel.heuristics and kernel.compiled is None):
            raise NotTunable("what it computes may depend on the types of its arguments")
        if kernel.heuristics and kernel.tuner is not None:
            raise NotTunable("its autotuner may choose by the types of its arguments")
        self._kernel = kernel
        self._launched = launched
        self._on_failure = on_failure

    def changed_run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Launch it, with arguments as the script gives them."""
        import torch

        with torch.no_grad():
            try:
                copies = _Copies((*args, *kwargs.values()))
                run, given = self._launched.run, kwargs
                if self._kernel.heuristics:  # what they make of the script's own types
                    run = self._kernel.compiled.run
                    for each in self._kernel.heuristics:
                        given = self._kernel.ruled(each, args, given)
                given = {name: copies.of(value) for name, value in given.items()}
                made = run(*map(copies.of, args), grid=grid, warmup=warmup, **given)
            except Exception as error:  # such as more shared memory than there is
                name = self._kernel.short_name
                self._on_failure(f"{name} in float32: {type(error).__name__}: {error}"[:300])
                return self._launched.run(*args, grid=grid, warmup=warmup, **kwargs)
            copies.write_back()
        return made


class _Copies:
    """Copies in float32 of the memory of those tensors of a launch that have 16 bits or fewer."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        import torch

        self._known: dict[int, tuple[Memory, Memory]] = {}
        types: dict[int, Any] = {}
        for value in values:
            if not isinstance(value, torch.Tensor) or not value.numel():
                continue
            own = Memory(value)
            place = value.untyped_storage().data_ptr()
            if types.setdefault(place, own.dtype) is not own.dtype:
                raise TypeError("two of its arguments of different types share memory")
            if own.is_narrow and place not in self._known:
                wide = own.widened(len(self._known))
                wide.before = own.real
                wide.refresh()
                self._known[place] = own, wide

    def of(self, value: Any) -> Any:
        """Return the copy of an argument; the argument where it has none."""
        import torch

        if not isinstance(value, torch.Tensor) or not value.numel():
            return value
        _, wide = self._known.get(value.untyped_storage().data_ptr(), (None, None))
        return value if wide is None else wide.view(value)

    def write_back(self) -> None:
        for own, wide in self._known.values():
            own.real.copy_(wide.work)

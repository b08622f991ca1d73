"""One launch of a Triton kernel: what may be set in it, and what it costs to look it up."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from gpuadvisor.tuners.knobs._triton.launches import (
    OPTIONS,
    Change,
    Kernel,
    Line,
    NotTunable,
    Table,
)

LOOKUPS, LOOKUP_ROUNDS = 100, 50
"""Look-ups that are timed together, and how often: the least time of them is one in which nothing
else ran on the core."""
_LOOP = re.compile(r"^\s*(for|while)\b", re.MULTILINE)


@dataclass(frozen=True, eq=False)
class Launched:
    """One launch: what the script wrote before and behind `[grid]`."""

    kernel: Any
    grid: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    run: Callable[..., Any]
    """What Triton's `kernel[grid]` is."""

    def plain(self) -> Any:
        return self.run(*self.args, **self.kwargs)

    def changed(self, kernel: Kernel, values: Mapping[str, int], warmup: bool = False) -> Any:
        """Launch it with other values, as a plan with them does; for a `warmup`, compile only."""
        change = Change.of(kernel, self.args, values)
        options = {**self.kwargs, **change.by_name}
        return kernel.changed_run(
            *change.placed(self.args), grid=self.grid, warmup=warmup, **options
        )


def tunable(kernel: Kernel, launched: Launched) -> dict[str, int]:
    """Return what may be set in a launch, by name, with the values that it has.

    Powers of two among what is compiled in, where the kernel's text uses them as blocks: 1 is none
    where the script gives it, as it is a flag then more often than a block. What a program's place
    is counted in is left alone where the grid does not follow it, as one given as numbers does not.
    A size of what is computed is none, and warps and stages are, which the script may leave to
    Triton.
    """
    values = _values(kernel, launched)
    made = set(getattr(getattr(kernel.tuner, "best_config", None), "kwargs", {}))
    made.update(*(each.values for each in kernel.heuristics))
    lengths, places = kernel.constants.lengths, kernel.constants.places
    stuck = places
    if callable(launched.grid):  # what is no length there may put programs in groups
        stuck = places & lengths - _read_by(launched.grid, values)
    found = {
        name: value
        for name, value in values.items()
        if (kernel.is_constant(name) or name in made)
        and _is_block(value, name in made)
        and name in (lengths | places) - stuck - kernel.constants.sizes
    }
    if type(kernel.compiled or kernel.launched).__name__.startswith("Interpreted"):
        return found
    options = {"num_warps": 4, "num_stages": 3}  # what Triton takes on NVIDIA's GPUs
    if _LOOP.search(inspect.getsource(kernel.function)) is None:
        del options["num_stages"]  # they are those of a loop
    for name, usual in options.items():
        option = values.get(name)
        found[name] = option if isinstance(option, int) and option > 0 else usual
    return found


def held(kernel: Kernel, launched: Launched) -> list[str]:
    """Return what would be tried if the kernel's text did not show that it is a size."""
    values = _values(kernel, launched)
    sizes = (name for name in kernel.constants.sizes if kernel.is_constant(name))
    return sorted(name for name in sizes if _is_block(values.get(name), False))


def fixed(kernel: Kernel, launched: Launched) -> dict[str, int]:
    """Return what an autotuner's choice has beside what may be set.

    NotTunable where that is not numbers alone.
    """
    chosen = getattr(kernel.tuner, "best_config", None)
    if chosen is None:
        return {}
    free = tunable(kernel, launched)
    options = {name: getattr(chosen, name, None) for name in OPTIONS if name not in free}
    rest = {name: value for name, value in options.items() if isinstance(value, int) and value > 1}
    own = {name: value for name, value in chosen.kwargs.items() if name not in free}
    if any(type(value) is not int or value < 0 for value in own.values()):
        raise NotTunable("its autotuner chooses more than whole numbers")
    return {**own, **rest}


def _values(kernel: Kernel, launched: Launched) -> dict[str, Any]:
    """Return what a launch has by name: given, by default, chosen by an autotuner, and by rule."""
    given = kernel.named(launched.args, launched.kwargs)
    chosen = getattr(kernel.tuner, "best_config", None)
    if chosen is not None:
        options = {name: getattr(chosen, name, None) for name in OPTIONS}
        given |= {**chosen.kwargs, **{n: v for n, v in options.items() if v is not None}}
    for each in kernel.heuristics:
        given = kernel.ruled(each, (), given)
    defaults = {n: p.default for n, p in kernel.parameters.items() if p.default is not p.empty}
    return {**defaults, **given}


class _Reads(Mapping[str, Any]):
    """Values that note which of them are asked for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _read_by(grid: Any, values: Mapping[str, Any]) -> set[str]:
    """Return the names of those values that a function as a grid depends on."""
    reads = _Reads(values)
    try:
        grid(reads)
    except Exception:  # it asks for more than is known here
        return set(values)
    return reads.names


def lookup_us(kernel: Kernel, launched: Launched, wanted: Line) -> float:
    """Return what it costs to look a launch of a line up and to change it, in microseconds of the
    CPU."""

    def idle(*args: Any, **kwargs: Any) -> None:
        return None

    line = replace(wanted, values={"num_warps": 4})
    stub = SimpleNamespace(run=idle, changed_run=idle)
    table = Table([line])
    stub._gpuadvisor_launches = table.launches(kernel, stub, stub)
    args, kwargs = launched.args, launched.kwargs

    def as_triton(interface: Any, grid: Any) -> Any:
        return lambda *args, **kwargs: interface.run(*args, grid=grid, warmup=False, **kwargs)

    def least_s(getitem: Any) -> float:
        found = []
        for _ in range(LOOKUP_ROUNDS):
            began_s = time.perf_counter()
            for _ in range(LOOKUPS):
                getitem(stub, launched.grid)(*args, **kwargs)
            found.append(time.perf_counter() - began_s)
        return min(found)

    return 1e6 * (least_s(table.getitem(as_triton)) - least_s(as_triton)) / LOOKUPS


def _is_block(value: Any, is_made: bool) -> bool:
    """Say whether a value may be that of a block, made by an autotuner or a rule or given."""
    return type(value) is int and value >= (1 if is_made else 2) and value & (value - 1) == 0

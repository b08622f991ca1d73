"""Triton: a function of `triton.jit`, also below `triton.autotune`, whose list is left aside."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from gpuadvisor.collectors.kernels.child.backends import (
    CannotBuild,
    Launchable,
    Target,
    cubin,
    is_from,
)
from gpuadvisor.domain.kernel_rules import Names
from gpuadvisor.domain.kernels import Array, Kernel
from gpuadvisor.errors import UsageError

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Parameters that are the compiler's and not the kernel's (`triton.Config`)."""


def takes(source: Any) -> bool:
    """Say whether this is an object of Triton."""
    return is_from(source, "triton")


def check(kernel: Kernel, source: Any, names: Names) -> None:
    """UsageError for an argument that nothing gives, and for a parameter that nothing takes."""
    function = _function(source)
    kernel.check_used((*function.arg_names, *OPTIONS), "its arguments or Triton's options")
    if callable(kernel.arguments):
        return
    rest = list(inspect.signature(function.fn).parameters.values())[len(kernel.arguments) :]
    for each in rest:
        if each.name not in names and each.default is inspect.Parameter.empty:
            raise UsageError(
                f"kernel {kernel.name}: nothing gives its argument {each.name}: arguments= has "
                f"{len(kernel.arguments)}, and it is no parameter and no size"
            )


def build(kernel: Kernel, source: Any, names: Names, target: Target) -> Launchable:
    """Return a launch with the names that the kernel or the compiler takes."""
    function = _function(source)
    grid = kernel.sides("grid", kernel.grid, names)
    known = _known(kernel, function, names)
    made: list[Any] = []

    def launch(arguments: Sequence[Any]) -> object:
        given = set(function.arg_names[: len(arguments)])
        rest = {name: value for name, value in known.items() if name not in given}
        try:
            compiled = function[grid](*arguments, **rest)
        except Exception as error:
            if _is_refusal(error):
                raise CannotBuild(" ".join(str(error).split())[:400]) from None
            raise
        if not made:
            made.append(compiled)
        return compiled

    return Launchable(launch, lambda: _resources(made))


def prepare(kernel: Kernel, source: Any, names: Names, target: Target) -> Mapping[str, int] | None:
    """Compile into the folder in which Triton keeps binaries, and return what a block takes.

    None where a function makes the arguments: nothing but they would say what their types are.
    """
    if callable(kernel.arguments):
        return None
    import torch

    target.select()
    function = _function(source)
    grid = kernel.sides("grid", kernel.grid, names)
    kinds = [
        getattr(torch, each.dtype)
        if isinstance(each, Array)
        else kernel.value(f"argument {place + 1}", each, names)
        for place, each in enumerate(kernel.arguments)
    ]
    given = set(function.arg_names[: len(kinds)])
    rest = {n: value for n, value in _known(kernel, function, names).items() if n not in given}
    try:
        compiled = function.warmup(*kinds, grid=grid, **rest)
    except Exception as error:
        if _is_refusal(error):
            raise CannotBuild(" ".join(str(error).split())[:400]) from None
        raise
    taken = cubin.resources(compiled.asm.get("cubin", b""), compiled.metadata.name)
    taken["shared_bytes"] = compiled.metadata.shared
    return {"threads": 32 * compiled.metadata.num_warps, **taken}


def _function(source: Any) -> Any:
    """Return the function below `triton.autotune` and `triton.heuristics`."""
    function = source
    while type(function).__name__ in ("Autotuner", "Heuristics"):
        function = function.fn
    return function


def _known(kernel: Kernel, function: Any, names: Names) -> dict[str, Any]:
    """Return the names that the kernel or its compiler takes."""
    takes = {*function.arg_names, *(name for name in OPTIONS if name in kernel.parameters)}
    return {name: value for name, value in names.items() if name in takes}


def _is_refusal(error: Exception) -> bool:
    """Say whether the compiler refuses this point, which says nothing of the others."""
    return type(error).__name__ in (
        "OutOfResources", "CompilationError", "CompileTimeAssertionFailure", "PTXASError",
        "UnsupportedLanguageConstruct",
    )  # fmt: skip


def _resources(made: list[Any]) -> dict[str, int]:
    if not made or made[0] is None:
        return {}
    compiled = made[0]
    found = {
        "registers": getattr(compiled, "n_regs", None),
        "shared_bytes": getattr(getattr(compiled, "metadata", None), "shared", None),
        "local_bytes": getattr(compiled, "n_spills", None),
    }
    return {name: int(value) for name, value in found.items() if isinstance(value, int)}

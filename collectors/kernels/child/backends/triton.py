"""Triton: a function of `triton.jit`, also below `triton.autotune`, whose list is left aside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.collectors.kernels.child.backends import CannotBuild, Launchable, is_from
from gpuadvisor.domain.kernels import Kernel, Names

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Parameters that are the compiler's and not the kernel's (`triton.Config`)."""


def takes(source: Any) -> bool:
    """Say whether this is an object of Triton."""
    return is_from(source, "triton")


def build(kernel: Kernel, source: Any, names: Names) -> Launchable:
    """Return a launch with the names that the kernel or the compiler takes."""
    function = source
    while type(function).__name__ in ("Autotuner", "Heuristics"):
        function = function.fn
    grid = kernel.sides("grid", kernel.grid, names)
    own = {name: names[name] for name in kernel.parameters}
    constants = {name: value for name, value in own.items() if name in function.arg_names}
    options = {name: value for name, value in own.items() if name in OPTIONS}
    sizes = {n: v for n, v in names.items() if n not in own and n in function.arg_names}
    made: list[Any] = []

    def launch(arguments: Sequence[Any]) -> object:
        given = set(function.arg_names[: len(arguments)])
        rest = {name: value for name, value in sizes.items() if name not in given}
        try:
            compiled = function[grid](*arguments, **rest, **constants, **options)
        except Exception as error:
            if _is_refusal(error):
                raise CannotBuild(" ".join(str(error).split())[:400]) from None
            raise
        if not made:
            made.append(compiled)
        return compiled

    return Launchable(launch, lambda: _resources(made))


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

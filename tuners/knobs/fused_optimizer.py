"""Update all parameters in one kernel, or in a few, instead of some for each.

The fused kernel saves 1.6 to 3.6 % of a training step (pytorch/torchtitan#881) and more of a
small one. `foreach` is what torch does on a GPU anyway; on a CPU it is a choice of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.domain.target import Target
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knobs._script import not_on_gpu

FUSED = {"Adam", "AdamW", "SGD"}
"""torch's optimizers with a fused kernel on CPU and GPU (from torch 2.4 on)."""
NO_FOREACH = {"LBFGS", "SparseAdam"}


class FusedOptimizer(Knob):
    """Sets `fused` or `foreach` of every optimizer that can do it."""

    name = "fused_optimizer"
    title = "Fused optimizer"
    level = Level.CONSERVATIVE
    effect = Effect.NONE
    order = 120
    plausible = ("fused", "foreach")
    lines = "optimizer = torch.optim.AdamW(model.parameters(), ..., {value}=True)"

    def choices(self, device: Device, facts: ScriptFacts) -> Sequence[Value]:
        values = ["fused"] if FUSED & set(facts.optimizers) else []
        if not_on_gpu(device, facts) and set(facts.optimizers) - NO_FOREACH:
            values.append("foreach")
        return values

    def unavailable(self, device: Device, facts: ScriptFacts) -> str | None:
        if not facts.optimizers:
            return "the script uses no torch optimizer"
        if not self.choices(device, facts):
            return f"{' and '.join(facts.optimizers)} has no fused implementation"
        return None

    def apply(self, value: Value, target: Target) -> None:
        def adjust(cls: type, arguments: dict[str, Any]) -> None:
            if self._fits(str(value), arguments):
                arguments[str(value)] = True
                target.effective()

        target.on_optimizer(adjust)

    def _fits(self, value: str, arguments: dict[str, Any]) -> bool:
        """Say whether the optimizer can do it and the script has not chosen otherwise."""
        if value not in arguments or arguments.get("differentiable"):
            return False
        if arguments.get("fused") or arguments.get("foreach"):
            return False
        if value == "foreach":  # a learning rate in a tensor needs `capturable` there
            return not hasattr(arguments.get("lr"), "dim")
        # torch itself checks this at the first step only, when it is too late to fall back.
        return all(_can_be_fused(parameter) for parameter in _parameters(arguments))


def _parameters(arguments: dict[str, Any]) -> Iterator[Any]:
    """Yield the parameters, given as tensors, as (name, tensor) pairs or in groups of either."""
    groups = arguments["params"]
    for position, entry in enumerate(groups):
        if isinstance(entry, dict):
            if not hasattr(entry["params"], "dim") and not isinstance(entry["params"], list):
                # A generator can be read only once, and the optimizer reads it after us.
                groups[position] = entry = {**entry, "params": list(entry["params"])}
            members = entry["params"] if isinstance(entry["params"], list) else [entry["params"]]
        else:
            members = [entry]
        for member in members:
            yield member[1] if isinstance(member, tuple) else member


def _can_be_fused(parameter: Any) -> bool:
    import torch

    return (
        parameter.is_floating_point()
        and parameter.device.type in {"cpu", "cuda"}
        and type(parameter) in {torch.Tensor, torch.nn.Parameter}
    )


KNOB = FusedOptimizer()

"""Update all parameters in one kernel, or in a few, instead of some for each.

The fused kernel saves 1.6 to 3.6 % of a training step (pytorch/torchtitan#881) and more of a
small one. `foreach` is what torch does on a GPU anyway; on a CPU it is a choice of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakSet

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.domain.target import Target, Turn
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knobs._live import Switch
from gpuadvisor.tuners.knobs._script import not_on_gpu

FUSED = {"Adam", "AdamW", "SGD"}
"""torch's optimizers with a fused kernel on CPU and GPU (from torch 2.4 on)."""
NO_FOREACH = {"LBFGS", "SparseAdam"}
ATTRIBUTES = ("_step_supports_amp_scaling", "_need_device_dtype_check_for_fused")
"""Attributes of a fused optimizer beside its flags. `GradScaler` leaves unscaling to the first."""


class FusedOptimizer(Knob):
    """Sets `fused` or `foreach` of every optimizer that can do it."""

    name = "fused_optimizer"
    title = "Fused optimizer"
    level = Level.CONSERVATIVE
    effect = Effect.NONE
    changes_model = True
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
            if _fits(str(value), arguments):
                arguments[str(value)] = True
                target.effective()

        target.on_optimizer(adjust)

    def live(self, target: Target) -> Turn | None:
        updates = _Updates(target)
        return Switch(updates.on, updates.off)


class _Updates:
    """How the script's optimizers update their parameters, from one step to the next."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._value = ""
        self._optimizers: WeakSet[Any] = WeakSet()
        self._turned: list[_Turned] = []
        target.after_optimizer(self._adopt)

    def _adopt(self, optimizer: Any) -> None:
        self._optimizers.add(optimizer)
        if self._value:
            self._turn(optimizer)

    def on(self, value: Value) -> None:
        self._value = str(value)
        for optimizer in list(self._optimizers):
            self._turn(optimizer)

    def _turn(self, optimizer: Any) -> None:
        value, bases = self._value, {base.__name__ for base in type(optimizer).__mro__}
        if value not in inspect.signature(type(optimizer)).parameters:
            return
        if value == "fused" and not FUSED & bases:
            return
        if all(_fits(value, group) for group in optimizer.param_groups):
            self._turned.append(_Turned(optimizer, value))
            self._target.effective()

    def off(self) -> None:
        self._value = ""
        while self._turned:
            self._turned.pop().back()


class _Turned:
    """An optimizer that is as if it had been built fused, or with `foreach`."""

    def __init__(self, optimizer: Any, value: str) -> None:
        import torch

        self._optimizer, self._value = optimizer, value
        self._steps: dict[Any, Any] = {}
        """Number of updates of each parameter, as the optimizer kept it."""
        if value == "fused":
            counted = [(p, state["step"], state) for p, _, state in self._counted()]
            moved = [step.to(p.device, torch.float32) for p, step, _ in counted]
            for (parameter, step, state), new in zip(counted, moved, strict=True):
                self._steps[parameter], state["step"] = step, new
            own = vars(optimizer)
            self._attributes = {name: own[name] for name in ATTRIBUTES if name in own}
            own.update(dict.fromkeys(ATTRIBUTES, True))
        self._flags = [(flags, flags[value]) for flags in self._all_flags()]
        for flags, _ in self._flags:
            flags[value] = True

    def _all_flags(self) -> list[Any]:
        return [self._optimizer.defaults, *self._optimizer.param_groups]

    def _counted(self) -> Iterator[tuple[Any, Any, Any]]:
        """Yield each parameter of which updates are counted, with its group and state."""
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                state = self._optimizer.state.get(parameter, {})
                if hasattr(state.get("step"), "copy_"):
                    yield parameter, group, state

    def back(self) -> None:
        import torch

        default = self._flags[0][1]
        for flags, own in [(flags, default) for flags in self._all_flags()] + self._flags:
            flags[self._value] = own  # of groups added since then the default
        if self._value != "fused":
            return
        for name in ATTRIBUTES:
            vars(self._optimizer).pop(name, None)
        vars(self._optimizer).update(self._attributes)
        for parameter, group, state in self._counted():
            if parameter in self._steps:
                state["step"] = self._steps[parameter].copy_(state["step"])
            elif not group.get("capturable"):  # as it begins to count where it is not fused
                is_double = torch.get_default_dtype() == torch.float64
                state["step"] = state["step"].to("cpu", torch.float64 if is_double else None)


def _fits(value: str, arguments: dict[str, Any]) -> bool:
    """Say whether an optimizer can do it and the script has not chosen otherwise.

    `arguments` are those of its constructor, or a group of its parameters.
    """
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

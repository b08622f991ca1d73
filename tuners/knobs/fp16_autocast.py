"""Compute in float16 under autocast, with the loss scaled so that small gradients survive.

For GPUs before Ampere, which have no bfloat16: elsewhere it is as fast as bfloat16 (median ratio
1.00 over timm's published benchmarks) and less safe, hence the last level.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.domain.target import Call, Target
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knobs._autocast import RootAutocast, autocast_unavailable
from gpuadvisor.tuners.knobs._script import not_on_gpu

INITIAL_SCALE = 2.0**16
"""Scale of the first step; this and the three below are those of `torch.amp.GradScaler`."""
GROWTH = 2.0
BACKOFF = 0.5
GROWTH_INTERVAL = 2000
"""Steps without an overflow, before the scale grows."""


class Fp16Autocast(Knob):
    """Runs the script's modules under float16 autocast and scales its loss."""

    name = "fp16_autocast"
    title = "float16 autocast, scaled loss"
    level = Level.AGGRESSIVE
    effect = Effect.NUMERICS
    changes_model = True
    order = 80
    saves_gpu_time_only = True
    excludes = frozenset({"bf16_autocast"})
    lines = (
        'scaler = torch.amp.GradScaler("cuda")\n'
        'with torch.autocast("cuda", dtype=torch.float16):\n'
        "    output = model(batch)\n"
        "loss = criterion(output.float(), labels)\n"
        "scaler.scale(loss).backward()\n"
        "scaler.unscale_(optimizer)  # only before clipping gradients\n"
        "scaler.step(optimizer)\n"
        "scaler.update()"
    )

    def unavailable(self, device: Device, facts: ScriptFacts) -> str | None:
        if reason := not_on_gpu(device, facts):
            return reason
        if facts.scales_itself:
            return "the script scales its loss itself"
        if "LBFGS" in facts.optimizers:
            return "LBFGS needs the loss itself, and float16 needs it scaled"
        return autocast_unavailable(device, facts)

    def apply(self, value: Value, target: Target) -> None:
        import torch

        for private in ("_foreach_mul_", "_amp_foreach_non_finite_check_and_unscale_"):
            getattr(torch, private)  # AttributeError now, and not in a backward pass
        LossScaling(RootAutocast("float16", target), target)


class LossScaling:
    """Runs the backward passes of a script on a scaled loss, and leaves true gradients.

    `torch.amp.GradScaler` leaves scaled gradients behind until the optimizer steps, so the script
    has to cooperate: clipping, accumulation and several optimizers each need their own call. Here
    the gradients are unscaled as soon as each backward pass is done. Between two passes they always
    have their true values, and whatever the script does with them is right. The scale is a power of
    two, so scaling and unscaling lose nothing.
    """

    def __init__(self, autocast: RootAutocast, target: Target) -> None:
        self.scale = INITIAL_SCALE
        self._clean_steps = 0
        self._inside = False
        self._autocast = autocast
        self._target = target
        self._roots: WeakSet[Any] = WeakSet()
        self._optimizers: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()
        """Each optimizer, with a flag a device that says whether its gradients overflowed."""
        target.on_root(self._roots.add)
        target.after_optimizer(self._adopt)
        target.around_backward(self._backward)

    def _adopt(self, optimizer: Any) -> None:
        self._optimizers[optimizer] = []
        optimizer.register_step_pre_hook(self._before_step)

    def _backward(self, tensor: Any, call: Call) -> None:
        import torch

        if not (self._autocast.active and self._autocast.used) or self._inside:
            call(tensor)
            return
        with torch.no_grad():  # what was accumulated must be of the same scale
            for _, gradients in self._gradients():
                torch._foreach_mul_(gradients, self.scale)
        self._inside = True
        try:
            call(tensor.float() * self.scale)
        finally:
            self._inside = False
            with torch.no_grad():
                self._unscale()

    def _unscale(self) -> None:
        import torch

        for flags, gradients in self._gradients():
            device = gradients[0].device
            overflow = torch.zeros((), device=device)
            inverse = torch.full((), 1 / self.scale, device=device)
            torch._amp_foreach_non_finite_check_and_unscale_(gradients, overflow, inverse)
            flags.append(overflow)

    def _gradients(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """Yield all gradients, those of one owner, device and type together, with its flags.

        Parameters that no optimizer has belong to the roots: some scripts update them by hand.
        """
        seen: set[int] = set()
        owners = [
            (flags, (p for group in optimizer.param_groups for p in group["params"]))
            for optimizer, flags in self._optimizers.items()
        ]
        owners += [([], root.parameters()) for root in self._roots]
        for flags, parameters in owners:
            alike: dict[tuple[Any, Any], list[Any]] = {}
            for parameter in parameters:
                if parameter.grad is not None and id(parameter) not in seen:
                    seen.add(id(parameter))
                    gradient = parameter.grad
                    gradient = gradient._values() if gradient.is_sparse else gradient
                    alike.setdefault((gradient.device, gradient.dtype), []).append(gradient)
            for gradients in alike.values():
                yield flags, gradients

    def _before_step(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Leave the step out when a gradient overflowed: without gradients it does nothing."""
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is not None:
            self._give_up("the script passes a closure to the optimizer's step")
        if self._inside:
            self._give_up("the script steps its optimizer inside the backward pass")
        flags = self._optimizers.get(optimizer, [])
        if not flags:
            return
        if any(flag.item() for flag in flags):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None
            self.scale *= BACKOFF
            self._clean_steps = 0
        else:
            self._clean_steps += 1
            if self._clean_steps % GROWTH_INTERVAL == 0:
                self.scale *= GROWTH
        flags.clear()

    def _give_up(self, reason: str) -> None:
        self._autocast.active = False
        self._target.refuse(reason)


KNOB = Fp16Autocast()

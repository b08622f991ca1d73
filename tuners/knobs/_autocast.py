"""Run a script's modules under autocast from outside, which both half precisions share."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import ScriptFacts
from gpuadvisor.domain.target import Call, Target
from gpuadvisor.tuners.knobs._script import no_root
from gpuadvisor.tuners.knobs._tensors import map_tensors


def autocast_unavailable(device: Device, facts: ScriptFacts) -> str | None:
    """Return why the script leaves nothing to autocast, or None."""
    return "the script uses autocast itself" if facts.autocasts_itself else no_root(device, facts)


class RootAutocast:
    """Every call of a float32 root runs under autocast and returns float32.

    Losses often refuse half precision (`BCELoss`), and a script that saves or compares outputs
    expects float32, hence the cast back. It is differentiable, so gradients flow as before.
    """

    def __init__(self, dtype: str, target: Target) -> None:
        self.active = True
        self.used = False
        self._dtype = dtype
        self._target = target
        self._devices: WeakKeyDictionary[Any, str | None] = WeakKeyDictionary()
        target.around_root(self)

    def __call__(
        self, module: Any, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        import torch

        if module not in self._devices:
            self._devices[module] = float32_device(module)
        device = self._devices[module]
        if not self.active or device is None or torch.is_autocast_enabled(device):
            return call(*args, **kwargs)
        dtype = getattr(torch, self._dtype)
        with torch.autocast(device, dtype=dtype):
            output = call(*args, **kwargs)
        self.used = True
        self._target.effective()
        return map_tensors(
            output, lambda tensor: tensor.float() if tensor.dtype == dtype else tensor
        )


def float32_device(module: Any) -> str | None:
    """Return the type of the module's device; None if a parameter has half precision already.

    Autocast leaves float64 alone, and integers (of quantised layers) do not count.
    """
    import torch

    parameters = [p for p in module.parameters() if p.is_floating_point()]
    if any(p.dtype in (torch.float16, torch.bfloat16) for p in parameters):
        return None
    singles = [p for p in parameters if p.dtype == torch.float32]
    return singles[0].device.type if singles else None

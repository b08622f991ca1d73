"""Which kernel `scaled_dot_product_attention` tries first.

cuDNN's is 1.7 to 2.3 times faster a call on Hopper, but 0.82 times on an A100
(huggingface/transformers#48163), and torch's own order differs between its versions. It is a
priority and no restriction: where a kernel cannot take the inputs, the next one does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.domain.target import Target
from gpuadvisor.tuners.knobs._live import FlagKnob
from gpuadvisor.tuners.knobs._script import not_on_gpu

BACKENDS = {
    "cudnn": "CUDNN_ATTENTION",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
}


class SdpaBackend(FlagKnob):
    """Puts one attention kernel first in torch's order of trial."""

    name = "sdpa_backend"
    title = "Attention kernel"
    level = Level.CONSERVATIVE
    effect = Effect.NONE
    order = 110
    plausible = tuple(BACKENDS)

    def choices(self, device: Device, facts: ScriptFacts) -> Sequence[Value]:
        if device.at_least(9):
            return self.plausible
        # Before Hopper torch tries flash first by itself.
        return ["efficient", "cudnn"] if device.at_least(8) else ["efficient"]

    def unavailable(self, device: Device, facts: ScriptFacts) -> str | None:
        if reason := not_on_gpu(device, facts):
            return reason
        return None if facts.has_attention else "no scaled_dot_product_attention was seen"

    def environment(self, value: Value) -> Mapping[str, str]:
        # On Hopper and Blackwell, torch's first attention call puts cuDNN first, over any order
        # set before, unless told not to (sdp_utils.cpp; the first name from torch 2.10 on).
        return {"TORCH_CUDNN_SDPA_DEPRIORITIZED": "1", "TORCH_CUDNN_SDPA_PREFERRED": "0"}

    # For the whole process and not around each call: activation checkpoints recompute their
    # forward inside the backward pass, and have to get the same kernel again.
    def read(self) -> Any:
        import torch

        if not hasattr(torch._C, "_set_sdp_priority_order"):
            raise RuntimeError("it needs torch 2.6 or newer")
        return list(torch._C._get_sdp_priority_order())

    def turn_on(self, value: Value, before: Any) -> None:
        from torch.nn.attention import SDPBackend

        first = int(getattr(SDPBackend, BACKENDS[str(value)]))
        self.restore([first, *(backend for backend in before if backend != first)])

    def restore(self, before: Any) -> None:
        import torch

        torch._C._set_sdp_priority_order(before)

    def apply(self, value: Value, target: Target) -> None:
        super().apply(value, target)
        if value == "flash":  # on Hopper the environment changed it
            target.on_root(lambda module: target.effective())

    def snippet(self, value: Value) -> str:
        others = [name for name in BACKENDS.values() if name != BACKENDS[str(value)]]
        order = [BACKENDS[str(value)], *others, "MATH"]
        backends = ", ".join(f"SDPBackend.{name}" for name in order)
        return (
            "from torch.nn.attention import SDPBackend, sdpa_kernel\n"
            f"with sdpa_kernel([{backends}], set_priority=True):\n"
            "    output = model(batch)"
        )


KNOB = SdpaBackend()

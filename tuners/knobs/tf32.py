"""Multiply float32 matrices on the tensor cores, with inputs rounded to TF32.

About 7 times faster on a 10240 by 10240 product on an A100 (docs.pytorch.org/docs/stable/notes/
cuda.html), for a relative error of 2e-3 instead of 4e-5. Convolutions use TF32 already unless
the script says otherwise, and then it has its reasons.
"""

from __future__ import annotations

from typing import Any

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.tuners.knobs._live import FlagKnob
from gpuadvisor.tuners.knobs._script import no_root, not_on_gpu


class Tf32(FlagKnob):
    """Lowers the precision of float32 matrix products from highest to high."""

    name = "tf32"
    title = "TF32 matrix products"
    level = Level.BALANCED
    effect = Effect.NUMERICS
    order = 60
    saves_gpu_time_only = True
    lines = 'torch.set_float32_matmul_precision("high")'

    def unavailable(self, device: Device, facts: ScriptFacts) -> str | None:
        if reason := not_on_gpu(device, facts):
            return reason
        if not device.at_least(8):
            return "TF32 needs a GPU of compute capability 8.0 (Ampere) or newer"
        return no_root(device, facts)

    def read(self) -> Any:
        import torch

        try:
            precision = torch.get_float32_matmul_precision()
        except RuntimeError:  # set by the new API, which the old one then cannot read
            reason = "the script sets the precision of its matrix products itself"
            raise RuntimeError(reason) from None
        return precision, [matmul.fp32_precision for matmul in _matmuls()]

    # Not by `TORCH_ALLOW_TF32_CUBLAS_OVERRIDE`: it only sets the initial value, so it cannot tell
    # what the script has set itself, and a script that then asks for full precision by torch 2.9's
    # `fp32_precision` dies at the next read of `allow_tf32` ("mix of the legacy and new APIs").
    def turn_on(self, value: Value, before: Any) -> None:
        import torch

        if before[0] == "highest":
            torch.set_float32_matmul_precision("high")

    def restore(self, before: Any) -> None:
        import torch

        precision, own = before
        torch.set_float32_matmul_precision(precision)
        for matmul, setting in zip(_matmuls(), own, strict=True):
            matmul.fp32_precision = setting  # "none" before, where the old API says "ieee"


def _matmuls() -> list[Any]:
    """Return what has a setting of its own since torch 2.9, on the GPU and on the CPU."""
    import torch

    matmuls = [torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None)]
    return [matmul for matmul in matmuls if hasattr(matmul, "fp32_precision")]


KNOB = Tf32()

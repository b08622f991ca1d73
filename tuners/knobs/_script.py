"""What knobs ask about where and how a script computes."""

from __future__ import annotations

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import ScriptFacts

NO_ROOT = "the script calls no torch module with parameters"


def not_on_gpu(device: Device, facts: ScriptFacts) -> str | None:
    """Return why a knob of the GPU can do nothing, or None if the script computes on one."""
    if not device.is_gpu:
        return "there is no GPU here"
    return None if facts.device == "cuda" else "the script computes on the CPU"

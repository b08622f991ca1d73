"""Let torch's GPU memory grow in place, so that changing sizes leave no unusable gaps.

It saves memory rather than time, and so makes room for a larger batch
(docs.pytorch.org/docs/stable/notes/cuda.html, "Optimizing memory usage").
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.domain.study import Objective
from gpuadvisor.domain.target import Target
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knobs._script import not_linux, not_on_gpu

VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Variables that torch's allocator reads; before torch 2.9 the second only, later both."""
OPTION = "expandable_segments"


class Allocator(Knob):
    """Sets the environment variable that torch's allocator reads."""

    name = "allocator"
    title = "Growing GPU memory segments"
    level = Level.CONSERVATIVE
    effect = Effect.NONE
    order = 150
    snippet_language = "shell"
    plausible = (OPTION,)
    serves = frozenset({Objective.MEMORY})
    obstacles = (not_on_gpu, not_linux("torch supports expandable segments on Linux only"))
    lines = f"export PYTORCH_ALLOC_CONF={OPTION}:True  # PYTORCH_CUDA_ALLOC_CONF before torch 2.9"

    def unavailable(self, device: Device, facts: ScriptFacts) -> str | None:
        own = f"{_variable()} sets {OPTION} already" if OPTION in _configured() else None
        return super().unavailable(device, facts) or own

    def environment(self, value: Value) -> Mapping[str, str]:
        own = _configured()
        setting = f"{own},{OPTION}:True" if own else f"{OPTION}:True"
        return dict.fromkeys(VARIABLES, setting)

    def apply(self, value: Value, target: Target) -> None:
        if OPTION in _configured():
            target.effective()


def _variable() -> str:
    """Return the name of the variable that the user has set, else the newer one."""
    return next((name for name in VARIABLES if os.environ.get(name)), VARIABLES[0])


def _configured() -> str:
    return os.environ.get(_variable(), "")


KNOB = Allocator()

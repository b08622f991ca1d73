"""Opens NVIDIA's profilers for a few steps of a script, and marks these with NVTX.

Nsight Systems and Nsight Compute are started so that they record nothing before
`cudaProfilerStart`. It runs in the process of the script.
"""

from __future__ import annotations

import json
from typing import Any

from gpuadvisor.domain.target import Target

NAME = "cuda_range"
"""Name that its reports go by."""
NO_GPU = "it had used no GPU when it was warm, and NVIDIA's tools profile GPUs only"

ENDED = "the script ended"


class RangedSteps:
    """Takes the steps of a script (`gpuadvisor.domain.target.StepTaker`)."""

    compiles = False

    def __init__(self, torch: Any, target: Target, steps: int) -> None:
        self._torch = torch
        self._target = target
        self._wanted = steps
        self._seen = 0
        self._open = False

    def begin(self) -> None:
        torch = self._torch
        if not torch.cuda.is_initialized():
            self._target.refuse(NO_GPU)
            return
        torch.cuda.synchronize()  # what runs yet belongs to no step of ours
        try:
            torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart())
        except Exception as error:
            self._target.refuse(f"CUDA's profiler did not start: {str(error)[:300]}")
            return
        self._open = True
        self._mark()

    def step(self, interrupted: bool) -> bool:
        if not self._open:
            return False
        self._torch.cuda.nvtx.range_pop()
        self._seen += 1
        if self._seen < self._wanted:
            self._mark()
            return False
        self._close()
        return True

    def abandon(self) -> None:
        """A range that was opened cannot be taken back: its steps are counted anew."""
        if self._open:
            self._torch.cuda.nvtx.range_pop()
            self._open = False
            self._seen = 0

    def end(self) -> None:
        if self._open:
            self._torch.cuda.nvtx.range_pop()
            self._close()

    def _mark(self) -> None:
        self._torch.cuda.nvtx.range_push(f"ProfilerStep#{self._seen}")

    def _close(self) -> None:
        cuda = self._torch.cuda
        self._open = False
        cuda.synchronize()
        cuda.check_error(cuda.cudart().cudaProfilerStop())
        self._target.effective(json.dumps({"steps": self._seen, "with_gpu": True, "why": ENDED}))


class CudaRange:
    """Applier that the specification of a run names: it takes the steps of the script."""

    def apply(self, value: int, target: Target) -> None:
        """Apply the number of steps."""
        import torch

        target.take_steps(RangedSteps(torch, target, int(value)))


RANGE = CudaRange()

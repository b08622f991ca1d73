"""What the work runs on, and everything that must be equal for two figures to be comparable."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """One GPU, or the CPU where there is none."""

    kind: str
    """`"cuda"` or `"cpu"`, as torch names it."""
    index: int
    """The number that `nvidia-smi` gives the GPU; 0 for the CPU."""
    name: str
    """As the driver (or the operating system) gives it, such as `NVIDIA H100 80GB HBM3`."""
    uuid: str | None = None
    """`GPU-...`, or None for the CPU."""
    memory_bytes: int | None = None
    """Memory of the GPU, or of the machine for the CPU."""
    compute_capability: tuple[int, int] | None = None
    """(9, 0) for Hopper; None for the CPU, and where it is not known."""
    cores: int = 1
    """CPU cores that this process may use."""

    @property
    def is_gpu(self) -> bool:
        return self.kind == "cuda"

    def at_least(self, major: int) -> bool:
        """Say whether the GPU has this major compute capability; False for a CPU."""
        return self.compute_capability is not None and self.compute_capability[0] >= major


@dataclass(frozen=True)
class Environment:
    """The fingerprint stored with every run. A field that could not be read is None."""

    device: Device
    python: str
    """Version of the interpreter that runs the script, such as `3.12.3`."""
    torch: str | None
    cuda: str | None
    """Version of CUDA that torch was built for."""
    cudnn: str | None
    driver: str | None
    platform: str
    """Operating system, kernel and architecture."""
    gpuadvisor: str
    sm_clock_mhz: int | None = None
    """SM clock at the start of the study."""
    sm_clock_max_mhz: int | None = None
    power_limit_w: float | None = None
    git_commit: str | None = None
    """Commit of the repository that holds the script."""
    git_dirty: bool | None = None
    """Whether that work tree had uncommitted changes."""

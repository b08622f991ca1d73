"""The fingerprint of a run: everything that must be equal for two figures to be comparable."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.devices import handle
from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.collectors.nvml import library as nvml
from gpuadvisor.domain.device import Device, Environment

GIT_TIMEOUT_S = 5.0
"""Limit of one git command: a large work tree on a network disk must not delay a study."""
MILLIWATTS_PER_WATT = 1000


def environment(python: TargetPython, device: Device, script: str | Path) -> Environment:
    """Return the fingerprint of runs of the script by this Python on this device.

    It never raises: what could not be read is None. Clocks are those of this moment.
    """
    gpu = _gpu_state(device)
    at = revision(Path(script).absolute())
    return Environment(
        device=device,
        python=python.version,
        torch=python.torch,
        cuda=python.cuda,
        cudnn=python.cudnn,
        driver=gpu.driver,
        platform=platform.platform(),
        gpuadvisor=version("gpuadvisor"),
        sm_clock_mhz=gpu.sm_clock_mhz,
        sm_clock_max_mhz=gpu.sm_clock_max_mhz,
        power_limit_w=gpu.power_limit_w,
        git_commit=at.commit,
        git_dirty=at.dirty,
    )


@dataclass(frozen=True)
class _GpuState:
    driver: str | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    power_limit_w: float | None = None


def _gpu_state(device: Device) -> _GpuState:
    if not device.is_gpu:
        return _GpuState()
    try:
        return nvml.query(lambda library: _read(library, device))
    except nvml.QueryError:
        return _GpuState()


def _read(library: Any, device: Device) -> _GpuState:
    gpu = handle(library, device)
    sm = library.NVML_CLOCK_SM
    # The enforced limit is what holds: the lower of the user's and the board's own.
    limit_mw = nvml.read(library, "nvmlDeviceGetEnforcedPowerLimit", gpu)
    return _GpuState(
        driver=nvml.read(library, "nvmlSystemGetDriverVersion"),
        sm_clock_mhz=nvml.read(library, "nvmlDeviceGetClockInfo", gpu, sm),
        sm_clock_max_mhz=nvml.read(library, "nvmlDeviceGetMaxClockInfo", gpu, sm),
        power_limit_w=None if limit_mw is None else limit_mw / MILLIWATTS_PER_WATT,
    )


@dataclass(frozen=True)
class Revision:
    """State of a work tree; None where there is no repository, no git, or no answer in time."""

    commit: str | None = None
    """Full hash of the commit."""
    dirty: bool | None = None
    """Whether tracked files, or the script itself, differ from the commit."""


def revision(script: Path) -> Revision:
    """Return the commit that the script's work tree is at; it never raises."""
    commit = _git(script.parent, "rev-parse", "--verify", "--quiet", "HEAD")
    if not commit:
        return Revision()
    tracked = _git(script.parent, "status", "--porcelain", "--untracked-files=no")
    own = _git(script.parent, "status", "--porcelain", "--", script.name)
    unknown = tracked is None or own is None
    return Revision(commit, None if unknown else bool(tracked or own))


def _git(folder: Path, *args: str) -> str | None:
    """Return what a git command prints, or None if it fails."""
    # In a hook git sets GIT_DIR and the like, which would point at the wrong repository.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ["GIT_OPTIONAL_LOCKS"] = "0"  # `status` must not write into the user's index
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env=environ,
            timeout=GIT_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None

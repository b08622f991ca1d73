"""The fingerprint of a run: everything that must be equal for two figures to be comparable."""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.devices import handle
from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.collectors.nvml import library as nvml
from gpuadvisor.domain.device import Device, Environment
from gpuadvisor.version import __version__

GIT_TIMEOUT_S = 5.0
"""Limit of one git command: a large work tree on a network disk must not delay a study."""
MILLIWATTS_PER_WATT = 1000


def environment(python: TargetPython, device: Device, script: str | Path) -> Environment:
    """Return the fingerprint of runs of the script by this Python on this device.

    It never raises: what could not be read is None. Clocks are those of this moment.
    """
    return Environment(
        device=device,
        python=python.version,
        torch=python.torch,
        cuda=python.cuda,
        cudnn=python.cudnn,
        platform=platform.platform(),
        gpuadvisor=__version__,
        **_gpu_state(device),
        **_work_tree(Path(script).absolute()),
    )


def _gpu_state(device: Device) -> dict[str, Any]:
    if device.is_gpu:
        with suppress(nvml.QueryError):
            return nvml.query(lambda library: _read(library, device))
    return {"driver": None}


def _read(library: Any, device: Device) -> dict[str, Any]:
    gpu = handle(library, device)
    sm = library.NVML_CLOCK_SM
    # The enforced limit is what holds: the lower of the user's and the board's own.
    limit_mw = nvml.read(library, "nvmlDeviceGetEnforcedPowerLimit", gpu)
    return {
        "driver": nvml.read(library, "nvmlSystemGetDriverVersion"),
        "sm_clock_mhz": nvml.read(library, "nvmlDeviceGetClockInfo", gpu, sm),
        "sm_clock_max_mhz": nvml.read(library, "nvmlDeviceGetMaxClockInfo", gpu, sm),
        "power_limit_w": None if limit_mw is None else limit_mw / MILLIWATTS_PER_WATT,
    }


def _work_tree(script: Path) -> dict[str, Any]:
    """Return the full hash of the commit that the script's work tree is at, and whether tracked
    files, or the script itself, differ from it.

    Nothing where there is no repository, no git, or no answer in time.
    """
    commit = _git(script.parent, "rev-parse", "--verify", "--quiet", "HEAD")
    if not commit:
        return {}
    tracked = _git(script.parent, "status", "--porcelain", "--untracked-files=no")
    own = _git(script.parent, "status", "--porcelain", "--", script.name)
    unknown = tracked is None or own is None
    return {"git_commit": commit, "git_dirty": None if unknown else bool(tracked or own)}


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

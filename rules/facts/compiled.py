"""What PyTorch's compiler made of a program."""

from __future__ import annotations

import numpy as np

from gpuadvisor.domain.profile import Profile
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import covered_ns, either, ends, none, union
from gpuadvisor.rules.facts.launches import LaunchingCalls

COMPILED = ("Torch-Compiled Region", "## Call CompiledFxGraph")
"""How PyTorch names the time in what `torch.compile` made (`torch._dynamo`, `torch._inductor`)."""

OF_COMPILER = "triton_"
"""Begins the names of kernels that TorchInductor makes, each of all that it could merge."""


def made_by_compiler(work: DeviceWork, by_time: bool = False) -> float:
    """Return the share of the kernels (0 to 1), or of their time, that PyTorch's compiler made."""
    names = work.name[: work.kernels]
    weights = work.duration_ns[: work.kernels] if by_time else np.ones(len(names))
    used, place = np.unique(names, return_inverse=True)
    made = np.array([work.texts[name].startswith(OF_COMPILER) for name in used.tolist()], np.bool_)
    return float(weights[made[place]].sum() / max(weights.sum(), 1))


def launched_by_compiled(profile: Profile, work: DeviceWork, launched: LaunchingCalls) -> float:
    """Return the share of the kernels of known launch (0 to 1) that compiled code launched."""
    rows = np.flatnonzero(launched.known[: work.kernels])
    if not len(rows):
        return 0.0
    texts, times = work.texts, none()
    for table in ("ranges", "operators"):
        columns = profile.columns(table, ("begin_ns", "duration_ns", "name"))
        used = np.unique(columns["name"]).tolist()
        named = [name for name in used if texts[name].startswith(COMPILED)]
        at = np.isin(columns["name"], named)
        begin, end = ends(columns["begin_ns"][at], columns["duration_ns"][at])
        times = either(times, union(begin, end))
    called = launched.begin_ns[rows]
    return float((covered_ns(times, called, called + 1) > 0).mean())

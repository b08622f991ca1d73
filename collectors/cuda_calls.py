"""What a call into the CUDA runtime or driver does, told by its name."""

from __future__ import annotations

import re

from gpuadvisor.domain.profile import Call

_SUFFIX = re.compile(r"(_ptsz|_ptds)?(_v\d+)?$")
"""Suffixes of the per-thread default stream and of the version (`cudaLaunchKernel_ptsz_v7000`)."""

_KINDS = (  # the first that matches
    (re.compile(r"cu(da)?GraphLaunch"), Call.GRAPH_LAUNCH),
    (re.compile(r"cu(da)?LaunchHostFunc"), Call.OTHER),
    (re.compile(r"cu(da)?Launch"), Call.LAUNCH),
    (re.compile(r"cu(da)?Memcpy"), Call.COPY),
    (re.compile(r"cu(da)?Memset"), Call.MEMSET),
    (re.compile(r"cu(da)?\w*Synchronize"), Call.SYNCHRONIZE),
    (re.compile(r"cu(da)?(Event(Record|Query)|StreamWaitEvent)"), Call.EVENT),
    (re.compile(r"cuda(Malloc|HostAlloc)|cuMem(Host)?Alloc|cuMemCreate"), Call.ALLOCATE),
    (re.compile(r"cudaFree|cuMemFree|cuMemRelease"), Call.FREE),
)


def plain_name(name: str) -> str:
    """Return `cudaLaunchKernel` for `cudaLaunchKernel_v7000`."""
    return _SUFFIX.sub("", name)


def kind_of(name: str) -> Call:
    """Return what a call does."""
    return next((kind for pattern, kind in _KINDS if pattern.match(name)), Call.OTHER)

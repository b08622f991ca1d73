"""What a call into the CUDA runtime or driver does, told by its name."""

from __future__ import annotations

import re

from gpuadvisor.domain.profile import CallKind

_SUFFIX = re.compile(r"(_ptsz|_ptds)?(_v\d+)?$")
"""Suffixes of the per-thread default stream and of the version (`cudaLaunchKernel_ptsz_v7000`)."""

_KINDS = (  # the first that matches
    (re.compile(r"cu(da)?GraphLaunch"), CallKind.GRAPH_LAUNCH),
    (re.compile(r"cu(da)?LaunchHostFunc"), CallKind.OTHER),
    (re.compile(r"cu(da)?Launch"), CallKind.LAUNCH),
    (re.compile(r"cu(da)?Memcpy"), CallKind.COPY),
    (re.compile(r"cu(da)?Memset"), CallKind.MEMSET),
    (re.compile(r"cu(da)?\w*Synchronize"), CallKind.SYNCHRONIZE),
    (re.compile(r"cu(da)?(Event(Record|Query)|StreamWaitEvent)"), CallKind.EVENT),
    (re.compile(r"cuda(Malloc|HostAlloc)|cuMem(Host)?Alloc|cuMemCreate"), CallKind.ALLOCATE),
    (re.compile(r"cudaFree|cuMemFree|cuMemRelease"), CallKind.FREE),
)


def plain_name(name: str) -> str:
    """Return `cudaLaunchKernel` for `cudaLaunchKernel_v7000`."""
    return _SUFFIX.sub("", name)


def kind_of(name: str) -> CallKind:
    """Return what a call does."""
    return next((kind for pattern, kind in _KINDS if pattern.match(name)), CallKind.OTHER)

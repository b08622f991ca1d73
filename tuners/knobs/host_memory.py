"""Let the C library keep the host memory that tensors free, instead of handing it back.

By default glibc gives a large block back to the system as soon as it is freed, and the next one of
that size is filled with zeros again, page by page: the same work in every batch. With blocks of any
size kept, a small convolutional network was 1.15x as fast on two cores of a CPU and took a quarter
more memory. In workers of a DataLoader with blocks of up to 32 MiB kept, a batch took 8 % less
beside `batch_memory`, and alone nothing on two cores and 5 % on sixteen
(`benchmarks/loader_memory.py`).
Source: gnu.org/software/libc/manual, "Memory Allocation Tunables".
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.target import Target
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knobs._script import no_loader, not_on_gpu, not_waiting

VARIABLE = "GLIBC_TUNABLES"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
"""Parameters of `mallopt` in malloc.h."""
TRIM = ("trim_threshold", M_TRIM_THRESHOLD, 2**31 - 1)
"""Free bytes at the heap's end that are kept: the most that `mallopt` takes."""
SETTINGS = {
    # The largest block that every glibc lets the heap hold, unless no block may be outside it.
    "32M": (TRIM, ("mmap_threshold", M_MMAP_THRESHOLD, 32 << 20)),
    "all": (TRIM, ("mmap_max", M_MMAP_MAX, 0)),
}
"""Value to glibc's tunables: a block outside the heap has pages of its own, which go when it is
freed."""


class HostMemory(Knob):
    """Sets the variable that glibc reads when a process starts, and tells the one that runs."""

    name = "host_memory"
    title = "Freed host memory is kept"
    level = Level.CONSERVATIVE
    effect = Effect.NONE
    order = 20
    concerns_loading = True
    snippet_language = "shell"
    plausible = tuple(SETTINGS)

    def choices(self, device: Device, facts: ScriptFacts) -> Sequence[Value]:
        # What a loader's worker frees are samples; batches are in shared memory.
        return ["32M"] if facts.device == "cuda" else list(SETTINGS)

    def unavailable(self, device: Device, facts: ScriptFacts) -> str | None:
        if not not_on_gpu(device, facts) and not facts.loaders:
            return no_loader(device, facts)
        if not is_glibc():
            return "it is a setting of glibc, and this machine has another C library"
        if "malloc" in os.environ.get("LD_PRELOAD", ""):
            return "LD_PRELOAD names another allocator than glibc's"
        if "glibc.malloc." in os.environ.get(VARIABLE, ""):
            return f"{VARIABLE} sets it already"
        return None

    def pointless(self, best: Measurement) -> str | None:
        return not_waiting(best) if best.facts.device == "cuda" else None

    def environment(self, value: Value) -> Mapping[str, str]:
        own = os.environ.get(VARIABLE)
        return {VARIABLE: f"{own}:{_tunables(value)}" if own else _tunables(value)}

    def apply(self, value: Value, target: Target) -> None:
        import ctypes

        # Says whether the C library takes it, which the variable does not.
        mallopt = getattr(ctypes.CDLL(None), "mallopt", lambda parameter, setting: 0)
        if all(mallopt(parameter, setting) for _, parameter, setting in SETTINGS[str(value)]):
            target.effective()
        else:
            target.refuse("this C library cannot be told to keep memory")

    def snippet(self, value: Value) -> str:
        return f"export {VARIABLE}={_tunables(value)}"


def _tunables(value: Value) -> str:
    return ":".join(f"glibc.malloc.{name}={setting}" for name, _, setting in SETTINGS[str(value)])


def is_glibc() -> bool:
    """Say whether this machine's programs use glibc."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (ValueError, AttributeError, OSError):  # not glibc, or Windows
        return False


KNOB = HostMemory()

"""Let the script's thread sleep while it waits for the GPU, instead of turning in circles.

CUDA's default keeps a core busy in every `.item()` and `synchronize()`. Where DataLoader workers
need all cores, that core is missing; elsewhere waking up costs time: on an H100 an `.item()` took
49 us instead of 16.
"""

from __future__ import annotations

from typing import Any

from gpuadvisor.domain.knobs import Effect, Level, Value
from gpuadvisor.domain.target import Target
from gpuadvisor.tuners.knobs._script import LoaderKnob, no_loader, not_linux, not_on_gpu

LIBRARY = "libcuda.so.1"
SCHEDULE_MASK, BLOCKING = 0x07, 0x04
"""`CU_CTX_SCHED_MASK` and `CU_CTX_SCHED_BLOCKING_SYNC` of `cuda.h`."""


class BlockingSync(LoaderKnob):
    """Sets the flags of the device's primary context, which torch uses."""

    name = "blocking_sync"
    title = "Waiting for the GPU without a core"
    level = Level.CONSERVATIVE
    effect = Effect.NONE
    order = 40
    obstacles = (not_on_gpu, not_linux("it is known for Linux only"), no_loader)
    lines = (
        "import ctypes  # after the first use of the GPU\n"
        f'ctypes.CDLL("{LIBRARY}").cuDevicePrimaryCtxSetFlags_v2(0, {BLOCKING})'
    )

    def apply(self, value: Value, target: Target) -> None:
        def prepare(module: Any) -> None:
            device = next(module.parameters()).device
            if device.type == "cuda":
                _block(device.index or 0, target)

        target.on_root(prepare)


def _block(index: int, target: Target) -> None:
    """Change the flags of a device in use, and report what went wrong, or that they changed."""
    import ctypes

    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError:
        target.refuse(f"the NVIDIA driver has no {LIBRARY}")
        return
    flags, active, device = ctypes.c_uint(), ctypes.c_int(), ctypes.c_int()
    code = driver.cuDeviceGet(ctypes.byref(device), index)
    code = code or driver.cuDevicePrimaryCtxGetState(
        device, ctypes.byref(flags), ctypes.byref(active)
    )
    if not code and flags.value & SCHEDULE_MASK == BLOCKING:
        return
    wanted = ctypes.c_uint(flags.value & ~SCHEDULE_MASK | BLOCKING)
    code = code or driver.cuDevicePrimaryCtxSetFlags_v2(device, wanted)
    if code:
        target.refuse(f"the NVIDIA driver answered with error {code}")
    else:
        target.effective()


KNOB = BlockingSync()

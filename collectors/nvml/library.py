"""NVML (nvidia-ml-py) in this process: asked once within a bounded time, or kept open for years.

The driver may be absent, refuse, be replaced under a running process, or never answer: a GPU
that fell off the bus can leave calls in the kernel for ever. `query` therefore asks on a thread of
its own, and while one is stuck no other is started. `NvmlLibrary` is for the sampler, which
outlives drivers: the library stays mapped while a process has it open, and an old library does not
talk to a new kernel module. So it is not only shut down but unloaded; the next start takes the new
file.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import cache
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from gpuadvisor.collectors.nvml import codes

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

CALL_TIMEOUT_S = 2.0
"""Longest wait for a call. The slowest that is used takes 4.4 ms (total energy on an H100 with
driver 580)."""
STEP_TIMEOUT_S = 5.0
"""Longest wait for a step of a start: NVML's own, then each GPU in turn, which the driver first
wakes where nobody keeps it awake, in 1 to 3 s (docs.nvidia.com/deploy/driver-persistence)."""

_REASONS = {
    codes.NOT_SUPPORTED: "not supported by this GPU or driver",
    codes.NO_PERMISSION: "no permission to query the NVIDIA driver: "
    "check the access to /dev/nvidia*",
    codes.DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded: "
    "try `sudo modprobe nvidia`, or reinstall the driver",
    codes.LIBRARY_NOT_FOUND: "no NVIDIA driver is installed (libnvidia-ml.so.1 not found): "
    "install one, or start the container with `--gpus all`",
    codes.FUNCTION_NOT_FOUND: "the NVIDIA driver is too old for this query: upgrade it",
    codes.GPU_IS_LOST: "the GPU is lost (it fell off the bus): reboot the machine or reset the GPU",
    codes.LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was upgraded while loaded: "
    "reboot, or reload its kernel modules",
}
"""The reasons in words for NVML's return codes."""

_stuck: list[Thread] = []
_stepped_s = [0.0]
"""Monotonic time at which the query of now began its last step."""
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
"""The waits between two attempts to start double from the first to the longest."""


class QueryError(Exception):
    """NVML could not answer; `str(error)` is the reason, for the user."""


def query(ask: Callable[[Any], T]) -> T:
    """Return `ask(pynvml)`, with NVML initialised.

    Raises `QueryError`, and nothing else: also when the answer takes too long.
    """
    from concurrent.futures import Future

    _stuck[:] = [thread for thread in _stuck if thread.is_alive()]
    if _stuck:
        raise QueryError("the NVIDIA driver does not answer; an earlier query still waits for it")
    limit_s = CALL_TIMEOUT_S if _library.cache_info().currsize else STEP_TIMEOUT_S
    answer: Future[T] = Future()
    thread = Thread(target=_answer, args=(answer, ask), name="nvml", daemon=True)
    step()
    thread.start()
    while (left_s := _stepped_s[0] + limit_s - time.monotonic()) > 0:
        try:
            return answer.result(left_s)
        except TimeoutError:
            continue  # perhaps there was a step meanwhile
        except Exception as error:
            raise QueryError(reason(error)) from error
    _stuck.append(thread)
    raise QueryError(f"the NVIDIA driver did not answer within {limit_s:g} s")


def step() -> None:
    """Note that a query comes to a step that may take STEP_TIMEOUT_S by itself: another GPU."""
    _stepped_s[0] = time.monotonic()


def read(nvml: Any, function: str, *args: object) -> Any:
    """Return one property, or None where this GPU, driver or user cannot have it.

    Any error but a lost GPU means that only this property is missing. Boards also answer
    `ARGUMENT_VERSION_MISMATCH` or `INVALID_ARGUMENT` for what they do not have.
    """
    try:
        return getattr(nvml, function)(*args)
    except AttributeError:
        return None  # the function is newer than the installed nvidia-ml-py
    except nvml.NVMLError as error:
        if error.value == codes.GPU_IS_LOST:
            raise
        return None


def _answer(answer: Future[T], ask: Callable[[Any], T]) -> None:
    try:
        answer.set_result(ask(_library()))
    except Exception as error:
        answer.set_exception(error)


@cache  # failures are not cached: the driver may be there the next time
def _library() -> Any:
    nvml = import_module("pynvml")
    step()
    nvml.nvmlInit()
    step()
    return nvml


def reason(error: Exception) -> str:
    """Return what went wrong in an NVML call, in words: `fault: way out`, or only the fault."""
    if isinstance(error, ImportError):
        return "nvidia-ml-py is not installed: run `pip install nvidia-ml-py`"
    if isinstance(error, AttributeError):
        return "nvidia-ml-py is too old: run `pip install --upgrade nvidia-ml-py`"
    return _REASONS.get(getattr(error, "value", -1), f"NVML failed ({error})")


class BackOff:
    """When to try again: after 1, 2, 4 ... 60 s."""

    def __init__(self) -> None:
        self._wait_s = FIRST_WAIT_S
        self._due_s = 0.0

    def is_due(self, now_s: float) -> bool:
        """Whether it is time; also where the clock went back."""
        return not now_s < self._due_s <= now_s + LONGEST_WAIT_S

    def failed(self, now_s: float) -> None:
        self._due_s = now_s + self._wait_s
        self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)

    def worked(self) -> None:
        self._wait_s, self._due_s = FIRST_WAIT_S, 0.0


class NvmlLibrary:
    """The library, or the reason why there is none."""

    def __init__(self, on_start: Callable[[], object] = lambda: None) -> None:
        """`on_start` is called before each start, which may take seconds."""
        self._on_start = on_start
        self.problem: str | None = None
        """One sentence for people; None while all is well."""
        self.nvml: Any = None
        """pynvml while it is initialised."""
        self._back_off = BackOff()

    def ready(self, now_s: float) -> Any | None:
        """Return pynvml, initialised, or None: then `problem` says why. It never raises."""
        if self.nvml is None and self._back_off.is_due(now_s):
            self._on_start()
            try:
                nvml = import_module("pynvml")
                nvml.nvmlInit()
            except Exception as error:
                self._failed(now_s, error)
            else:
                self.nvml = nvml
                self.problem = None
        return self.nvml

    def works(self) -> None:
        """Note that a poll came to its end."""
        self._back_off.worked()

    def lost(self, now_s: float, error: BaseException | None, *, unload: bool) -> None:
        """Shut down after an error that no call survives.

        `unload` only while no other thread is inside the library.
        """
        self.close(unload=unload)
        self._failed(now_s, error if isinstance(error, Exception) else RuntimeError("unknown"))

    def close(self, *, unload: bool = False) -> None:
        """Shut the library down, if it is up."""
        nvml, self.nvml = self.nvml, None
        if nvml is None:
            return
        with contextlib.suppress(Exception):  # it is gone already
            nvml.nvmlShutdown()
        if unload:
            with contextlib.suppress(Exception):  # these are nvidia-ml-py's private names
                _unload(nvml)

    def _failed(self, now_s: float, error: Exception) -> None:
        self.problem = f"The GPUs cannot be read: {reason(error)}."
        self._back_off.failed(now_s)


def _unload(nvml: Any) -> None:
    from _ctypes import dlclose

    library = nvml.nvmlLib
    nvml._nvmlGetFunctionPointer_cache.clear()
    nvml.nvmlLib = None
    dlclose(library._handle)

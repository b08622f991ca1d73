"""Ask NVML (nvidia-ml-py) for something: an answer, or a reason in words, within a bounded time.

The driver may be absent, refuse, be replaced under a running process, or never answer: a GPU
that fell off the bus can leave calls in the kernel for ever. Each question therefore runs on a
thread of its own, and while one is stuck no other is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from importlib import import_module
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")

CALL_TIMEOUT_S = 2.0
"""The slowest call used takes 4.4 ms (total energy on an H100 with driver 580)."""
START_TIMEOUT_S = 30.0
"""Without persistence mode the driver first wakes every GPU, which takes seconds for each."""

_GPU_IS_LOST = 15
_REASONS = {
    3: "not supported by this GPU or driver",
    4: "no permission to query the NVIDIA driver: check the access to /dev/nvidia*",
    9: "the NVIDIA driver is not loaded: try `sudo modprobe nvidia`, or reinstall the driver",
    12: "no NVIDIA driver is installed (libnvidia-ml.so.1 not found): "
    "install one, or start the container with `--gpus all`",
    13: "the NVIDIA driver is too old for this query: upgrade it",
    _GPU_IS_LOST: "the GPU is lost (it fell off the bus): reboot the machine or reset the GPU",
    18: "the NVIDIA driver was upgraded while loaded: reboot, or reload its kernel modules",
}
"""By NVML's return code (`nvmlReturn_t` in nvml.h)."""

_stuck: list[Thread] = []


class Unavailable(Exception):  # noqa: N818 - an answer, not a failure
    """NVML could not answer; `str(error)` is the reason, for the user."""


def query(ask: Callable[[Any], T]) -> T:
    """Return `ask(pynvml)`, with NVML initialised.

    Raises `Unavailable`, and nothing else: also when the answer takes too long.
    """
    _stuck[:] = [thread for thread in _stuck if thread.is_alive()]
    if _stuck:
        raise Unavailable("the NVIDIA driver does not answer; an earlier query still waits for it")
    limit_s = CALL_TIMEOUT_S if _library.cache_info().currsize else START_TIMEOUT_S
    answer: Future[T] = Future()
    thread = Thread(target=_answer, args=(answer, ask), name="nvml", daemon=True)
    thread.start()
    try:
        return answer.result(limit_s)
    except TimeoutError:
        _stuck.append(thread)
        raise Unavailable(f"the NVIDIA driver did not answer within {limit_s:g} s") from None
    except Exception as error:
        raise Unavailable(reason(error)) from error


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
        if error.value == _GPU_IS_LOST:
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
    nvml.nvmlInit()
    return nvml


def reason(error: Exception) -> str:
    """Return what went wrong in an NVML call, in words: `fault: way out`, or only the fault."""
    if isinstance(error, ImportError):
        return "nvidia-ml-py is not installed: run `pip install nvidia-ml-py`"
    if isinstance(error, AttributeError):
        return "nvidia-ml-py is too old: run `pip install --upgrade nvidia-ml-py`"
    return _REASONS.get(getattr(error, "value", -1), f"NVML failed ({error})")

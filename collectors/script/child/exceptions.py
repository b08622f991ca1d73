"""Tells gpuadvisor of the exception that ends a process, and where in the user's code it arose."""

from __future__ import annotations

import atexit
import functools
import os
import sys
from types import TracebackType

from gpuadvisor.collectors.script.child.channel import Channel

HEAD, TAIL = 600, 1200
"""Characters kept of a message. Its end, too: there stands the cause of what a worker raised."""


def report_exceptions(channel: Channel) -> None:
    """Report what reaches the top of this process, also where the script has a hook of its own."""
    original = sys.excepthook
    process = os.getpid()
    reported = False

    @functools.wraps(original)
    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        nonlocal reported
        reported = True
        report(channel, error, traceback)
        original(kind, error, traceback)

    def at_exit() -> None:
        # The interpreter sets `last_value` before it calls whatever hook there is.
        error = getattr(sys, "last_value", None)
        if os.getpid() == process and not reported and isinstance(error, BaseException):
            report(channel, error, error.__traceback__)

    sys.excepthook = hook
    atexit.register(at_exit)


def report(channel: Channel, error: BaseException, traceback: TracebackType | None) -> None:
    """Send one exception as an event."""
    kind = type(error)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    try:
        message = str(error)
    except Exception:
        message = ""
    if len(message) > HEAD + TAIL:
        message = f"{message[:HEAD]}\n...\n{message[-TAIL:]}"
    file, line = _place(traceback)
    if isinstance(error, SyntaxError) and error.filename and not _is_library(error.filename):
        file, line = error.filename, error.lineno or 0
    channel.send("exception", type=name, message=message, file=file, line=line)


def _place(traceback: TracebackType | None) -> tuple[str, int]:
    """Return the innermost line of the user's own code: the last one outside of libraries."""
    place = ("", 0)
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not _is_library(file):
            place = (file, traceback.tb_lineno)
        traceback = traceback.tb_next
    return place


def _is_library(file: str) -> bool:
    harness = __file__.partition("collectors")[0]
    return (
        "site-packages" in file
        or "dist-packages" in file
        or file.startswith(("<", harness, sys.base_prefix + "/lib/"))
    )

"""Whether what is logged stays in the process that logs it, as a list that a script looks at later.

A worker has a copy of such a handler, and what it keeps is lost with it. What goes to a terminal or
a file arrives from everywhere.
"""

from __future__ import annotations

import logging
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from gpuadvisor.collectors.script.child.rehearsal.code_references import is_own, method_named
from gpuadvisor.collectors.script.child.rehearsal.inspection import attributes_of, mro_of

LOGGING = frozenset({
    "critical", "debug", "error", "exception", "fatal", "info", "log", "warn", "warning",
})  # fmt: skip
"""Methods of a logger that hand a record to its handlers."""
KEEPING = frozenset({"BufferingHandler", "MemoryHandler", "QueueHandler"})
"""Handlers of the standard library's that keep records in their process."""
Stores = Callable[[types.FunctionType, type, Mapping[str, Any]], bool]
"""Says whether a method of a class stores in its object, which has these attributes."""


def is_kept(owner: Any, method: str, stores: Stores) -> bool:
    """Say whether a method of a logger's, or a function of `logging` or `warnings`, reaches a
    handler or list that is kept."""
    if owner is warnings and method == "warn":
        # A list's method stands there while `catch_warnings` records.
        shown = getattr(warnings, "_showwarnmsg_impl", None)
        return type(shown) is types.BuiltinMethodType or is_own(warnings.showwarning)
    logger = logging.root if owner is logging else owner
    if method not in LOGGING or not issubclass(type(logger), logging.Logger):
        return False
    while logger is not None:
        if any(_keeps(handler, stores) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _keeps(handler: Any, stores: Stores) -> bool:
    kind = type(handler)
    if any(each.__name__ in KEEPING for each in mro_of(kind)):
        return True
    own = attributes_of(handler)
    if type(own.get("stream")).__name__ == "StringIO":
        return True
    method = method_named(kind, "emit")
    return method is not None and is_own(method) and stores(method, kind, own)

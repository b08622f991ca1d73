"""Which calls end the script, or wait for all that it started: its workers are among it."""

from __future__ import annotations

import ast

from gpuadvisor.collectors.script.child.shortening.syntax import chain, last_name

EXITS = frozenset({"_exit", "exit", "quit"})
"""Functions that end the script."""
PROCESSES = frozenset({"Process", "spawn"})
"""What runs a function in another process, where it is seen for itself."""
WAITING = frozenset({"wait", "wait3", "wait4", "waitpid"})
"""Functions of `os` that wait for any child."""


def asks_children(node: ast.AST) -> bool:
    """Say whether a call is one of `multiprocessing.active_children()`, `os.wait()`, or psutil's
    `children()`, which modules of torch have as well."""
    if not isinstance(node, ast.Call):
        return False
    called, names = last_name(node.func), chain(node.func)
    if called in WAITING:
        child = ast.unparse(node.args[0]) if called in ("waitpid", "wait4") and node.args else "-1"
        return names[:1] == ["os"] and child == "-1"
    is_psutil = "Process" in names or any(each.arg == "recursive" for each in node.keywords)
    return called == "active_children" or (called == "children" and is_psutil)

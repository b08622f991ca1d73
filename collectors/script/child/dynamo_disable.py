"""Disables Dynamo for the harness's own functions.

A script that compiles itself runs some of them in a compiled region. Compiled, they would see
`is_compiling()` as always true, and add graphs that the script alone does not have.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from gpuadvisor.collectors.script.child.channel import Channel, guarded
from gpuadvisor.collectors.script.child.imports import after_import


def disable_dynamo(packages: Iterable[str], channel: Channel | None) -> None:
    """Mark all functions of these packages, and of the harness, as soon as Dynamo is there.

    The mark is on the code, so it holds for closures, too. It does not keep Dynamo from following
    a call into them where it traces the caller: there `is_compiling()` tells them.
    """
    names = (__name__.rpartition(".")[0], *packages)

    def mark() -> None:
        with guarded(channel, "keep torch.compile out of its own code"):
            _mark_all(names)

    after_import("torch._dynamo.eval_frame", mark)


def _mark_all(packages: tuple[str, ...]) -> None:
    dynamo: Any = sys.modules["torch._dynamo.eval_frame"]
    skip_code = dynamo.skip_code  # private: it may go, and little is lost then
    for name, module in list(sys.modules.items()):
        if name.startswith(packages):
            _mark(module, skip_code)


def _mark(module: ModuleType, skip_code: Callable[[CodeType], object]) -> None:
    for value in vars(module).values():
        members = vars(value).values() if isinstance(value, type) else (value,)
        for member in members:
            if isinstance(member, FunctionType) and member.__module__ == module.__name__:
                for code in _codes(member.__code__):
                    skip_code(code)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code and that of the functions in it."""
    yield code
    constants: tuple[Any, ...] = code.co_consts
    for constant in constants:
        if isinstance(constant, CodeType):
            yield from _codes(constant)

"""Rules of a kernel file: numbers, Python expressions, and functions of parameters and sizes."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from types import CodeType
from typing import Any

from gpuadvisor.domain.knobs import Value

Rule = int | float | str | Callable[..., Any]
"""A number, an expression such as `"ceil_div(n, block_x)"`, or a function of some of the names."""
Names = Mapping[str, Value]
"""Parameters and the problem's sizes by name, for rules."""


def ceil_div(number: int, by: int) -> int:
    """Return the least whole number of parts of size `by` that hold `number`."""
    return -(-number // by)


def next_power_of_2(number: int) -> int:
    """Return the least power of two that is not below `number`."""
    return 1 << max(0, number - 1).bit_length()


FUNCTIONS: Mapping[str, Any] = {
    "abs": abs, "ceil_div": ceil_div, "log2": math.log2, "max": max, "min": min,
    "next_power_of_2": next_power_of_2, "round": round, "int": int,
}  # fmt: skip
"""What an expression may call."""


@cache
def _compiled(text: str) -> CodeType:
    try:
        return compile(text.strip(), "<rule>", "eval")
    except SyntaxError as error:
        raise ValueError(f"it is no Python expression ({error.msg})") from None


def evaluated(text: str, names: Names) -> Any:
    """Return what an expression comes to; ValueError for what is none."""
    return eval(_compiled(text), {"__builtins__": {}, **FUNCTIONS, **names})


def _takes_mapping(rule: Callable[..., Any]) -> bool:
    """Say whether a function is of Kernel Tuner's kind, which takes all names as one mapping."""
    parameters = list(inspect.signature(rule).parameters.values())
    return len(parameters) == 1 and parameters[0].name in ("p", "params", "config", "names")


def call(rule: Callable[..., Any], names: Names) -> Any:
    """Return what a function comes to; NameError for an argument that no name fills."""
    if _takes_mapping(rule):
        return rule(names)
    arguments = inspect.signature(rule).parameters
    for name, parameter in arguments.items():
        if name not in names and parameter.default is inspect.Parameter.empty:
            raise NameError(name, name=name)
    return rule(**{name: names[name] for name in arguments if name in names})


def wanted(rule: Rule, parameters: Sequence[str]) -> set[str]:
    """Return the names that a rule uses; all parameters where that cannot be known."""
    if isinstance(rule, str):
        try:
            return set(_compiled(rule).co_names) - FUNCTIONS.keys()
        except ValueError:
            return set()  # it fails at once, with a sentence
    if callable(rule) and not _takes_mapping(rule):
        return set(inspect.signature(rule).parameters)
    return set(parameters)


def text_of(rule: Any) -> str:
    """Return a rule as errors name it: an expression, or where a function stands."""
    if isinstance(rule, str):
        return f'"{rule.strip()}"'
    code = getattr(rule, "__code__", None)
    where = f" in line {code.co_firstlineno}" if code else ""
    return f"{getattr(rule, '__name__', repr(rule)).replace('<lambda>', 'the lambda')}{where}"


def instead(name: str, known: Mapping[str, Any], beside: Mapping[str, Any] | None = None) -> str:
    """Say that there is no such name, and which one may be meant."""
    close = get_close_matches(name, [*known, *(beside or ())], n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
    return f"there is no {name}: {hint}"


def shown(names: Names) -> str:
    """Return names with their values: `n=128, block=32`."""
    return ", ".join(f"{name}={value}" for name, value in names.items())


def name_of(source: Any) -> str:
    """Return the name of a function, also below decorators that have none, as `triton.autotune`."""
    while source is not None:
        name = getattr(source, "__name__", "") or getattr(source, "name", "")
        if name:
            return str(name)
        source = getattr(source, "fn", None)
    return ""


def plain_values(parameters: Any) -> Any:
    """Return the values of parameters with Python's own lists and numbers in place of numpy's; what
    is no mapping, or no list, as it is.
    """
    if not isinstance(parameters, Mapping):
        return parameters
    found = {}
    for name, values in parameters.items():
        several = values.tolist() if hasattr(values, "tolist") else values
        if isinstance(several, list | tuple):
            several = [each.item() if hasattr(each, "item") else each for each in several]
        found[name] = several
    return found

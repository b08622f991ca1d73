"""The fastest known parameters of a tuned kernel, for the program that launches it.

    point = gpuadvisor.best("matmul", n=4096)
    matmul[grid](a, b, c, **point)

This file needs the standard library and nothing else: a copy of it beside a program serves where
gpuadvisor is not installed (`from best_points import best`). It reads a small file of JSON, which
`gpuadvisor tune-kernel` keeps and `gpuadvisor kernels NAME -o FILE.json` writes; nothing of that is
run as code.
"""

from __future__ import annotations

import ast
import json
import math
import operator
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

try:
    from gpuadvisor.errors import UsageError
except ImportError:  # a copy of this file alone

    class UsageError(Exception):  # type: ignore[no-redef]
        """What is asked for cannot be given; the text says why, and the way out."""


FILE_VARIABLE = "GPUADVISOR_BEST"
"""Environment variable with the path of the file."""
STORE_FILE = "best_points.json"
"""The file in gpuadvisor's folder."""
FORMAT = 1
"""Version of the file's format, its field `gpuadvisor_best`."""
NEAREST_FACTOR = 4.0
"""Ratio of a size to a tuned one up to which the tuned one's point is taken. [own: sizes in steps
of up to 16 leave no gap; how well points carry over was not measured]"""
REMEMBERED = 4096
"""Answers that a process keeps, so that the same question costs microseconds."""
MOST_EXPONENT = 64
"""Largest exponent in a restriction: no file may have a program compute for ever."""

Point = Mapping[str, Any]
Gpu = tuple[str | None, tuple[int, int] | None]
"""A GPU's name and compute capability, as far as they are known."""


class Best(dict[str, Any]):
    """A kernel's parameters by name: a dictionary of the caller's own, for `**`."""

    __slots__ = ("device", "found", "problem", "why")
    found: str
    """`tuned`: measured on this GPU for these sizes. `nearest_size`: on this GPU, for other sizes.
    `nearest_gpu`: on another GPU of its compute capability. `default`: none of these."""
    why: str
    """How they were found and what was measured of them, in a sentence."""
    problem: Point
    """Sizes for which they were measured; empty for the default."""
    device: str
    """GPU on which they were measured; empty for the default."""


def best(
    kernel: str,
    /,
    *,
    default: Point | None = None,
    file: str | os.PathLike[str] | None = None,
    gpu: str | None = None,
    strict: bool = False,
    **sizes: Any,
) -> Best:
    """Return the fastest known parameters of a kernel for a problem's sizes on this GPU.

    Of a size that was not tuned, those of the nearest one: smallest sum of |log2| of the ratios,
    none above 4, and the kernel's restrictions hold. On another GPU than tuned, those of one with
    the same compute capability (1 % from the best there in the median: benchmarks/README.md). Else
    the kernel's default. `found` and `why` of the result tell which it was. With `strict` only what
    was measured on this GPU for these very sizes, else the default.

    `file` is one that gpuadvisor wrote; else `$GPUADVISOR_BEST`, else what `gpuadvisor tune-kernel`
    keeps in gpuadvisor's folder. `gpu` is a name (`NVIDIA H100 80GB HBM3`) or a compute capability
    (`9.0`); else torch's current GPU once torch uses one, else the first that the process may see.
    `default` takes the place of the kernel's own, and of the error where there is no such kernel. A
    point that breaks a restriction of the kernel, as in a file that was changed by hand or after
    the restrictions were, is not taken.

    File and GPU are looked at once a process, or after `gpuadvisor.best_points.forget()`; asked
    again, it takes some microseconds. UsageError
    for an unknown kernel or size, and a file that is missing, damaged or of a newer format.
    """
    given = None if default is None else tuple(default.items())
    try:
        path = None if file is None else os.fspath(file)
        chosen = _chosen(kernel, given, path, gpu, strict, tuple(sizes.items()))
    except TypeError as error:
        raise UsageError(
            f"best({kernel!r}): sizes and defaults are numbers or texts ({error})"
        ) from error
    made = Best(chosen.point)
    made.found, made.why = chosen.found, chosen.why
    made.problem, made.device = chosen.problem, chosen.device
    return made


def forget() -> None:
    """Have the file and the GPU looked at anew, in a process that outlives a change of them."""
    for remembered in (_chosen, _read, this_gpu):
        remembered.cache_clear()


# -- the file --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tuned:
    """The best point of a kernel for one problem on one GPU; the default where no other is."""

    device: str
    capability: tuple[int, int] | None
    problem: Point
    point: Point
    said: str
    """What was shown, as a clause."""


@dataclass(frozen=True)
class TunedKernel:
    """All that is known of one kernel."""

    default: Point
    tuned: tuple[Tuned, ...]
    restrictions: tuple[str, ...] | None
    """Restrictions on sizes, as expressions; None where one could not be kept as such."""

    @property
    def sizes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for each in self.tuned for name in each.problem))


def store_file() -> Path:
    """Return where `gpuadvisor tune-kernel` keeps the best points, in gpuadvisor's folder."""
    if own := os.environ.get("GPUADVISOR_HOME"):
        return Path(own).expanduser() / STORE_FILE
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    folder = data if data.is_absolute() else Path("~/.local/share").expanduser()
    return folder / "gpuadvisor" / STORE_FILE


@lru_cache(maxsize=64)
def _read(path: Path) -> dict[str, TunedKernel]:
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise _damaged(path, "it is no text") from None
    return parsed(text, path)


def parsed(text: str, path: Path) -> dict[str, TunedKernel]:
    """Return the kernels of such a file by name; UsageError for one that is not to be read."""
    try:
        document = json.loads(text)
        version = document["gpuadvisor_best"]
        if not isinstance(version, int) or version < 1:
            raise ValueError(f"its format is {version!r}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from None
    if version > FORMAT:
        raise UsageError(
            f"{path} was written by a newer gpuadvisor (format {version}, this one reads "
            f"{FORMAT}): update gpuadvisor, or write the file with this version"
        )
    try:
        return {str(name): _kernel(entry) for name, entry in document["kernels"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from None


def _kernel(entry: Mapping[str, Any]) -> TunedKernel:
    default, told = _point(entry["default"]), entry["restrictions"]
    restrictions = None if told is None else tuple(map(str, told))
    for text in restrictions or ():
        expression(text)
    tuned = []
    for each in entry["tuned"]:
        capability = each["compute_capability"]
        both = None if capability is None else (int(capability[0]), int(capability[1]))
        point = _point(each["best"])
        if point.keys() != default.keys():
            raise ValueError("a point has other parameters than the default")
        said = str(each["shown"])
        tuned.append(Tuned(str(each["device"]), both, _point(each["problem"]), point, said))
    return TunedKernel(default, tuple(tuned), restrictions)


def _point(values: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in values.items():
        if not isinstance(value, bool | int | float | str):
            raise ValueError(f"{name} is {value!r}")
    return dict(values)


def _damaged(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path} is damaged ({why}): write it anew with `gpuadvisor kernels NAME -o FILE.json`"
    )


# -- the choice ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Chosen:
    point: Point
    found: str
    why: str
    problem: Point
    device: str


@lru_cache(maxsize=REMEMBERED)
def _chosen(
    kernel: str,
    default: tuple[tuple[str, Any], ...] | None,
    file: str | None,
    gpu: str | None,
    strict: bool,
    sizes: tuple[tuple[str, Any], ...],
) -> _Chosen:
    path = Path(named).expanduser() if (named := file or os.environ.get(FILE_VARIABLE)) else None
    if path is None and not store_file().is_file():
        known: dict[str, TunedKernel] = {}
        missing = "no kernel was tuned here: run `gpuadvisor tune-kernel FILE`"
    else:
        path = path or store_file()
        known = _read(path)
        missing = f"{path} has no kernel {kernel}{_near(kernel, known)}"
    if kernel not in known:
        if default is None:
            raise UsageError(f"{missing}, or give default=")
        return _Chosen(dict(default), "default", missing, {}, "")
    entry, asked = known[kernel], dict(sizes)
    if default is not None:
        entry = replace(entry, default=dict(default))
    _check_sizes(kernel, entry, asked)
    return _select(entry, asked, _wanted_gpu(gpu, entry), strict)


def _near(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = get_close_matches(name, names, 1) or names[:6]
    return f" (there is {', '.join(near)})" if near else ""


def _check_sizes(kernel: str, entry: TunedKernel, asked: Point) -> None:
    if not entry.tuned:
        return
    sizes = entry.sizes
    there = f"its sizes are {', '.join(sizes)}" if sizes else "it has none"
    for name in asked:
        if name not in sizes:
            raise UsageError(f"best({kernel!r}): there is no size {name}: {there}")
    missing = [name for name in sizes if name not in asked]
    if missing:
        raise UsageError(f"best({kernel!r}): {missing[0]} is missing: {there}")


def _select(entry: TunedKernel, asked: Point, gpu: Gpu, strict: bool) -> _Chosen:
    name, capability = gpu
    here = [each for each in entry.tuned if name is not None and each.device == name]
    is_near = not here and not strict and capability is not None
    if is_near:
        here = [each for each in entry.tuned if each.capability == capability]
    if not here:
        where = name or (capability and "compute capability {}.{}".format(*capability))
        why = f"it was not tuned on {where}" if where else "no NVIDIA GPU was found"
        return _fallback(entry, asked, why)
    exact = next((each for each in here if dict(each.problem) == asked), None)
    if exact is not None:
        broken = _broken(entry, exact.point, asked, unknown=False)
        if broken is not None:
            why = (
                f"what the file holds as tuned for {_shown(asked) or 'it'} breaks the kernel's own "
                f"restriction {broken}: tune it anew, or write the file anew"
            )
            return _fallback(entry, asked, why)
        found, of = ("nearest_gpu" if is_near else "tuned"), exact
    else:
        near = None if strict else _nearest(entry, here, asked)
        if near is None:
            why = f"no tuned size is near {_shown(asked)}, or its point is not allowed there"
            return _fallback(entry, asked, f"{_shown(asked)} was not tuned" if strict else why)
        found, of = ("nearest_gpu" if is_near else "nearest_size"), near
    sizes = f" for {_shown(of.problem)}" if of.problem else ""
    why = f"tuned on {of.device}{sizes}: {of.said}"
    return _Chosen(of.point, found, why, of.problem, of.device)


def _fallback(entry: TunedKernel, asked: Point, why: str) -> _Chosen:
    broken = _broken(entry, entry.default, asked)
    beside = f"; its restriction {broken} does not hold for these sizes" if broken else ""
    return _Chosen(entry.default, "default", f"the kernel's default: {why}{beside}", {}, "")


def _nearest(entry: TunedKernel, tuned: Sequence[Tuned], asked: Point) -> Tuned | None:
    """Return what was tuned for the nearest sizes for which its point may be launched."""
    if entry.restrictions is None:  # nobody can say whether they hold for another size
        return None
    near = [(away, each) for each in tuned if (away := _distance(each.problem, asked)) is not None]
    for _, each in sorted(near, key=lambda pair: pair[0]):
        if _broken(entry, each.point, asked) is None:
            return each
    return None


def _distance(tuned: Point, asked: Point) -> float | None:
    """Return the sum of |log2| of the sizes' ratios; None where one is too far, or is a text."""
    total = 0.0
    for name, value in asked.items():
        other = tuned.get(name)
        if value == other:
            continue
        try:
            away = abs(math.log2(value / other))
        except (TypeError, ValueError, ZeroDivisionError):
            return None
        if away > math.log2(NEAREST_FACTOR):
            return None
        total += away
    return total


def _broken(entry: TunedKernel, point: Point, asked: Point, *, unknown: bool = True) -> str | None:
    """Return the first restriction that does not hold, or with `unknown` cannot be computed."""
    for text in entry.restrictions or ():
        try:
            holds = expression(text)({**asked, **point})
        except (ArithmeticError, KeyError, TypeError, ValueError):
            holds = not unknown
        if not holds:
            return text
    return None


def _shown(sizes: Point) -> str:
    return ", ".join(f"{name}={value}" for name, value in sizes.items())


# -- restrictions ----------------------------------------------------------------------------------

Rule = Callable[[Point], Any]


def _power(base: Any, exponent: Any) -> Any:
    if abs(exponent) > MOST_EXPONENT:
        raise ValueError(f"{exponent} is too large an exponent")
    return base**exponent


_OPERATORS: Mapping[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Pow: _power,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other, ast.Not: operator.not_,
    ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs, "ceil_div": lambda number, by: -(-number // by), "int": int, "log2": math.log2,
    "max": max, "min": min, "next_power_of_2": lambda number: 1 << max(0, number - 1).bit_length(),
    "round": round,
}  # fmt: skip
"""What a restriction may call: the functions of `gpuadvisor.Kernel`'s rules."""


@lru_cache(maxsize=256)
def expression(text: str) -> Rule:
    """Return a restriction as a function of names; ValueError for more than arithmetic.

    Nothing of it is run as Python: a file from elsewhere can compute, and do nothing else.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{text!r} is no expression") from None
    return _rule(tree.body)


def _rule(node: ast.expr) -> Rule:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str):
        return lambda names: node.value
    if isinstance(node, ast.Name):
        return lambda names: names[node.id]
    if isinstance(node, ast.BoolOp):
        several, wanted = [_rule(each) for each in node.values], isinstance(node.op, ast.And)
        return lambda names: (
            all(r(names) for r in several) if wanted else any(r(names) for r in several)
        )
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        of, act = _rule(node.operand), _OPERATORS[type(node.op)]
        return lambda names: act(of(names))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right, act = _rule(node.left), _rule(node.right), _OPERATORS[type(node.op)]
        return lambda names: act(left(names), right(names))
    if isinstance(node, ast.Compare) and all(type(each) in _OPERATORS for each in node.ops):
        return _compared(node)
    if isinstance(node, ast.IfExp):
        test, yes, no = _rule(node.test), _rule(node.body), _rule(node.orelse)
        return lambda names: yes(names) if test(names) else no(names)
    if isinstance(node, ast.Tuple | ast.List):
        items = [_rule(each) for each in node.elts]
        return lambda names: [each(names) for each in items]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        name, arguments = node.func.id, [_rule(each) for each in node.args]
        if name in FUNCTIONS:
            return lambda names: FUNCTIONS[name](*(each(names) for each in arguments))
    raise ValueError(f"{ast.unparse(node)!r} is not allowed in a restriction")


def _compared(node: ast.Compare) -> Rule:
    sides = [_rule(each) for each in (node.left, *node.comparators)]
    acts = [_OPERATORS[type(each)] for each in node.ops]

    def holds(names: Point) -> bool:
        values = [side(names) for side in sides]
        return all(
            act(one, other) for act, one, other in zip(acts, values, values[1:], strict=False)
        )

    return holds


# -- the GPU ---------------------------------------------------------------------------------------


def _wanted_gpu(gpu: str | None, entry: TunedKernel) -> Gpu:
    if gpu is None:
        return this_gpu()
    major, point, minor = gpu.partition(".")
    if point and major.isdigit() and minor.isdigit():
        return None, (int(major), int(minor))
    same = (each.capability for each in entry.tuned if each.device == gpu)
    return gpu, next(same, None)


@lru_cache(maxsize=1)
def this_gpu() -> Gpu:
    """Return the name and compute capability of torch's current GPU where torch uses one already,
    else of the first that the process may see; None for what nobody tells.

    NVML is asked, not CUDA: that would keep children that are forked later from using the GPU.
    """
    with suppress(Exception):  # a torch that is being imported, or was built without CUDA
        cuda = sys.modules["torch"].cuda
        if cuda.is_initialized():
            return str(cuda.get_device_name()), cuda.get_device_capability()
    with suppress(OSError, AttributeError, ValueError):
        return _of_nvml(os.environ.get("CUDA_VISIBLE_DEVICES"))
    return None, None


def _of_nvml(visible: str | None) -> Gpu:
    import ctypes

    first = "0" if visible is None else visible.split(",")[0].strip()
    library = ctypes.CDLL("libnvidia-ml.so.1")
    if library.nvmlInitWithFlags(0):
        return None, None
    try:
        return _described(library, first)
    finally:
        library.nvmlShutdown()


def _described(library: Any, first: str) -> Gpu:
    import ctypes

    handle = ctypes.c_void_p()
    if first.isdigit():
        failed = library.nvmlDeviceGetHandleByIndex_v2(int(first), ctypes.byref(handle))
    else:
        failed = library.nvmlDeviceGetHandleByUUID(first.encode(), ctypes.byref(handle))
    name = ctypes.create_string_buffer(96)
    major, minor = ctypes.c_int(), ctypes.c_int()
    failed = failed or library.nvmlDeviceGetName(handle, name, 96)
    if failed:
        return None, None
    unknown = library.nvmlDeviceGetCudaComputeCapability(
        handle, ctypes.byref(major), ctypes.byref(minor)
    )
    return name.value.decode("utf-8", "replace"), None if unknown else (major.value, minor.value)

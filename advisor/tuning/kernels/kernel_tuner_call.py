"""A call of Kernel Tuner's `tune_kernel` in its own terms, and what is made of it for the process
that runs the kernel: texts, grids, blocks and arrays.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.kernels.child.taken_over import CALL
from gpuadvisor.domain.kernel_rules import FUNCTIONS
from gpuadvisor.domain.kernels import Kernel, declared
from gpuadvisor.domain.knobs import Value
from gpuadvisor.errors import UsageError

Point = dict[str, Value]

BLOCK_SIZE_NAMES = ("block_size_x", "block_size_y", "block_size_z")
USUAL_BLOCK = (256, 1, 1)
"""Threads of a side that no parameter names."""
RELATIVE_TOLERANCE = 1e-5
"""`numpy.allclose`'s own, which Kernel Tuner leaves as it is."""
FIRST_TRIED = 8
"""Points that are tried as the one that others are compared with, until one can be run."""
MOST_TEXT_BYTES = 64 << 20
"""Most bytes of all source texts that a function makes, one for each point: they are kept while the
kernel is tuned."""
GRID_SIZE_NAMES = ("grid_size_x", "grid_size_y", "grid_size_z")
"""Macros of Kernel Tuner's for the blocks of the grid."""
UNROLLED = "loop_unroll_factor"
"""In a parameter's name: a constant for `#pragma unroll` and no macro, and 0 for no pragma."""


@dataclass(frozen=True)
class Call:
    """What is asked of a kernel, in Kernel Tuner's terms."""

    name: str
    source: str | Callable[[Point], str]
    parameters: dict[str, list[Value]]
    arguments: list[Any]
    problem_size: Any
    grid_divisors: tuple[Any, Any, Any]
    block_size_names: list[str]
    shared_bytes: Any
    restrictions: list[Any]
    answer: Sequence[Any] | None = None
    atol: float = 1e-6
    options: list[str] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)

    @property
    def compared(self) -> list[int]:
        """Places of the arguments that are compared; UsageError for too few or many answers."""
        if self.answer is None:
            return [place for place, each in enumerate(self.arguments) if not _is_scalar(each)]
        if len(self.answer) != len(self.arguments):
            raise UsageError(
                f"tune_kernel: answer has {len(self.answer)} entries and the kernel "
                f"{len(self.arguments)} arguments: give one for each, None for those that are not "
                "compared"
            )
        return [place for place, each in enumerate(self.answer) if each is not None]

    def points(self) -> list[tuple[Value, ...]]:
        """Return the points that meet the restrictions; UsageError where there is none."""
        kernel = Kernel(
            "", name=self.name, parameters=self.parameters, grid=1, arguments=[],
            restrictions=[_restriction(each, self.parameters) for each in self.restrictions],
            file=self.name,
        )  # fmt: skip
        declared()
        found = list(kernel.points({}))
        if not found:
            raise UsageError(f"tune_kernel of {self.name}: its restrictions leave no point")
        return found

    def launch(self, point: Point) -> dict[str, Any]:
        """Return grid, block and dynamic shared memory of a point."""
        size = self._problem(point)
        defaults = self.block_size_names
        divisors = [
            self._divisor(divisor, name, point)
            for divisor, name in zip(self.grid_divisors, defaults, strict=False)
        ]
        block = [
            int(point.get(name, usual))
            for name, usual in zip(defaults[:3], USUAL_BLOCK, strict=True)
        ]
        return {
            "grid": [math.ceil(side / by) for side, by in zip(size, divisors, strict=True)],
            "block": block,
            "shared_bytes": int(self._value(self.shared_bytes, point)),
        }

    def text(self, point: Point, launch: Mapping[str, Any]) -> str:
        """Return a point's CUDA C++ with the macros of Kernel Tuner's that no parameter gives."""
        raw: Any = self.source
        if callable(raw):
            try:
                raw = raw(dict(point))
            except Exception as error:
                raise UsageError(
                    f"tune_kernel of {self.name}: kernel_source fails for {point}: "
                    f"{type(error).__name__}: {error}"
                ) from error
            if not isinstance(raw, str) or "__global__" not in raw:
                raise UsageError(
                    f"tune_kernel of {self.name}: kernel_source gives no text with a __global__ "
                    f"function for {point}"
                )
        words = _words(raw)
        lines = ["#define kernel_tuner 1"]
        for names, values in (
            (GRID_SIZE_NAMES, launch["grid"]),
            (self.block_size_names, launch["block"]),
        ):
            lines += [
                f"#define {name} {value}"
                for name, value in zip(names, values, strict=False)
                if name in words and name not in self.parameters
            ]
        # Sizes are macros of ours, and none of Kernel Tuner's.
        lines += [f"#undef {name}" for name in self.sizes if name in words]
        for name in self.parameters:
            if UNROLLED in name and name in words and point[name] == 0:
                raw = re.sub(rf"\n\s*#pragma\s+unroll\s+{name}", "\n", raw)
            elif UNROLLED in name and name in words:
                lines.append(f"#undef {name}\nconstexpr int {name} = {point[name]};")
        return "\n".join([*lines, "#line 1", raw])

    @property
    def sizes(self) -> dict[str, Value]:
        """The problem's sizes by name, where they are plain numbers; else none."""
        given = self.problem_size
        several = list(given) if isinstance(given, list | tuple) else [given]
        numbers = [plain(each) for each in several]
        if not all(isinstance(each, int | float) for each in numbers):
            return {}
        return {f"problem_size_{axis}": size for axis, size in zip("xyz", numbers, strict=False)}

    def default(self, points: Sequence[tuple[Value, ...]]) -> list[Point]:
        """Return the points that may be what others are compared with, the most usual first: a
        block of some 256 threads, and the first value of everything else.
        """
        named = [dict(zip(self.parameters, each, strict=True)) for each in points]

        def unusual(point: Point) -> tuple[float, list[int]]:
            threads = math.prod(self.launch(point)["block"])
            places = [self.parameters[n].index(v) for n, v in point.items()
                      if n not in self.block_size_names]  # fmt: skip
            return abs(math.log2(threads / USUAL_BLOCK[0])), places

        return sorted(named, key=unusual)[:FIRST_TRIED]

    def _problem(self, point: Point) -> list[float]:
        size = self._value(self.problem_size, point)
        sides = list(size) if isinstance(size, list | tuple) else [size]
        return [float(self._value(side, point)) for side in [*sides, 1, 1][:3]]

    def _divisor(self, divisors: Any, name: str, point: Point) -> float:
        if divisors is None:
            return float(point.get(name, 1))
        found = divisors(point) if callable(divisors) else divisors
        several = found if isinstance(found, list | tuple) else [found]
        return math.prod(float(self._value(each, point)) for each in several)

    def _value(self, rule: Any, point: Point) -> Any:
        """Return a number, or what an expression or a function of all parameters comes to."""
        if callable(rule):
            return rule(point)
        if not isinstance(rule, str):
            return plain(rule)
        try:
            return eval(rule, {"__builtins__": {}, **FUNCTIONS, **point})
        except Exception as error:
            raise UsageError(
                f"tune_kernel of {self.name}: {rule!r} fails: {type(error).__name__}: {error}"
            ) from None


@lru_cache(maxsize=8)
def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


def _restriction(rule: Any, parameters: Mapping[str, Any]) -> Any:
    """Return a restriction as a rule of ours: an expression, or a function of names."""
    if isinstance(rule, str):
        return rule
    if not inspect.isroutine(rule):
        raise UsageError(
            f"tune_kernel: a restriction is a {type(rule).__name__}: give expressions or functions"
        )
    wanted = list(inspect.signature(rule).parameters)
    if len(wanted) == 1 and wanted[0] not in parameters:
        return lambda p: rule(dict(p))
    return rule


def written(folder: Path, call: Call, points: Sequence[tuple[Value, ...]], default: Point) -> Path:
    """Write the call where the process that runs the kernel reads it; return the kernel file."""
    import numpy

    compared = call.compared
    launches, texts = _launches(call, points)
    document = {
        "name": call.name,
        "texts": texts,
        "parameters": call.parameters,
        "default": default,
        "points": points,
        "problem": call.sizes,
        "launches": launches,
        "arguments": len(call.arguments),
        "scalars": [place for place, each in enumerate(call.arguments) if _is_scalar(each)],
        "compared": compared,
        "has_answer": call.answer is not None,
        "tolerance": RELATIVE_TOLERANCE if call.answer is not None else None,
        "absolute_tolerance": call.atol if call.answer is not None else None,
        "options": call.options,
        "constants": list(call.constants),
    }
    arrays = {f"argument{n}": _array(each) for n, each in enumerate(call.arguments)}
    if call.answer is not None:
        arrays |= {f"answer{place}": _array(call.answer[place]) for place in compared}
    arrays |= {f"constant {name}": _array(each) for name, each in call.constants.items()}
    (folder / CALL).write_text(json.dumps(document), "utf-8")
    numpy.savez(folder / "arrays.npz", **arrays)
    file = folder / f"{''.join(c if c.isalnum() else '_' for c in call.name)}.py"
    file.write_text(
        "from gpuadvisor.collectors.kernels.child.taken_over import declare\n\ndeclare(__file__)\n",
        "utf-8",
    )
    return file


def _launches(
    call: Call, points: Sequence[tuple[Value, ...]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the launch of each point with the number of its text, and the texts."""
    launches, texts, size = [], dict[str, int](), 0
    for each in points:
        point = dict(zip(call.parameters, each, strict=True))
        launch = call.launch(point)
        text = call.text(point, launch)
        if text not in texts:
            size += len(text)
            if size > MOST_TEXT_BYTES:
                raise UsageError(
                    f"tune_kernel of {call.name}: the texts of its {len(points):,} points are more "
                    f"than {MOST_TEXT_BYTES >> 20} MiB: give restrictions, or use macros"
                )
        launches.append({**launch, "text": texts.setdefault(text, len(texts))})
    return launches, list(texts)


def _is_scalar(value: Any) -> bool:
    return not getattr(value, "shape", ())


def _array(value: Any) -> Any:
    """Return an argument of numpy, CuPy or torch as an array of numpy."""
    import numpy

    take: Callable[[], Any] | None = getattr(value, "get", None)
    if take is not None and type(value).__module__.split(".")[0] == "cupy":
        value = take()
    elif hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    found = numpy.asarray(value)
    if found.dtype.kind not in "biufc":
        raise UsageError(f"tune_kernel: an argument has the dtype {found.dtype}: give numbers")
    return found


def plain(value: Any) -> Any:
    """Return a number of numpy as Python's own."""
    return value.item() if hasattr(value, "item") else value

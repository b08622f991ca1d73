"""A kernel file: a kernel, what can be turned in it, how it is called, and what it must compute.

    from gpuadvisor import Kernel, array, output

    Kernel(
        "reduce.cu",
        parameters={"block_x": [64, 128, 256, 512], "per_thread": [1, 2, 4, 8]},
        default={"block_x": 256, "per_thread": 1},
        restrictions=["block_x * per_thread <= 2048"],
        problems=[{"n": 1 << 20}, {"n": 1 << 26}],
        grid="ceil_div(n, block_x * per_thread)",
        block="block_x",
        arguments=[array("n"), output(1), "n"],
        reference=lambda values, total, n: values.sum(),
        bytes="4 * n",
    )

Whatever depends on the problem or the parameters is a *rule*: a number, a Python expression in a
string, or a function whose arguments are named like the parameters and sizes that it wants.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

from gpuadvisor.domain.kernel_rules import (
    FUNCTIONS,
    Names,
    Rule,
    call,
    evaluated,
    instead,
    name_of,
    plain_values,
    shown,
    text_of,
    wanted,
)
from gpuadvisor.domain.knobs import Value
from gpuadvisor.errors import UsageError

_BOUNDS = r"__launch_bounds__\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_CUDA_KERNEL = re.compile(
    r"(?:template\s*<([^;{}()]*)>\s*)?(?:extern\s*\"C\"\s*)?__global__\s"
    rf"[^;{{}}()]*?(?:{_BOUNDS}\s*[^;{{}}()]*?)?\b(\w+)\s*\(([^)]*)\)"
)
"""The template's parameters, the name and the arguments of each kernel of CUDA C++."""
BLOCK_THREADS, BLOCK_DEPTH, SHARED_BYTES = 1024, 64, 227 * 1024
GRID_SIDES = (2**31 - 1, 65_535, 65_535)
"""Most threads of a block, in all and in z, most shared memory of one, and most blocks of a grid in
x, y and z on any GPU up to compute capability 12.1 (CUDA C++ Programming Guide, "Technical
Specifications per Compute Capability")."""
MOST_POINTS = 1_000_000
"""Points beyond which a space is refused: each takes some 100 bytes."""

_FORMS: tuple[tuple[str, Any, str], ...] = (
    ("parameters", Mapping, '{"block": [64, 128]}'),
    ("default", Mapping, '{"block": 64}'),
    ("restrictions", Sequence, '["block <= n"]'),
    ("problems", Sequence, '[{"n": 4096}]'),
    ("arguments", (Sequence, Callable), '[output("n"), array("n"), "n"]'),
    ("constants", Mapping, '{"filter": numpy.ones(9, numpy.float32)}'),
)
"""Fields with what they are and how they are written."""


@dataclass(frozen=True)
class Array:
    """An argument that is an array on the GPU; `array` and `output` make it."""

    shape: tuple[Rule, ...]
    dtype: str = "float32"
    """As torch names it."""
    fill: Any = "normal"
    """`normal`, `uniform` (0 to 1), `arange`, the number that every element has, or an array of
    numpy with what it holds."""
    is_output: bool = False
    """Whether the kernel writes it, and it is compared with the reference."""


def array(*shape: Rule, dtype: str = "float32", fill: str | float = "normal") -> Array:
    """Return an argument that the kernel reads: an array of random numbers, new for each check.

    Each side of the shape is a rule. `fill` is `normal`, `uniform`, `arange` or a number.
    """
    return Array(shape, dtype, fill)


def output(*shape: Rule, dtype: str = "float32", fill: Any = None) -> Array:
    """Return an argument that the kernel writes, and that is compared with the reference.

    It holds NaN (the largest number, if of integers) before each check, so that what is not written
    is seen; with `fill` it holds that, for kernels that add to it.
    """
    return Array(shape, dtype, "poison" if fill is None else fill, is_output=True)


_REGISTERED: list[Kernel] = []


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel to tune, with its parameters, problems, and arguments. Rules: see the module."""

    source: Any
    """CUDA C++ as text or the path of a `.cu` file, a function decorated with `triton.jit` or
    `numba.cuda.jit`, a `cupy.RawKernel`, or a function of parameters that returns one of these; a
    text that it returns has the parameters as macros, too."""
    parameters: Mapping[str, Sequence[Value]]
    """Name to the values to try. In CUDA C++ each is a macro of that name, in Triton a `constexpr`
    or `num_warps`, `num_stages`, `num_ctas`, `maxnreg`."""
    grid: Rule | Sequence[Rule]
    """Blocks in x, y and z."""
    arguments: Sequence[Array | Rule] | Callable[..., Sequence[Any]]
    """In the kernel's order: arrays, and rules for numbers; or a function of sizes and parameters
    that makes them, torch tensors among them (then `outputs` says which are compared)."""
    block: Rule | Sequence[Rule] | None = None
    """Threads in x, y and z; Triton needs none."""
    default: Mapping[str, Value] = field(default_factory=dict)
    """What the kernel has now, and what a gain is relative to; else the first value of each."""
    restrictions: Sequence[Rule] = ()
    """Rules that are true for the points that make sense."""
    only: Sequence[tuple[Value, ...]] | None = None
    """The points that make sense, one by one, each the values of the parameters in their order;
    None for all that meet the restrictions."""
    problems: Sequence[Mapping[str, Value]] = ({},)
    """Sizes; the kernel is tuned for each. In CUDA C++ they are macros, too, unless an argument of
    the kernel has the name."""
    reference: Callable[..., Any] | None = None
    """Takes the arguments, returns what the outputs should hold (several: a tuple); None compares
    with what the default computes."""
    tolerance: float | None = None
    """Largest difference that is allowed, relative to the largest expected element; None for what
    the dtype's rounding allows (`collectors/kernels/child/arguments.py`)."""
    absolute_tolerance: float | None = None
    """Largest difference that is allowed however small the expected element; then `tolerance` (else
    0) is relative to that element alone, as in `numpy.allclose`."""
    outputs: Sequence[int] | None = None
    """Which arguments are compared, where a function makes them."""
    name: str = ""
    """The function's name; in CUDA C++ the one kernel in the text if there is only one."""
    shared_bytes: Rule = 0
    """Dynamic shared memory of a block."""
    bytes: Rule | None = None
    """Bytes that must be read and written, for the bandwidth reached."""
    flops: Rule | None = None
    """Useful floating-point operations, for the rate reached."""
    options: Sequence[str] = ()
    """Options of NVRTC, such as `-use_fast_math`."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Name of a `__constant__` variable of CUDA C++ to the array of numpy that it holds: its bytes
    are copied there before the first launch."""
    file: str = ""
    """File that the kernel was declared in, as known to the caller."""

    def __post_init__(self) -> None:
        caller = inspect.currentframe()
        caller = caller.f_back.f_back if caller and caller.f_back else None
        if not self.file and caller is not None:
            object.__setattr__(self, "file", caller.f_code.co_filename)
        object.__setattr__(self, "name", self.name or self._own_name())
        object.__setattr__(self, "parameters", plain_values(self.parameters))
        self._check()
        _REGISTERED.append(self)

    # -- what is asked of a kernel -----------------------------------------------------------------

    @property
    def start(self) -> dict[str, Value]:
        """The complete default point."""
        return {name: self.default.get(name, values[0]) for name, values in self.parameters.items()}

    def value(self, what: str, rule: Any, names: Names) -> Any:
        """Return what a rule comes to; UsageError, naming `what`, where it comes to nothing."""
        if isinstance(rule, str):
            action = partial(evaluated, rule, names)
            return self._called(what, action, text_of(rule), names)
        if callable(rule):
            return self._called(what, partial(call, rule, names), text_of(rule), names)
        return rule

    def sides(self, what: str, rules: Rule | Sequence[Rule], names: Names) -> tuple[int, ...]:
        """Return one to three positive whole numbers: a grid or a block."""
        several = rules if isinstance(rules, list | tuple) else (rules,)
        found: list[Any] = []
        for rule in several:
            value = self.value(what, rule, names)
            found.extend(value if isinstance(value, list | tuple) else (value,))
        whole = all(isinstance(each, int) and not isinstance(each, bool) for each in found)
        if not 1 <= len(found) <= 3 or not whole or any(each < 1 for each in found):
            raise self._error(
                f"{what} must be one to three whole numbers from 1 on, not {found} ({shown(names)})"
            )
        return tuple(found)

    def violated(self, names: Names) -> str | None:
        """Return the first restriction that the names do not meet, as text; None for none."""
        for rule in self.restrictions:
            if not self.value("a restriction", rule, names):
                return text_of(rule)
        return None

    def points(self, problem: Names) -> Iterator[tuple[Value, ...]]:
        """Yield the values of every point that meets the restrictions, in the parameters' order.

        A restriction is looked at as soon as all names that it uses have a value, so that most of
        a sparse grid is never visited.
        """
        names = list(self.parameters)
        if self.only is not None:
            yield from (
                tuple(each)
                for each in self.only
                if self.violated({**problem, **dict(zip(names, each, strict=True))}) is None
            )
            return
        known = set(problem)
        due: list[list[Rule]] = []
        left = list(self.restrictions)
        for name in names:
            known.add(name)
            now = [rule for rule in left if wanted(rule, names) <= known]
            left = [rule for rule in left if rule not in now]
            due.append(now)
        due[-1].extend(left)
        point: dict[str, Value] = dict(problem)

        def deeper(place: int) -> Iterator[tuple[Value, ...]]:
            if place == len(names):
                yield tuple(point[name] for name in names)
                return
            for value in self.parameters[names[place]]:
                point[names[place]] = value
                if all(self.value("a restriction", rule, point) for rule in due[place]):
                    yield from deeper(place + 1)
            del point[names[place]]

        yield from deeper(0)

    def checked_points(self, problem: Names) -> list[tuple[Value, ...]]:
        """Return those points; UsageError where there is none, too many, or not the default."""
        found: list[tuple[Value, ...]] = []
        for point in self.points(problem):
            found.append(point)
            if len(found) > MOST_POINTS:
                raise self._error(
                    f"it has more than {MOST_POINTS:,} points: give fewer values, or restrictions"
                )
        where = f" for {shown(problem)}" if problem else ""
        if not found:
            raise self._error(f"its restrictions leave no point{where}: {self._culprit(problem)}")
        if (broken := self.violated({**problem, **self.start})) is not None:
            raise self._error(
                f"its default ({shown(self.start)}) violates the restriction {broken}{where}"
            )
        return found

    def _culprit(self, problem: Names) -> str:
        """Name a restriction that no values meet, if there is one, and what can be done."""
        grid = list(islice(product(*self.parameters.values()), MOST_POINTS + 1))
        points = [{**problem, **dict(zip(self.parameters, each, strict=True))} for each in grid]
        with suppress(UsageError):  # it may need others to hold
            for rule in self.restrictions if len(grid) <= MOST_POINTS else ():
                if not any(self.value("a restriction", rule, point) for point in points):
                    return f"no values meet {text_of(rule)}; loosen it, or give others"
        return "loosen them, or give more values"

    def launchable(
        self, problem: Names, points: Sequence[tuple[Value, ...]]
    ) -> list[tuple[Value, ...]]:
        """Return those of the points that some GPU can launch; UsageError where that is none of
        them, or not the default.
        """
        names = list(self.parameters)
        found = [
            point
            for point in points
            if self.unlaunchable({**problem, **dict(zip(names, point, strict=True))}) is None
        ]
        if (why := self.unlaunchable({**problem, **self.start})) is not None:
            raise self._error(f"its default ({shown(self.start)}) cannot be launched: {why}")
        return found

    def unlaunchable(self, names: Names) -> str | None:
        """Return why no GPU can launch a point; None where that needs a compiler."""
        if self.block is not None:
            block = self.sides("block", self.block, names)
            threads = math.prod(block)
            if threads > BLOCK_THREADS:
                return f"a block of {threads:,} threads is more than {BLOCK_THREADS:,}"
            if len(block) == 3 and block[2] > BLOCK_DEPTH:
                return f"a block has at most {BLOCK_DEPTH} threads in z, not {block[2]}"
        with suppress(UsageError):  # a grid that comes to nothing is told where it is launched
            grid = self.sides("grid", self.grid, names)
            for side, most, axis in zip(grid, GRID_SIDES, "xyz", strict=False):
                if side > most:
                    return f"a grid has at most {most:,} blocks in {axis}, not {side:,}"
        shared = int(self.value("shared_bytes", self.shared_bytes, names))
        if shared > SHARED_BYTES:
            return (
                f"{shared:,} bytes of shared memory are more than the {SHARED_BYTES:,} of any GPU"
            )
        return None

    @property
    def arguments_vary(self) -> bool:
        """Whether arguments depend on the point: a buffer with an element a block, for example."""
        parameters = list(self.parameters)
        return any(
            wanted(rule, parameters) & self.parameters.keys()
            for rule in self._argument_rules
            if _is_rule(rule)
        )

    @property
    def language(self) -> str:
        """`cuda_cpp`, `triton`, `cupy` or `numba`; empty where a function makes the kernel."""
        if isinstance(self.source, str):
            return "cuda_cpp"
        homes = {each.__module__.split(".")[0] for each in type(self.source).__mro__}
        return next((name for name in ("triton", "cupy", "numba") if name in homes), "")

    @property
    def dtype(self) -> str:
        """Type of the first array's elements, as torch names it; empty where a function makes the
        arguments."""
        given = () if callable(self.arguments) else self.arguments
        return next((each.dtype for each in given if isinstance(each, Array)), "")

    @property
    def size_restrictions(self) -> list[str] | None:
        """The restrictions that may depend on the problem's sizes, as expressions; None where one
        of them is a function.
        """
        sizes = {name for problem in self.problems for name in problem}
        depend = [
            rule for rule in self.restrictions if wanted(rule, [*self.parameters, *sizes]) & sizes
        ]
        texts = [rule.strip() for rule in depend if isinstance(rule, str)]
        return texts if len(texts) == len(depend) else None

    @property
    def cuda_text(self) -> str:
        """The CUDA C++ of a text, or of a file beside the kernel file."""
        source = str(self.source)
        if "\n" in source or "__global__" in source:
            return source
        path = Path(self.file).parent / source
        try:
            return path.read_text("utf-8")
        except OSError as error:
            raise self._error(f"{path} cannot be read: {error.strerror}") from None

    def with_macros(self, text: str, names: Names) -> str:
        """Return CUDA C++ after the macros of parameters, and of sizes that no argument of the
        kernel is called like; its lines keep their numbers.

        As options of the compiler they would hold in its own headers, too, where `mode` or `width`
        are arguments.
        """
        taken = set(re.findall(r"\w+", self.declared_in(text)[1])) - self.parameters.keys()
        lines = [
            f"#define {name} {int(value) if isinstance(value, bool) else value}\n"
            for name, value in names.items()
            if name not in taken
        ]
        return f'{"".join(lines)}#line 1 "{self.name}"\n{text}'

    def check_call(self, names: Names) -> None:
        """UsageError where the grid or a figure of a launch comes to nothing."""
        self.sides("grid", self.grid, names)
        for what in ("bytes", "flops"):
            self.value(what, getattr(self, what), names)

    def check_used(self, known: Collection[str], where: str) -> None:
        """UsageError for a parameter that neither what the kernel knows nor its launch uses."""
        rules: list[Any] = [self.shared_bytes, *self._argument_rules]
        for each in (self.grid, self.block):
            rules.extend(each if isinstance(each, list | tuple) else [each])
        names = list(self.parameters)
        used = set().union(*(wanted(rule, names) for rule in rules if _is_rule(rule)))
        for name, values in self.parameters.items():
            if name not in known and name not in used and len(values) > 1:
                near = get_close_matches(name, known, 1)
                hint = f": did you mean {near[0]}?" if near else ""
                raise self._error(f"{name} is neither in {where} nor in a rule of its launch{hint}")

    def declared_in(self, text: str) -> tuple[str, str]:
        """Return the parameters of its template and its arguments, as CUDA C++ declares them; empty
        for none.
        """
        own = self.name.partition("<")[0]
        found = [each for each in _CUDA_KERNEL.findall(text) if each[1] == own]
        return (found[0][0], found[0][2]) if found else ("", "")

    @property
    def _argument_rules(self) -> list[Any]:
        if callable(self.arguments):
            return [self.arguments]
        return [
            rule
            for each in self.arguments
            for rule in (each.shape if isinstance(each, Array) else (each,))
        ]

    def _own_name(self) -> str:
        if not isinstance(self.source, str):
            return name_of(self.source)
        found = [name for _, name, _ in _CUDA_KERNEL.findall(self.cuda_text)]
        if len(found) == 1:
            return str(found[0])
        there = f"is one of {', '.join(found)}" if found else "has no __global__ function"
        raise self._error(f"it needs a name=: the CUDA C++ {there}")

    # -- errors ------------------------------------------------------------------------------------

    def _error(self, sentence: str) -> UsageError:
        return UsageError(f"kernel {self.name or '?'} of {Path(self.file).name}: {sentence}")

    def _check(self) -> None:
        if not self.name:
            raise self._error("it needs a name=, as it cannot be read from the source")
        for name, form, example in _FORMS:
            value = getattr(self, name)
            if not isinstance(value, form) or isinstance(value, str):
                raise self._error(f"{name} is written as {example}, not {value!r}")
        if not self.parameters:
            raise self._error("it has no parameters: there is nothing to tune")
        for name, values in self.parameters.items():
            self._check_values(name, values)
        for name in self.default:
            if name not in self.parameters:
                raise self._error(f"its default sets {name}, but {instead(name, self.parameters)}")
        for name, value in self.start.items():
            if value not in self.parameters[name]:
                raise self._error(
                    f"its default {name}={value!r} is none of the values "
                    f"{list(self.parameters[name])}"
                )
        if self.reference is not None and not callable(self.reference):
            raise self._error(f"reference is a function of the arguments, not {self.reference!r}")
        for what in ("tolerance", "absolute_tolerance"):
            if (value := getattr(self, what)) is not None and not value >= 0:
                raise self._error(f"{what} is a number from 0 on, not {value!r}")
        if self.constants and self.language not in ("cuda_cpp", ""):
            raise self._error("constants= is for CUDA C++: give its kernel arguments")
        if not self.problems:
            raise self._error("problems is empty: leave it out for a kernel without sizes")
        for problem in self.problems:
            if both := sorted(problem.keys() & self.parameters.keys()):
                raise self._error(f"{both[0]} is both a parameter and a size of a problem")

    def _check_values(self, name: str, values: Any) -> None:
        if not name.isidentifier():
            raise self._error(f"the parameter {name!r} must be a name as in Python or C")
        if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
            raise self._error(f"{name} needs a list of values, not {values!r}")
        if not all(isinstance(value, bool | int | float | str) for value in values):
            raise self._error(f"the values of {name} must be numbers, texts or True and False")
        if len(set(values)) < len(values):
            raise self._error(f"{name} has a value twice: {list(values)}")

    def _called(self, what: str, action: Callable[[], Any], text: str, names: Names) -> Any:
        try:
            return action()
        except NameError as error:
            raise self._error(
                f"{what}, {text}: {instead(error.name or '?', names, FUNCTIONS)}"
            ) from None
        except UsageError:
            raise
        except Exception as error:
            raise self._error(
                f"{what}, {text}, fails for {shown(names)}: {type(error).__name__}: {error}"
            ) from error


class DefaultFailsError(UsageError):
    """The point that all others are compared with cannot be compiled or run, or is wrong."""


def declared() -> list[Kernel]:
    """Return the kernels declared in this process so far, in order, and forget them."""
    found = list(_REGISTERED)
    _REGISTERED.clear()
    return found


def _is_rule(given: Any) -> bool:
    return isinstance(given, str) or callable(given)

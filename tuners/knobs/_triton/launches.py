"""Launches of Triton kernels `kernel[grid](...)`: seen, described as text, and changed.

What is stood on: `KernelInterface.__getitem__` of `triton.runtime.jit`, through which functions of
`triton.jit`, `triton.autotune` and `triton.heuristics` are launched alike (Triton 2.2 to 3.6, its
interpreter too); `fn`, which leads from each to the Python function; `configs` of an autotuner and
`values` of heuristics, whose own `run` are passed by where a launch has its values from us. What
torch's Inductor generates is launched without any of them, and so is what it compiles of the
script's kernels.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from gpuadvisor.tuners.knobs._triton.constants import Constants

MODULE = "triton.runtime.jit"
"""Module after whose import launches can be stood around."""
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Names that are the compiler's, and not arguments of the kernel (`triton.Config`)."""
MOST_FORMS = 4096
"""Different launches of a kernel that are remembered; where there are more, as with sizes that
never come again, those that are new are not looked up."""
GRID, NUMBERS = "grid", "numbers"
"""What a line says of launches whose grid is given as numbers: they keep the blocks that programs
find their place by, and lines of other launches are not for them."""
TENSOR = "tensor"
"""What a line says of a tensor that is alike with one before it: whatever its shape and type. The
kernel gets a tensor's address alone, sizes come as numbers and through the grid, and a shape takes
ten times as long to look at as whether there is a tensor."""
FLOAT32 = "float32"
"""What a line says in the place of values, of launches that compute as they do, but with float32 in
the place of 16 bits: a reference for rehearsals, and no setting."""
_LINE = re.compile(rf"(\S+?)\((.*)\) -> (\w+: \d+(?:, \w+: \d+)*|{FLOAT32})")
_SEPARATOR = re.compile(r", (?=\w+: )")
_SHAPED = re.compile(r"\w+\[[\d, ]*\]")


class NotTunable(Exception):  # noqa: N818 - a reason, not an error
    """Why a launch cannot be changed, as a clause."""


def stand_around(make: Callable[[Any], Any]) -> None:
    """Put `make(original)` in the place of what `kernel[grid]` calls with `(kernel, grid)`.

    RuntimeError, in words, where this Triton launches kernels otherwise.
    """
    interface: Any = getattr(sys.modules[MODULE], "KernelInterface", None)
    original = vars(interface).get("__getitem__") if isinstance(interface, type) else None
    if original is None:
        version = getattr(sys.modules.get("triton"), "__version__", "of another kind")
        raise RuntimeError(f"Triton {version} launches its kernels in a way that is not known here")
    interface.__getitem__ = make(original)


# Kernels, their arguments, and both as text. ------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel as the script launches it."""

    launched: Any
    """The object before `[grid]`."""
    function: Any
    """The Python function that it was made of."""
    tuner: Any = None
    """The autotuner that it is launched through; None without one."""
    heuristics: tuple[Any, ...] = ()
    """Rules that it is launched through, which compute what the launch does not give; the outermost
    comes first."""
    compiled: Any = None
    """What the innermost of them launches; None where something of another kind stands between."""

    @classmethod
    def of(cls, launched: Any) -> Kernel:
        """Return what is known of a kernel; NotTunable where Triton is not as was expected."""
        function, chain = launched, []
        while not inspect.isfunction(function):
            chain.append(function)
            function = getattr(function, "fn", None)
            if function is None or len(chain) > 8:
                raise NotTunable("what it was made of cannot be seen")
        *around, compiled = chain or [None]
        tuners = [each for each in around if hasattr(each, "configs")]
        rules = tuple(each for each in around if isinstance(getattr(each, "values", None), dict))
        known = len(tuners) + len(rules) == len(around) and len(tuners) <= 1
        tuner = tuners[0] if tuners else None
        return cls(launched, function, tuner, rules, compiled if known else None)

    @property
    def place(self) -> str:
        """Module and name."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    @cached_property
    def name(self) -> str:
        """Its place, and a few digits that change with the function's text."""
        try:
            text = inspect.getsource(self.function)
        except OSError:
            raise NotTunable("its text cannot be read") from None
        digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:8]
        return f"{self.place}@{digest}"

    @property
    def short_name(self) -> str:
        return str(self.function.__name__)

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters

    @cached_property
    def constants(self) -> Constants:
        """What its text says of its constants; NotTunable where that cannot be read."""
        try:
            return Constants(self.function)
        except (OSError, SyntaxError, ValueError):
            raise NotTunable("its text cannot be read") from None

    def is_constant(self, name: str) -> bool:
        """Say whether an argument is part of what is compiled (`tl.constexpr`)."""
        annotation = getattr(self.parameters.get(name), "annotation", "")
        return "constexpr" in str(getattr(annotation, "__name__", annotation))

    def named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a launch by name, in the kernel's order; options come last."""
        names = list(self.parameters)
        if len(args) > len(names):
            raise NotTunable("it is launched with more arguments than it has")
        given = dict(zip(names, args, strict=False)) | dict(kwargs)
        return {n: given[n] for n in [*names, *(k for k in given if k not in names)] if n in given}

    def texts(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, str]:
        """Return the texts of a launch's arguments by name; NotTunable for what has none."""
        texts = texts_of(self.named(args, kwargs))
        return texts if callable(grid) else {**texts, GRID: NUMBERS}

    def check(self) -> None:
        """Raise NotTunable where its launches cannot get other values."""
        if not self.name or self.tuner is None:
            return
        if self.compiled is None:
            raise NotTunable("more stands around it than one autotuner and heuristics")
        if any(getattr(config, "pre_hook", None) is not None for config in self.tuner.configs):
            raise NotTunable("its autotuner's configurations have hooks that prepare arguments")

    @property
    def changed_run(self) -> Any:
        """What launches it with values of ours: past the autotuner, and past rules for them."""
        through = self.tuner is not None or self.heuristics
        return self._run_past if through and self.compiled is not None else self.launched.run

    def _run_past(self, *args: Any, **kwargs: Any) -> Any:
        for each in self.heuristics:
            kwargs = self.ruled(each, args, kwargs)
        return self.compiled.run(*args, **kwargs)

    @staticmethod
    def ruled(heuristics: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments by name with what rules make of them, but for those that are given."""
        found = dict(kwargs)
        for name, rule in heuristics.values.items():
            if name not in found:
                found[name] = rule({**dict(zip(heuristics.arg_names, args, strict=False)), **found})
        return found


def text_of(value: Any) -> str | None:
    """Return an argument as a line has it: `float32[4096, 1024]`, `512`, `True`.

    None for floating-point numbers, which no block depends on. NotTunable for what has no text.
    """
    import torch

    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, float):
        return None
    if value is None or isinstance(value, bool | int | str):
        return repr(value)
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, tuple):
        return f"({', '.join(filter(None, map(text_of, value)))})"
    if type(value).__name__ == "constexpr":
        return text_of(value.value)
    if hasattr(value, "fn") or inspect.isfunction(value):
        return Kernel.of(value).name
    if type(value).__module__.startswith("triton.language"):
        return str(value)
    if hasattr(value, "block_shape"):
        raise NotTunable("it takes a tensor descriptor, whose block the script has fixed")
    raise NotTunable(
        f"it takes an argument of a kind that is not known here, {type(value).__name__}"
    )


def texts_of(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of arguments by name, without those that no block depends on."""
    texts = {name: text_of(value) for name, value in arguments.items()}
    return {name: text for name, text in texts.items() if text is not None}


@dataclass(frozen=True)
class Line:
    """Which launches of a kernel get which values: a line of the knob's value."""

    kernel: str
    arguments: Mapping[str, str]
    """Name to text; an argument that is not named may be anything."""
    values: Mapping[str, int]
    in_float32: bool = False

    def __str__(self) -> str:
        given = FLOAT32 if self.in_float32 else _listed(self.values)
        return f"{self.kernel}({_listed(self.arguments)}) -> {given}"

    @classmethod
    def parse(cls, text: str) -> Line:
        """Read a line; ValueError, in words, where it is none."""
        found = _LINE.fullmatch(text.strip())
        if found is None:
            raise ValueError(
                f"{text.strip()[:80]!r} is not of the form"
                " `kernel(argument: float32[64, 8], size: 512) -> BLOCK: 256, num_warps: 4`"
            )
        kernel, arguments, values = found.groups()
        pairs = [each.partition(": ") for each in _SEPARATOR.split(arguments) if each]
        named = {name: text for name, _, text in pairs}
        if values == FLOAT32:
            return cls(kernel, named, {}, in_float32=True)
        set_to = (each.split(": ") for each in values.split(", "))
        return cls(kernel, named, {name: int(number) for name, number in set_to})

    def shortened(self, others: Sequence[Mapping[str, str]] = ()) -> Line:
        """Return the line without shape and type of tensors that are alike with one before them,
        where it would not match other launches of the kernel then, by the texts of theirs."""
        arguments, named = dict(self.arguments), set()
        for name, text in self.arguments.items():
            if is_shaped(text) and text in named:
                line = replace(self, arguments={**arguments, name: TENSOR})
                if not any(map(line.matches, others)):
                    arguments[name] = TENSOR
            named.add(text)
        return replace(self, arguments=arguments)

    def matches(self, texts: Mapping[str, str]) -> bool:
        if (texts.get(GRID) == NUMBERS) is not (self.arguments.get(GRID) == NUMBERS):
            return False
        return all(
            is_shaped(texts.get(name)) if text == TENSOR else texts.get(name) == text
            for name, text in self.arguments.items()
        )


def is_shaped(text: str | None) -> bool:
    """Say whether an argument's text is that of a tensor, with its type and shape."""
    return text is not None and _SHAPED.fullmatch(text) is not None


def parse_lines(value: str) -> list[Line]:
    """Return the lines of a knob's value; ValueError, in words, where one is none."""
    return [Line.parse(each) for each in value.splitlines() if each.strip()]


def _listed(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in values.items())


# Launches with other values. ----------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """What is put into a launch: arguments that it has by place, and others by name."""

    by_name: dict[str, int]
    by_place: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, kernel: Kernel, args: Sequence[Any], values: Mapping[str, int]) -> Change:
        places = {name: n for n, name in enumerate(kernel.parameters) if n < len(args)}
        return cls(
            {name: value for name, value in values.items() if name not in places},
            tuple((places[name], value) for name, value in values.items() if name in places),
        )

    def placed(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Return arguments by place with ours among them."""
        changed = list(args)
        for place, value in self.by_place:
            changed[place] = value
        return tuple(changed)


@dataclass
class Table:
    """Launches that get other values, looked up at each launch.

    A look-up costs some attributes of the tensors that a line names by shape and a dictionary's
    hit, as what an argument is does not change from one launch at the same place of the script to
    the next.
    """

    lines: Sequence[Line] = ()
    on_change: Callable[[], None] = lambda: None
    """Called once a launch was given other values."""
    on_stale: Callable[[str], None] = lambda reason: None
    """Told, in words, of a kernel of which there are lines that its present text does not fit."""
    changed: Callable[[Kernel, Any], Any] = lambda kernel, launched: kernel
    """Returns that of which `changed_run` launches a kernel otherwise, given the object before
    `[grid]` as well; NotTunable where nothing can."""
    switched: bool = False
    """Whether lines may come later, so that kernels without any are looked up, too."""
    _known: list[dict[Any, Any]] = field(default_factory=list)

    def set_lines(self, lines: Sequence[Line]) -> None:
        """Take other lines from the next launch on."""
        self.lines = lines
        for known in self._known:
            known.clear()

    def getitem(self, original: Any) -> Any:
        """Return what stands in the place of `KernelInterface.__getitem__`."""

        def getitem(kernel: Any, grid: Any) -> Any:
            try:
                launches = kernel._gpuadvisor_launches
            except AttributeError:
                launches = self._adopt(kernel)
            if launches is None:
                return original(kernel, grid)
            return partial(launches[callable(grid)], grid)

        return getitem

    def _adopt(self, launched: Any) -> Any:
        """Return what launches a kernel, once and for all; None where nothing changes it."""
        launches, own = None, False
        try:
            kernel = Kernel.of(launched)
            own = any(line.kernel.rpartition("@")[0] == kernel.place for line in self.lines)
            if own or self.switched:
                kernel.check()
                self._check_text(kernel, own)
                launches = self.launches(kernel, launched, self.changed(kernel, launched))
        except NotTunable as reason:
            if own:
                self.on_stale(f"{kernel.short_name} is launched as it is: {reason}")
        launched._gpuadvisor_launches = launches
        return launches

    def _check_text(self, kernel: Kernel, own: bool) -> None:
        if own and not any(line.kernel == kernel.name for line in self.lines):
            raise NotTunable("its text is not that for which values were found")

    def launches(self, kernel: Kernel, plain: Any, changed: Any) -> tuple[Callable[..., Any], ...]:
        """Return what is called with the grid and the arguments of a launch: first for grids given
        as numbers, then for functions.

        `plain.run` launches it as it is, `changed.changed_run` with other values.
        """
        return tuple(self._launches(kernel, plain, changed) for _ in range(2))

    def _launches(self, kernel: Kernel, plain: Any, changed: Any) -> Callable[..., Any]:
        known: dict[Any, Any] = {}
        self._known.append(known)
        decide = partial(self._decide, kernel, known)

        def launch(grid: Any, /, *args: Any, **kwargs: Any) -> Any:
            try:
                key_of, changes = known[(len(args), *kwargs)]
                change = changes[key_of(args, kwargs)]
            except (KeyError, AttributeError, TypeError):
                change = decide(grid, args, kwargs)
            if change is None:
                return plain.run(*args, grid=grid, warmup=False, **kwargs)
            if change.by_place:
                args = change.placed(args)
            # Options of the script's own are among those that are replaced.
            options = kwargs | change.by_name
            return changed.changed_run(*args, grid=grid, warmup=False, **options)

        return launch

    def _decide(
        self,
        kernel: Kernel,
        known: dict[Any, Any],
        grid: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Change | None:
        """Look a launch up by its text, and remember what came of it."""
        lines = [line for line in self.lines if line.kernel == kernel.name]
        form = (len(args), *kwargs)
        if form not in known:
            known[form] = (_key_of(kernel, args, kwargs, lines), {})
        key_of, changes = known[form]
        if len(changes) >= MOST_FORMS:
            return None
        try:
            texts = kernel.texts(grid, args, kwargs)
            line = next((line for line in lines if line.matches(texts)), None)
            change = None if line is None else Change.of(kernel, args, line.values)
            key = key_of(args, kwargs)
            if not any(map(_is_tensor, key)):  # it would be kept alive
                changes[key] = change
        except (NotTunable, AttributeError, TypeError):
            return None  # an argument of another kind, or without a hash
        if change is not None:
            self.on_change()
        return change


def _is_tensor(part: object) -> bool:
    return hasattr(part, "data_ptr") and not isinstance(part, type)


def _key_of(
    kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any], lines: Sequence[Line]
) -> Callable[[Sequence[Any], Mapping[str, Any]], tuple[Any, ...]]:
    """Return a function that makes of a launch's arguments what the lines of its kernel ask for.

    It is made of text, as Triton's own is that binds arguments: a loop over them takes three times
    as long.
    """
    import torch

    named = {item for line in lines for item in line.arguments.items()}
    whole = {name for name, text in named if text != TENSOR}
    places = [(f"a[{n}]", name, value) for n, (name, value) in
              enumerate(zip(kernel.parameters, args, strict=False))]  # fmt: skip
    places += [(f"k[{name!r}]", name, value) for name, value in kwargs.items()]
    parts = []
    for expression, name, value in places:
        if name not in whole:
            if (name, TENSOR) in named:
                parts.append(f"{expression}.__class__")
            continue
        if value is None or isinstance(value, torch.Tensor):  # one may be left out at times
            parts.append(f"t.shape if (t := {expression}) is not None else None")
            parts.append("t.dtype if t is not None else None")
        else:
            parts.append(expression)
    key: Callable[..., tuple[Any, ...]] = eval(f"lambda a, k: ({''.join(p + ', ' for p in parts)})")
    return key

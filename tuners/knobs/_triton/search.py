"""Tries other blocks, warps and stages of the Triton kernels that a running script launches.

A launch is tried on copies of its real arguments, the script's own configuration beside the others,
while the script stands still in it; then it goes on as it would have. Which values are tried,
gpuadvisor says (`gpuadvisor.tuners.kernels.launch_search`).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from types import SimpleNamespace
from typing import Any

from gpuadvisor.domain.inquiry import Clock, Inquiry
from gpuadvisor.tuners.knobs._triton.compiling import at_once
from gpuadvisor.tuners.knobs._triton.copies import Copies
from gpuadvisor.tuners.knobs._triton.launched import Launched, fixed, held, lookup_us, tunable
from gpuadvisor.tuners.knobs._triton.launches import (
    GRID,
    MODULE,
    OPTIONS,
    Kernel,
    Line,
    NotTunable,
    parse_lines,
    stand_around,
)

COMPILER = "triton.compiler.compiler"
"""Module whose kernels, once compiled, can be launched by themselves."""
LEAST_STEPS, LEAST_S = 4, 0.3
"""Steps, and time, of each of two looks at the script: how long its steps take, and then which
launches are in them."""
MOST_VALUES = 3
"""Values of a number, launches being alike in all else, beyond which it counts as one that changes
with each launch, such as a seed."""
MOST_LAUNCHES = 50
"""Different launches that are told of, those that take the most time: no more can take 2 % of a
step each (`gpuadvisor.tuners.kernels.launch_points.LEAST_SHARE`)."""
MOST_WAITS = 64
"""Steps in which a launch has to come again."""
LEAST_PAIRS, MOST_STEPS = 12, 64
"""Launches in place with and without other values, and steps after which there are no more."""
MOST_LOOKUP_US, MOST_LOOKUP_SHARE = 2.0, 0.005
"""Time, and part of a step, beyond which looking up a launch takes too long: Triton's own launch
takes 10 to 20 us on the CPU, and 1 % is the least gain that is kept
(`gpuadvisor.tuners.kernels.launch_search.WORTH_IN_PLACE`)."""
WORDS = 300
"""Characters of a reason, at most."""
LONGEST_TEXT = 1200
"""Characters of a launch's arguments, at most: an answer has 2,000."""


@dataclass(eq=False)
class _Seen:
    """Launches that are alike: the same kernel, shapes, dtypes and numbers."""

    kernel: Kernel
    texts: Mapping[str, str]
    why_not: str = ""
    """Why they cannot be changed; empty where they can."""
    marks: list[tuple[Any, Any]] = field(default_factory=list)
    free: frozenset[str] = frozenset()
    """Arguments that change from launch to launch, and so are left out of `texts`."""
    launches: int = 0
    ms: float = 0.0
    """Time in all steps that were watched."""

    @property
    def line(self) -> Line:
        """Return the line that these launches are for, without values."""
        return Line(self.kernel.name, self.texts, {})


class LaunchSearch:
    """Takes the steps of a script, and answers what is asked of its launches."""

    compiles = True

    def __init__(self, inquiry: Inquiry) -> None:
        self._inquiry = inquiry
        self._listener: Callable[[Launched], Any] | None = None
        """What is done with each launch; None for nothing."""
        self._unable = "the script imports no Triton"
        self._seen: dict[Any, _Seen] = {}
        self._kernels: dict[int, Kernel] = {}
        """Kernels by the identity of what is launched, which each of them keeps alive."""
        self._told: list[_Seen] = []
        self._captured: set[str] = set()
        self._bare: set[str] = set()
        """Kernels that are launched without `[grid]`, or of which what was compiled is."""
        self._within = threading.local()
        self._steps, self._since_s = 0, 0.0
        self._at_end: Callable[[], bool] = self._look
        """Called at the end of each step; says whether to wait for an order."""
        inquiry.target.after_import(MODULE, self._install)
        inquiry.target.after_import(
            COMPILER, lambda: self._note_bare(COMPILER, "CompiledKernel", "__getitem__")
        )

    def _install(self) -> None:
        self._unable = "its Triton launches kernels in a way that is not known here"
        stand_around(self._getitem)
        self._unable = ""
        self._note_bare(MODULE, "JITFunction", "run")

    def _getitem(self, original: Any) -> Any:
        def getitem(kernel: Any, grid: Any) -> Any:
            plain = original(kernel, grid)

            def launch(*args: Any, **kwargs: Any) -> Any:
                listener = self._listener
                outer = getattr(self._within, "launch", False)
                self._within.launch = True
                try:
                    if _is_captured():
                        self._captured.add(_name_of(kernel))
                    elif listener is not None and not _is_traced():
                        return listener(Launched(kernel, grid, args, kwargs, plain))
                    return plain(*args, **kwargs)
                finally:
                    self._within.launch = outer

            return launch

        return getitem

    def _note_bare(self, module: str, name: str, method: str) -> None:
        """See launches that do not go through `kernel[grid]`, to name them."""
        owner = getattr(sys.modules[module], name, None)
        original = vars(owner).get(method) if isinstance(owner, type) else None
        if original is not None:
            setattr(owner, method, self._noting(original))

    def _noting(self, original: Any) -> Any:
        def noting(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            is_bare = self._listener is not None and not kwargs.get("warmup")
            if is_bare and not getattr(self._within, "launch", False):
                self._bare.add(_name_of(kernel))
            return original(kernel, *args, **kwargs)

        return noting

    # -- steps -------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._clock = self._inquiry.clock()
        self._start(self._look)

    def step(self, interrupted: bool) -> bool:
        self._steps += 1
        return self._at_end() and self._follow_orders()

    def abandon(self) -> None:
        """Begin anew: another kind of step turned up."""
        self._listener = None
        self._seen.clear()

    def end(self) -> None:
        self._listener = None

    def _start(self, at_end: Callable[[], bool]) -> None:
        self._clock.synchronize()
        self._steps, self._since_s, self._at_end = 0, time.perf_counter(), at_end

    def _is_enough(self) -> bool:
        return self._steps >= LEAST_STEPS and time.perf_counter() - self._since_s >= LEAST_S

    def _look(self) -> bool:
        """See how long steps take that nobody stands in."""
        if not self._is_enough():
            return False
        self._clock.synchronize()
        self._step_ms = 1e3 * (time.perf_counter() - self._since_s) / self._steps
        self._listener = self._watch
        self._start(self._watched)
        return False

    def _watched(self) -> bool:
        """See which launches are in a step, and how long they take."""
        if not self._is_enough():
            return False
        self._listener = None
        self._clock.synchronize()
        for seen in self._seen.values():
            seen.launches = len(seen.marks)
            seen.ms = sum(self._clock.between_ms(*pair) for pair in seen.marks)
            seen.marks.clear()
        found = sorted(_merged(self._seen.values()), key=lambda each: -each.ms)
        self._told = [_shortened(each, found) for each in found[:MOST_LAUNCHES]]
        self._watched_steps = self._steps
        self._inquiry.answer(
            step_ms=self._step_ms,
            entries=len(self._told),
            unable=self._unable,
            captured=sorted(self._captured)[:8],
            bare=sorted(self._bare)[:8],
            compiled=_compiled_kernels()[:8],
        )
        return True

    def _follow_orders(self) -> bool:
        """Follow orders until one needs the script to go on; return whether it is not needed."""
        while (order := self._inquiry.order()) is not None:
            do = order["do"]
            if do == "entry":
                self._tell(self._told[order["entry"]])
            elif do == "open":
                self._wanted = self._told[order["entry"]]
                self._listener = self._open
                self._start(self._waited)
                return False
            elif do == "compare":
                self._pairs = [_Pair(line) for line in parse_lines(order["value"])]
                self._listener = self._alternate
                self._start(self._compared)
                return False
        return True

    # -- launches that are watched -----------------------------------------------------------------

    def _watch(self, launched: Launched) -> Any:
        seen = self._seen_of(launched)
        begin = self._clock.mark()
        result = launched.plain()
        seen.marks.append((begin, self._clock.mark()))
        return result

    def _seen_of(self, launched: Launched) -> _Seen:
        try:
            kernel = self._kernel_of(launched)
            texts = kernel.texts(launched.grid, launched.args, launched.kwargs)
            key: Any = (kernel.name, *texts.items())
        except NotTunable as reason:
            key = (_name_of(launched.kernel), str(reason))
            if key not in self._seen:
                unknown = SimpleNamespace(short_name=_name_of(launched.kernel), name=key[0])
                self._seen[key] = _Seen(unknown, {}, str(reason))  # type: ignore[arg-type]
            return self._seen[key]
        if key not in self._seen:
            seen = self._seen[key] = _Seen(kernel, texts, _why_not(kernel, launched.grid))
            if len(str(seen.line)) > LONGEST_TEXT:
                seen.texts, seen.why_not = {}, "its arguments would be a line too long for a plan"
        return self._seen[key]

    def _kernel_of(self, launched: Launched) -> Kernel:
        """Return what is known of the kernel; reading its text takes too long for each launch."""
        known = self._kernels.get(id(launched.kernel))
        if known is None:
            known = self._kernels[id(launched.kernel)] = Kernel.of(launched.kernel)
        return known

    def _tell(self, seen: _Seen) -> None:
        steps = self._watched_steps
        self._inquiry.answer(
            kernel=seen.kernel.short_name,
            text=str(seen.line),
            why_not=seen.why_not[:WORDS],
            share=seen.ms / steps / self._step_ms,
            ms=seen.ms / steps,
            launches=seen.launches / steps,
            free=sorted(seen.free)[:8],
        )

    # -- a launch that is tried --------------------------------------------------------------------

    def _waited(self) -> bool:
        """Say that the launch did not come again."""
        if self._listener is None:
            return True
        if self._steps < MOST_WAITS:
            return False
        self._listener = None
        self._inquiry.answer(refused=f"it was not launched again in {MOST_WAITS} steps")
        return True

    def is_of(self, launched: Launched, line: Line) -> bool:
        """Say whether a launch is one of those that a line is for."""
        try:
            kernel = self._kernel_of(launched)
            if kernel.name != line.kernel:
                return False
            return line.matches(kernel.texts(launched.grid, launched.args, launched.kwargs))
        except NotTunable:
            return False

    def _open(self, launched: Launched) -> Any:
        if not self.is_of(launched, self._wanted.line):
            return launched.plain()
        self._listener = None
        try:
            with _apart():
                self._try(launched, self._kernel_of(launched))
        except NotTunable as reason:
            self._inquiry.answer(refused=str(reason)[:WORDS])
        except Exception as error:
            self._fail(error, "refused")
        return launched.plain()

    def _try(self, launched: Launched, kernel: Kernel) -> None:
        """Measure the points that are asked for."""
        us = lookup_us(kernel, launched, self._wanted.line)
        share = 1e-3 * us * self._wanted.launches / self._watched_steps / self._step_ms
        if us > MOST_LOOKUP_US and share > MOST_LOOKUP_SHARE:
            raise NotTunable(
                f"looking it up would take {us:.1f} us at each launch, {share:.1%} of a step"
            )
        copies = Copies(self._inquiry, self._clock, kernel, launched)
        self._inquiry.answer(
            parameters=tunable(kernel, launched),  # an autotuner has chosen by now
            fixed=fixed(kernel, launched),
            held=held(kernel, launched),
            lookup_us=us,
            at_once=at_once(),
            inexact=copies.is_inexact,
            bytes=copies.bytes,
        )
        while (order := self._inquiry.order()) is not None and order["do"] != "close":
            if order["do"] == "compile":
                copies.compile(order["points"])
                self._inquiry.answer(compiled=len(order["points"]))
                continue
            try:
                told = copies.measure(order["point"], order["give_up_at"], order["judge"])
            except Exception as error:
                self._fail(error, "reason", state="unsupported")
            else:
                self._inquiry.answer(**told)

    def _fail(self, error: Exception, name: str, **more: Any) -> None:
        """Tell of an error; end the process where the GPU takes no more work."""
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"[:WORDS]
        if "out of memory" in text.lower() and more:
            more["state"] = "out_of_memory"
        try:
            self._clock.synchronize()
        except Exception:  # what was launched has poisoned the context
            self._inquiry.give_up(**{"lost": text})
        self._inquiry.answer(**{name: text}, **more)

    # -- launches in place -------------------------------------------------------------------------

    def _alternate(self, launched: Launched) -> Any:
        """Launch with other values and without, in turns, each time the same launch comes."""
        pair = next((p for p in self._pairs if p.fits(self, launched)), None)
        if pair is None:
            return launched.plain()
        pair.launches += 1
        is_changed = pair.launches % 2 == 1
        kernel = self._kernel_of(launched)
        begin = self._clock.mark()
        result = launched.changed(kernel, pair.line.values) if is_changed else launched.plain()
        pair.marks[is_changed].append((begin, self._clock.mark()))
        return result

    def _compared(self) -> bool:
        waits = (len(pair.marks[True]) < LEAST_PAIRS for pair in self._pairs)
        if any(waits) and self._steps < MOST_STEPS:
            return False
        self._listener = None
        self._clock.synchronize()
        times = [pair.medians(self._clock) for pair in self._pairs]
        self._inquiry.answer(ms=times)
        return True


class _Pair:
    """A launch as the script makes it and with other values."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.launches = 0
        self.marks: dict[bool, list[tuple[Any, Any]]] = {False: [], True: []}

    def fits(self, search: LaunchSearch, launched: Launched) -> bool:
        return search.is_of(launched, self.line)

    def medians(self, clock: Clock) -> list[float] | None:
        """Return the times without and with other values; None where there were too few.

        The first launch of each is not counted: code is loaded in it.
        """
        both = [
            [clock.between_ms(*m) for m in self.marks[changed][1:]] for changed in (False, True)
        ]
        return [median(times) for times in both] if all(len(t) >= 3 for t in both) else None


def _merged(seen: Iterable[_Seen]) -> list[_Seen]:
    """Return launches with those as one that differ in nothing but numbers that always change."""
    groups: dict[Any, list[_Seen]] = {}
    for each in seen:
        numbers = _numbers(each)
        rest = (item for item in each.texts.items() if item[0] not in numbers)
        groups.setdefault((each.kernel.name, each.why_not, *rest), []).append(each)
    found = []
    for group in groups.values():
        if len(group) <= MOST_VALUES:
            found += group
            continue
        first = group[0]
        texts = [each.texts for each in group]
        free = {n for n in _numbers(first) if len({each.get(n) for each in texts}) > 1}
        rest_of = {n: text for n, text in first.texts.items() if n not in free}
        found.append(
            _Seen(
                first.kernel,
                rest_of,
                first.why_not,
                free=frozenset(free),
                launches=sum(each.launches for each in group),
                ms=sum(each.ms for each in group),
            )
        )
    return found


def _shortened(seen: _Seen, found: Sequence[_Seen]) -> _Seen:
    """Return launches as a plan names them, so that no others that were seen are taken for them."""
    others = [each for each in found if each.kernel.name == seen.kernel.name and each is not seen]
    # What always changes in others may be now and then as it is here.
    texts = [
        {**{n: seen.texts[n] for n in each.free & seen.texts.keys()}, **each.texts}
        for each in others
    ]
    return replace(seen, texts=seen.line.shortened(texts).arguments)


def _numbers(seen: _Seen) -> set[str]:
    """Return the arguments of a launch that are whole numbers, known when it is launched only."""
    return {
        name
        for name, text in seen.texts.items()
        if text.lstrip("-").isdigit() and not seen.kernel.is_constant(name) and name not in OPTIONS
    }


def _why_not(kernel: Kernel, grid: Any) -> str:
    """Return why launches of a kernel cannot be changed, as a clause; empty where they can."""
    if not callable(grid) and GRID in kernel.parameters:
        return "its grid is given as numbers, and one of its arguments is called grid"
    try:
        kernel.check()
    except NotTunable as reason:
        return str(reason)
    return ""


def _name_of(launched: Any) -> str:
    try:
        return Kernel.of(launched).short_name
    except NotTunable:
        own = getattr(launched, "__name__", None) or getattr(launched, "name", None)
        return str(own or type(launched).__name__)


def _is_traced() -> bool:
    import torch

    return bool(torch.compiler.is_compiling())


def _is_captured() -> bool:
    """Say whether launches are recorded into a CUDA graph now."""
    import torch

    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _compiled_kernels() -> list[str]:
    """Return the names of the script's kernels that were seen in code that Dynamo compiled."""
    wrap = sys.modules.get("torch._higher_order_ops.triton_kernel_wrap")
    table = getattr(wrap, "kernel_side_table", None)
    kernels = getattr(table, "id_to_kernel", {})
    return sorted({_name_of(kernel) for kernel in kernels.values()})


@contextmanager
def _apart() -> Iterator[None]:
    """Compute without leaving a trace in the script's gradients."""
    import torch

    with torch.no_grad():
        yield

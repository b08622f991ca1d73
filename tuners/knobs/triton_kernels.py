"""Launch the script's own Triton kernels with other blocks, warps and stages.

For kernels with meta-parameters, those of `triton.autotune` among them, whose list of
configurations is short; where the grid is given as numbers, the blocks that it counts stay. They
are tried in the running script, on copies of the real arguments, beside what the script has; what
computes something else is refused, such as another block where a row has to fit into one. Kept is
what pays, for each kernel and shape. With other blocks a script of four kernels went from 0.417 to
0.190 ms a step on an H200, most of that in a sum over columns whose blocks were too few.

Launches inside CUDA graphs and in code that torch compiles are not changed, nor are kernels that
torch generates: those are left to `compile_max_autotune`. Looking a launch up costs the CPU at most
2 us, or at most 0.5 % of a step, or the kernel is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.inquiry import Found, Inquiry, Witness
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.domain.study import Aspect, Objective
from gpuadvisor.domain.target import Target, Turn
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knobs._live import Switch
from gpuadvisor.tuners.knobs._triton.launches import MODULE, Line, Table, parse_lines, stand_around


def _no_kernels(device: Device, facts: ScriptFacts) -> str | None:
    return None if facts.triton_kernels else "the script launches no Triton kernels of its own"


class TritonKernels(Knob):
    """Gives launches of Triton kernels other meta-parameters than the script does."""

    name = "triton_kernels"
    title = "Blocks and warps of Triton kernels"
    level = Level.CONSERVATIVE
    effect = Effect.NONE  # sums come in another order, as with another attention kernel
    order = 110
    serves = frozenset(Objective) - {Objective.MEMORY}
    plausible = ()
    finds = True
    reaches = frozenset({Aspect.RESULTS, Aspect.END})
    obstacles = (_no_kernels,)
    extra_startup_s = 60.0
    first_start_s = 3.0

    def choices(self, device: Device, facts: ScriptFacts) -> Sequence[Value]:
        return ()

    def problem(self, value: object) -> str | None:
        if not isinstance(value, str) or not value.strip():
            return "it must be lines of launches and what they get"
        try:
            lines = parse_lines(value)
        except ValueError as error:
            return str(error)
        return "it names no values" if any(line.in_float32 for line in lines) else None

    def precise(self, value: Value) -> Value | None:
        lines = parse_lines(str(value))
        return "\n".join(str(replace(line, values={}, in_float32=True)) for line in lines)

    def find(self, script: Witness) -> Found:
        from gpuadvisor.tuners.kernels.launch_search import LaunchTuning

        return LaunchTuning(script).run()

    def answer_orders(self, inquiry: Inquiry) -> None:
        from gpuadvisor.tuners.knobs._triton.search import LaunchSearch

        inquiry.target.take_steps(LaunchSearch(inquiry))

    def apply(self, value: Value, target: Target) -> None:
        lines = parse_lines(str(value))
        table = Table(lines, target.effective, target.refuse)
        if any(line.in_float32 for line in lines):
            from gpuadvisor.tuners.knobs._triton.widened import Widened

            table.changed = partial(Widened, on_failure=target.refuse)
        target.after_import(MODULE, lambda: _install(table, target))

    def live(self, target: Target) -> Turn | None:
        table = Table((), target.effective, target.refuse, switched=True)
        reasons: list[str] = []

        def install() -> None:
            try:
                stand_around(table.getitem)
            except RuntimeError as error:
                reasons.append(str(error))

        def on(value: Value) -> None:
            if reasons:
                raise RuntimeError(reasons[0])
            table.set_lines(parse_lines(str(value)))

        target.after_import(MODULE, install)
        return Switch(on, lambda: table.set_lines(()))

    def snippet(self, value: Value) -> str:
        return "\n".join(map(_lines_of, parse_lines(str(value))))


def _install(table: Table, target: Target) -> None:
    try:
        stand_around(table.getitem)
    except RuntimeError as error:
        target.refuse(str(error))


def _lines_of(line: Line) -> str:
    """Return how the script's own launch would be written; a line does not say whether that has an
    autotuner, beside which Triton refuses such arguments."""
    kernel = line.kernel.partition("@")[0].rpartition(".")[2]
    values: Any = ", ".join(f"{name}={value}" for name, value in line.values.items())
    arguments = ", ".join(f"{name}: {text}" for name, text in line.arguments.items())
    return (
        f"{kernel}[grid](..., {values})  # where {arguments}; of `triton.autotune`: its only Config"
    )


KNOB = TritonKernels()

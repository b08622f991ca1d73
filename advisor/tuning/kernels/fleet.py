"""The processes of a kernel file's study: one a GPU that measures, and some that compile ahead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Self

from gpuadvisor.collectors.clocks import read_clock
from gpuadvisor.collectors.devices import list_gpus
from gpuadvisor.collectors.energy import MILLIJOULES_PER_JOULE, EnergyMeter
from gpuadvisor.collectors.kernels.runner import Answer, KernelProcess
from gpuadvisor.collectors.script.run_folder import run_folder
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.kernel_records import Evaluation
from gpuadvisor.domain.study import Objective, TrialState
from gpuadvisor.errors import UsageError
from gpuadvisor.rules.facts.gpu_specs import architecture
from gpuadvisor.rules.facts.occupancy import LaunchConfig, fit
from gpuadvisor.tuners.space import Point
from gpuadvisor.tuning.kernels.options import KernelOptions
from gpuadvisor.tuning.kernels.pipeline import Compiled, Pipeline

ENERGY_S = 2.0
"""Time of launches whose energy is read: the driver's counter is not fed at every instant."""

ENDING_S = 5.0
"""Longest wait for a thread whose process was killed."""


class Lane:
    """A GPU with the process that measures on it."""

    def __init__(self, process: KernelProcess, device: Device | None, objective: Objective) -> None:
        self.process = process
        self._device = device
        self._objective = objective
        self._meter = None if device is None else EnergyMeter(device)

    def measure(self, point: Point, give_up_at: float | None) -> Evaluation:
        """Compile, check and time a point; its energy, too, if that is the objective."""
        answer = self.process.measure(point, give_up_at)
        reading = read_clock(self._device) if self._device and "times_ms" in answer else None
        energies: tuple[float | None, float | None] = (None, None)
        if self._objective is Objective.ENERGY and answer["state"] == "complete":
            energies = self.energy_mj(point), self.energy_mj(None)
        return Evaluation(
            dict(point),
            TrialState(answer["state"]),
            answer["reason"],
            times_ms=tuple(answer.get("times_ms", ())),
            default_ms=tuple(answer.get("default_ms", ())),
            compile_ms=answer.get("compile_ms", 0.0),
            check_ms=answer.get("check_ms", 0.0),
            timing_ms=answer.get("timing_ms", 0.0),
            resources=answer.get("resources", {}),
            energy_mj=energies[0],
            default_energy_mj=energies[1],
            clock_mhz=None if reading is None else reading.clock_mhz,
            slowed_by=() if reading is None else reading.slowed_by,
        )

    def energy_mj(self, point: Point | None) -> float | None:
        """Return the energy of a launch of a point, or of the default, in millijoules; None where
        the driver does not say.
        """
        before_j = self._meter.read_j() if self._meter else None
        launches = self.process.spend(point and dict(point), ENERGY_S)
        after_j = self._meter.read_j() if self._meter else None
        if before_j is None or after_j is None:
            return None
        return MILLIJOULES_PER_JOULE * (after_j - before_j) / launches

    def check_energy(self) -> None:
        """Raise UsageError where the energy of this GPU cannot be measured."""
        if self._meter is None:
            raise UsageError("--objective energy: the NVIDIA driver names no such GPU to read")
        if self._meter.read_j() is None:
            raise UsageError(f"--objective energy: {self._meter.unavailable()}")


class Fleet:
    """All processes of a study; to be used as a context, which ends them."""

    def __init__(self, options: KernelOptions) -> None:
        self._options = options
        gpus = dict(enumerate(list_gpus()))
        self._made = ExitStack()
        self._folder = str(self._made.enter_context(run_folder()))
        self.lanes = [
            Lane(self._process(gpu), gpus.get(gpu), options.objective) for gpu in options.gpus
        ]
        self._compilers = [self._process(options.gpus[0]) for _ in range(options.compilers)]
        self._pipeline: Pipeline | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.stop()
        if self._pipeline is not None:
            self._pipeline.join(ENDING_S)
        for process in self._processes:
            process.close()
        self._made.close()

    @property
    def _processes(self) -> list[KernelProcess]:
        return [lane.process for lane in self.lanes] + self._compilers

    @property
    def restarts(self) -> int:
        """How often a process was started anew, after a crash or a hang."""
        return sum(process.restarts for process in self._processes)

    def describe(self) -> list[dict[str, Any]]:
        """Return the kernels of the file; UsageError where there are none."""
        return self.lanes[0].process.describe()

    def open(self, kernel: int, problem: int, seed: int) -> Answer:
        """Make every GPU ready for a kernel and a problem, and return what is known of them.

        UsageError where the default cannot be run, or the GPUs differ.
        """
        with ThreadPoolExecutor(len(self.lanes)) as pool:
            opened: list[Answer] = list(
                pool.map(lambda lane: lane.process.open(kernel, problem, seed), self.lanes)
            )
        names = list(dict.fromkeys(each["device"] for each in opened))
        if len(names) > 1:
            raise UsageError(
                f"--gpus names different GPUs ({', '.join(names)}), which have different best "
                "points: tune for one kind at a time"
            )
        if self._options.objective is Objective.ENERGY:
            for lane in self.lanes:
                lane.check_energy()
        return opened[0]

    def pipeline(
        self, kernel: int, problem: int, opened: Answer, cancelled: Callable[[], bool]
    ) -> Pipeline:
        """Return workers for the search of what was opened."""
        capability = opened["capability"]

        def compiles(process: KernelProcess) -> Callable[[Point], Compiled]:
            return lambda point: compiled_of(
                process.compile(kernel, problem, point, capability), capability
            )

        measures = [lane.measure for lane in self.lanes]
        self._pipeline = Pipeline(measures, [compiles(p) for p in self._compilers], cancelled)
        return self._pipeline

    def _process(self, gpu: int) -> KernelProcess:
        options = self._options
        return KernelProcess(
            options.python,
            options.file.absolute(),
            gpu,
            options.timeout_s,
            self._folder,
            options.l2,
        )


def compiled_of(answer: Answer, capability: str) -> Compiled:
    """Return what a compiler's answer means for a GPU of a compute capability, such as `90`.

    A compiler that fails by itself, for lack of a context on a GPU that one process may use for
    example, refuses nothing: the point is then compiled where it is measured.
    """
    state = answer.get("state")
    if state in (TrialState.UNSUPPORTED, TrialState.HUNG):
        return Compiled(answer["reason"], TrialState(state))
    if state is not None:
        return Compiled()
    taken = answer["taken"]
    return Compiled(
        cannot_launch(taken, capability),
        compile_ms=answer["compile_ms"],
        resources={name: value for name, value in taken.items() if name != "threads"},
    )


def cannot_launch(taken: Mapping[str, int], capability: str) -> str:
    """Return why a block that takes this cannot be launched; empty where it can, as far as is
    known.
    """
    if not taken.get("threads"):
        return ""
    try:
        sm = architecture((int(capability[:-1]), int(capability[-1])))
    except UsageError:  # newer than our table: the launch will tell
        return ""
    launch = LaunchConfig(taken["threads"], taken.get("registers", 0), taken.get("shared_bytes", 0))
    return fit(sm, launch).impossible or ""

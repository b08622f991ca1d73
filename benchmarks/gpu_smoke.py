"""Try everything that only a GPU can show once, before minutes of a GPU are spent on it.

    python benchmarks/gpu_smoke.py [--seconds 110] [--only TEXT]

Each step is a process of its own with a limit of its own, on one of the GPUs in
`CUDA_VISIBLE_DEVICES`, and what is most likely to fail comes first. Steps that must have a GPU to
themselves have the last one, after the others where there is one GPU. A line a step as it ends; at
the end all that failed, each with its last lines. Status 1 if anything did, or had no time. Times
and verdicts mean nothing here: only whether all of it works is looked at.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from gpu_sessions import ROOT, visible_gpus

LANES, LANE_CORES = 12, 2
"""Steps side by side at most, and cores for each: most of it is the start of Python and torch."""
LAST_LINES = 20
"""Of the output of a step that failed."""
PATIENCE_S = 5.0
"""Time that a step has to end when it is told to."""
WIDTH = 220
"""Characters of a line that is printed: an assertion of pytest may have thousands."""
PYTEST = ("{python}", "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "-p",
          "no:benchmark", "--tb=short")  # fmt: skip
TUNE = ("{python}", "-m", "gpuadvisor", "tune-kernel", "--jobs", "2")
SKIPPED = r"\d skipped"
NOT_COMPLETE = r"^  \d+ (crashed|hung|gave wrong results|ran out of memory).*"
"""What `tune-kernel` says of points that failed; those that do not fit on a GPU are no failure."""


@dataclass(frozen=True)
class Step:
    """One command; `{python}` and `{folder}`, which is empty, stand in its words."""

    name: str
    words: tuple[str, ...]
    limit_s: float = 90.0
    is_alone: bool = False
    """Whether it refuses a GPU that others use."""
    wrong: str = ""
    """A pattern; its output has it where something failed although the status says nothing."""
    statuses: tuple[int, ...] = (0,)
    """Those of a step that is well."""


def test(name: str, where: str, limit_s: float = 90.0, is_alone: bool = False) -> Step:
    """Return a step that is a test of this repository, which must not be skipped."""
    return Step(name, (*PYTEST, f"tests/{where}"), limit_s, is_alone, SKIPPED)


def kernels(name: str, budget: int = 3) -> Step:
    """Return a step that tunes an example of `tune-kernel` for a few points."""
    file = f"examples/kernels/{name}.py"
    return Step(f"tune-kernel {name}", (*TUNE, "--budget", str(budget), file), wrong=NOT_COMPLETE)


def part(name: str, *options: str) -> tuple[str, ...]:
    """Return the command of a step that is a function of this file."""
    return ("{python}", __file__, "--part", name, *options)


KERNEL_TESTS = "integration/test_tune_kernel.py::test_"
TRITON_TESTS = "integration/test_triton_on_gpu.py::test_"
EXAMPLE = (
    "{python} benchmarks/kernel_examples.py --kernel softmax --jobs 2 --folder {folder} "
    "--rows {folder}/rows.jsonl"
)
STEPS = (
    Step("imports", part("imports"), 60.0),
    Step("driver", ("{python}", "-m", "gpuadvisor", "watch", "--once"), 30.0),
    kernels("transpose"),
    kernels("softmax"),
    Step("tune-kernel scaled_sum in CuPy", (*TUNE, "--budget", "3", "--kernel", "scaled_sum_cupy",
         "examples/kernels/scaled_sum.py"), wrong=NOT_COMPLETE),
    test("two processes take turns", "integration/test_turns.py"),
    Step("launches of a script", part("launches")),
    test("Kernel Tuner's call", "unit/test_kernel_tuner.py"),
    test("points that fail", KERNEL_TESTS + "what_fails_on_a_gpu_is_counted_and_the_gpu_is_usable"
         "_afterwards", 110.0),
    test("clocks and energy", KERNEL_TESTS + "caches_clocks_and_energy_are_said"),
    test("a benchmark of a launch", KERNEL_TESTS + "a_launch_is_a_benchmark_of_the_pytest_plugin"),
    test("the gate's counts", "integration/test_gate_counts.py::test_on_a_gpu_one_more_is_named"
         "[unchanged]", is_alone=True),
    test("the daemon", "integration/test_telemetry_on_gpu.py::"
         "test_the_daemon_stores_what_this_gpu_does"),
    test("launches in a CUDA graph", TRITON_TESTS + "launches_in_a_graph_are_named_and_others_are"
         "_tuned"),
    kernels("attention"),
    kernels("prefix_sum"),
    kernels("stencil"),
    kernels("layer_norm"),
    Step("best points beside torch",
         ("bash", "-c", f"{EXAMPLE} --brute-force --budget '12 trials'; {EXAMPLE} --search 1"
          " --beside")),
    test("CUDA's timers", "integration/test_on_gpu.py::test_the_facts_say_gpu"),
    test("knobs in a running script", "unit/tuners/knobs/test_live.py::TestOnGpu"),
    test("a profile", "integration/test_profile_on_gpu.py::test_other_kinds_of_scripts[inference]"),
    Step("programs with one defect",
         ("{python}", "benchmarks/defects/record.py", "{folder}/rows.jsonl", "--seconds", "30",
          "--lanes", "1", "--only", "values_read-0"), wrong="[1-9] of them failed|^0 recorded"),
    Step("jobs", ("{python}", "benchmarks/jobs_on_gpu.py", "--seconds", "20", "--jobs", "launches"),
         110.0, wrong="^launches: (failed|not seen)|^gpuadvisor: |Traceback", statuses=(0, 1)),
    Step("the harness's cost", ("{python}", "benchmarks/harness_overhead.py", "--pairs", "4")),
)  # fmt: skip


# Steps that are functions of this file. -----------------------------------------------------------

MODULES = (
    "torch", "triton", "cupy", "numba.cuda", "cuda.core", "cuda.bindings.nvrtc", "pynvml", "numpy",
    "pandas", "scipy", "optuna", "sqlalchemy", "textual", "msgspec", "zstandard", "nvtx", "tomli_w",
    "prometheus_client", "psutil", "pytest_asyncio", "pytest_timeout", "syrupy", "hypothesis",
    "gpuadvisor.cli",
)  # fmt: skip
PACKAGES = ("torch", "triton", "cupy-cuda13x", "numba", "numba-cuda", "cuda-core", "cuda-bindings",
            "numpy", "nvidia-ml-py", "pytest", "gpuadvisor")  # fmt: skip


PROGRAMS = ("bash", "cc", "git", "taskset", "unshare")
"""Triton compiles its launchers with a C compiler; gates make work trees and pin processes."""


def imports() -> int:
    """Import all that other steps need, and say which versions these are."""
    failed = [f"no program {each}" for each in PROGRAMS if shutil.which(each) is None]
    for name in MODULES:
        try:
            import_module(name)
        except Exception as error:  # whatever it is, it is told
            failed.append(f"{name}: {type(error).__name__}: {error}")
    found = []
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    import torch

    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU"
    print(f"Python {sys.version.split()[0]}, {device}: {', '.join(found)}")
    print("\n".join(failed))
    return int(bool(failed))


def launches() -> int:
    """Ask a script with Triton kernels for better blocks, as the knob `triton_kernels` does."""
    from gpuadvisor.collectors.devices import list_gpus
    from gpuadvisor.collectors.script.inquiry import ScriptWitness, patient
    from gpuadvisor.collectors.script.request import Command, Limits, RunRequest
    from gpuadvisor.collectors.script.specification import Schedule, Specification
    from gpuadvisor.tuners.knobs import load_knobs

    script = str(ROOT / "tests" / "scripts" / "triton_layers.py")
    wanted = RunRequest(
        Command(sys.executable, script, ("1000000", "cuda", "8192", "512")),
        Specification(seed=0, schedule=Schedule()),
        list_gpus()[0],
        patient(Limits(startup_s=60.0), 40.0),
    )
    knob = "gpuadvisor.tuners.knobs.triton_kernels:KNOB"
    with ScriptWitness(wanted, knob, 40.0) as witness:
        found = load_knobs()["triton_kernels"].find(witness)
    print("\n".join((*found.sentences, found.why, str(found.value or "no value"))))
    return int(found.value is None)


PARTS: dict[str, Callable[[], int]] = {"imports": imports, "launches": launches}


# Running them. ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """How a step ended."""

    step: Step
    status: int | None
    """None where it took too long, or the whole did."""
    seconds: float
    output: str

    @property
    def fault(self) -> str:
        """What is wrong with it; empty where it is well."""
        if self.status is None:
            return "too long"
        if self.status not in self.step.statuses:
            return f"status {self.status}"
        wrong = self.step.wrong
        found = re.search(wrong, self.output, re.MULTILINE) if wrong else None
        return f"it says {found[0].strip()[:WIDTH]!r}" if found else ""


class Smoke:
    """Steps in lanes on GPUs, until all ended or the time is up."""

    def __init__(self, steps: Sequence[Step], gpus: Sequence[str], seconds: float) -> None:
        self._until_s = time.monotonic() + seconds
        self._gpus = list(gpus)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._shared = iter([each for each in steps if not each.is_alone])
        self._alone = iter([each for each in steps if each.is_alone])
        self.ended: list[Ended] = []

    def run(self) -> None:
        """Run all; Ctrl-C ends what runs."""
        last = self._gpus[-1]
        rest = self._gpus[:-1] or [last]
        count = max(1, min(LANES, len(os.sched_getaffinity(0)) // LANE_CORES))
        lanes = [(self._shared, rest[number % len(rest)]) for number in range(count)]
        threads = [threading.Thread(target=self._lane, args=lane) for lane in lanes]
        alone = threading.Thread(target=self._lane, args=(self._alone, last))
        try:
            for each in threads:
                each.start()
            if len(self._gpus) == 1:
                _join(threads)
            alone.start()
            _join([*threads, alone])
        except KeyboardInterrupt:
            self._stop.set()
            _join(threads)
            if alone.ident is not None:
                _join([alone])

    def _lane(self, steps: Iterator[Step], gpu: str) -> None:
        while not self._stop.is_set():
            with self._lock:
                step = next(steps, None)
            if step is None:
                return
            ended = self._ended(step, gpu)
            with self._lock:
                self.ended.append(ended)
                said = f"FAILED: {ended.fault}" if ended.fault else "ok"
                print(f"{step.name}: {said}, {ended.seconds:.0f} s", flush=True)

    def _ended(self, step: Step, gpu: str) -> Ended:
        began_s = time.monotonic()
        limit_s = min(step.limit_s, self._until_s - began_s)
        if limit_s <= 0:
            return Ended(step, None, 0.0, "the time was up before it began")
        with tempfile.TemporaryDirectory(prefix="smoke-") as folder:
            words = [each.format(python=sys.executable, folder=folder) for each in step.words]
            environment = {
                **os.environ, "CUDA_VISIBLE_DEVICES": gpu, "GPUADVISOR_HOME": f"{folder}/home",
                "PYTHONUNBUFFERED": "1",
            }  # fmt: skip
            with tempfile.TemporaryFile() as output:
                process = subprocess.Popen(
                    words, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
                status = self._waited(process, began_s + limit_s)
                output.seek(0)
                text = output.read().decode("utf-8", "replace")
        return Ended(step, status, time.monotonic() - began_s, text)

    def _waited(self, process: subprocess.Popen[bytes], until_s: float) -> int | None:
        """Wait for the end of a process; None where it had to be ended, with its children."""
        status = None
        while time.monotonic() < until_s and not self._stop.is_set():
            with suppress(subprocess.TimeoutExpired):
                status = process.wait(0.2)
                break
        if status is None:
            os.killpg(process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return status


def _join(threads: Sequence[threading.Thread]) -> None:
    for each in threads:
        while each.is_alive():  # in pieces, so that Ctrl-C comes through
            each.join(0.2)


def failures(ended: Sequence[Ended], steps: Sequence[Step]) -> Iterator[str]:
    """Yield what is said of each step that did not end well, in the order of the steps."""
    known = {each.step.name: each for each in ended}
    for step in steps:
        found = known.get(step.name)
        if found is None:
            yield f"\n-- {step.name}: not run"
        elif found.fault:
            yield f"\n-- {step.name}: {found.fault}, after {found.seconds:.0f} s"
            lines = [each for each in found.output.splitlines() if each.strip()]
            yield from (each[:WIDTH] for each in lines[-LAST_LINES:])


def main() -> int:
    """Run the steps, or one that is a function of this file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=110.0, help="for all (default: 110)")
    parser.add_argument("--only", default="", metavar="TEXT", help="steps whose names have it")
    parser.add_argument("--list", action="store_true", help="print each step's command")
    parser.add_argument("--part", choices=PARTS, help="be this step")
    chosen = parser.parse_args()
    if chosen.part:
        return PARTS[chosen.part]()
    steps = [each for each in STEPS if chosen.only in each.name]
    if chosen.list:
        print("\n".join(json.dumps([each.name, *each.words]) for each in steps))
        return 0
    gpus = visible_gpus()
    if not gpus:
        print("no GPU is visible: nothing of this can be tried")
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    smoke = Smoke(steps, gpus, chosen.seconds)
    smoke.run()
    said = list(failures(smoke.ended, steps))
    well = sum(not each.fault for each in smoke.ended)
    print("\n".join(said))
    print(f"\n{well} of {len(steps)} steps are well")
    return int(well < len(steps))


if __name__ == "__main__":
    sys.exit(main())

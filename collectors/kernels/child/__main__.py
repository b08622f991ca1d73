"""Answers one request a line: describe the file, compile, open, measure, prove, spend.

The command line names the kernel file, a folder for binaries, and the file descriptor for answers.
Requests come as JSON on the standard input; what the file prints goes to the standard error. What
poisons the CUDA context is answered, and ends the process: whoever asks starts another.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import runpy
import sys
import time
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from gpuadvisor.collectors.kernels.child.arguments import Arguments, difference
from gpuadvisor.collectors.kernels.child.backends import (
    CannotBuild,
    Launchable,
    Target,
    build,
    check,
    prepare,
)
from gpuadvisor.collectors.kernels.child.taken_over import is_call
from gpuadvisor.collectors.kernels.child.timing import GpuClock
from gpuadvisor.domain.kernels import DefaultFailsError, Kernel, declared
from gpuadvisor.errors import AdvisorError, MissingError, UsageError

Answer = dict[str, Any]

WARP_THREADS = 32
USUAL_WARPS = 4
"""What Triton takes where a launch names no number of warps."""


class Session:
    """The kernels of one file, and the one that is open."""

    def __init__(self, file: str, folder: str) -> None:
        self.kernels = _load(file)
        self.folder = folder
        self.is_call = is_call(file)

    def _another_python(self, which: str) -> str:
        """Say how this is done with another Python: a script that calls has no such option."""
        if self.is_call:
            return f"run the script with a Python {which}"
        return f"give a Python {which} with --python"

    def describe(self, request: Mapping[str, Any]) -> Answer:
        """Return what there is to tune; the points of each problem in the order of its values."""
        found = [_described(kernel) for kernel in self.kernels]
        if self.is_call:  # whose source may be a function, as where each point has its own text
            found = [{**each, "language": "cuda_cpp"} for each in found]
        return {"kernels": found}

    def launches(self, request: Mapping[str, Any]) -> Answer:
        """Return the blocks of the grid and the threads of a block, of each point of a problem."""
        kernel = self.kernels[request["kernel"]]
        problem = kernel.problems[request["problem"]]
        points = kernel.launchable(problem, kernel.checked_points(problem))
        return {
            "launches": [
                _launch(kernel, {**problem, **dict(zip(kernel.parameters, point, strict=True))})
                for point in points
            ]
        }

    def compile(self, request: Mapping[str, Any]) -> Answer:
        """Compile a point for whoever measures it, and return what a block of it takes."""
        kernel = self.kernels[request["kernel"]]
        names = {**kernel.problems[request["problem"]], **request["point"]}
        began = time.perf_counter()
        taken = prepare(kernel, names, Target(request["capability"], request["gpu"], self.folder))
        return {
            "ahead": taken is not None,
            "taken": dict(taken or {}),
            "compile_ms": 1e3 * (time.perf_counter() - began),
        }

    def open(self, request: Mapping[str, Any]) -> Answer:
        """Compile and check the default of a kernel for a problem."""
        try:
            import torch
        except ImportError as error:
            raise UsageError(
                f"kernels are measured with torch, which {sys.executable} has not ({error}): "
                f"{self._another_python('that has it')}"
            ) from None
        if not torch.cuda.is_available():
            raise MissingError(
                f"torch {torch.__version__} of {sys.executable} finds no GPU: check it with "
                f"`gpuadvisor doctor`, or {self._another_python('whose torch finds one')}"
            )
        torch.cuda.set_device(request["gpu"])
        # One with a handle: that of torch's default stream is 0, which some take for none.
        torch.cuda.set_stream(torch.cuda.Stream())
        self.kernel = self.kernels[request["kernel"]]
        self.problem = dict(self.kernel.problems[request["problem"]])
        self.clock = GpuClock(request["l2"] == "cold")
        capability = "".join(map(str, torch.cuda.get_device_capability()))
        self.target = Target(capability, request["gpu"], self.folder)
        self.seed = int(request["seed"])
        self.reference: list[Any] | None = None
        try:
            self.default = self._built(self.kernel.start)
        except CannotBuild as error:
            raise DefaultFailsError(f"the default: {error}") from None
        self.timed = Arguments(self.kernel, self.names(self.kernel.start), self.seed)
        wrong = self._check(self.default, self.kernel.start)
        if wrong is not None:
            raise DefaultFailsError(f"the default is wrong: {wrong}")
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        return {
            "device": properties.name,
            "capability": capability,
            "uuid": f"GPU-{getattr(properties, 'uuid', '')}".removesuffix("GPU-") or None,
            "torch": torch.__version__,
            "resources": dict(self.default.resources()),
            "repeats": self._repeats(self.default, self.kernel.start),
            "bytes": self._figure("bytes"),
            "flops": self._figure("flops"),
        }

    def measure(self, request: Mapping[str, Any]) -> Answer:
        """Compile, check and time a point in turns with the default."""
        point = request["point"]
        began = time.perf_counter()
        launchable = self._built(point)
        compiled = time.perf_counter()
        wrong = self._check(launchable, point)
        checked = time.perf_counter()
        if wrong is not None:
            return {"state": "wrong", "reason": wrong}
        default, own, given_up = self.clock.against(
            self._timed(self.default, self.kernel.start),
            self._timed(launchable, point),
            request["give_up_at"],
            self.seed,
        )
        return {
            "state": "pruned" if given_up else "complete",
            "reason": "clearly slower than the best so far" if given_up else "",
            "times_ms": own,
            "default_ms": default,
            "compile_ms": 1e3 * (compiled - began),
            "check_ms": 1e3 * (checked - compiled),
            "timing_ms": 1e3 * (time.perf_counter() - checked),
            "resources": dict(launchable.resources()),
        }

    def prove(self, request: Mapping[str, Any]) -> Answer:
        """Time the default and some points in turns, in random order within each round, and check
        each once more.
        """
        points = request["points"]
        built = [self._built(point) for point in points]
        launches = [self._timed(self.default, self.kernel.start)]
        launches += [self._timed(one, point) for one, point in zip(built, points, strict=True)]
        for launch in launches:
            launch()
        rounds = self.clock.rounds(launches, request["rounds"], random.Random(self.seed))
        return {
            "rounds_ms": rounds,
            "wrong": [self._check(*each) for each in zip(built, points, strict=True)],
            "repeats": [self._repeats(*each) for each in zip(built, points, strict=True)],
        }

    def spend(self, request: Mapping[str, Any]) -> Answer:
        """Launch a point, or the default, for some seconds, and return how often."""
        point = request["point"]
        is_default = point is None
        launchable = self.default if is_default else self._built(point)
        timed = self._timed(launchable, self.kernel.start if is_default else point)
        return {"launches": self.clock.spend(timed, request["seconds"])}

    def names(self, point: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.problem, **point}

    def _built(self, point: Mapping[str, Any]) -> Launchable:
        return build(self.kernel, self.names(point), self.target)

    def _timed(self, launchable: Launchable, point: Mapping[str, Any]) -> Callable[[], object]:
        arguments = self.timed
        if self.kernel.arguments_vary and point != self.kernel.start:
            arguments = Arguments(self.kernel, self.names(point), self.seed)
        return lambda: launchable.launch(arguments.values)

    def _check(self, launchable: Launchable, point: Mapping[str, Any]) -> str | None:
        """Run once on fresh inputs and compare: with the reference, else with the default."""
        import torch

        self.seed += 1
        arguments = Arguments(self.kernel, self.names(point), self.seed)
        if self.kernel.reference is not None:
            expected = arguments.expected()
        elif launchable is self.default:
            arguments.poison()
            self.default.launch(arguments.values)
            torch.cuda.synchronize()
            return arguments.overrun()
        else:
            beside = Arguments(self.kernel, self.names(point), self.seed)
            beside.poison()
            self.default.launch(beside.values)
            torch.cuda.synchronize()
            expected = beside.written()
        arguments.poison()
        launchable.launch(arguments.values)
        torch.cuda.synchronize()
        found = arguments.written()
        kernel = self.kernel
        return arguments.overrun() or difference(
            found, expected, kernel.tolerance, kernel.absolute_tolerance
        )

    def _repeats(self, launchable: Launchable, point: Mapping[str, Any]) -> bool:
        """Say whether a kernel gives the same bits twice."""
        import torch

        results = []
        for _ in range(2):
            arguments = Arguments(self.kernel, self.names(point), self.seed)
            arguments.poison()
            launchable.launch(arguments.values)
            torch.cuda.synchronize()
            results.append(arguments.written())
        return all(torch.equal(one, other) for one, other in zip(*results, strict=True))

    def _figure(self, name: str) -> float | None:
        rule = getattr(self.kernel, name)
        return (
            None
            if rule is None
            else float(self.kernel.value(name, rule, self.names(self.kernel.start)))
        )


def _described(kernel: Kernel) -> Answer:
    return {
        "name": kernel.name,
        "parameters": {name: list(values) for name, values in kernel.parameters.items()},
        "default": kernel.start,
        "has_reference": kernel.reference is not None,
        "language": kernel.language,
        "dtype": kernel.dtype,
        "size_restrictions": kernel.size_restrictions,
        "problems": [_described_problem(kernel, problem) for problem in kernel.problems],
    }


def _described_problem(kernel: Kernel, problem: Mapping[str, Any]) -> Answer:
    points = kernel.checked_points(problem)
    launchable = kernel.launchable(problem, points)
    check(kernel, {**problem, **kernel.start})
    return {
        "sizes": dict(problem),
        "points": launchable,
        "unlaunchable": len(points) - len(launchable),
    }


def _launch(kernel: Kernel, names: Mapping[str, Any]) -> tuple[int, int]:
    """Return blocks and threads of a block; 0 and 0 where the rules for them fail here."""
    try:
        blocks = math.prod(kernel.sides("grid", kernel.grid, names))
        if kernel.block is None:  # Triton's, which has a number of warps
            return blocks, WARP_THREADS * int(names.get("num_warps", USUAL_WARPS))
        return blocks, math.prod(kernel.sides("block", kernel.block, names))
    except UsageError:
        return 0, 0


def _load(file: str) -> list[Kernel]:
    """Run the kernel file and return the kernels that it declares."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))  # noqa: PTH100, PTH120 - before pathlib
    try:
        runpy.run_path(file, run_name="__gpuadvisor__")
    except AdvisorError:
        raise
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{file} needs {error.name}, which {sys.executable} has not: give one that has with "
            "--python"
        ) from None
    except BaseException as error:
        raise UsageError(f"{file} fails: {_place(file, error)}") from None
    found = declared()
    if not found:
        raise UsageError(f"{file} declares no kernel: it needs at least one gpuadvisor.Kernel(...)")
    names = [kernel.name for kernel in found if kernel.file == file]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{file} declares two kernels called {twice}: give one another name=")
    return found


def _place(file: str, error: BaseException) -> str:
    """Return what failed, with the line of the file."""
    line, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = f"line {trace.tb_lineno}: "
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.lineno:
        line = f"line {error.lineno}: "
    wrong = re.search(
        r"Kernel\.__init__\(\) got an unexpected keyword argument '(\w+)'", str(error)
    )
    if wrong:
        fields = list(Kernel.__dataclass_fields__)
        near = get_close_matches(wrong[1], fields, 1)
        hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(fields)}"
        return f"{line}a Kernel has no {wrong[1]}=: {hint}"
    return f"{line}{type(error).__name__}: {error}"


def _answer(session: Session, request: Mapping[str, Any]) -> Answer:
    try:
        answer: Answer = getattr(session, request["do"])(request)
        return answer
    except CannotBuild as error:
        return {"state": "unsupported", "reason": str(error)}
    except AdvisorError as error:
        return {"error": str(error), "kind": type(error).__name__}
    except Exception as error:
        text = " ".join(str(error).split())[:400]
        if "out of memory" in text.lower():
            return {"state": "out_of_memory", "reason": text}
        return {"state": "crashed", "reason": f"{type(error).__name__}: {text}", "over": _is_over()}


def _is_over() -> bool:
    """Say whether the CUDA context is beyond use, as it is after an illegal address."""
    import torch

    try:
        torch.cuda.synchronize()
        torch.zeros(1, device="cuda").item()
    except Exception:
        return True
    return False


def main() -> None:
    """Serve requests until the input ends."""
    file, folder, descriptor = sys.argv[1], sys.argv[2], int(sys.argv[3])
    answers = os.fdopen(descriptor, "w", encoding="utf-8")
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)  # a file that asks for input reads no request
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)

    def say(answer: Answer) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        session = Session(file, folder)
    except AdvisorError as error:
        say({"error": str(error)})
        return
    say({"ready": len(session.kernels)})
    for line in requests:
        answer = _answer(session, json.loads(line))
        say(answer)
        if answer.get("over"):
            return


if __name__ == "__main__":
    main()

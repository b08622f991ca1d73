"""The process that compiles and times kernels, as whoever searches asks it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Self

from gpuadvisor.collectors.interpreter import locate
from gpuadvisor.collectors.script.bundle import bundle_folder
from gpuadvisor.domain.kernels import DefaultFailsError
from gpuadvisor.errors import AdvisorError, MissingError, UsageError

Answer = Mapping[str, Any]

STARTING_S = 180.0
"""Limit for importing torch and what the kernel file imports, from a cold disk."""
ANSWER_S = 60.0
"""Limit for one answer: a template-heavy CUDA C++ kernel compiles for 20 s, and is timed for less
than one. What takes longer hangs."""
_KINDS = {each.__name__: each for each in (DefaultFailsError, MissingError)}
"""What the process refuses with, unless it is a UsageError, by the `kind` of its answer."""


@dataclass(frozen=True)
class Proof:
    """The default and some points timed in turns."""

    rounds_ms: list[list[float]]
    """Times of the default, and of each point."""
    wrong: list[str | None]
    """How each point's results differ on inputs that it had not seen; None where they do not."""
    repeats: list[bool]
    """Whether each point gives the same bits twice."""


class KernelProcess:
    """A kernel file in a process of the user's Python, which is started again when it died.

    It is one thread's, except for `stop`.
    """

    def __init__(
        self,
        python: str,
        file: Path,
        gpu: int = 0,
        answer_s: float = ANSWER_S,
        folder: str = "",
        l2: str = "cold",
    ) -> None:
        """Prepare for a GPU by torch's number; `folder` is where processes share binaries, `l2`
        whether caches are `cold` or `warm` when a kernel is timed.
        """
        module = "gpuadvisor.collectors.kernels.child"
        self._command = [locate(python), "-m", module, str(file), folder]
        self.gpu = gpu
        self._l2 = l2
        self._answer_s = answer_s
        self._is_stopped = False
        self._process: subprocess.Popen[bytes] | None = None
        self._opened: dict[str, Any] | None = None
        self.restarts = 0
        """How often it was started anew, after a crash or a hang."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def describe(self) -> list[dict[str, Any]]:
        """Return the kernels of the file with parameters, problems and points; UsageError, in the
        words of what is wrong with the file, where there are none.
        """
        found: list[dict[str, Any]] = self._sure({"do": "describe"}, STARTING_S)["kernels"]
        return found

    def open(self, kernel: int, problem: int, seed: int) -> Answer:
        """Compile and check the default of a kernel for a problem, and return what is known of the
        device; DefaultFailsError where that fails, as then nothing can be compared.
        """
        request = {"do": "open", "kernel": kernel, "problem": problem, "seed": seed}
        self._opened = {**request, "gpu": self.gpu, "l2": self._l2}
        return self._sure(self._opened, STARTING_S)

    def launches(self, kernel: int, problem: int) -> list[tuple[int, int]]:
        """Return blocks of the grid and threads of a block, of each point of a problem."""
        asked = {"do": "launches", "kernel": kernel, "problem": problem}
        found = self._sure(asked, STARTING_S)["launches"]
        return [(blocks, threads) for blocks, threads in found]

    def compile(
        self, kernel: int, problem: int, point: Mapping[str, Any], capability: str
    ) -> Answer:
        """Compile a point into the folder, and return what a block takes (`taken`) and whether the
        language can be compiled ahead at all (`ahead`); or a `state` and `reason`.
        """
        where = {"kernel": kernel, "problem": problem, "capability": capability, "gpu": self.gpu}
        return self._ask({"do": "compile", "point": dict(point), **where})

    def measure(self, point: Mapping[str, Any], give_up_at: float | None) -> Answer:
        """Return the times of a point and of the default in turns, or a `state` and `reason`."""
        return self._ask({"do": "measure", "point": dict(point), "give_up_at": give_up_at})

    def prove(self, points: Sequence[Mapping[str, Any]], rounds: int) -> Proof:
        """Time the default and each point in turns, and check each point once more."""
        answer = self._sure({"do": "prove", "points": list(points), "rounds": rounds}, STARTING_S)
        return Proof(answer["rounds_ms"], answer["wrong"], answer["repeats"])

    def spend(self, point: Mapping[str, Any] | None, seconds: float) -> int:
        """Launch a point, or the default, back to back for so long, and return how often."""
        launches: int = self._sure(
            {"do": "spend", "point": point, "seconds": seconds}, self._answer_s + seconds
        )["launches"]
        return launches

    def stop(self) -> None:
        """End the process from another thread; it is not started again."""
        self._is_stopped = True
        if (process := self._process) is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process and its whole group."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, self._answers):
            with suppress(OSError):
                stream and stream.close()
        self._errors.close()

    def _sure(self, request: dict[str, Any], limit_s: float) -> Answer:
        answer = self._ask(request, limit_s)
        if "state" in answer:
            if request["do"] == "open":
                raise DefaultFailsError(f"the default cannot be run: {answer['reason']}")
            if request["do"] in ("describe", "launches"):
                raise UsageError(f"{self._command[3]} cannot be read: {answer['reason']}")
            raise UsageError(f"the best points cannot be run again: {answer['reason']}")
        return answer

    def _ask(self, request: dict[str, Any], limit_s: float | None = None) -> Answer:
        """Return the answer; UsageError for an error of the file; a state for a death or a hang."""
        if self._is_stopped:
            return {"state": "crashed", "reason": "interrupted"}
        if self._process is None:
            self._start()
            if self._opened is not None and request["do"] not in ("open", "describe"):
                self._sure(self._opened, STARTING_S)
        limit_s = limit_s or self._answer_s
        answer = self._exchange(request, limit_s)
        if answer is None:
            answer = self._death(limit_s)
            self._again()
        elif answer.get("over"):
            self._again()
        if "error" in answer:
            raise _KINDS.get(answer.get("kind", ""), UsageError)(answer["error"])
        return answer

    def _again(self) -> None:
        self.close()
        self.restarts += 1

    def _start(self) -> None:
        library = str(bundle_folder() / "library")
        before = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([library, before] if before else [library])
        read, write = os.pipe()
        self._errors = TemporaryFile()  # noqa: SIM115 - as long as the process
        try:
            self._process = subprocess.Popen(
                [*self._command, str(write)],
                stdin=subprocess.PIPE,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=(write,),
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": path},
            )
        except OSError as error:
            os.close(read)
            raise AdvisorError(f"{self._command[0]} cannot be run: {error.strerror}") from error
        finally:
            os.close(write)
        self._answers = os.fdopen(read, "rb", buffering=0)
        self._rest = b""
        if self._is_stopped:  # meanwhile
            self.stop()
        ready = self._line(STARTING_S)
        if ready is None:
            reason = self._death(STARTING_S)["reason"]
            self.close()
            raise UsageError(f"{self._command[3]} cannot be loaded: {reason}")
        if "error" in ready:
            self.close()
            raise UsageError(ready["error"])

    def _exchange(self, request: Mapping[str, Any], limit_s: float) -> Answer | None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return None
        return self._line(limit_s)

    def _line(self, limit_s: float) -> dict[str, Any] | None:
        """Return the next line; None where the process ended or did not answer in time."""
        until = time.monotonic() + limit_s
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                return None
            part = self._answers.read(1 << 20)
            if not part:
                return None
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def _death(self, limit_s: float) -> dict[str, Any]:
        """Say how the process ended, or that it hangs."""
        assert self._process is not None
        try:
            status = self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            return {"state": "hung", "reason": f"no answer within {limit_s:g} s"}
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace").strip().splitlines()[-1:]
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return {"state": "crashed", "reason": ": ".join([how, *said])}

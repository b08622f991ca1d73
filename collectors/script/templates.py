"""Templates of runs: processes that have imported what a script imports, and are forked for it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from select import select
from typing import IO, Any

from gpuadvisor.collectors.script.specification import VARIABLE, Specification

RUN_VARIABLE = "GPUADVISOR_RUN"
"""Environment variable with the run's own identity. Every process that the script starts inherits
it, also one that leaves the process group and the session."""
FORK_S = 10.0
"""Longest wait for a fork, which takes 10 to 50 ms."""
CHANGES = (VARIABLE, RUN_VARIABLE)
"""Variables that are others in each run."""
PATH = "PYTHONPATH"
"""Variable by which the interpreter finds modules, other ones in each version of a script."""

living: set[int] = set()
"""Process ids of all templates."""


class NoTemplateError(Exception):
    """Why runs cannot be forked: a clause without a full stop."""


Phase = Mapping[str, Any]
"""What was imported until some moment of a run, as `child.imported` notes it."""


def noted(path: Path) -> list[Phase]:
    """Return what a run has noted of its imports; NoTemplateError where that is nothing."""
    try:
        phases: list[Phase] = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise NoTemplateError("its first process does not import torch") from None
    return phases


def in_common(notes: Sequence[Sequence[Phase]], own: Sequence[str]) -> list[Phase]:
    """Return what several scripts import alike, until the first difference.

    So each of them has been where the template then is. What lies in one of the folders `own` is no
    library. NoTemplateError where they differ before torch is there.
    """
    folders = tuple(folder.rstrip("/") + "/" for folder in own)
    common: list[Phase] = []
    for several in zip(*notes, strict=False):
        if any(each["changed"] != several[0]["changed"] for each in several):
            break
        lists = [[tuple(m) for m in each["modules"]] for each in several]
        libraries = [[m for m in each if not m[1].startswith(folders)] for each in lists]
        alike = [each[0] for each in takewhile(_are_same, zip(*libraries, strict=False))]
        never = {name for each in lists for name, _ in each} - {name for name, _ in alike}
        is_whole = all(len(each) == len(alike) for each in libraries)
        if not common and "torch" not in dict(alike):
            break
        common.append({**several[0], "modules": alike, "never": sorted(never)})
        if not is_whole:
            break
    if not common:
        raise NoTemplateError("both versions do not import the same until torch is there")
    return common


def _are_same(several: Sequence[object]) -> bool:
    return all(each == several[0] for each in several)


@dataclass(frozen=True)
class Start:
    """What decides how a process begins; runs of which it is the same can share a template."""

    line: tuple[str, ...]
    environment: Mapping[str, str]
    """Without what is different in each run."""
    folder: str | None
    cores: tuple[int, ...]

    @classmethod
    def of(
        cls,
        line: Sequence[str],
        environment: Mapping[str, str],
        folder: str | None,
        cores: Sequence[int],
    ) -> Start:
        kept = {name: value for name, value in environment.items() if name not in CHANGES}
        return cls(tuple(line), kept, folder, tuple(cores))

    def anywhere(self) -> Start:
        """Return what it has in common with a start of another script, elsewhere."""
        kept = self.line[:3] if self.line[1] == "-m" else self.line[:1]
        environment = {name: value for name, value in self.environment.items() if name != PATH}
        return Start(kept, environment, None, self.cores)


class Forked:
    """The first process of a run that was forked, with what is used of `subprocess.Popen`."""

    def __init__(self, pid: int, stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdout: IO[bytes] | None = stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit status if it has ended: a signal's number is negative."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Return its exit status once it has ended; `subprocess.TimeoutExpired` if it has not."""
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.01)
        return status


class Template:
    """One such process; it ends with `close`, and with gpuadvisor however that ends."""

    def __init__(self, start: Start, phases: Sequence[Phase], moves: bool = False) -> None:
        """Start it, to be waited for; NoTemplateError where no process can be started.

        Where it `moves`, its runs may be of other scripts, arguments, folders and $PYTHONPATH.
        """
        self.start, self.phases = start, phases
        self._moves = moves
        self.run = uuid.uuid4().hex
        """Identity of the template as a run. To the kernel, processes that were forked from it
        have this one, whatever their environment says."""
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self._imports = tempfile.NamedTemporaryFile(  # noqa: SIM115 - until it has imported
            "w", prefix="gpuadvisor-", suffix=".json"
        )
        json.dump(phases, self._imports)
        self._imports.flush()
        told: dict[str, str | int] = {
            "imports": self._imports.name,
            "orders": orders,
            "answers": answers,
        }
        specification = Specification(parent=os.getpid(), cores=start.cores, template=told)
        variables = {VARIABLE: specification.to_json(), RUN_VARIABLE: self.run}
        try:
            self.process = subprocess.Popen(
                start.line,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**start.environment, **variables},
                cwd=start.folder,
                start_new_session=True,
                pass_fds=(orders, answers),
            )
        except OSError as error:
            self._close_files()
            raise NoTemplateError(f"no process can be started ({error.strerror})") from error
        finally:
            os.close(orders)
            os.close(answers)
        living.add(self.process.pid)

    def wait(self, wait_s: float) -> Template:
        """Wait until it has imported, and return it; NoTemplateError where it cannot be one.

        It has ended then.
        """
        try:
            self.import_s = float(self._answer(wait_s)["seconds"])
        except BaseException:
            self.close()
            raise
        self._imports.close()
        return self

    def serves(self, start: Start) -> bool:
        """Say whether a run that begins so can be forked from it."""
        if self._moves:
            return start.anywhere() == self.start.anywhere()
        return start == self.start

    def fork(
        self, environment: Mapping[str, str], line: Sequence[str], folder: str | None
    ) -> Forked:
        """Return a new run's first process; NoTemplateError where there is none.

        It becomes a child of this process, which must adopt orphans, and is not to be reaped by
        others before this returns.
        """
        with tempfile.TemporaryDirectory(prefix="gpuadvisor-fork-") as own:
            path = Path(own, "output")
            os.mkfifo(path, 0o600)
            output = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            changes = {name: environment[name] for name in (*CHANGES, PATH)}
            order: dict[str, Any] = {"output": str(path), "environment": changes}
            if self._moves:
                order |= {"folder": folder or str(Path.cwd()), "line": list(line)}
            try:
                os.write(self._orders, (json.dumps(order) + "\n").encode())
                pid = int(self._answer(FORK_S)["pid"])
            except OSError as error:
                os.close(output)
                raise NoTemplateError("it has ended") from error
            except BaseException:
                os.close(output)
                raise
        os.set_blocking(output, True)
        return Forked(pid, open(output, "rb"))  # noqa: PTH123

    def close(self) -> None:
        """End it; runs that were forked from it go on."""
        self._close_files()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        living.discard(self.process.pid)

    def _answer(self, wait_s: float) -> dict[str, Any]:
        """Return what it says next; NoTemplateError if that is a problem, or nothing."""
        if not select([self._answers], [], [], wait_s)[0]:
            raise NoTemplateError(f"it did not answer within {wait_s:.0f} s")
        # One answer at a time is under way, shorter than what a pipe writes at once.
        text = os.read(self._answers, 4096)
        if not text:
            raise NoTemplateError("it ended while it imported")
        answer: dict[str, Any] = json.loads(text)
        if "problem" in answer:
            raise NoTemplateError(answer["problem"])
        return answer

    def _close_files(self) -> None:
        self._imports.close()
        for descriptor in (self._orders, self._answers):
            if descriptor >= 0:
                os.close(descriptor)
        self._orders = self._answers = -1

"""Runs of the scripts in `tests/scripts`, and of the program in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import gettempdir

import pytest

from gpuadvisor import cli
from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.storage.locks import locked
from tests.integration import program, runs

AT_ONCE = 2


class Runs:
    """The outcome of each run, by the command line under `tests/scripts`.

    They are begun together, as each mostly imports.
    """

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._begun: dict[str, Future[RunOutcome]] = {}

    def begin(self, line: str) -> None:
        if line not in self._begun:
            self._begun[line] = self._pool.submit(runs.run_line, line)

    def __getitem__(self, line: str) -> RunOutcome:
        self.begin(line)
        return self._begun[line].result()


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest) -> Iterator[Runs]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = Runs(pool)
        for item in request.session.items:
            line = getattr(item, "callspec", None) and item.callspec.params.get("line")
            skipped = any(mark.args[:1] == (True,) for mark in item.iter_markers("skipif"))
            if line and not skipped:
                outcomes.begin(line)
        yield outcomes


@pytest.fixture(scope="module")
def cpu() -> Iterator[None]:
    """The CPU for this module's studies: those of two modules would refuse each other."""
    with locked(Path(gettempdir()) / "gpuadvisor-tests" / "cpu.lock", wait=True):
        yield


@pytest.fixture
def here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., program.Answer]:
    """`program.run` in this process, where a process of its own would mostly import."""

    def here(home: Path, *words: str, **variables: str) -> program.Answer:
        for name, value in program.environment(home, **variables).items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(home)
        capsys.readouterr()
        status = cli.main(words)
        said = capsys.readouterr()
        return program.Answer(status, said.out, said.err)

    return here

"""Runs of the scripts in `tests/scripts`: begun together, as each mostly imports."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from gpuadvisor.collectors.script.request import RunOutcome
from tests.integration import runs

AT_ONCE = 3


class Runs:
    """The outcome of each run, by the command line under `tests/scripts`."""

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

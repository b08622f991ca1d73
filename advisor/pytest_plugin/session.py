"""What the benchmarks of one run of pytest have in common: their results, and what follows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from gpuadvisor.pytest_plugin.timing import Timing, Wanted

if TYPE_CHECKING:
    from gpuadvisor.pytest_plugin.comparing import Compared

TESTS, TIMES = "tests.json", "times.jsonl"
"""Files of a side of a comparison: the node ids to run, and a JSON line for each that was timed."""


@dataclass
class Benchmark:
    """One test with a benchmark."""

    name: str
    fullname: str
    """Its node id."""
    group: str | None
    param: str | None
    params: Mapping[str, Any] | None
    wanted: Wanted
    extra_info: dict[str, Any] = field(default_factory=dict)


@dataclass
class Session:
    """The benchmarks of a run, in the order in which they were timed."""

    config: pytest.Config
    results: list[tuple[Benchmark, Timing]] = field(default_factory=list)
    compared: Compared | None = None
    """What the comparison with the base showed; None without one."""

    def __post_init__(self) -> None:
        side = self.config.getoption("gpu_benchmark_side")
        self._side = Path(side) if side else None

    def wanted(self, items: Sequence[pytest.Item]) -> list[pytest.Item]:
        """Return the tests that this side of a comparison is asked for."""
        assert self._side is not None  # it is one
        wanted = set(json.loads((self._side / TESTS).read_text("utf-8")))
        return [item for item in items if item.nodeid in wanted]

    def add(self, benchmark: Benchmark, timing: Timing) -> None:
        """Take in a result. A side writes it at once: a later test may take the process down."""
        self.results.append((benchmark, timing))
        if self._side is not None:
            told = {
                "test": benchmark.fullname,
                "time_s": median(timing.rounds_s),
                "span_s": timing.span_s,
            }
            with (self._side / TIMES).open("a", encoding="utf-8") as file:
                file.write(json.dumps(told) + "\n")

    def regression(self, test: str) -> str | None:
        """Return how much slower than the base a test's benchmark is, where that was shown."""
        return None if self.compared is None else self.compared.regression(test)

    def show(self, terminal: Any) -> None:
        """Print the tables, and write the file of `--gpu-benchmark-json`."""
        from gpuadvisor.pytest_plugin import document, tables

        if self.results:
            option = self.config.getoption
            layout = tables.Layout(
                option("gpu_benchmark_columns"),
                option("gpu_benchmark_sort"),
                option("gpu_benchmark_group_by"),
            )
            tables.show_times(terminal, self.results, layout)
        if self.compared is not None:
            tables.show_comparison(terminal, self.compared)
        path = self.config.getoption("gpu_benchmark_json")
        if path and self.results:
            text = document.document(self.results, self.compared, self.config.invocation_params.dir)
            try:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).write_text(text, "utf-8")
            except OSError as error:
                raise pytest.UsageError(
                    f"--gpu-benchmark-json: {path} cannot be written: {error.strerror}"
                ) from None
            terminal.write_line(f"gpu-benchmark: wrote {path}")

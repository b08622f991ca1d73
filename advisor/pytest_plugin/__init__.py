"""The fixture `gpu_benchmark` for pytest, found by its entry point: hooks and options.

Every pytest of an environment with gpuadvisor runs this file, so it imports nothing but pytest;
what a benchmark needs is imported when a test asks for one. It holds no assertion to be shown in
detail (PYTEST_DONT_REWRITE).
"""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuadvisor.pytest_plugin.fixture import GpuBenchmark
    from gpuadvisor.pytest_plugin.session import Session

FIXTURE = "gpu_benchmark"
SESSION: pytest.StashKey[Session] = pytest.StashKey()
NO_GPU = ("cpu", "skip", "fail")
DEFAULT_COLUMNS = ("min", "median", "iqr", "rounds", "iterations")
COLUMNS = (*DEFAULT_COLUMNS, "max", "mean", "stddev", "outliers", "ops")
GROUPINGS = ("group", "func", "fullfunc", "name", "fullname", "param")
AHEAD = ("gpuadvisor_base", "gpu_benchmark_record", "gpu_benchmark_check")
"""Options for which fresh processes run the benchmarks before the tests themselves."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options; all begin with our own words, as one name twice stops pytest."""
    add = parser.getgroup("gpu-benchmark", "benchmarks of GPU code (gpuadvisor)").addoption
    parser.addini("gpu_benchmark_no_gpu", "as --gpu-benchmark-no-gpu", default="cpu")
    _add_measuring(add)
    _add_tables(add)
    _add_comparing(add)
    # A process of one side of a comparison: the folder with the tests to run, for their times.
    add("--gpu-benchmark-side", metavar="FOLDER", help="used by the plugin itself")


def _add_measuring(add: Callable[..., None]) -> None:
    add(
        "--gpu-benchmark-no-gpu",
        choices=NO_GPU,
        help="what becomes of benchmarks where torch can use no GPU: timed on the CPU, skipped or "
        "failed (ini: gpu_benchmark_no_gpu; default: cpu)",
    )
    add(
        "--gpu-benchmark-flush-l2",
        action="store_true",
        help="before each call write a buffer of twice the size of the GPU's L2 cache, untimed",
    )
    add(
        "--gpu-benchmark-max-time",
        type=float,
        metavar="SECONDS",
        default=1.0,
        help="time for which each benchmark is measured (default: 1)",
    )
    add(
        "--gpu-benchmark-min-rounds",
        type=int,
        metavar="N",
        default=5,
        help="least rounds of each benchmark, however long they take (default: 5)",
    )


def _add_tables(add: Callable[..., None]) -> None:
    add(
        "--gpu-benchmark-json",
        metavar="PATH",
        help="write all results to a file that pytest-benchmark's tools can read",
    )
    add(
        "--gpu-benchmark-sort",
        metavar="COLUMN",
        choices=(*COLUMNS, "name", "fullname"),
        default="median",
        help="what tables are sorted by (default: median)",
    )
    add(
        "--gpu-benchmark-columns",
        metavar="COLUMNS",
        type=_columns,
        default=DEFAULT_COLUMNS,
        help=f"columns of tables, of {','.join(COLUMNS)} (default: {','.join(DEFAULT_COLUMNS)})",
    )
    add(
        "--gpu-benchmark-group-by",
        metavar="WHAT",
        type=_grouping,
        default="group",
        help=f"what tests of a table have in common: {', '.join(GROUPINGS)}, param:NAME, or "
        "several of them with commas (default: group)",
    )


def _add_comparing(add: Callable[..., None]) -> None:
    flags = {
        "disable": "call the functions of benchmarks once, and do not time them",
        "skip": "skip tests with benchmarks",
        "only": "skip tests without benchmarks",
        "record": "keep what benchmarks take in five fresh processes, for checks on other days",
        "check": "fail what is slower than on the days that were recorded, of which it needs five",
    }
    for name, text in flags.items():
        add(f"--gpu-benchmark-{name}", action="store_true", help=text)
    add(
        "--gpu-benchmark-store",
        metavar="FILE",
        help="file of recordings, one a line, to commit or to cache; `gpuadvisor gate history` and "
        "`accept` know it, too (default: gate.jsonl in gpuadvisor's folder)",
    )
    add(
        "--gpuadvisor-base",
        metavar="REV",
        help="compare each benchmark with this commit, in pairs of fresh pytest processes; what is "
        "shown to be slower fails",
    )
    add(
        "--gpuadvisor-link",
        metavar="PATH",
        action="append",
        default=[],
        help="file or folder that git ignores, such as data, for both versions; may be repeated",
    )
    add(
        "--gpuadvisor-setup-cmd",
        metavar="COMMAND",
        help="shell command for each version's folder before its first run, such as 'pip install "
        "--no-build-isolation -e .'; what it installs is gone afterwards",
    )


def _columns(text: str) -> tuple[str, ...]:
    columns = tuple(dict.fromkeys(each.strip() for each in text.lower().split(",")))
    if unknown := set(columns) - set(COLUMNS):
        raise ArgumentTypeError(
            f"there is no column {', '.join(unknown)}, but {', '.join(COLUMNS)}"
        )
    return columns


def _grouping(text: str) -> tuple[str, ...]:
    parts = tuple(text.split(","))
    if unknown := [p for p in parts if p not in GROUPINGS and not p.startswith("param:")]:
        known = ", ".join(GROUPINGS)
        raise ArgumentTypeError(f"nothing is grouped by {', '.join(unknown)}, but by {known}")
    return parts


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, and refuse what cannot be done before any test runs."""
    config.addinivalue_line(
        "markers",
        "gpu_benchmark(group=None, max_time=None, min_rounds=None, flush_l2=None): "
        "how gpu_benchmark of this test is measured and shown",
    )
    no_gpu = config.getini("gpu_benchmark_no_gpu")
    if no_gpu not in NO_GPU:
        raise pytest.UsageError(
            f"gpu_benchmark_no_gpu is {no_gpu!r}: it has to be one of {', '.join(NO_GPU)}"
        )
    if config.getoption("gpu_benchmark_min_rounds") < 1:
        raise pytest.UsageError("--gpu-benchmark-min-rounds has to be 1 or more")
    if not config.getoption("gpu_benchmark_max_time") >= 0:
        raise pytest.UsageError("--gpu-benchmark-max-time has to be 0 or more")
    _check_together(config)


def _check_together(config: pytest.Config) -> None:
    """Refuse options that make no sense beside others."""

    def refuse(option: str, why: str) -> None:
        raise pytest.UsageError(f"--{option.replace('_', '-')} cannot be had {why}")

    distributed = config.getoption("numprocesses", None) or config.getoption("tx", None)
    asked = [option for option in AHEAD if config.getoption(option)]
    for option in (*asked, *filter(config.getoption, ["gpu_benchmark_json"])):
        if distributed:
            why = "with pytest-xdist, whose workers disturb one another's times: add -n0"
            refuse(option, why)
    for option in asked:
        for other in ("gpu_benchmark_disable", "gpu_benchmark_skip", *asked):
            if other != option and config.getoption(other):
                refuse(option, f"with --{other.replace('_', '-')}")
    if path := config.getoption("gpu_benchmark_json"):
        folder = next(each for each in Path(path).absolute().parents if each.exists())
        if Path(path).is_dir() or not os.access(folder, os.W_OK):
            raise pytest.UsageError(f"--gpu-benchmark-json: {path} cannot be written")
    for option in ("gpuadvisor_link", "gpuadvisor_setup_cmd"):
        if config.getoption(option) and not config.getoption("gpuadvisor_base"):
            refuse(option, "without --gpuadvisor-base: it is for folders of two versions")


@pytest.fixture
def gpu_benchmark(request: pytest.FixtureRequest) -> GpuBenchmark:
    """Time a function: `gpu_benchmark(function, *args, **kwargs)` returns what it returned.

    On a GPU, CUDA events are compared; elsewhere the host's clock is.
    """
    from gpuadvisor.pytest_plugin.fixture import for_test

    return for_test(request)


def session_of(config: pytest.Config) -> Session:
    """Return what the benchmarks of a run of pytest have in common."""
    from gpuadvisor.pytest_plugin.session import Session

    return config.stash.setdefault(SESSION, Session(config))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave only those tests that are asked for."""
    for option in ("skip", "only"):
        if config.getoption(f"gpu_benchmark_{option}"):
            left_out = pytest.mark.skip(reason=f"--gpu-benchmark-{option}")
            benchmarks = benchmarks_in(items)
            for item in items:
                if (item in benchmarks) == (option == "skip"):
                    item.add_marker(left_out)
    if config.getoption("gpu_benchmark_side"):
        kept = session_of(config).wanted(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Compare or record the benchmarks, before and apart from the tests themselves."""
    config = session.config
    option = next(filter(config.getoption, AHEAD), None)
    if option is None or config.getoption("gpu_benchmark_side"):
        return
    if session.testsfailed or config.getoption("collectonly"):
        return
    from gpuadvisor.pytest_plugin.ahead import go_ahead

    go_ahead(session_of(config), benchmarks_in(session.items), option)


def benchmarks_in(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that use the fixture."""
    return [item for item in items if FIXTURE in getattr(item, "fixturenames", ())]


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail a test that passed, where its benchmark was shown to be slower than the base's."""
    session = item.config.stash.get(SESSION, None)
    if session is not None and (sentence := session.regression(item.nodeid)):
        pytest.fail(sentence, pytrace=False)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Show the tables, and write what was asked for."""
    session = config.stash.get(SESSION, None)
    if session is not None and not config.getoption("gpu_benchmark_side"):
        session.show(terminalreporter)

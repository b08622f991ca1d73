"""The fixture `gpu_benchmark` for pytest, found by its entry point: hooks and options.

Every pytest of an environment with gpuadvisor runs this file, so it imports nothing but pytest;
what a benchmark needs is imported when a test asks for one. It holds no assertion to be shown in
detail (PYTEST_DONT_REWRITE).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gpuadvisor.pytest_plugin.fixture import GpuBenchmark
    from gpuadvisor.pytest_plugin.session import Session

FIXTURE = "gpu_benchmark"
SESSION: pytest.StashKey[Session] = pytest.StashKey()
NO_GPU = ("cpu", "skip", "fail")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options; all begin with our own words, as one name twice stops pytest."""
    group = parser.getgroup("gpu-benchmark", "benchmarks of GPU code (gpuadvisor)")
    add = group.addoption
    add(
        "--gpu-benchmark-no-gpu",
        choices=NO_GPU,
        help="what becomes of benchmarks where torch can use no GPU: timed on the CPU, skipped or "
        "failed (ini: gpu_benchmark_no_gpu; default: cpu)",
    )
    parser.addini("gpu_benchmark_no_gpu", "as --gpu-benchmark-no-gpu", default="cpu")
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
    add(
        "--gpu-benchmark-json",
        metavar="PATH",
        help="write all results to a file that pytest-benchmark's tools can read",
    )
    add(
        "--gpuadvisor-base",
        metavar="REV",
        help="compare each benchmark with this commit, in pairs of fresh pytest processes; what is "
        "shown to be slower fails",
    )
    # One side of such a comparison: the folder with the tests to run, for their times.
    add("--gpu-benchmark-side", metavar="FOLDER", help="used by --gpuadvisor-base itself")


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
    distributed = config.getoption("numprocesses", None) or config.getoption("tx", None)
    for option in ("gpuadvisor_base", "gpu_benchmark_json"):
        if config.getoption(option) and distributed:
            name = option.replace("_", "-")
            raise pytest.UsageError(
                f"--{name} cannot be had with pytest-xdist, whose workers disturb one another's "
                "times: add -n0"
            )


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
    """Leave only those tests that a side of a comparison is asked for."""
    if config.getoption("gpu_benchmark_side"):
        kept = session_of(config).wanted(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Compare the benchmarks with the base, before and apart from the tests themselves."""
    config = session.config
    if not config.getoption("gpuadvisor_base") or config.getoption("gpu_benchmark_side"):
        return
    if session.testsfailed or config.getoption("collectonly"):
        return
    from gpuadvisor.pytest_plugin.against import compare_with_base

    compare_with_base(session_of(config), benchmarks_in(session.items))


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

"""What a test gets as `gpu_benchmark`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from gpuadvisor.pytest_plugin import session_of
from gpuadvisor.pytest_plugin.session import Benchmark, Session
from gpuadvisor.pytest_plugin.timing import Stopwatch, Timing, Wanted, nvtx_range, undisturbed

BESIDE_WORKERS = (
    "gpu_benchmark does not run under pytest-xdist: its workers share the GPU and the CPU's cores, "
    "and would time one another. Run the tests with benchmarks with -n0 or -p no:xdist"
)


class GpuBenchmark:
    """Times one function a test; times, and `extra_info`, go to the table and to JSON."""

    def __init__(self, session: Session, benchmark: Benchmark, wanted: Wanted) -> None:
        self._session, self._benchmark, self._wanted = session, benchmark, wanted
        self._used = False
        self.extra_info: dict[str, Any] = benchmark.extra_info
        """What else the test wants to have in JSON."""

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Time `function(*args, **kwargs)` and return what it returns."""
        self._use()
        call = partial(function, *args, **kwargs)
        with undisturbed(), nvtx_range(self._benchmark.fullname):
            timing = Stopwatch(call, self._wanted).run()
        self._session.add(self._benchmark, timing)
        return call()

    def pedantic(
        self,
        target: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        rounds: int = 1,
        warmup_rounds: int = 0,
        iterations: int = 1,
    ) -> Any:
        """Time exactly so many rounds of so many calls each; return what one more call returns.

        `setup` is called before each round, untimed, and may return `(args, kwargs)` for it.
        ValueError for less than one round or call, and for several calls with one `setup`.
        """
        if rounds < 1 or iterations < 1 or warmup_rounds < 0:
            raise ValueError("rounds and iterations have to be 1 or more, warmup_rounds 0 or more")
        if setup is not None and iterations > 1:
            raise ValueError("a round with setup is one call: leave out iterations")
        self._use()
        watch = Stopwatch(partial(target, *args, **kwargs or {}), self._wanted)

        def before() -> None:
            if setup is not None and (made := setup()):
                watch.call = partial(target, *made[0], **made[1])

        with undisturbed(), nvtx_range(self._benchmark.fullname):
            watch.choose_timer()
            watch.rounds(warmup_rounds, iterations, before)
            timing = Timing(watch.rounds(rounds, iterations, before), iterations, watch.on_gpu)
        self._session.add(self._benchmark, timing)
        before()
        return watch.call()

    def _use(self) -> None:
        if self._used:
            pytest.fail("gpu_benchmark times one function a test: parametrize the test", False)
        self._used = True


def for_test(request: pytest.FixtureRequest) -> GpuBenchmark:
    """Return the fixture of a test, which is skipped or fails where that was asked for."""
    config, node = request.config, request.node
    if hasattr(config, "workerinput"):
        pytest.fail(BESIDE_WORKERS, pytrace=False)
    no_gpu = config.getoption("gpu_benchmark_no_gpu") or config.getini("gpu_benchmark_no_gpu")
    if no_gpu != "cpu" and not has_gpu():
        why = f"torch can use no GPU here, and --gpu-benchmark-no-gpu is {no_gpu}"
        pytest.skip(why) if no_gpu == "skip" else pytest.fail(why, pytrace=False)
    marker = node.get_closest_marker("gpu_benchmark")
    marked = {} if marker is None else dict(marker.kwargs)
    group = marked.pop("group", None)

    def chosen(name: str) -> Any:
        given = marked.pop(name, None)
        return config.getoption(f"gpu_benchmark_{name}") if given is None else given

    wanted = Wanted(chosen("max_time"), chosen("min_rounds"), chosen("flush_l2"))
    if marked or (marker is not None and marker.args):
        given = ", ".join(map(str, marked)) or "an argument without a name"
        pytest.fail(
            f"pytest.mark.gpu_benchmark does not know {given}: it takes group, max_time, "
            "min_rounds and flush_l2",
            pytrace=False,
        )
    call = getattr(node, "callspec", None)
    benchmark = Benchmark(
        node.name,
        node.nodeid,
        group,
        None if call is None else call.id,
        None if call is None else dict(call.params),
        wanted,
    )
    return GpuBenchmark(session_of(config), benchmark, wanted)


def has_gpu() -> bool:
    """Say whether torch is there and can use a GPU; it is imported for that."""
    if "torch" not in sys.modules and importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())

"""What a test gets as `gpu_benchmark`."""

from __future__ import annotations

import importlib.util
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from gpuadvisor.pytest_plugin import session_of
from gpuadvisor.pytest_plugin.document import statistics_of
from gpuadvisor.pytest_plugin.session import Benchmark, Session
from gpuadvisor.pytest_plugin.timing import (
    Stopwatch,
    Timing,
    Wanted,
    nvtx_range,
    undisturbed,
    uses_gpu,
)

BESIDE_WORKERS = (
    "gpu_benchmark does not run under pytest-xdist: its workers share the GPU and the CPU's cores, "
    "and would time one another. Run the tests with benchmarks with -n0 or -p no:xdist"
)


MARKED = ("group", "max_time", "min_rounds", "flush_l2")
"""What a marker takes; the last three as `Wanted` has them."""
LATE = (
    "gpu_benchmark: this function was the first to use the GPU, while the host's clock timed it, "
    "which does not wait for the GPU: give warmup_rounds=1"
)


class GpuBenchmark:
    """Times one function a test; times, and `extra_info`, go to the table and to JSON."""

    def __init__(self, session: Session, benchmark: Benchmark, disabled: bool) -> None:
        self._session, self._benchmark = session, benchmark
        self._used = False
        self.disabled = disabled
        """Whether functions are called once, and not timed (`--gpu-benchmark-disable`)."""
        self.extra_info: dict[str, Any] = benchmark.extra_info
        """What else the test wants to have in JSON."""
        self.stats: dict[str, Any] | None = None
        """Figures of what was timed, as in JSON: `min`, `median`, `rounds`, ..., in seconds."""

    @property
    def enabled(self) -> bool:
        """Whether functions are timed."""
        return not self.disabled

    @property
    def group(self) -> str | None:
        """The table in which the test is shown; it may be set, too."""
        return self._benchmark.group

    @group.setter
    def group(self, group: str | None) -> None:
        self._benchmark.group = group

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Time `function(*args, **kwargs)` and return what it returns."""
        self._use()
        call = partial(function, *args, **kwargs)
        if self.enabled:
            with undisturbed(), nvtx_range(self._benchmark.fullname):
                timing = Stopwatch(call, self._benchmark.wanted).run()
            self._keep(timing)
        return call()

    def pedantic(
        self,
        target: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        teardown: Callable[..., Any] | None = None,
        rounds: int = 1,
        warmup_rounds: int = 0,
        iterations: int = 1,
    ) -> Any:
        """Time exactly so many rounds of so many calls each; return what one more call returns.

        `setup` is called before each round, untimed, and may return `(args, kwargs)` for it;
        `teardown` after it, with these. ValueError for less than one round or call, and for several
        calls with one `setup`.
        """
        if rounds < 1 or iterations < 1 or warmup_rounds < 0:
            raise ValueError("rounds and iterations have to be 1 or more, warmup_rounds 0 or more")
        if setup is not None and iterations > 1:
            raise ValueError("a round with setup is one call: leave out iterations")
        self._use()
        call = partial(target, *args, **kwargs or {})
        watch = Stopwatch(call, self._benchmark.wanted)

        def before() -> None:
            nonlocal call
            if setup is not None and (made := setup()):
                watch.call = call = partial(target, *made[0], **made[1])

        def after() -> None:
            if teardown is not None:
                teardown(*call.args, **call.keywords)

        if self.enabled:
            with undisturbed(), nvtx_range(self._benchmark.fullname):
                watch.rounds(warmup_rounds, iterations, before, after)
                began_s = time.monotonic()
                rounds_s = watch.rounds(rounds, iterations, before, after)
                span_s = began_s, time.monotonic()
            self._keep(Timing(rounds_s, iterations, watch.on_gpu, span_s=span_s))
            if uses_gpu() and not watch.on_gpu:
                warnings.warn(LATE, stacklevel=2)
        before()
        result = call()
        after()
        return result

    def _keep(self, timing: Timing) -> None:
        self._session.add(self._benchmark, timing)
        self.stats = statistics_of(timing)

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
    unknown = [] if marker is None else [name for name in marker.kwargs if name not in MARKED]
    if unknown or (marker is not None and marker.args):
        given = ", ".join(unknown) or "an argument without a name"
        pytest.fail(
            f"pytest.mark.gpu_benchmark does not know {given}: it takes {', '.join(MARKED)}",
            pytrace=False,
        )
    call = getattr(node, "callspec", None)
    benchmark = Benchmark(
        node.name,
        node.nodeid,
        None if marker is None else marker.kwargs.get("group"),
        None if call is None else call.id,
        None if call is None else dict(call.params),
        wanted_of(node),
    )
    disabled = config.getoption("gpu_benchmark_disable")
    return GpuBenchmark(session_of(config), benchmark, disabled)


def wanted_of(item: pytest.Item) -> Wanted:
    """Return how closely a test's benchmark is timed, by its marker or else by options."""
    marker = item.get_closest_marker("gpu_benchmark")

    def chosen(name: str) -> Any:
        given = None if marker is None else marker.kwargs.get(name)
        return item.config.getoption(f"gpu_benchmark_{name}") if given is None else given

    return Wanted(*map(chosen, MARKED[1:]))


def has_gpu() -> bool:
    """Say whether torch is there and can use a GPU; it is imported for that."""
    if "torch" not in sys.modules and importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())

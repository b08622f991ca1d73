"""How a function is timed, by a clock that the tests own."""

import gc
import sys
from types import SimpleNamespace

import pytest

from gpuadvisor.collectors.script.child.windows import MAX_EXTENSIONS
from gpuadvisor.pytest_plugin.timing import (
    ROUND_S,
    STEADY,
    WARMUP_S,
    HostTimer,
    Stopwatch,
    Wanted,
    is_steady,
    undisturbed,
)


class Clock:
    """Time passes only in what is called; it says how often the device was waited for."""

    def __init__(self):
        self.at_s = 0.0
        self.waits = 0

    def mark(self):
        return self.at_s

    def between_s(self, first, second):
        return second - first

    def synchronize(self):
        self.waits += 1


def stopwatch(cost_s, clock, **given):
    """Return a stopwatch on a function whose n-th call costs `cost_s(n)`."""
    calls = []

    def call():
        calls.append(clock.at_s)
        clock.at_s += cost_s(len(calls))

    watch = Stopwatch(call, now=lambda: clock.at_s, timer=clock, **given)
    watch.calls = calls
    return watch


def test_a_long_function_is_called_once_a_round():
    clock = Clock()
    timing = stopwatch(lambda n: 0.1, clock).run()
    assert (timing.calls, timing.on_gpu, timing.is_steady) == (1, False, True)
    assert timing.rounds_s == pytest.approx([0.1] * 10)  # one second


def test_a_short_function_is_called_as_often_as_the_clock_needs():
    timing = stopwatch(lambda n: 1e-6, Clock(), wanted=Wanted(max_time_s=0.01)).run()
    assert timing.calls * 1e-6 >= ROUND_S[HostTimer] > timing.calls / 2 * 1e-6
    assert timing.rounds_s[0] == pytest.approx(1e-6)


def test_there_are_enough_rounds_however_long_they_take():
    assert len(stopwatch(lambda n: 10.0, Clock(), wanted=Wanted(min_rounds=7)).run().rounds_s) == 7


def test_calls_count_when_they_are_warm():
    clock = Clock()
    watch = stopwatch(lambda n: 1.0 if n < 3 else 1e-3, clock)
    assert max(watch.run().rounds_s) == pytest.approx(1e-3)
    clock = Clock()
    watch = stopwatch(lambda n: 1e-2 if clock.at_s < WARMUP_S / 2 else 1e-3, clock)
    assert max(watch.run().rounds_s) == pytest.approx(1e-3)


def test_the_device_is_waited_for_at_the_ends_only():
    clock = Clock()
    watch = stopwatch(lambda n: 1e-3, clock)
    watch.rounds(100, 1)
    assert clock.waits == 2


def test_the_first_half_goes_where_it_is_not_steady():
    slow = int(WARMUP_S / 1e-2) + 40
    watch = stopwatch(lambda n: 1.2e-2 if n < slow else 1e-2, Clock())
    timing = watch.run()
    assert timing.is_steady and timing.rounds_s == pytest.approx([1e-2] * len(timing.rounds_s))


def test_what_never_gets_steady_ends_and_says_so():
    watch = stopwatch(lambda n: 1e-2 * 1.05**n, Clock(), wanted=Wanted(max_time_s=0.3))
    timing = watch.run()
    assert not timing.is_steady
    assert len(watch.calls) < 60 * (1 + MAX_EXTENSIONS)


def test_a_stall_is_no_drift():
    assert is_steady([1.0, 1.0, 1.0, 1.0, 50.0, 1.0])
    assert not is_steady([1.0] * 3 + [1.0 + 2 * STEADY.drift] * 3)


def test_a_compilation_begins_anew(monkeypatch):
    frames = {"total": 1}
    counters = SimpleNamespace(counters={"frames": frames})
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", counters)
    clock = Clock()

    def cost(n):
        if n == 40:  # in the midst of what is measured
            frames["total"] += 1
        return 0.05 if n == 40 else 2e-2 if n < 40 else 1e-2

    assert max(stopwatch(cost, clock).run().rounds_s) == pytest.approx(1e-2)


def test_to_flush_the_cache_takes_no_time_that_counts():
    clock = Clock()
    flushed = []

    def flush():
        flushed.append(clock.at_s)
        clock.at_s += 1.0

    watch = stopwatch(lambda n: 1e-5, clock, flush=flush, wanted=Wanted(min_rounds=3, max_time_s=0))
    timing = watch.run()
    assert timing.calls == 16 and timing.rounds_s == pytest.approx([1e-5] * 3)
    assert len(flushed) == len(watch.calls) - 1  # all but the very first call


def test_what_flushes_take_counts_for_how_long_it_is_measured():
    """A second is a second: 5 us that are flushed for by 100 us would else take 20 s."""
    clock = Clock()

    def flush():
        clock.at_s += 1e-4

    began = clock.at_s
    timing = stopwatch(lambda n: 5e-6, clock, flush=flush).run()
    assert timing.rounds_s[0] == pytest.approx(5e-6)
    assert 1.0 < clock.at_s - began < 1.0 + 2 * WARMUP_S


def test_a_benchmark_takes_a_fifth_of_a_second_and_a_second():
    clock = Clock()
    stopwatch(lambda n: 1e-3, clock).run()
    assert clock.at_s == pytest.approx(WARMUP_S + 1.0, rel=0.02)


class Cuda:
    """What torch says of its GPUs, and events by a clock that functions on the current one move."""

    def __init__(self, monkeypatch, used=(0, 0)):
        self.used, self.current, self.at_s, self.waits = list(used), 0, 0.0, 0
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=self, _C=object()))

    def is_initialized(self):
        return True

    def device_count(self):
        return len(self.used)

    def current_device(self):
        return self.current

    def current_stream(self):
        return "stream"

    def max_memory_reserved(self):
        return self.used[self.current] << 21

    def memory_stats(self, gpu):
        return {"allocation.all.allocated": self.used[gpu]}

    def synchronize(self):
        self.waits += 1

    def Event(self, enable_timing):  # noqa: N802 - torch calls it so
        return SimpleNamespace(record=lambda stream: None, elapsed_time=lambda other: 1.0)

    def allocate(self, gpu):
        self.used[gpu] += 1


QUICK = Wanted(max_time_s=0, min_rounds=3)


def test_a_function_that_frees_all_that_it_allocates_is_timed_by_events(monkeypatch):
    cuda = Cuda(monkeypatch)
    timing = Stopwatch(lambda: cuda.allocate(0), QUICK).run()
    assert timing.on_gpu and timing.rounds_s == [1e-3] * 3 and cuda.waits > 0


def test_what_never_used_a_gpu_is_timed_by_the_hosts_clock(monkeypatch):
    Cuda(monkeypatch)
    assert not Stopwatch(lambda: None, QUICK).run().on_gpu


def test_work_on_another_gpu_than_the_current_one_is_said(monkeypatch):
    cuda = Cuda(monkeypatch)
    with pytest.warns(UserWarning, match=r"works on cuda:1: put `with torch.cuda.device\(1\):`"):
        Stopwatch(lambda: cuda.allocate(1), QUICK).run()
    both = Cuda(monkeypatch, used=(1, 0))
    Stopwatch(lambda: (both.allocate(0), both.allocate(1)), QUICK).run()


def test_a_set_up_may_be_the_first_to_use_the_gpu(monkeypatch):
    cuda = Cuda(monkeypatch)
    watch = Stopwatch(lambda: None, QUICK)
    assert watch.rounds(0, 1, lambda: cuda.allocate(0)) == []
    assert watch.rounds(2, 1, lambda: cuda.allocate(0)) == [1e-3] * 2 and watch.on_gpu


def test_no_garbage_is_collected_meanwhile_but_what_is_youngest():
    class Tensor:
        alive = 0

        def __init__(self):
            self.itself = self
            Tensor.alive += 1

        def __del__(self):
            Tensor.alive -= 1

    most, on = [], []

    def call():
        Tensor()
        most.append(Tensor.alive)
        on.append(gc.isenabled())

    tracer = sys.gettrace()
    with undisturbed():
        assert sys.gettrace() is None
        Stopwatch(call, Wanted(max_time_s=0, min_rounds=50), timer=HostTimer()).rounds(50, 1)
    assert not any(on) and max(most) <= 2
    assert gc.isenabled() and sys.gettrace() is tracer


def test_what_a_function_raises_is_let_through():
    with pytest.raises(ZeroDivisionError), undisturbed():
        Stopwatch(lambda: 1 / 0).run()
    assert gc.isenabled()

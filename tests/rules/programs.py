"""A host and a GPU that take turns: programs whose cure, and what it saves, are known exactly.

    program = Program(slower=2.0)      # launching takes twice as long under the profiler
    for _ in range(5):
        program.works(300)             # microseconds
        program.launches("kernel", runs=40)
        program.waits()
    program.time_us                    # when the GPU is done
    program.made                       # the trace

Run once with `slower` for the trace, and with and without the cure at 1.0 for the truth.
"""

from __future__ import annotations

from gpuadvisor.domain.profile import CallKind, Direction, Memory, Range
from tests.profiles import Made

CALL_US = 5.0
LATENCY_US = 2.0
OWN_US = 500.0
"""From which on Python between launches is the script's own."""


class Program:
    """Writes its trace while it runs."""

    def __init__(self, slower: float = 1.0) -> None:
        self.made = Made()
        self.slower = slower
        self.now = 0.0
        """The host's time."""
        self.done = 0.0
        """When the GPU has done all that it was given."""

    @property
    def time_us(self) -> float:
        return max(self.done, self.now if not self.done else self.done)

    def works(self, us: float) -> None:
        """Python: shortly between launches it is the framework's, which a profiler slows down."""
        self.now += us * (self.slower if us < OWN_US else 1.0)

    def computes(self, name: str, us: float) -> None:
        """An operator of the CPU, as slow with a profiler as without."""
        self.made.operator(name, (self.now, us))
        self.now += us + 1

    def loads(self, us: float, iterator: str = "_SingleProcessDataLoaderIter") -> None:
        """Wait for a batch."""
        name = f"enumerate(DataLoader)#{iterator}.__next__"
        self.made.range(name, (self.now, us), Range.LOADER)
        self.now += us

    def launches(self, name: str, runs: float, times: int = 1, op: float = 0.0) -> None:
        """Launch kernels from an operator each, which takes `op` besides the call."""
        for _ in range(times):
            began = self.now
            self.now += op * self.slower
            call = CALL_US * self.slower
            begin = max(self.now + call + LATENCY_US, self.done)
            self.made.launched(name, call=(self.now, call), runs=(begin, runs), grid_x=100)
            self.now += call
            self.made.operator(f"aten::{name}", (began, self.now - began))
            self.done = begin + runs

    def replays(self, name: str, runs: float, kernels: int, op: float = 0.0) -> None:
        """Launch a CUDA graph of so many kernels, of which the trace names no nodes."""
        self.now += op * self.slower
        call, correlation = CALL_US * self.slower, self.made.correlation()
        begin = max(self.now + call + LATENCY_US, self.done)
        kind = CallKind.GRAPH_LAUNCH
        self.made.call("cudaGraphLaunch", (self.now, call), kind, correlation=correlation)
        for place in range(kernels):
            at = (begin + place * runs, runs)
            self.made.kernel(f"{name} {place}", at, correlation=correlation, grid_x=100)
        self.now += call
        self.done = begin + kernels * runs

    def waits(self, call: str = "cudaDeviceSynchronize", operator: str = "") -> None:
        """Wait until the GPU is done."""
        began = self.now
        self.now = max(self.now + 1, self.done + 1)
        self.made.call(call, (began, self.now - began), CallKind.SYNCHRONIZE)
        if operator:
            self.made.operator(operator, (began, self.now - began))

    def item(self) -> None:
        """Fetch a value, as `.item()` does."""
        began = self.now
        begin = max(self.now + CALL_US, self.done)
        correlation = self.made.correlation()
        self.made.copied(
            call=(self.now, CALL_US),
            runs=(begin, 1.5),
            bytes=4,
            direction=Direction.DEVICE_TO_HOST,
            source=Memory.DEVICE,
            destination=Memory.PINNED,
            correlation=correlation,
        )
        self.done = begin + 1.5
        self.now += CALL_US
        synced = self.now
        self.now = max(self.done, self.now) + 1
        self.made.call("cudaStreamSynchronize", (synced, self.now - synced), CallKind.SYNCHRONIZE)
        self.made.operator("aten::item", (began, self.now - began))
        self.made.operator("aten::_local_scalar_dense", (began, self.now - began))

    def copies(
        self, size: int, rate: float, *, pinned: bool = False, to_host: bool = False
    ) -> None:
        """Copy bytes at a rate in GB/s; the host waits for copies of pageable memory."""
        took = size / rate / 1e3
        host = Memory.PINNED if pinned else Memory.PAGEABLE
        begin = max(self.now + CALL_US, self.done)
        self.done = begin + took
        call = CALL_US if pinned else self.done - self.now + 1
        self.made.copied(
            call=(self.now, call),
            runs=(begin, took),
            bytes=size,
            direction=Direction.DEVICE_TO_HOST if to_host else Direction.HOST_TO_DEVICE,
            source=Memory.DEVICE if to_host else host,
            destination=host if to_host else Memory.DEVICE,
        )
        self.now += call

    def allocates(self, us: float, free: bool = False, call: str = "") -> None:
        """Call `cudaMalloc`, or `cudaFree`, which waits, or another one that does the same."""
        began = self.now
        if free:
            self.now = max(self.now, self.done)
        self.now += us
        kind = CallKind.FREE if free else CallKind.ALLOCATE
        name = call or ("cudaFree" if free else "cudaMalloc")
        self.made.call(name, (began, self.now - began), kind)

    def marks(self, name: str, began: float) -> None:
        """Mark a range that began at some time."""
        self.made.range(name, (began, self.now - began))

    def step(self, number: int, began: float) -> None:
        """Mark a step of the profiler that began at some time."""
        self.made.range(f"ProfilerStep#{number}", (began, self.now - began), Range.STEP)

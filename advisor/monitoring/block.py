"""`gpuadvisor.monitor()`: what a block of the user's own program does to the GPUs.

with gpuadvisor.monitor() as block:
    train()

print(block)
print(block.gpus[0].energy_j)
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuadvisor.domain.telemetry import Gpu
from gpuadvisor.errors import UsageError

if TYPE_CHECKING:
    from gpuadvisor.collectors.telemetry.supervisor import SamplerProcess
    from gpuadvisor.monitoring.figures import BlockFigures, GpuFigures

FAST_S = 0.1
WAIT_S = 10.0
"""Seconds to wait: without persistence mode the driver first wakes each GPU, for about one each."""
LAST_FRAME_S = 3.0
"""A frame comes every second at least, but while a silent sampler is replaced."""
Wanted = Sequence[int | str] | int | str | None
"""The GPUs that are asked for: one, some, or (None) all."""


def monitor(gpus: Wanted = None, *, fast: bool = True, wait_s: float = WAIT_S) -> Block:
    """Return a context manager that measures its block on the GPUs that this process can use.

    gpus: which, one or a list: numbers as torch counts them (0 is `cuda:0`, the first that
        `CUDA_VISIBLE_DEVICES` leaves), or UUIDs (or how one begins) of any GPU of the machine.
        Unless given, all that `CUDA_VISIBLE_DEVICES` leaves. CUDA numbers different models
        fastest first: there, name UUIDs, or set `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
    fast: utilization, power, memory and clocks every 0.1 s; else every second. Temperature, SM
        and tensor activity are read every second in both cases.
    wait_s: the block begins when the first readings are there (a second or less, where the driver
        runs), and after so many seconds in any case. This is not part of the block's time.

    A process of its own reads the GPUs. It ends with the block, which takes until its next
    reading, and some seconds at most where the driver hangs. Without a GPU or a driver the block
    runs all the same: `block.gpus` is empty, and `block.problem` says why.

    The figures are of the whole GPU, with what other processes do there.

    Energy is the difference of the GPU's own counter (`energy_source` is `counter`) where its
    readings, a second apart, span at least 80 % of the block; what the block has before the first
    and after the last of them is integrated from the power. Else (`power`) it is all integrated:
    by trapezoids over the readings, the first and the last of which hold until the block's edges.
    The driver averages the power over up to a second, so the energy of shorter blocks is a rough
    guess.
    """
    return Block(gpus, fast=fast, wait_s=wait_s)


class Block:
    """A block that `monitor` measures; it has figures when it has ended."""

    def __init__(self, gpus: Wanted, *, fast: bool, wait_s: float) -> None:
        self._wanted = gpus
        self._fast_s = FAST_S if fast else None
        self._wait_s = wait_s
        self._is_used = False
        self._collector: Collector | None = None
        self._chosen: tuple[Gpu, ...] = ()
        self._problem: str | None = None
        self._began_s = self._began = 0.0
        self._figures: BlockFigures | None = None

    def __enter__(self) -> Block:
        if self._is_used:
            raise UsageError("a block is measured once: call gpuadvisor.monitor() for each")
        self._is_used = True
        try:
            self._start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        seconds = time.perf_counter() - self._began  # the clock of `time.time` may be set
        try:
            if self._collector is not None:
                self._collector.end(self._began_s + seconds)
        finally:
            self._close()
            self._figures = self._result(seconds)

    @property
    def figures(self) -> BlockFigures:
        """All figures of the block, in one object that does not change."""
        if self._figures is None:
            raise UsageError(
                "the block of gpuadvisor.monitor() has not ended: read its figures after it"
            )
        return self._figures

    @property
    def seconds(self) -> float:
        """How long the block took."""
        return self.figures.seconds

    @property
    def gpus(self) -> tuple[GpuFigures, ...]:
        """The figures of each GPU; empty where there is none."""
        return self.figures.gpus

    @property
    def problem(self) -> str | None:
        """Why nothing could be read, at all or for some time, in one sentence."""
        return self.figures.problem

    def as_dict(self) -> dict[str, Any]:
        """Return all figures as JSON can hold them."""
        return self.figures.as_dict()

    def __str__(self) -> str:
        return "a block that has not ended" if self._figures is None else str(self._figures)

    def _start(self) -> None:
        self._collector = Collector()
        try:
            self._collector.start(self._fast_s)
        except OSError as error:
            self._collector = None
            self._problem = f"The sampler cannot be started: {error.strerror}."
        else:
            self._collector.answered.wait(self._wait_s)
            self._chosen = self._choose(self._collector.gpus)
        self._began_s, self._began = time.time(), time.perf_counter()
        if self._collector is not None:
            self._collector.begin(self._began_s)

    def _choose(self, known: Sequence[Gpu]) -> tuple[Gpu, ...]:
        if not known:
            return ()  # the sampler says why
        chosen = choose(known, self._wanted, os.environ.get("CUDA_VISIBLE_DEVICES"))
        if not chosen and self._wanted is None:
            self._problem = "CUDA_VISIBLE_DEVICES hides every GPU: unset it, or name one of them."
        return chosen

    def _close(self) -> None:
        if self._collector is not None:
            self._collector.close()

    def _result(self, seconds: float) -> BlockFigures:
        from gpuadvisor.monitoring.figures import BlockFigures

        if self._collector is None:
            return BlockFigures(seconds, problem=self._problem)
        try:
            chosen = self._chosen or self._choose(self._collector.gpus)
        except UsageError as error:  # the driver answered too late to say so before the block
            chosen, self._problem = (), f"{error}."
        found = self._collector.figures(self._began_s + seconds, chosen)
        return replace(found, problem=self._problem or found.problem)


class Collector:
    """Folds frames from `start` until `close`, which may come while it is being started."""

    def __init__(self) -> None:
        from gpuadvisor.monitoring.figures import BlockAccumulator

        self.answered = threading.Event()
        """Set when the first readings are there, or the driver has said that there are none."""
        self._block = BlockAccumulator()
        self._lock = threading.Lock()
        self._stopped = False
        self._sampler: SamplerProcess | None = None
        self._thread: threading.Thread | None = None

    def start(self, fast_period_s: float | None) -> None:
        """Start the sampler process and the thread; OSError where no process can be started."""
        from gpuadvisor.collectors.telemetry.supervisor import SamplerProcess
        from gpuadvisor.monitoring.figures import COUNTER

        # Not `sources.Live`: the machine's own figures would cost the block time and are not shown.
        self._sampler = SamplerProcess(fast_period_s=fast_period_s, hurried=(COUNTER,))
        self._thread = threading.Thread(
            target=self._collect, args=(self._sampler,), name="gpuadvisor-monitor", daemon=True
        )
        self._thread.start()

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that are known by now."""
        with self._lock:
            return self._block.gpus

    def begin(self, began_s: float) -> None:
        """Begin the block, at this Unix time."""
        with self._lock:
            self._block.begin(began_s)

    def end(self, ended_s: float) -> None:
        """End the block, and wait for the first reading after it, for a few seconds at most."""
        with self._lock:
            self._block.end(ended_s)
        self._join()

    def close(self) -> None:
        """End the sampler process and the thread."""
        with self._lock:
            self._stopped = True
        if self._sampler is not None:
            self._sampler.close()
        self._join()

    def _join(self) -> None:
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join(LAST_FRAME_S)

    def figures(self, ended_s: float, gpus: Sequence[Gpu]) -> BlockFigures:
        """Return the figures of these GPUs; after `close`, and once."""
        with self._lock:
            self._block.end(ended_s)
            return self._block.figures(gpus)

    def _collect(self, sampler: SamplerProcess) -> None:
        from gpuadvisor.daemon.sources import has_answered

        try:
            for frame in sampler.frames():
                with self._lock:
                    self._block.add(frame)
                    is_over = self._stopped or frame.time_s >= self._block.ended_s
                if has_answered(frame):
                    self.answered.set()
                if is_over:
                    return
        finally:
            self.answered.set()


def choose(known: Sequence[Gpu], wanted: Wanted, visible: str | None) -> tuple[Gpu, ...]:
    """Return those wanted of all that are known; `visible` is `CUDA_VISIBLE_DEVICES`.

    Numbers count what is visible; UUIDs, or how they begin, name any GPU. UsageError where one
    that is wanted is not there. Without wishes it is what is visible, which may be nothing.
    """
    if wanted is None:
        return _usable(known, visible)
    if isinstance(wanted, (int, str)):
        wanted = (wanted,)
    return tuple(_named(known, visible, each) for each in wanted)


def _usable(known: Sequence[Gpu], visible: str | None) -> tuple[Gpu, ...]:
    from gpuadvisor.collectors import devices

    if visible is None:
        return tuple(known)
    whole = {gpu.index: gpu for gpu in known if not gpu.is_instance}
    uuids = [whole[i].uuid if i in whole else None for i in range(max(whole, default=-1) + 1)]
    found = (
        [gpu for gpu in known if gpu.uuid == item] if isinstance(item, str) else [whole.get(item)]
        for item in devices.select_visible(uuids, visible)
    )
    return tuple(gpu for gpus in found for gpu in gpus if gpu)


def _named(known: Sequence[Gpu], visible: str | None, name: int | str) -> Gpu:
    if isinstance(name, str):
        matching = [gpu for gpu in known if gpu.uuid.startswith(name)]
        if len(matching) != 1:
            raise UsageError(
                f"{name!r} names {len(matching)} GPUs: give the UUID as nvidia-smi -L shows it"
            )
        return matching[0]
    usable = _usable(known, visible)
    if visible is None:
        usable = tuple(gpu for gpu in usable if not gpu.is_instance)
    if not 0 <= name < len(usable):
        raise UsageError(
            f"there is no GPU {name}: this process can use {len(usable)}, numbered from 0"
        )
    return usable[name]

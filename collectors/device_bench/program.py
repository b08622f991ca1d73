"""Runs in the interpreter that has torch, and measures what its device reaches.

Its text is passed with `python -c`, because that interpreter may be without gpuadvisor: so it
imports only the standard library and torch. It says each result in a line of JSON on its standard
output, to which nothing else is written. It sets no clock and changes nothing that outlives it.

A rate is the median of repeats. Operands are random: zeros draw less power, so that clocks stay
higher than in real work. Buffers are far larger than any L2 cache.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

GIB = 1 << 30
MIB = 1 << 20
BUFFER_BYTES = GIB
"""Size of the source of a copy; the largest L2 cache (B200) has 126 MB."""
TRANSFER_BYTES = 256 * MIB
"""Size of a copy between host and device: 5 ms and more on any PCI Express."""
MEMORY_SHARE = 8
"""A buffer takes at most this part of the free memory."""
MATRIX_SIDES = (8192, 4096, 2048, 1024)
"""The first whose product takes less than `MATMUL_S` is taken."""
MATMUL_S = 0.1
STRIDE = 32
"""Elements of 4 bytes, so that each comes from a line of 128 bytes of its own."""
EMPTY_KERNELS = 10_000

Action = Callable[[], Any]
Result = dict[str, Any]
Measure = tuple[str, Callable[[], Result]]
"""A quantity, and the function that measures it."""


class Bench:
    """A device, and how long to measure on it."""

    def __init__(self, torch: Any, settings: dict[str, Any]) -> None:
        self.torch = torch
        self.device = torch.device(settings["device"])
        self.repeats: int = settings["repeats"]
        self.sample_s: float = settings["sample_s"]
        self.most_bytes: int = settings["most_bytes"] or BUFFER_BYTES
        self.sides = tuple(settings["sides"] or MATRIX_SIDES)
        self.is_cuda = self.device.type == "cuda"
        if self.is_cuda:
            torch.cuda.set_device(self.device)

    def synchronize(self) -> None:
        if self.is_cuda:
            self.torch.cuda.synchronize(self.device)

    def buffer_bytes(self, wanted: int) -> int:
        """Return a size that fits, in whole MiB where it is that large."""
        size = min(wanted, self.most_bytes)
        if self.is_cuda:
            size = min(size, self.torch.cuda.mem_get_info(self.device)[0] // MEMORY_SHARE)
        return size // MIB * MIB if size > MIB else size

    def random(self, size: int, device: Any = None) -> Any:
        """Return `size` bytes of random floats."""
        return self.torch.randn(size // 4, device=device or self.device)

    def seconds(self, action: Action) -> list[float]:
        """Return the seconds of one action, a figure a repeat, after warming up.

        A repeat is as many actions as fill `sample_s`; the clock is the device's own.
        """
        action()
        once = max(self._sample(action, 1), 1e-7)
        count = max(1, min(100_000, int(self.sample_s / once)))
        self._sample(action, count)  # clocks rise within some ten milliseconds of work
        return [self._sample(action, count) for _ in range(self.repeats)]

    def _sample(self, action: Action, count: int) -> float:
        if not self.is_cuda:
            return self.wall(action, count)
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.synchronize()
        begin.record()
        for _ in range(count):
            action()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / count

    def wall(self, action: Action, count: int) -> float:
        """Return the seconds of one action by the host's clock."""
        self.synchronize()
        began = time.perf_counter()
        for _ in range(count):
            action()
        self.synchronize()
        return (time.perf_counter() - began) / count


def median(values: list[float]) -> float:
    """Return the middle one, or the mean of the two in the middle."""
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def rate(quantity: str, unit: str, amount: float, seconds: list[float], **how: Any) -> Result:
    """Return what is said of a rate: its median and its extremes."""
    rates = sorted(amount / max(each, 1e-12) for each in seconds)
    return {
        "event": "rate", "quantity": quantity, "unit": unit, "value": median(rates),
        "low": rates[0], "high": rates[-1], "repeats": len(rates), "how": how,
    }  # fmt: skip


def memory(bench: Bench) -> Iterator[Measure]:
    """Yield the measurements within the device's memory; bytes read and written are counted."""
    torch, size = bench.torch, bench.buffer_bytes(BUFFER_BYTES)
    source = bench.random(size)
    target = torch.zeros_like(source)
    count = source.numel()

    def copied() -> Result:
        seconds = bench.seconds(partial(target.copy_, source))
        return rate("dram", "bytes/s", 8 * count, seconds, bytes=4 * count)

    def added() -> Result:
        seconds = bench.seconds(partial(torch.add, source, target, out=target))
        return rate("dram_add", "bytes/s", 12 * count, seconds, bytes=4 * count)

    def strided() -> Result:
        """Count only the elements that are used, not the lines that they come in."""
        few = source[: count // STRIDE * STRIDE].view(-1, STRIDE)[:, 0]
        seconds = bench.seconds(partial(torch.empty_like(few).copy_, few))
        return rate("dram_strided", "bytes/s", 8 * few.numel(), seconds, stride_bytes=4 * STRIDE)

    def gathered() -> Result:
        """Count elements read and written, not their numbers."""
        places = torch.randint(0, count, (max(1, count // 8),), device=bench.device)
        into = torch.empty(len(places), device=bench.device)
        seconds = bench.seconds(partial(torch.index_select, source, 0, places, out=into))
        return rate("dram_random", "bytes/s", 8 * len(places), seconds, element_bytes=4)

    yield "dram", copied
    yield "dram_add", added
    yield "dram_strided", strided
    yield "dram_random", gathered


def arithmetic(bench: Bench) -> Iterator[Measure]:
    """Yield a matmul for each data type that the GPU has units for; torch emulates the others."""
    torch = bench.torch

    def plain(dtype: Any, precision: str = "highest") -> Callable[[int], Action]:
        def made(side: int) -> Action:
            torch.set_float32_matmul_precision(precision)
            a, b = (bench.random(4 * side * side).view(side, side).to(dtype) for _ in range(2))
            return partial(torch.mm, a, b, out=torch.empty_like(a))

        return made

    def int8(side: int) -> Action:
        shape = {"size": (side, side), "dtype": torch.int8, "device": bench.device}
        a, b = (torch.randint(-128, 128, **shape) for _ in range(2))
        return partial(torch._int_mm, a, b.t())

    def fp8(side: int) -> Action:
        a, b = (
            bench.random(4 * side * side).view(side, side).to(torch.float8_e4m3fn) for _ in range(2)
        )
        one = torch.ones((), device=bench.device)
        how = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16}
        return partial(torch._scaled_mm, a, b.t(), use_fast_accum=bench.is_cuda, **how)

    cases: tuple[tuple[str, tuple[int, int], Callable[[], Callable[[int], Action]]], ...] = (
        ("fp32", (0, 0), lambda: plain(torch.float32)),
        ("tf32", (8, 0), lambda: plain(torch.float32, "high")),
        ("bf16", (8, 0), lambda: plain(torch.bfloat16)),
        ("fp16", (7, 0), lambda: plain(torch.float16)),
        ("fp8", (8, 9), lambda: fp8),
        ("int8", (7, 5), lambda: int8),
        ("fp64", (0, 0), lambda: plain(torch.float64)),
    )
    for kind, least, made in cases:
        yield kind, partial(matmul, bench, kind, least, made())


def matmul(
    bench: Bench, kind: str, least: tuple[int, int], made: Callable[[int], Action]
) -> Result:
    """Measure square matrices, as large as time allows."""
    if bench.is_cuda and bench.torch.cuda.get_device_capability(bench.device) < least:
        raise RuntimeError("this GPU has no units for it")
    smallest = bench.sides[-1]
    guess = made(smallest)
    guess()
    once = min(bench.wall(guess, 3) for _ in range(2))
    fitting = (side for side in bench.sides if once * (side / smallest) ** 3 < MATMUL_S)
    side = next(fitting, smallest)
    unit = "op/s" if kind.startswith("int") else "flop/s"
    return rate(kind, unit, 2 * side**3, bench.seconds(made(side)), side=side)


def transfers(bench: Bench) -> Iterator[Measure]:
    """Yield copies between host and device."""
    size = bench.buffer_bytes(TRANSFER_BYTES)

    def moved(name: str, to_device: bool, pinned: bool) -> Result:
        host, there = bench.random(size, "cpu"), bench.random(size)
        host = host.pin_memory() if pinned else host
        target, source = (there, host) if to_device else (host, there)
        seconds = bench.seconds(partial(target.copy_, source, non_blocking=pinned))
        return rate(name, "bytes/s", 4 * host.numel(), seconds, bytes=4 * host.numel())

    for way in ("host_to_device", "device_to_host"):
        for kind in ("pinned", "pageable"):
            name = f"{way}_{kind}"
            yield name, partial(moved, name, way == "host_to_device", kind == "pinned")


def launches(bench: Bench) -> Iterator[Measure]:
    """Yield how fast kernels that do nothing follow each other, and how long one takes."""
    torch = bench.torch
    one = torch.zeros(1, device=bench.device)
    operator: Action = partial(one.add_, 1)
    sleep = getattr(torch.cuda, "_sleep", None) if bench.is_cuda else None
    empty: Action = partial(sleep, 0) if sleep else operator  # a kernel that waits for 0 cycles
    count = EMPTY_KERNELS if bench.is_cuda else 100

    def throughput(quantity: str, action: Action) -> Result:
        bench.wall(action, count)
        seconds = [bench.wall(action, count) for _ in range(bench.repeats)]
        return rate(quantity, "1/s", 1, seconds, launches=count)

    def latency() -> Result:
        """Return the seconds from the call until the host knows that the kernel is done."""
        bench.wall(empty, 10)
        seconds = [min(bench.wall(empty, 1) for _ in range(50)) for _ in range(bench.repeats)]
        each = rate("launch_latency", "s", 1, seconds)
        return {**each, "value": median(seconds), "low": min(seconds), "high": max(seconds)}

    yield "launches", partial(throughput, "launches", empty)
    yield "operators", partial(throughput, "operators", operator)
    yield "launch_latency", latency


def describe(bench: Bench) -> Result:
    """Return what torch says of the device."""
    torch, found = bench.torch, {"event": "device", "torch": str(bench.torch.__version__)}
    if not bench.is_cuda:
        return {**found, "name": "cpu"}
    said = torch.cuda.get_device_properties(bench.device)
    uuid = getattr(said, "uuid", None)  # not in every version of torch
    return {
        **found,
        "cuda": torch.version.cuda,
        "name": said.name,
        "compute_capability": [said.major, said.minor],
        "multiprocessors": said.multi_processor_count,
        "memory_bytes": said.total_memory,
        "l2_bytes": getattr(said, "L2_cache_size", None),
        "uuid": None if uuid is None else str(uuid),
    }


def run(torch: Any, settings: dict[str, Any], say: Callable[[Result], None]) -> None:
    """Measure everything; what fails is said with its reason, and the rest goes on."""
    bench = Bench(torch, settings)
    say(describe(bench))
    torch.manual_seed(0)
    parts = (memory, arithmetic, transfers, launches)
    for name, measure in chain.from_iterable(part(bench) for part in parts):
        try:
            say(measure())
        except Exception as error:  # out of memory, or a type that this torch or GPU lacks
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            say({"event": "unavailable", "quantity": name, "reason": reason[:300]})
        if bench.is_cuda:
            torch.cuda.empty_cache()
    say({"event": "done"})


def main() -> None:
    """Take the settings from the command line, and say what comes of them."""
    settings = json.loads(sys.argv[1])
    warnings.simplefilter("ignore")
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as events:
        os.dup2(2, 1)  # what libraries print is no event

        def say(event: Result) -> None:
            events.write(json.dumps(event) + "\n")
            events.flush()

        try:
            import torch
        except BaseException as error:  # a broken library raises OSError; some builds call sys.exit
            say({"event": "torchless", "reason": f"torch cannot be imported ({error})"})
            return
        reason = missing(torch, settings["device"])
        if reason is not None:
            say({"event": "failed", "reason": reason})
            return
        run(torch, settings, say)


def missing(torch: Any, device: str) -> str | None:
    """Return why torch has no such device, None where it has."""
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return None
    if not torch.cuda.is_available():
        return "its torch finds no GPU that CUDA can use"
    count = torch.cuda.device_count()
    if not 0 <= int(number) < count:
        return f"its torch sees {count} GPU{'s' * (count > 1)}, and the first is number 0"
    return None


if __name__ == "__main__":
    main()

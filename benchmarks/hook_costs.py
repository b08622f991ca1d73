"""What each hook of the harness costs a step, called alone: finer than `harness_overhead.py`.

    python benchmarks/hook_costs.py [--rounds 1500]

In a script, the step before has driven the hooks out of the processor's caches, and to fetch them
again is most of what they cost. So each call is timed twice: at once after others (hot), and after
work that empties the caches of a core (cold). A script's steps lie between, near the second. What
is said are medians, with the bare call in turns; they leave out what the end of a window costs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch.optim import optimizer as optimizers
from torch.utils.data import BatchSampler, dataloader

from gpuadvisor.collectors.script.child.channel import Channel
from gpuadvisor.collectors.script.child.session import Session
from gpuadvisor.collectors.script.specification import Schedule, Specification

SCHEDULE = Schedule(warmup_s=0.0, window_s=0.2, measure_s=3600.0, max_measure_s=3600.0)
"""Windows as short as in a study, in a measurement that goes on."""
WARM_UP = 64
"""Steps after which the harness counts."""
CACHE_BYTES = 4 << 20
"""More than the caches of one core hold."""
UNMARKED = "optimizer without a mark"
SHARE = 0.22
"""Part of the steps of 3.7 ms that end with a mark, in windows of half a second."""

Calls = tuple[Callable[[], Any], Callable[[], Any]]


class Iterator(dataloader._BaseDataLoaderIter):
    """A loader's iterator in the middle of an epoch."""

    def __init__(self) -> None:
        self._dataset = ()  # type: ignore[assignment]
        self._index_sampler = BatchSampler(range(6400), 64, drop_last=False)
        self._num_workers = 0
        self._num_yielded = 1


class Identity(torch.nn.Module):
    """Has a parameter, as what computes has, and does nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value


def main() -> None:
    """Take torch's own work out, put the harness in, and time what is left."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=1500)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    # With work on a GPU steps are marked by its events.
    work = torch.zeros(1, device="cuda" if torch.cuda.is_available() else "cpu")
    hooks = _hooks()
    assert work.is_cuda == torch.cuda.is_available()
    for name, cold in (("hot", False), ("cold", True)):
        costs = _costs_us(hooks, rounds, cold)
        told = ", ".join(f"{hook} {cost:.1f}" for hook, cost in costs.items())
        unmarked = costs.pop(UNMARKED, 0.0)
        every_us = sum(costs.values())
        some_us = every_us - (1 - SHARE) * (costs["optimizer"] - unmarked)
        print(
            f"{name}: {every_us:.1f} us a step, {some_us:.1f} where {SHARE:.0%} have a mark: {told}"
        )


def _hooks() -> dict[str, Calls]:
    """Return by name a call without the hook, and the same with it."""
    base: Any = dataloader._BaseDataLoaderIter
    bare_next = base.__next__ = lambda self: [torch.empty(64, 8), None]
    bare_backward: Any = lambda *_, **__: None  # noqa: E731
    torch.autograd.backward = bare_backward
    session = Session(Specification(seed=0, schedule=SCHEDULE), Channel("/dev/null"))
    session.install()
    counters = session._clock._counters
    iterator, root, loss = Iterator(), Identity(), torch.zeros(())
    optimizer = torch.optim.SGD(root.parameters())
    for _ in range(WARM_UP):
        next(iterator)
        loss.backward()
        root(loss)
        optimizer.step()
    bare_root = Identity()  # the roots are known by now
    stepped = list(optimizers._global_optimizer_post_hooks.values())[-1]
    following, backward = base.__next__, torch.autograd.backward

    def marked() -> None:
        counters.unmarked = 0
        stepped(optimizer, (), {})

    def unmarked() -> None:
        counters.unmarked = 2
        stepped(optimizer, (), {})

    def leave(left: int) -> None:
        counters.unmarked = left

    return {
        "loader": (lambda: bare_next(iterator), lambda: following(iterator)),
        "root": (lambda: bare_root(loss), lambda: root(loss)),
        "backward": (lambda: bare_backward(loss), lambda: backward(loss)),
        "optimizer": (lambda: leave(0), marked),
        UNMARKED: (lambda: leave(2), unmarked),
    }


def _costs_us(hooks: dict[str, Calls], rounds: int, cold: bool) -> dict[str, float]:
    filler = torch.zeros(CACHE_BYTES // 4)
    layers = torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(4)))
    took_ns: dict[str, tuple[list[int], list[int]]] = {name: ([], []) for name in hooks}
    for each in range(2 * rounds):
        hooked = each % 4 in (1, 2)
        for name, calls in hooks.items():
            if cold:
                layers(filler[: 64 * 128].view(64, 128))
                filler.add_(1)
            began = time.perf_counter_ns()
            calls[hooked]()
            took_ns[name][hooked].append(time.perf_counter_ns() - began)
    return {name: (median(took[1]) - median(took[0])) / 1e3 for name, took in took_ns.items()}


if __name__ == "__main__":
    main()

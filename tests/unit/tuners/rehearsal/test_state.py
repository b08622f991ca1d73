"""Which generators gave the same numbers twice, from what each worker began with."""

from __future__ import annotations

import pytest

from gpuadvisor.domain.rehearsal import WorkerStart
from gpuadvisor.tuners.rehearsal.state import Repetition, repeated


def start(epoch: int, worker: int, state: str, drawn: bool = True, loader: int = 0) -> WorkerStart:
    return WorkerStart(loader, epoch, worker, {"dataset.rng": state}, ("dataset.rng",) * drawn)


@pytest.mark.parametrize(
    ("starts", "found"),
    [
        pytest.param([start(0, 0, "a"), start(0, 1, "b")], [], id="each of its own"),
        pytest.param([start(0, 0, "a", False), start(0, 1, "a", False)], [], id="never drawn from"),
        pytest.param([start(0, 0, "a"), start(0, 1, "a", False)], [], id="drawn from in one only"),
        pytest.param(
            [start(0, 0, "a"), start(0, 0, "a", loader=1)], [], id="in two loaders' workers"
        ),
        pytest.param([start(0, 1, "a"), start(0, 0, "a")], [((0, 0), (0, 1))], id="two workers"),
        pytest.param([start(0, 0, "a"), start(1, 0, "a")], [((0, 0), (1, 0))], id="two epochs"),
        pytest.param(
            [start(epoch, worker, "a") for epoch in (0, 1) for worker in (0, 1)],
            [((0, 0), (0, 1)), ((0, 0), (1, 0))],
            id="all",
        ),
    ],
)
def test_repeated(
    starts: list[WorkerStart], found: list[tuple[tuple[int, int], tuple[int, int]]]
) -> None:
    assert repeated(starts) == [Repetition(0, "dataset.rng", *pair) for pair in found]

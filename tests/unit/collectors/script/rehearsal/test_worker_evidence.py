"""Real DataLoaders with two workers, and what these begin with."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuadvisor.collectors.script.events import RunRecorder
from gpuadvisor.collectors.script.lives import read_life
from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.domain.rehearsal import WorkerStart
from gpuadvisor.domain.study import TrialState
from gpuadvisor.tuners.rehearsal.state import repeated

torch = pytest.importorskip("torch")

SCRIPT = """
import random, sys, types
import numpy, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from gpuadvisor.collectors.script.child.rehearsal import worker_evidence
from gpuadvisor.collectors.script.child.rehearsal.record import Record
from gpuadvisor.collectors.script.child.rehearsal.worker_evidence import watch_workers

class Noise(Dataset):
    def __init__(self):
        self.rng = numpy.random.default_rng(0)
        self.idle = numpy.random.default_rng(1)
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return float(self.rng.normal())

class Lazy(Noise):
    def __init__(self, seeded):
        self.rng, self.seeded = None, seeded
    def __getitem__(self, index):
        if self.rng is None:
            self.rng = numpy.random.default_rng(get_worker_info().seed if self.seeded else 5)
        return float(self.rng.normal())

class ByIndex(Noise):
    def __init__(self):
        self.python, self.rng, self.old = random.Random(0), None, numpy.random.RandomState(0)
        self.torch = torch.Generator()
    def __getitem__(self, index):
        self.python.seed(index)
        self.old.seed(index)
        self.rng = numpy.random.default_rng(index)
        self.torch.manual_seed(index)
        draw = self.python.random() + self.rng.random() + self.old.rand()
        return draw + float(torch.rand((), generator=self.torch))

class Crop(Noise):
    # Draws more often than a Mersenne Twister has words, and as often as each sample wants.
    def __init__(self):
        self.python, self.old = random.Random(0), numpy.random.RandomState(0)
    def __getitem__(self, index):
        self.old.normal(size=1000 * (index + 1))
        return sum(self.python.random() for _ in range(1000 * (index + 1)))

def breaks(worker):
    worker_evidence.state_of = None

class Global(Noise):
    def __getitem__(self, index):
        return float(torch.rand(())) + numpy.random.rand()

sys.modules["augment"] = augment = types.ModuleType("augment")
augment.RNG, augment.IDLE = numpy.random.default_rng(), random.Random()

class OfLibrary(Noise):
    def __getitem__(self, index):
        return float(sys.modules["augment"].RNG.normal())

class Stream(IterableDataset):
    def __init__(self):
        self.rng = numpy.random.default_rng(0)
    def __iter__(self):
        return iter(self.rng.permutation(8).tolist())

def by_worker(worker):
    get_worker_info().dataset.rng = numpy.random.default_rng([worker, get_worker_info().seed])

CASES = {
    "noise": (Noise, None, False),
    "persistent": (Noise, None, True),
    "seeded": (Noise, by_worker, False),
    "lazy": (lambda: Lazy(True), None, False),
    "lazy_same": (lambda: Lazy(False), None, False),
    "global": (Global, None, False),
    "library": (OfLibrary, None, False),
    "stream": (Stream, None, False),
    "by_index": (ByIndex, None, False),
    "crop": (Crop, None, False),
    "broken": (Noise, breaks, False),
}

if __name__ == "__main__":
    epochs = {}
    def numbers(loader):
        epochs[loader] = epochs.get(loader, -1) + 1
        return names.index(loader.name), epochs[loader]
    path, method, *names = sys.argv[1:]
    watch_workers(numbers, Record(path))
    next(iter(DataLoader(Noise(), num_workers=1)))  # of which nothing is known
    for name in names:
        dataset, init, persistent = CASES[name]
        loader = DataLoader(dataset(), 2, num_workers=2, worker_init_fn=init,
                            multiprocessing_context=method, persistent_workers=persistent)
        loader.name = name
        for epoch in range(2):
            for batch in loader:
                pass
        assert loader.worker_init_fn is init
"""


@dataclass
class Starts:
    """What the workers of each case began with, and what could not be looked at."""

    by_case: dict[str, list[WorkerStart]]
    failures: tuple[str, ...]

    def __getitem__(self, case: str) -> list[WorkerStart]:
        return self.by_case[case]


def starts_of(folder: Path, method: str, *cases: str) -> Starts:
    script, out = folder / "script.py", folder / "out"
    script.write_text(SCRIPT)
    out.mkdir()
    # A worker that `spawn` starts finds the package through this.
    root = Path(__file__).parents[5]
    path = os.pathsep.join(map(str, (root / "src", root / "tests" / "quick_python")))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, str(script), str(out), method, *cases],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "gpuadvisor could not" not in done.stderr, "it is the parent that is told"
    outcome = RunOutcome(TrialState.COMPLETE, "", None, "", 1.0)
    life = read_life(out, outcome, RunRecorder(lambda: None))
    starts = {case: [s for s in life.workers if s.loader == i] for i, case in enumerate(cases)}
    return Starts(starts, life.failures)


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Starts:
    folder = tmp_path_factory.mktemp("forked")
    cases = "noise persistent seeded lazy lazy_same global library stream by_index crop broken"
    return starts_of(folder, "fork", *cases.split())


def of_dataset(start: WorkerStart) -> tuple[str, ...]:
    """The generators of the data set that were drawn from: in workers torch 2.4 imports sympy, of
    which some modules have generators."""
    return tuple(path for path in start.advanced if path.startswith("dataset."))


def test_each_worker_and_each_epoch_repeats_the_noise(forked: Starts) -> None:
    starts = forked["noise"]
    assert {(s.epoch, s.worker) for s in starts} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert {of_dataset(s) for s in starts} == {("dataset.rng",)}
    assert {"dataset.idle", "random", "numpy.random", "torch"} < set(starts[0].generators)
    assert {(r.path, r.is_between_workers) for r in repeated(starts)} == {
        ("dataset.rng", True),
        ("dataset.rng", False),
    }


def test_persistent_workers_go_on_with_their_generators(forked: Starts) -> None:
    starts = forked["persistent"]
    assert {start.epoch for start in starts} == {0, 1}
    assert {r.is_between_workers for r in repeated(starts)} == {True}


@pytest.mark.parametrize("case", ["seeded", "lazy", "global", "by_index"])
def test_generators_seeded_by_worker_do_not_repeat(forked: Starts, case: str) -> None:
    assert all(start.advanced for start in forked[case])
    assert repeated(forked[case]) == []


def test_generators_made_alike_in_each_worker_repeat(forked: Starts) -> None:
    assert repeated(forked["lazy_same"])


def test_a_library_s_own_generator_repeats_its_numbers(forked: Starts) -> None:
    assert {start.advanced for start in forked["library"]} == {("augment.RNG",)}
    assert {r.is_between_workers for r in repeated(forked["library"])} == {True, False}


def test_what_is_drawn_when_a_stream_begins_counts(forked: Starts) -> None:
    assert {of_dataset(start) for start in forked["stream"]} == {("dataset.rng",)}
    assert repeated(forked["stream"])


def test_draws_of_different_numbers_are_still_the_same_numbers(forked: Starts) -> None:
    assert {"dataset.old", "dataset.python"} <= {r.path for r in repeated(forked["crop"])}


def test_what_could_not_be_looked_at_is_known_of_the_life(forked: Starts) -> None:
    assert forked["broken"] == []
    assert [failure.partition(":")[0] for failure in sorted(forked.failures)] == [
        "gpuadvisor could not look at a worker's generators",
        "gpuadvisor could not watch a loader's workers",
    ]


@pytest.mark.slow
def test_workers_that_spawn_starts_are_watched_too(tmp_path: Path) -> None:
    starts = starts_of(tmp_path, "spawn", "persistent")["persistent"]
    assert {(s.epoch, s.worker) for s in starts} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert {r.is_between_workers for r in repeated(starts)} == {True}

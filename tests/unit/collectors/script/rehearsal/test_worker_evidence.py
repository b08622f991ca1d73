"""Real DataLoaders with two workers, and what these begin with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuadvisor.domain.rehearsal import WorkerStart
from gpuadvisor.tuners.rehearsal.repeated_generators import repeated

torch = pytest.importorskip("torch")

SCRIPT = """
import json, random, sys
import numpy, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from gpuadvisor.collectors.script.child.rehearsal.worker_evidence import watch_workers
from gpuadvisor.domain.rehearsal import StateChange

class Report:
    def __init__(self, path):
        self.path = path
    def __call__(self, start):
        if isinstance(start, StateChange):
            line = [start.loader, start.epoch, start.path, start.kind, start.moment, start.detail]
        else:
            line = [start.loader, start.epoch, start.worker, start.generators, start.advanced]
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\\n")

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

class Cache(Noise):
    def __init__(self):
        self.cache = {}
    def __getitem__(self, index):
        return self.cache.setdefault(index, index)

class Global(Noise):
    def __getitem__(self, index):
        return float(torch.rand(())) + numpy.random.rand()

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
    "stream": (Stream, None, False),
    "by_index": (ByIndex, None, False),
    "crop": (Crop, None, False),
    "cache": (Cache, None, False),
}

if __name__ == "__main__":
    epochs = {}
    def numbers(loader):
        epochs[loader] = epochs.get(loader, -1) + 1
        return names.index(loader.name), epochs[loader]
    path, method, *names = sys.argv[1:]
    watch_workers(torch, numbers, Report(path), Report(path + ".changes"))
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


Starts = dict[str, list[WorkerStart]]


def starts_of(folder: Path, method: str, *cases: str) -> Starts:
    script, out = folder / "script.py", folder / "out"
    script.write_text(SCRIPT)
    # A worker that `spawn` starts finds the package through this.
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[5] / "src")}
    done = subprocess.run(
        [sys.executable, str(script), str(out), method, *cases],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "gpuadvisor could not" not in done.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    starts = [WorkerStart(*line[:4], tuple(line[4])) for line in lines]
    return {case: [s for s in starts if s.loader == i] for i, case in enumerate(cases)}


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Starts:
    folder = tmp_path_factory.mktemp("forked")
    cases = "noise persistent seeded lazy lazy_same global stream by_index crop cache"
    starts = starts_of(folder, "fork", *cases.split())
    changes = (folder / "out.changes").read_text().splitlines()
    starts["changes"] = [json.loads(line) for line in changes]
    return starts


def test_each_worker_and_each_epoch_repeats_the_noise(forked: Starts) -> None:
    starts = forked["noise"]
    assert {(s.epoch, s.worker) for s in starts} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert {s.advanced for s in starts} == {("dataset.rng",)}
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


def test_what_is_drawn_when_a_stream_begins_counts(forked: Starts) -> None:
    assert {start.advanced for start in forked["stream"]} == {("dataset.rng",)}
    assert repeated(forked["stream"])


def test_draws_of_different_numbers_are_still_the_same_numbers(forked: Starts) -> None:
    assert {"dataset.old", "dataset.python"} <= {r.path for r in repeated(forked["crop"])}


def test_what_reading_changes_in_a_worker_is_reported(forked: Any) -> None:
    assert {tuple(change[1:]) for change in forked["changes"] if "cache" in change[2]} == {
        (epoch, "dataset.cache", "container", "reading", "dict") for epoch in (0, 1)
    }


@pytest.mark.slow
def test_workers_that_spawn_starts_are_watched_too(tmp_path: Path) -> None:
    starts = starts_of(tmp_path, "spawn", "persistent")["persistent"]
    assert {(s.epoch, s.worker) for s in starts} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert {r.is_between_workers for r in repeated(starts)} == {True}

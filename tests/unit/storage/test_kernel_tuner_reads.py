"""Kernel Tuner itself, where it is installed, reads what we write, and we what it writes."""

import json
from pathlib import Path

import pytest

from gpuadvisor.domain.kernel_records import Evaluation, Record
from gpuadvisor.domain.study import TrialState
from gpuadvisor.storage.kernel_caches import Cache, read, t4

PARAMETERS = {"block_size_x": (32, 64, 128, 256), "tile": (1, 2, 4), "vector": (0, 1)}
PROBLEM = {"rows": 1000, "columns": 300}


def evaluations():
    for block in PARAMETERS["block_size_x"]:
        for tile in PARAMETERS["tile"]:
            point = {"block_size_x": block, "tile": tile, "vector": int(tile > 1)}
            if (block, tile) == (256, 4):
                yield Evaluation(point, TrialState.UNSUPPORTED, "it does not compile")
            elif (block, tile) == (256, 2):
                yield Evaluation(point, TrialState.WRONG, "3 elements differ")
            else:
                time_ms = 1 + abs(block - 128) / 64 + abs(tile - 2)
                yield Evaluation(point, TrialState.COMPLETE, "", (time_ms,) * 7, (3.0,) * 7)


RECORD = Record("add", "NVIDIA H200", PROBLEM, PARAMETERS, tuple(evaluations()))


@pytest.fixture
def kernel_tuner():
    return pytest.importorskip("kernel_tuner", reason="Kernel Tuner is not installed")


@pytest.fixture
def cache(tmp_path):
    cache = Cache(tmp_path / "cache.json", RECORD)
    for evaluation in RECORD.evaluations:
        cache.add(evaluation)
    return cache


def test_it_simulates_from_a_cache_of_ours(kernel_tuner, cache):
    cache.finish()
    results, env = kernel_tuner.tune_cache(str(cache.path), quiet=True)
    assert len(results) == 10  # it takes points that failed for restricted ones
    best = env["best_config"]
    assert (best["block_size_x"], best["tile"], best["time"]) == (128, 2, 1.0)
    assert best["times"] == [1.0] * 7


def test_it_knows_our_failures_and_reads_a_file_that_was_cut_off(kernel_tuner, cache):
    from kernel_tuner.util import CompilationFailedConfig, InvalidConfig, read_cache

    found = read_cache(str(cache.path), open_cache=False)["cache"]
    assert isinstance(found["256,4,1"]["__error__"], CompilationFailedConfig)
    assert isinstance(found["256,2,1"]["__error__"], InvalidConfig)
    assert "__error__" not in found["128,2,1"]


def test_t4_is_as_its_schema_says(kernel_tuner):
    jsonschema = pytest.importorskip("jsonschema")
    folder = Path(kernel_tuner.__file__).parent / "schema" / "T4" / "1.0.0"
    schema = json.loads((folder / "results-schema.json").read_text())
    document = t4(RECORD)
    jsonschema.validate(document, schema)
    assert len(document["results"]) == 12


def test_what_it_writes_is_read(kernel_tuner, cache, tmp_path):
    """A simulated study of its own, which goes through its own writer."""
    from kernel_tuner.file_utils import get_t4_results
    from kernel_tuner.util import CompilationFailedConfig, store_cache

    cache.finish()
    results, _ = kernel_tuner.tune_cache(str(cache.path), quiet=True)
    path = tmp_path / "theirs.json"
    names = list(PARAMETERS)
    head = {
        "device_name": "NVIDIA H200",
        "kernel_name": "add",
        "problem_size": [1000, 300],
        "tune_params_keys": names,
        "tune_params": PARAMETERS,
        "objective": ["time"],
        "cache": {},
    }
    path.write_text(json.dumps(head, indent="")[:-3])  # as its process_cache begins a file
    kept = {}
    for each in results:
        store_cache(",".join(str(each[name]) for name in names), each, str(path), kept)
    failed = {"block_size_x": 256, "tile": 4, "vector": 1, "__error__": CompilationFailedConfig()}
    store_cache("256,4,1", failed, str(path), kept)
    found = read(path)
    assert len(found.evaluations) == 11
    assert min(e.time_ms for e in found.evaluations if e.time_ms) == 1.0
    assert found.evaluations[-1].state is TrialState.UNSUPPORTED
    again = Cache(path, Record("add", "NVIDIA H200", PROBLEM, PARAMETERS))  # gone on with by us
    assert len(again.earlier) == 11
    document = tmp_path / "theirs_t4.json"
    document.write_text(json.dumps(get_t4_results(results, PARAMETERS)))
    assert min(e.time_ms for e in read(document).evaluations) == 1.0

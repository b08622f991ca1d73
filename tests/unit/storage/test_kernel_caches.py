"""Files of Kernel Tuner and T4 files, written and read, whole and cut off."""

import gzip
import json

import pytest

from gpuadvisor.domain.kernel_records import Evaluation, Record
from gpuadvisor.domain.study import TrialState
from gpuadvisor.errors import UsageError
from gpuadvisor.storage.kernel_caches import Cache, read, t4

EVALUATIONS = (
    Evaluation({"b": 32, "v": 1}, TrialState.COMPLETE, "", (1.0, 1.5, 1.25), (2.0, 2.5, 2.5)),
    Evaluation({"b": 64, "v": 1}, TrialState.UNSUPPORTED, "too much shared memory"),
    Evaluation({"b": 64, "v": 2}, TrialState.WRONG, "3 elements differ"),
)
RECORD = Record("add", "H200", {"n": 8}, {"b": (32, 64), "v": (1, 2)})


def written(path, finish):
    cache = Cache(path, RECORD)
    for evaluation in EVALUATIONS:
        cache.add(evaluation)
    if finish:
        cache.finish()


@pytest.mark.parametrize("finish", [True, False])
def test_what_is_written_is_read_also_if_the_writer_was_killed(tmp_path, finish):
    written(tmp_path / "cache.json", finish)
    found = read(tmp_path / "cache.json")
    assert (found.kernel, found.device, found.parameters) == ("add", "H200", RECORD.parameters)
    assert [(e.point, e.state, e.reason, e.time_ms, e.gain) for e in found.evaluations] == [
        (e.point, e.state, e.reason, e.time_ms, e.gain) for e in EVALUATIONS
    ]


def test_a_line_that_was_cut_off_takes_no_other_with_it(tmp_path):
    written(tmp_path / "cache.json", finish=False)
    text = (tmp_path / "cache.json").read_text()
    last = len(text) - len(text.rpartition("\n")[2])
    for end in range(last, len(text)):
        (tmp_path / "cache.json").write_text(text[:end])
        kept = Cache(tmp_path / "cache.json", RECORD).earlier
        assert [each.point for each in kept][:2] == [each.point for each in EVALUATIONS[:2]]
    assert list(tmp_path.iterdir()) == [tmp_path / "cache.json"]


def test_a_finished_file_is_json_as_kernel_tuner_has_it(tmp_path):
    written(tmp_path / "cache.json", finish=True)
    document = json.loads((tmp_path / "cache.json").read_text())
    assert list(document["cache"]) == ["32,1", "64,1", "64,2"]
    assert document["cache"]["32,1"]["time"] == 1.25
    assert document["cache"]["64,1"]["time"] == "CompilationFailedConfig"


def test_a_study_goes_on_with_its_own_file_and_no_other(tmp_path):
    written(tmp_path / "cache.json", finish=True)
    again = Cache(tmp_path / "cache.json", RECORD)
    assert [each.point for each in again.earlier] == [each.point for each in EVALUATIONS]
    assert len(read(again.path).evaluations) == 3
    with pytest.raises(UsageError, match="holds another space than mul"):
        Cache(tmp_path / "cache.json", Record("mul", "H200", {"n": 8}, RECORD.parameters))


def test_the_files_of_the_benchmark_hub_are_read(tmp_path):
    """As Kernel Tuner 1.0 wrote them: one valid point, and one that could not be compiled."""
    document = {
        "device_name": "NVIDIA RTX A4000",
        "kernel_name": "convolution_kernel",
        "problem_size": [4096, 4096],
        "tune_params_keys": ["x", "y"],
        "tune_params": {"x": [16, 32], "y": [1]},
        "objective": "time",
        "cache": {
            "16,1": {"x": 16, "y": 1, "time": 9.7, "times": [9.6, 9.8], "compile_time": 833.6},
            "32,1": {"x": 32, "y": 1, "time": "CompilationFailedConfig", "times": None},
        },
    }
    path = tmp_path / "A4000.json.gz"
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    valid, failed = read(path).evaluations
    assert (valid.time_ms, valid.times_ms, valid.compile_ms) == (9.7, (9.6, 9.8), 833.6)
    assert (failed.state, failed.time_ms) == (TrialState.UNSUPPORTED, None)


def test_of_a_file_with_another_objective_the_time_is_read(tmp_path):
    document = {
        "device_name": "A4000",
        "kernel_name": "expdist",
        "problem_size": [1],
        "tune_params_keys": ["x"],
        "tune_params": {"x": [1, 2, 3]},
        "objective": "GFLOP/s",
        "cache": {
            "1": {"x": 1, "time": 2.0, "GFLOP/s": 100.0},
            "2": {"x": 2, "time": 1.0, "GFLOP/s": 200.0},
            "3": {"x": 3, "GFLOP/s": "RuntimeFailedConfig"},
        },
    }
    path = tmp_path / "cache.json"
    path.write_text(json.dumps(document))
    assert [each.time_ms for each in read(path).evaluations] == [2.0, 1.0, None]
    del document["cache"]["2"]["time"]
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=r"is damaged \(KeyError: 'time'\)"):
        read(path)


@pytest.mark.parametrize("time", ["-1.0", "0", "NaN", "1e20"])
def test_what_is_no_time_is_a_failure(tmp_path, time):
    cache, t4_file = tmp_path / "cache.json", tmp_path / "t4.json"
    fields = '"tune_params_keys": ["x"], "tune_params": {"x": [1]}'
    cache.write_text(f'{{{fields}, "cache": {{"1": {{"x": 1, "time": {time}}}}}}}')
    text = json.dumps(t4(Record("add", "H200", {}, {}, EVALUATIONS[:1])))
    t4_file.write_text(text.replace('"value": 1.25', f'"value": {time}'))
    for path in (cache, t4_file):
        (found,) = read(path).evaluations
        assert (found.state, found.time_ms) == (TrialState.CRASHED, None)


def test_t4_is_written_and_read(tmp_path):
    path = tmp_path / "t4.json"
    path.write_text(json.dumps(t4(Record("add", "H200", {}, {}, EVALUATIONS))))
    found = read(path)
    assert found.parameters == RECORD.parameters
    assert [each.state for each in found.evaluations] == [each.state for each in EVALUATIONS]
    assert found.evaluations[0].time_ms == 1.25


def test_the_unit_of_a_t4_time_is_read(tmp_path):
    path = tmp_path / "t4.json"
    text = json.dumps(t4(Record("add", "H200", {}, {}, EVALUATIONS)))
    path.write_text(text.replace('"unit": "ms"', '"unit": "Microseconds"'))
    assert read(path).evaluations[0].time_ms == 1.25e-3


@pytest.mark.parametrize(
    "text, said",
    [
        ("hello", "is no JSON"),
        ("{}", "is neither a cache file"),
        ('[{"block": 32, "time": 1.5}]', "is neither a cache file"),
        ('{"cache": {}}', "is damaged"),
        ('{"results": []}', "holds no result"),
        ('{"results": [{}]}', "is damaged"),
    ],
)
def test_other_files_are_refused(tmp_path, text, said):
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        read(path)

"""What a search over a kernel's points takes of the store's profiles with hardware counters."""

import gzip
from pathlib import Path

import pytest

from gpuadvisor.collectors.kernels.child.__main__ import Session
from gpuadvisor.domain.kernel_records import KernelDiagnosis
from gpuadvisor.domain.kernels import declared
from gpuadvisor.profiling.importing import import_trace
from gpuadvisor.profiling.kernels import diagnosis_of, function_name
from gpuadvisor.profiling.reading import trace_files
from gpuadvisor.storage.profiles.library import open_profiles
from gpuadvisor.tuners.kernels.points import Points
from gpuadvisor.tuners.space import Parameter
from gpuadvisor.tuning.kernels.seeding import SEEDED, said, seeds

ROOT = Path(__file__).parents[3]
PROFILES = ROOT / "tests" / "data" / "profiles"
H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with what Nsight Compute recorded of kernels on an H100, an H200 and an A10G."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUADVISOR_HOME", str(folder / "home"))
        for name in ("h100_planted", "h200_kernels", "a10g_gemm_esmm_b"):
            file = folder / f"{name}.csv"
            file.write_bytes(gzip.decompress((PROFILES / f"{name}.raw.csv.gz").read_bytes()))
            import_trace(open_profiles(), *trace_files([file]))
        yield


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    "device, kernel, rules, threads",
    [
        (H100, "smem_limited", ("occupancy_shared_memory",), 128),
        (H100, "bank_conflict_transpose", ("bank_conflicts",), 256),
        (H100, "tiny_grid", ("small_grid",), 128),
        (H100, "healthy_copy", ("dram_roof",), 256),
        ("NVIDIA H200", "sum_with_registers", ("occupancy_registers",), 256),
        ("NVIDIA H200", "sum_plain", ("occupancy_block_count",), 32),
        ("NVIDIA H200", "work_of_blocks", ("tail_effect",), 1024),
        ("NVIDIA H200", "transpose_tiles", (), 256),
        ("NVIDIA A10G", "one_blocktiling", ("cache_bound", "tail_effect"), 512),
    ],
)
def test_the_rules_that_speak_of_the_kernel_are_named(device, kernel, rules, threads):
    found = diagnosis_of(kernel, device)
    assert (found.rules, found.threads) == (rules, {threads})


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("device, kernel", [("NVIDIA H200", "tiny_grid"), (H100, "tiny")])
def test_another_gpu_and_another_name_are_another_kernel(device, kernel):
    assert diagnosis_of(kernel, device) is None


def test_without_profiles_there_is_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path))
    assert diagnosis_of("tiny_grid", H100) is None


@pytest.mark.parametrize(
    "written, name",
    [
        ("softmax", "softmax"),
        ("void ours::tile<(int)8, (bool)1>(float *, int)", "tile"),
        ("(anonymous namespace)::tile(const float *)", "tile"),
        ("_Z4tilePfi", "tile"),
    ],
)
def test_a_function_is_known_however_its_name_is_written(written, name):
    assert function_name(written) == name


BLOCKS, TILES = (32, 64, 128, 256, 512, 1024), (1, 2, 4, 8)
NAMES = [("block", 128), ("tile", 2), ("padding", 0)]
POINTS = Points(
    [Parameter(name, values, default) for (name, default), values in
     zip(NAMES, (BLOCKS, TILES, (0, 1)), strict=True)],
    [(block, tile, pad) for block in BLOCKS for tile in TILES for pad in (0, 1)],
)  # fmt: skip
LAUNCHES = [(2**20 // (block * tile), block) for block in BLOCKS for tile in TILES for _ in (0, 1)]
START = POINTS.find(dict(NAMES))


@pytest.mark.parametrize(
    "rules, first",
    [
        (["tail_effect"], {"block": 64}),
        (["small_grid"], {"block": 64}),
        (["occupancy_registers"], {"tile": 1}),
        (["occupancy_shared_memory"], {"block": 64}),
        (["dependent_loads"], {"tile": 4}),
        (["occupancy_block_count"], {"block": 256}),
        (["occupancy_block_size"], {"block": 64}),
        (["bank_conflicts"], {"padding": 1}),
        (["dram_roof", "bank_conflicts", "dependent_loads"], {"padding": 1}),
    ],
)
def test_what_is_found_is_relieved_by_one_step_of_one_parameter(rules, first):
    rows = seeds(POINTS, START, LAUNCHES, rules)
    assert 1 <= len(rows) <= SEEDED
    assert POINTS.point(rows[0]) == {**dict(NAMES), **first}


def test_several_causes_are_relieved_in_turns():
    one, other = (
        seeds(POINTS, START, LAUNCHES, [each]) for each in ("tail_effect", "bank_conflicts")
    )
    both = seeds(POINTS, START, LAUNCHES, ["tail_effect", "bank_conflicts"])
    assert both[:2] == [one[0], other[0]]


@pytest.mark.parametrize("rules", [[], ["dram_roof", "atomics"]])
def test_what_no_point_relieves_proposes_none(rules):
    assert seeds(POINTS, START, LAUNCHES, rules) == []


def test_launches_that_are_not_known_propose_none():
    unknown = [(0, 0)] * len(POINTS)
    assert seeds(POINTS, START, unknown, ["tail_effect"]) == []
    here = [each if row == START else (0, 0) for row, each in enumerate(LAUNCHES)]
    assert seeds(POINTS, START, here, ["tail_effect", "occupancy_block_size"]) == []


@pytest.mark.parametrize(
    "rules, threads, rows, told",
    [
        (("tail_effect",), 256, 2, "finds tail_effect: the search began with 2 points that are"),
        (("tail_effect",), 256, 1, "the search began with 1 point that is expected to relieve"),
        (("dram_roof",), 256, 0, "finds dram_roof: no point here is known to relieve that"),
        ((), 256, 0, "finds nothing that limits this kernel"),
        (("tail_effect",), 128, 0, "is of blocks of 256 threads, the default's have 128"),
    ],
)
def test_what_was_taken_of_a_profile_is_said(rules, threads, rows, told):
    sentence = said(KernelDiagnosis("mine", rules, frozenset({256})), threads, rows)
    assert sentence.startswith("the profile mine ")
    assert told in sentence


def test_the_launches_of_an_example_are_those_of_its_rules():
    declared()  # what other tests declared in this process
    session = Session(str(ROOT / "examples" / "kernels" / "transpose.py"), "")
    (kernel,) = session.describe({})["kernels"]
    points = kernel["problems"][0]["points"]
    launches = session.launches({"kernel": 0, "problem": 0})["launches"]
    assert len(launches) == len(points)
    start = points.index(tuple(kernel["default"].values()))
    assert launches[start] == ((8192 // 32) ** 2, 32 * 8)

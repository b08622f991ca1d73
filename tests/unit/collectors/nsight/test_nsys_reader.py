"""Nsight Systems exports of every version become the same profile."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from gpuadvisor.collectors.cuda_calls import kind_of, plain_name
from gpuadvisor.collectors.nsight import systems
from gpuadvisor.columns import MemoryProfile
from gpuadvisor.domain.profile import (
    FAILED_CALLS,
    LOST,
    SYSTEM_CALLS,
    UNKNOWN,
    CallKind,
    Direction,
    FailedCalls,
    Memory,
    Range,
    Synchronization,
    failed_calls,
)
from gpuadvisor.errors import UsageError
from tests.nsys_files import (
    CALL,
    COPY,
    FRAME,
    GPU,
    KERNEL,
    MPI_CALL,
    PID,
    PREFIX,
    PROCESS,
    RANGE,
    SAMPLE,
    STRINGS,
    SYSTEM_CALL,
    THREAD,
    tables,
    without,
    write,
)

DATA = Path(__file__).parents[3] / "data" / "profiles"


def profile_of(path):
    profile = MemoryProfile()
    profile.finish(systems.read(path, profile))
    return profile


@pytest.fixture(scope="module")
def real_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("nsys") / "a100_cloverleaf.sqlite"
    path.write_bytes(gzip.decompress((DATA / "a100_cloverleaf.sqlite.gz").read_bytes()))
    return path


@pytest.fixture(scope="module")
def real(real_file):
    return profile_of(real_file)


@pytest.fixture
def small(tmp_path):
    """A function that writes a small export, with some tables changed, and reads it."""

    def make(**changed):
        return profile_of(write(tmp_path / "small.sqlite", tables(**changed)))

    return make


def only(profile, table):
    return {name: column.tolist() for name, column in profile.columns(table).items()}


class TestReal:
    def test_sums_of_kernels_are_those_of_sql_over_the_file(self, real_file, real):
        query = (
            "SELECT value, count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL "
            "JOIN StringIds ON id = demangledName GROUP BY value"
        )
        with closing(sqlite3.connect(f"file:{real_file}?mode=ro", uri=True)) as connection:
            expected = {name: counts for name, *counts in connection.execute(query)}
        columns = only(real, "kernels")
        found = {}
        for name, duration in zip(columns["name"], columns["duration_ns"], strict=True):
            count, total = found.get(real.header.texts[name], (0, 0))
            found[real.header.texts[name]] = count + 1, total + duration
        assert {name: list(counts) for name, counts in found.items()} == expected
        assert sum(count for count, _ in found.values()) == 1312

    def test_every_kernel_was_launched_by_a_call(self, real):
        calls = real.columns("calls")
        launches = calls["correlation"][calls["kind"] == CallKind.LAUNCH]
        assert set(real.columns("kernels")["correlation"]) == set(launches)

    def test_copies_say_what_lies_at_their_ends(self, real):
        copies = real.columns("copies")
        pageable = np.isin(Memory.PAGEABLE, (copies["source"], copies["destination"]))
        assert real.rows("copies") == 279
        assert pageable
        assert set(copies["direction"]) == {Direction.HOST_TO_DEVICE, Direction.DEVICE_TO_HOST}

    def test_calls_have_names_without_versions(self, real):
        names = {real.header.texts[name] for name in real.columns("calls")["name"]}
        assert names == {
            "cuModuleGetLoadingMode", "cudaMalloc", "cudaLaunchKernel", "cudaDeviceSynchronize",
            "cudaMemcpy", "cudaFree",
        }  # fmt: skip

    def test_the_header_tells_of_the_machine(self, real):
        header = real.header
        assert header.tool == "NVIDIA Nsight Systems 2024.5.1.113"
        assert header.facts["EXPORT_SCHEMA_VERSION"] == "3.13.2"
        assert header.processes == {1701896: "cuda-cloverleaf"}
        assert header.begin_unix_ns == 1696392839587175550 + 264403140
        assert header.warnings == ()

    def test_a_device_is_numbered_as_cuda_numbers_it(self, real):
        gpu = real.header.devices[0]  # which Nsight Systems calls 3
        assert gpu.uuid == "GPU-b17c6502-716a-c2c7-0f65-854136d5f79f"
        assert gpu.compute_capability == (8, 0)
        assert gpu.memory_bandwidth_bytes_per_s == 2039040000000
        assert gpu.threads_per_multiprocessor == 2048

    def test_a_context_was_recorded_without_ranges(self, real):
        assert "ranges" not in real.header.not_measured  # it traced NVTX and there was none
        assert "gpu-metrics-devices" in real.header.not_measured["counters"]


class TestTables:
    def test_kernels(self, small):
        found = only(small(), "kernels")
        del found["begin_ns"]
        assert found == {
            "duration_ns": [2000], "device": [0], "stream": [7], "correlation": [11], "name": [1],
            "grid_x": [8], "grid_y": [2], "grid_z": [1], "block_x": [128], "block_y": [1],
            "block_z": [1], "registers": [40], "shared_bytes": [5120], "graph_node": [UNKNOWN],
        }  # fmt: skip

    def test_times_count_from_the_first_event(self, small):
        profile = small()
        assert only(profile, "ranges")["begin_ns"] == [0]
        assert only(profile, "kernels")["begin_ns"] == [950]
        assert profile.header.duration_ns == 3150
        assert profile.header.begin_unix_ns == 10**18 + 50

    def test_times_that_were_exported_as_times_of_day(self, small):
        told = [{"name": "EXPORT_PARAM_TIME_NORMALIZE", "value": "true"}]
        assert small(META_DATA_EXPORT=told).header.begin_unix_ns == 50

    def test_times_that_were_shifted(self, small):
        told = [{"name": "EXPORT_PARAM_TIME_SHIFT", "value": "30"}]
        assert small(META_DATA_EXPORT=told).header.begin_unix_ns == 10**18 + 20

    @pytest.mark.parametrize(
        ("kind", "direction"),
        [
            (1, Direction.HOST_TO_DEVICE),
            (2, Direction.DEVICE_TO_HOST),
            (4, Direction.DEVICE_TO_HOST),
            (8, Direction.DEVICE_TO_DEVICE),
            (9, Direction.HOST_TO_HOST),
            (10, Direction.PEER_TO_PEER),
            (11, Direction.MIGRATION),
            (99, Direction.OTHER),
            (None, Direction.OTHER),
        ],
    )
    def test_directions_of_copies(self, small, kind, direction):
        profile = small(CUPTI_ACTIVITY_KIND_MEMCPY=[{**COPY, "copyKind": kind}])
        assert only(profile, "copies")["direction"] == [direction, Direction.MEMSET]

    @pytest.mark.parametrize(
        ("kind", "ends"),
        [
            (11, (Memory.MANAGED, Memory.DEVICE)),
            (12, (Memory.DEVICE, Memory.MANAGED)),
            (13, (Memory.DEVICE, Memory.DEVICE)),
            (1, (Memory.NOT_KNOWN, Memory.NOT_KNOWN)),
        ],
    )
    def test_which_way_pages_migrated(self, small, kind, ends):
        copy = {**COPY, "copyKind": kind, "srcKind": None, "dstKind": None}
        found = only(small(CUPTI_ACTIVITY_KIND_MEMCPY=[copy]), "copies")
        assert (found["source"][0], found["destination"][0]) == ends

    def test_enumerations_of_the_file_come_before_the_usual(self, small):
        told = [{"id": 0, "name": "CUDA_MEMOPR_MEMORY_KIND_UNKNOWN"},
                {"id": 2, "name": "CUDA_MEMOPR_MEMORY_KIND_PINNED"}]  # fmt: skip
        found = only(small(ENUM_CUDA_MEM_KIND=told), "copies")
        assert found["source"] == [Memory.NOT_KNOWN, Memory.NOT_KNOWN]
        assert found["destination"] == [Memory.PINNED, Memory.PINNED]

    def test_calls(self, small):
        profile = small()
        found = only(profile, "calls")
        assert profile.header.texts[found["name"][0]] == "cudaLaunchKernel"
        assert (found["process"], found["thread"]) == ([PID], [4243])
        assert (found["correlation"], found["kind"]) == ([11], [CallKind.LAUNCH])

    def test_a_synchronization_without_a_stream(self, small):
        found = only(small(), "synchronizations")
        assert (found["stream"], found["kind"]) == ([UNKNOWN], [Synchronization.CONTEXT])

    def test_ranges_carry_their_text_or_its_number(self, small):
        by_number = {**RANGE, "text": None, "textId": 4}
        mark = {**RANGE, "eventType": 34, "text": "a mark", "end": None}
        still_open = {**RANGE, "end": None}
        step = {**RANGE, "eventType": 60, "text": "ProfilerStep#3"}
        profile = small(NVTX_EVENTS=[RANGE, by_number, mark, still_open, step])
        found = only(profile, "ranges")
        texts = [profile.header.texts[name] for name in found["name"]]
        assert texts == ["step", "named by number", "ProfilerStep#3"]
        assert found["kind"] == [Range.USER, Range.USER, Range.STEP]
        assert profile.header.warnings == ()

    def test_graphs_that_were_recorded_as_a_whole_count_as_kernels(self, small):
        graph = {
            "start": 4000, "end": 9000, "deviceId": 0, "graphId": 5, "graphExecId": 6,
            "contextId": 1, "streamId": 7, "correlationId": 20, "globalPid": PROCESS,
        }  # fmt: skip
        profile = small(CUPTI_ACTIVITY_KIND_GRAPH_TRACE=[graph])
        found = only(profile, "kernels")
        assert profile.header.texts[found["name"][1]] == "CUDA graph 5"
        assert (found["duration_ns"][1], found["registers"][1]) == (5000, UNKNOWN)
        assert "--cuda-graph-trace=node" in profile.header.warnings[0]

    def test_metrics_over_time(self, small):
        profile = small(
            GPU_METRICS=[{"timestamp": 70, "typeId": (5 << 8) | 1, "metricId": 2, "value": 87}],
            TARGET_INFO_GPU_METRICS=[
                {"typeId": (5 << 8) | 1, "metricId": 2, "metricName": "SMs Active [Throughput %]"}
            ],
            TARGET_INFO_GPU=[GPU, {**GPU, "id": 1, "cuDevice": 3}],
        )
        found = only(profile, "counters")
        assert profile.header.texts[found["name"][0]] == "SMs Active [Throughput %]"
        assert (found["device"], found["value"]) == ([3], [87.0])

    def test_a_value_that_is_infinite_is_unknown(self, small):
        row = {"timestamp": 9, "typeId": 1, "metricId": 2}
        values = [float("inf"), -float("inf"), None, 4]
        profile = small(GPU_METRICS=[{**row, "value": value} for value in values])
        assert str(only(profile, "counters")["value"]) == "[nan, nan, nan, 4.0]"


def test_limits_of_a_device_that_no_device_has_are_unknown(small):
    absurd = {**GPU, "maxWarpsPerSm": 2**62, "threadsPerWarp": 32}
    (device,) = small(TARGET_INFO_GPU=[absurd]).header.devices
    assert (device.threads_per_multiprocessor, device.sm_count) == (None, 84)


@pytest.mark.parametrize("shift", [10**30, -(10**30), "9" * 5000])
def test_a_time_shift_that_no_recording_has_is_none(small, shift):
    told = [{"name": "EXPORT_PARAM_TIME_SHIFT", "value": str(shift)}]
    assert small(META_DATA_EXPORT=told).header.begin_unix_ns == 10**18 + 50


def test_a_begin_beyond_the_store_is_unknown(small):
    late = {**RANGE, "start": 2**62 - 2, "end": 2**62 - 1}
    events = dict.fromkeys((f"{PREFIX}KERNEL", f"{PREFIX}MEMCPY", f"{PREFIX}MEMSET",
                            f"{PREFIX}RUNTIME", f"{PREFIX}SYNCHRONIZATION"))  # fmt: skip
    told = [{"name": "EXPORT_PARAM_TIME_SHIFT", "value": str(2 - 2**62)}]
    epoch = [{"utcEpochNs": 2**62 - 1}]
    profile = small(**events, NVTX_EVENTS=[late], TARGET_INFO_SESSION_START_TIME=epoch,
                    META_DATA_EXPORT=told)  # fmt: skip
    assert (profile.rows("ranges"), profile.header.begin_unix_ns) == (1, None)


def test_errors_of_the_recording_are_warnings(small):
    told = [
        {"severity": 1, "text": "Profiling has started."},
        {"severity": 3, "text": "Not all events\nmight have been collected."},
    ]
    assert small(DIAGNOSTIC_EVENT=told).header.warnings == (
        "Nsight Systems reported: Not all events might have been collected.",
    )


def test_of_warnings_those_are_told_that_say_why_something_of_cuda_is_missing(small, tmp_path):
    told = [
        {"severity": 2, "text": "CUDA profiling might have not been started correctly."},
        {"severity": 2, "text": "No NVTX events collected. Does the process use NVTX?"},
    ]
    assert small(DIAGNOSTIC_EVENT=told).header.warnings == ()
    of_cuda = dict.fromkeys(name for name in tables() if name.startswith(PREFIX))
    path = write(tmp_path / "without.sqlite", tables(DIAGNOSTIC_EVENT=told, **of_cuda))
    assert profile_of(path).header.warnings == (
        "Nsight Systems reported: CUDA profiling might have not been started correctly.",
    )
    lost = [{"severity": 2, "text": "Not all CUDA events might have been collected."}]
    path = write(tmp_path / "lost.sqlite", tables(DIAGNOSTIC_EVENT=lost))
    header = profile_of(path).header
    assert "Not all CUDA events" in header.warnings[0] and header.facts[LOST] == header.warnings[0]


class TestVersions:
    def test_what_an_old_version_lacks_is_said(self, small):
        profile = small(
            META_DATA_EXPORT=None,
            EXPORT_META_DATA=[{"name": "EXPORT_SCHEMA_VERSION", "value": "2.9.1"}],
            CUPTI_ACTIVITY_KIND_KERNEL=[without(KERNEL, "graphNodeId", "demangledName")],
            NVTX_EVENTS=[without(RANGE, "textId")],
            TARGET_INFO_GPU=[{"id": 0, "name": "Tesla V100"}],
            PROCESSES=None,
        )
        header = profile.header
        assert header.facts == {"EXPORT_SCHEMA_VERSION": "2.9.1", FAILED_CALLS: "none"}
        assert header.texts[only(profile, "kernels")["name"][0]] == "gemm"
        assert "kernels.graph_node" in header.not_measured
        assert header.devices[0].name == "Tesla V100"
        assert header.devices[0].sm_count is None
        assert header.processes == {}

    def test_tables_without_rows_are_not_there(self, small):
        profile = small(
            CUPTI_ACTIVITY_KIND_MEMCPY=None, CUPTI_ACTIVITY_KIND_MEMSET=None, NVTX_EVENTS=None
        )
        assert profile.rows("copies") == 0
        assert "copies" not in profile.header.not_measured  # there were none
        assert "nvtx" in profile.header.not_measured["ranges"]

    def test_a_recording_without_cuda_says_how_to_get_it(self, small):
        cuda = dict.fromkeys(name for name in tables() if name.startswith(PREFIX))
        header = small(**cuda).header
        assert "--trace=cuda,nvtx" in header.not_measured["kernels"]

    def test_new_columns_are_passed_over(self, small):
        newer = [{**KERNEL, "greenContextId": 1, "workqueueId": "text"}]
        assert only(small(CUPTI_ACTIVITY_KIND_KERNEL=newer), "kernels")["registers"] == [40]


class TestProcesses:
    OTHER = (1 << 48) | (5000 << 24)

    def both(self, small, **changed):
        kernels = [KERNEL, {**KERNEL, "globalPid": self.OTHER}]
        calls = [CALL, {**CALL, "globalTid": self.OTHER | 1}]
        return small(
            CUPTI_ACTIVITY_KIND_KERNEL=kernels, CUPTI_ACTIVITY_KIND_RUNTIME=calls, **changed
        )

    def test_launches_of_two_processes_stay_apart(self, small):
        profile = self.both(small)
        kernels, calls = only(profile, "kernels"), only(profile, "calls")
        assert kernels["correlation"][0] == 11
        assert kernels["correlation"][1] != 11
        assert kernels["correlation"] == calls["correlation"]

    def test_streams_of_two_processes_on_one_device_stay_apart(self, small):
        first, second = only(self.both(small), "kernels")["stream"]
        assert first == 7
        assert second != 7

    def test_the_same_ordinal_may_be_another_gpu_in_each_process(self, small):
        profile = self.both(
            small,
            TARGET_INFO_GPU=[GPU, {**GPU, "id": 1}],
            TARGET_INFO_CUDA_DEVICE=[
                {"gpuId": 1, "cudaId": 0, "pid": PID},
                {"gpuId": 0, "cudaId": 0, "pid": 5000},
            ],
        )
        assert only(profile, "kernels")["device"] == [1, 0]
        assert [gpu.index for gpu in profile.header.devices] == [0, 1]

    def test_an_ordinal_that_is_one_gpu_everywhere_is_kept(self, small):
        profile = small(
            TARGET_INFO_GPU=[{**GPU, "id": 5}],
            TARGET_INFO_CUDA_DEVICE=[{"gpuId": 5, "cudaId": 0, "pid": PID}],
        )
        assert only(profile, "kernels")["device"] == [0]
        assert [gpu.index for gpu in profile.header.devices] == [0]


@pytest.mark.parametrize(
    ("name", "plain", "kind"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel", CallKind.LAUNCH),
        ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel", CallKind.LAUNCH),
        ("cuLaunchKernelEx", "cuLaunchKernelEx", CallKind.LAUNCH),
        ("cudaLaunchHostFunc_v10000", "cudaLaunchHostFunc", CallKind.OTHER),
        ("cudaGraphLaunch_v10000", "cudaGraphLaunch", CallKind.GRAPH_LAUNCH),
        ("cudaGraphAddMemcpyNode_v10000", "cudaGraphAddMemcpyNode", CallKind.OTHER),
        ("cudaMemcpyAsync_v3020", "cudaMemcpyAsync", CallKind.COPY),
        ("cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync", CallKind.COPY),
        ("cudaMemsetAsync_v3020", "cudaMemsetAsync", CallKind.MEMSET),
        ("cudaStreamSynchronize_v3020", "cudaStreamSynchronize", CallKind.SYNCHRONIZE),
        ("cuCtxSynchronize", "cuCtxSynchronize", CallKind.SYNCHRONIZE),
        ("cudaStreamWaitEvent_v3020", "cudaStreamWaitEvent", CallKind.EVENT),
        ("cudaEventRecord_v3020", "cudaEventRecord", CallKind.EVENT),
        ("cudaMallocAsync_v11020", "cudaMallocAsync", CallKind.ALLOCATE),
        ("cudaHostAlloc_v3020", "cudaHostAlloc", CallKind.ALLOCATE),
        ("cuMemAlloc_v2", "cuMemAlloc", CallKind.ALLOCATE),
        ("cudaFreeHost_v3020", "cudaFreeHost", CallKind.FREE),
        ("cudaGetDevice_v3020", "cudaGetDevice", CallKind.OTHER),
    ],
)
def test_what_calls_do(name, plain, kind):
    assert plain_name(name) == plain
    assert kind_of(plain) == kind


def test_a_file_is_recognised_by_its_content(real_file):
    assert systems.recognises(real_file.read_bytes()[:4096])
    assert not systems.recognises(b'{"traceEvents": []}')


def test_a_database_of_something_else_is_refused(tmp_path):
    path = write(tmp_path / "app.db", {"users": [{"id": 1}]})
    with pytest.raises(UsageError, match="not of Nsight Systems"):
        systems.read(path, MemoryProfile())


def test_an_export_without_an_event_is_told_as_one(tmp_path):
    path = write(tmp_path / "empty.sqlite", {systems.SESSION: [{"utcEpochNs": 1}]})
    with pytest.raises(UsageError, match="export of Nsight Systems without an event"):
        systems.read(path, MemoryProfile())


def test_a_database_of_nvprof_is_refused_and_not_read_without_its_kernels(tmp_path):
    copies = [{"start": 0, "end": 5, "bytes": 8, "deviceId": 0}]
    kernels = [{"start": 9, "end": 14, "deviceId": 0, "name": 1}]
    tables = {
        "CUPTI_ACTIVITY_KIND_MEMCPY": copies,
        "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": kernels,
        "StringTable": [{"_id_": 1, "value": "add"}],
    }
    with pytest.raises(UsageError, match=r"of nvprof .*: record with `nsys profile`"):
        systems.read(write(tmp_path / "app.nvvp", tables), MemoryProfile())


def test_more_rows_than_a_batch_holds(small):
    rows = [{**KERNEL, "start": n * 10, "end": n * 10 + 5} for n in range(70_000)]
    found = small(CUPTI_ACTIVITY_KIND_KERNEL=rows).columns("kernels")
    assert len(found["duration_ns"]) == 70_000
    assert int(found["duration_ns"].sum()) == 350_000
    assert np.all(np.diff(found["begin_ns"]) == 10)


def test_rows_from_many_threads_keep_their_thread(small):
    calls = [{**CALL, "globalTid": THREAD + n} for n in range(3)]
    found = only(small(CUPTI_ACTIVITY_KIND_RUNTIME=calls), "calls")
    assert found["thread"] == [4243, 4244, 4245]


def test_a_call_and_its_stack_are_one_call(small):
    calls = [{**CALL, "eventClass": 0}, {**CALL, "eventClass": 67}]
    found = only(small(CUPTI_ACTIVITY_KIND_RUNTIME=calls), "calls")
    assert len(found["thread"]) == 1


def returned(*codes, name=3):
    return [{**CALL, "returnValue": code, "nameId": name} for code in codes]


def test_calls_that_returned_an_error_are_a_fact(small):
    made = small(**{f"{PREFIX}RUNTIME": returned(0, 222, 222)})
    assert failed_calls(made.header.facts) == (FailedCalls("cudaLaunchKernel", 222, 2),)


def test_that_no_call_failed_is_told(small):
    assert failed_calls(small().header.facts) == ()


def test_nothing_is_known_of_errors_where_the_file_does_not_tell(small):
    silent = small(**{f"{PREFIX}RUNTIME": [without(CALL, "returnValue")]})
    assert failed_calls(silent.header.facts) is None


@pytest.mark.parametrize(
    ("name", "code"),
    [("cudaEventQuery_v3020", 600), ("cudaPointerGetAttributes", 1), ("cuCtxSynchronize", 709)],
)
def test_answers_and_the_end_of_a_process_are_no_failures(small, name, code):
    names = [*STRINGS, {"id": 9, "value": name}]
    made = small(**{f"{PREFIX}RUNTIME": returned(code, name=9), "StringIds": names})
    assert failed_calls(made.header.facts) == ()


@pytest.mark.parametrize(
    ("changed", "is_read"),
    [
        ({}, True),
        ({"nestingLevel": 1}, False),  # what another one makes
        ({"globalTid": THREAD + 1}, False),  # a thread that calls nothing of CUDA
        ({"start": 10, "end": 20}, False),  # before the first event of CUDA or NVTX
        ({"start": 9000, "end": 9500}, False),
    ],
)
def test_calls_into_the_operating_system_are_ranges_of_threads_that_call_cuda(
    small, tmp_path, changed, is_read
):
    without_any = profile_of(write(tmp_path / "without.sqlite", tables()))
    found = small(OSRT_API=[{**SYSTEM_CALL, **changed}])
    ranges = only(found, "ranges")
    assert (Range.SYSTEM in ranges["kind"]) is is_read
    assert found.header.duration_ns == without_any.header.duration_ns
    if is_read:
        row = ranges["kind"].index(Range.SYSTEM)
        assert found.header.texts[ranges["name"][row]] == "poll"
        assert ranges["duration_ns"][row] == 500


@pytest.mark.parametrize("changed", [{"start": 10}, {"end": 9000}, {"start": 10, "end": 9000}])
def test_of_a_call_over_the_edge_of_what_was_recorded_the_part_within_counts(small, changed):
    """Else the CPU would be said to compute while it waits."""
    found = small(OSRT_API=[{**SYSTEM_CALL, **changed}])
    ranges = only(found, "ranges")
    row = ranges["kind"].index(Range.SYSTEM)
    begin, end = ranges["begin_ns"][row], ranges["begin_ns"][row] + ranges["duration_ns"][row]
    assert (begin == 0) is ("start" in changed)
    assert (end == found.header.duration_ns) is ("end" in changed)
    assert end - begin > 500


def test_calls_into_the_operating_system_alone_are_no_ranges_that_a_program_marked(small):
    found = small(OSRT_API=[without(SYSTEM_CALL, "nestingLevel")], NVTX_EVENTS=None)
    assert only(found, "ranges")["kind"] == [Range.SYSTEM]
    assert "NVTX" in found.header.not_measured["ranges"]
    assert found.header.facts[SYSTEM_CALLS] == "recorded"


@pytest.mark.parametrize("table", ["MPI_P2P_EVENTS", "MPI_OTHER_EVENTS"])
@pytest.mark.parametrize(
    ("changed", "lasts"),
    [({}, 500), ({"globalTid": THREAD + 1}, None), ({"end": 9000}, 2000), ({"start": 9000}, None)],
)
def test_calls_of_mpi_are_ranges_within_what_else_was_recorded(
    small, tmp_path, table, changed, lasts
):
    """MPI_Init and MPI_Finalize may be long before and after all that the GPU does."""
    without_any = profile_of(write(tmp_path / "without.sqlite", tables()))
    found = small(**{table: [{**MPI_CALL, **changed}]})
    assert found.header.duration_ns == without_any.header.duration_ns
    ranges, texts = only(found, "ranges"), found.header.texts
    rows = [row for row, name in enumerate(ranges["name"]) if texts[name] == "MPI_Recv"]
    assert [ranges["duration_ns"][row] for row in rows] == ([] if lasts is None else [lasts])
    assert all(ranges["kind"][row] == Range.USER for row in rows)


def sampled(small, *frames, sample=SAMPLE, **more):
    """The sample of an export with a stack, as `(function, module)`; None where it is left out."""
    found = small(COMPOSITE_EVENTS=[sample], SAMPLING_CALLCHAINS=list(frames) or [FRAME], **more)
    rows, texts = found.columns("samples"), found.header.texts
    if not found.rows("samples"):
        return None
    assert found.rows("samples") == 1
    assert (rows["process"][0], rows["thread"][0]) == (PID, 4243)
    return texts[rows["function"][0]], texts[rows["module"][0]]


def test_a_sample_is_in_the_innermost_function_and_its_library_without_folders(small):
    outer = {**FRAME, "symbol": 5, "module": 2, "stackDepth": 1}
    assert sampled(small, outer, FRAME) == ("parse_line", "libparse.so")


def test_a_stack_of_one_frame_is_read(small):
    assert sampled(small, FRAME) == ("parse_line", "libparse.so")


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        ({"unresolved": 1}, ("", "libparse.so")),
        ({"symbol": 8}, ("", "libparse.so")),  # its address
        ({"symbol": 9}, ("", "libparse.so")),  # [Broken backtraces]
        ({"symbol": 77}, ("", "libparse.so")),  # a text that is not there
        ({"module": 77}, ("parse_line", "")),
        ({"symbol": "x", "module": None}, ("", "")),
        ({"symbol": -1, "module": 2**40}, ("", "")),
        ({"kernelMode": 1}, ("parse_line", "the operating system's kernel")),
        ({"kernelMode": 1, "unresolved": 1}, ("", "the operating system's kernel")),
        ({"kernelMode": None, "unresolved": None}, ("parse_line", "libparse.so")),  # 2021
        ({"id": 2}, ("", "")),  # a stack of another sample
        ({"stackDepth": 1}, ("", "")),  # no innermost frame
        ({"module": 10}, ("parse_line", "solver.exe")),
    ],
)
def test_of_a_frame_is_told_what_is_known(small, frame, told):
    strings = [*STRINGS, {"id": 8, "value": "0x7f00"}, {"id": 9, "value": "[Broken backtraces]"},
               {"id": 10, "value": "C:\\work\\solver.exe"}]  # fmt: skip
    assert sampled(small, {**FRAME, **frame}, StringIds=strings) == told


@pytest.mark.parametrize(
    "changed",
    [
        {"globalTid": THREAD + 1},  # a thread that calls nothing of CUDA
        {"globalTid": None},
        {"start": 10},  # before the first event of CUDA or NVTX
        {"start": 9000},
        {"start": "soon"},
    ],
)
def test_samples_of_other_threads_and_times_are_left_out(small, changed):
    assert sampled(small, sample={**SAMPLE, **changed}) is None


@pytest.mark.parametrize("lacking", [{"COMPOSITE_EVENTS": None}, {"SAMPLING_CALLCHAINS": None}])
def test_an_export_without_samples_says_how_to_take_them(small, lacking):
    found = small(**{"COMPOSITE_EVENTS": [SAMPLE], "SAMPLING_CALLCHAINS": [FRAME], **lacking})
    assert found.rows("samples") == 0
    assert "--sample=process-tree" in found.header.not_measured["samples"]


def test_samples_do_not_lengthen_a_recording_and_nothing_is_lacking_then(small):
    late = [{**SAMPLE, "id": number, "start": at} for number, at in ((1, 1500), (2, 9000))]
    found = small(COMPOSITE_EVENTS=late, SAMPLING_CALLCHAINS=[FRAME])
    assert (found.rows("samples"), found.header.duration_ns) == (1, 3150)
    assert "samples" not in found.header.not_measured


def test_a_row_without_a_number_has_no_stack(small):
    nameless = {**SAMPLE, "id": None}
    assert sampled(small, {**FRAME, "id": None}, sample=nameless) == ("", "")

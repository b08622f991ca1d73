"""The reader of the torch profiler's traces, against the simplest reading of the same files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuadvisor.collectors.kineto.reader import TraceMetadata, read, read_blocks, recognises
from gpuadvisor.columns import MemoryProfile
from gpuadvisor.domain.profile import (
    GROUP_RANKS,
    UNKNOWN,
    CallKind,
    Direction,
    Memory,
    Range,
    Synchronization,
)
from tests.kineto_oracle import rows_of, rows_read

PROFILES = Path(__file__).parents[3] / "data" / "profiles"
REAL = sorted(PROFILES.rglob("*.json.gz"))
ALIKE = {"hta_a100_train_control.json.gz", "v100_resnet50_workers0.json.gz"}
"""Large ones, with another beside them that the same software wrote."""


class Pieces:
    """Content cut at every so many bytes."""

    def __init__(self, content: bytes, size: int) -> None:
        self._content = content
        self._size = size
        self.damage = ""

    def __iter__(self) -> Iterator[bytes]:
        for begin in range(0, len(self._content), self._size):
            yield self._content[begin : begin + self._size]


def profile_of(path: Path) -> MemoryProfile:
    profile = MemoryProfile()
    profile.finish(read(path, profile))
    return profile


def in_pieces(content: bytes, size: int) -> MemoryProfile:
    profile = MemoryProfile()
    pieces = Pieces(content, size)
    profile.finish(read_blocks(pieces, Path("trace.json"), profile, enough_bytes=size))
    return profile


def trace(*events: dict[str, Any], **others: Any) -> bytes:
    return json.dumps({"schemaVersion": 1, "traceEvents": events, **others}).encode()


def kernel(**changed: Any) -> dict[str, Any]:
    args = {"device": 0, "stream": 7, "correlation": 3, **changed.pop("args", {})}
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 2}
    return {**event, **changed, "args": args}


def one(profile: MemoryProfile, table: str) -> dict[str, Any]:
    columns = profile.columns(table)
    assert {len(column) for column in columns.values()} == {1}
    return {name: column[0].item() for name, column in columns.items()}


def text(profile: MemoryProfile, table: str, column: str = "name") -> str:
    return profile.header.texts[one(profile, table)[column]]


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.slow] if path.name in ALIKE else []) for path in REAL],
    ids=lambda path: path.name.partition(".")[0],
)
def test_real_traces_say_what_json_says(path: Path) -> None:
    profile = profile_of(path)
    assert rows_read(profile) == rows_of(gzip.decompress(path.read_bytes()).decode())
    assert not profile.header.warnings


@pytest.mark.parametrize("size", [997, 65_537, 1 << 30])
def test_where_blocks_end_changes_nothing(size: int) -> None:
    content = gzip.decompress((PROFILES / "h100_small_cnn_train.json.gz").read_bytes())
    assert rows_read(in_pieces(content, size)) == rows_of(content.decode())


def test_plain_gzip_and_zstd_are_told_by_their_content(tmp_path: Path) -> None:
    content = trace(kernel())
    packed = {
        "plain.gz": content,
        "gzip.json": gzip.compress(content),
        "two_members": gzip.compress(content[:50]) + gzip.compress(content[50:]),
        "zstd.json": zstandard.compress(content),
        "two_frames": zstandard.compress(content[:50]) + zstandard.compress(content[50:]),
    }
    for name, data in packed.items():
        (tmp_path / name).write_bytes(data)
        profile = profile_of(tmp_path / name)
        assert (profile.rows("kernels"), profile.header.warnings) == (1, ()), name


def test_a_bare_list_and_events_after_or_before_the_rest() -> None:
    event = json.dumps(kernel())
    shapes = [
        f"[{event}]",
        f'\ufeff {{"traceEvents": [{event}], "schemaVersion": 1, "x": {{"y": [1, "]"]}}}}',
        f'{{"x": "{{\\"", "deviceProperties": [], "traceEvents":[\n{event}\n]}}',
    ]
    for content in shapes:
        assert in_pieces(content.encode(), 10).rows("kernels") == 1, content


def test_times_are_exact_to_the_nanosecond_however_they_are_written() -> None:
    for times in (
        ("1683564901548591.123", "1683564901548591.124"),  # a float is 250 ns apart here
        ('"1683564901548591.123"', '"1683564901548591.124"'),
        ("4352876269672.012", "4352876269672.013"),
        ("1683564901548591", "1683564901548591.001"),
    ):
        events = ",".join(
            f'{{"ph":"X","cat":"kernel","name":"k","ts":{time},"dur":0.5,"args":{{}}}}'
            for time in times
        )
        profile = in_pieces(b'{"traceEvents":[' + events.encode() + b"]}", 1 << 20)
        columns = profile.columns("kernels")
        assert columns["begin_ns"].tolist() == [0, 1], times
        assert columns["duration_ns"].tolist() == [500, 500]


def test_times_count_from_the_earliest_row_wherever_it_is() -> None:
    events = [kernel(ts=ts) for ts in (50, 20.5, 30)]
    base = 1_700_000_000_000_000_000
    profile = in_pieces(trace(*events, baseTimeNanoseconds=base), 1 << 20)
    assert profile.columns("kernels")["begin_ns"].tolist() == [29_500, 0, 9_500]
    assert profile.header.begin_unix_ns == base + 20_500
    assert profile.header.duration_ns == 31_500


def test_the_time_of_day_is_known_where_old_traces_count_from_1970() -> None:
    assert in_pieces(trace(kernel(ts=5)), 99).header.begin_unix_ns is None
    profile = in_pieces(trace(kernel(ts=1_683_564_901_548_591)), 99)
    assert profile.header.begin_unix_ns == 1_683_564_901_548_591_000


@pytest.mark.parametrize(
    ("category", "name", "expected"),
    [
        ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)",
         (Direction.HOST_TO_DEVICE, Memory.PAGEABLE, Memory.DEVICE)),
        ("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)",
         (Direction.DEVICE_TO_HOST, Memory.DEVICE, Memory.PINNED)),
        ("gpu_memcpy", "Memcpy PtoP (Device -> Device)",
         (Direction.PEER_TO_PEER, Memory.DEVICE, Memory.DEVICE)),
        ("gpu_memcpy", "Memcpy HtoD (Host -> Device)",
         (Direction.HOST_TO_DEVICE, Memory.NOT_KNOWN, Memory.DEVICE)),
        ("gpu_memcpy", "CopyHostToDevice",
         (Direction.HOST_TO_DEVICE, Memory.NOT_KNOWN, Memory.NOT_KNOWN)),
        ("Memcpy", "Memcpy <unknown> (Unknown -> Unknown)",
         (Direction.OTHER, Memory.NOT_KNOWN, Memory.NOT_KNOWN)),
        ("gpu_memset", "Memset (Managed Static)",
         (Direction.MEMSET, Memory.NOT_KNOWN, Memory.MANAGED)),
    ],
)  # fmt: skip
def test_copies_tell_where_from_and_where_to(
    category: str, name: str, expected: tuple[Direction, Memory, Memory]
) -> None:
    event = kernel(cat=category, name=name, args={"bytes": 12})
    copy = one(in_pieces(trace(event), 99), "copies")
    assert (copy["direction"], copy["source"], copy["destination"]) == expected
    assert copy["bytes"] == 12


@pytest.mark.parametrize(
    ("name", "plain", "kind"),
    [
        ("cudaLaunchKernel", "cudaLaunchKernel", CallKind.LAUNCH),
        ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel", CallKind.LAUNCH),
        ("cuLaunchKernelEx", "cuLaunchKernelEx", CallKind.LAUNCH),
        ("hipExtModuleLaunchKernel", "hipExtModuleLaunchKernel", CallKind.LAUNCH),
        ("hipModuleLaunchKernel", "hipModuleLaunchKernel", CallKind.LAUNCH),
        ("cudaGraphLaunch", "cudaGraphLaunch", CallKind.GRAPH_LAUNCH),
        ("hipMemcpyWithStream", "hipMemcpyWithStream", CallKind.COPY),
        ("cudaMemsetAsync", "cudaMemsetAsync", CallKind.MEMSET),
        ("hipDeviceSynchronize", "hipDeviceSynchronize", CallKind.SYNCHRONIZE),
        ("cudaEventQuery", "cudaEventQuery", CallKind.EVENT),
        ("hipMalloc", "hipMalloc", CallKind.ALLOCATE),
        ("cudaFree", "cudaFree", CallKind.FREE),
        ("INVALID", "INVALID", CallKind.OTHER),
    ],
)
def test_calls_tell_what_they_do(name: str, plain: str, kind: CallKind) -> None:
    profile = in_pieces(trace(kernel(cat="cuda_runtime", name=name)), 99)
    assert text(profile, "calls") == plain
    assert one(profile, "calls")["kind"] == kind


def test_ranges_tell_whose_they_are() -> None:
    cases = {
        ("user_annotation", "ProfilerStep#6"): Range.STEP,
        ("gpu_user_annotation", "ProfilerStep#6"): Range.DEVICE,
        ("user_annotation", "forward"): Range.USER,
        ("user_annotation", "enumerate(DataLoader)#_Iter.__next__"): Range.LOADER,
        ("Operator", "enumerate(DataLoader)#_Iter.__next__"): Range.LOADER,
        ("python_function", "train.py(3): step"): Range.PYTHON,
        ("overhead", "Buffer Flush"): Range.OVERHEAD,
    }
    for (category, name), kind in cases.items():
        profile = in_pieces(trace(kernel(cat=category, name=name)), 99)
        assert one(profile, "ranges")["kind"] == kind, (category, name)


@pytest.mark.parametrize(
    ("grid", "wanted"),
    [("[4, 2, 1]", (4, 2, 1)), *((each, (UNKNOWN,) * 3) for each in ("4 x 2", "421", "[4]"))],
)  # fmt: skip
def test_a_grid_may_be_a_text(grid, wanted) -> None:
    events = [kernel(args={"grid": grid, "block": "[128, 1, 1]"}), kernel(args={"grid": [1, 2, 3]})]
    columns = in_pieces(trace(*events), 99).columns("kernels")
    sizes = [columns[f"grid_{axis}"].tolist() for axis in "xyz"]
    assert [tuple(each) for each in zip(*sizes, strict=True)] == [wanted, (1, 2, 3)]
    assert columns["block_x"].tolist() == [128, UNKNOWN]


def test_kernels_of_a_graph_keep_their_node() -> None:
    args = {"grid": [4, 2, 1], "block": [128, 1, 1], "graph node id": 12884901890}
    row = one(in_pieces(trace(kernel(args=args)), 99), "kernels")
    assert (row["grid_x"], row["grid_y"], row["block_x"]) == (4, 2, 128)
    assert row["graph_node"] == 12884901890
    alone = one(in_pieces(trace(kernel(args={"graph node id": 0})), 99), "kernels")
    assert alone["graph_node"] == UNKNOWN


def test_the_nested_occupancy_of_newer_versions_is_passed_over() -> None:
    occupancy = {"activeBlocksPerMultiprocessor": 4, "limitingFactors": "warps", "correlation": 9}
    row = one(in_pieces(trace(kernel(args={"occupancy": occupancy})), 99), "kernels")
    assert row["correlation"] == 3


def test_collectives_say_what_the_trace_or_else_the_kernel_says() -> None:
    told = {
        "Collective name": "_allgather_base", "In msg nelems": 64, "Out msg nelems": 512,
        "Group size": 8, "dtype": "BFloat16", "Process Group Name": "3", "Seq": 41,
    }  # fmt: skip
    name = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    profile = in_pieces(trace(kernel(name=name, args=told)), 99)
    row = one(profile, "collectives")
    assert text(profile, "collectives") == "_allgather_base"
    assert text(profile, "collectives", "type") == "BFloat16"
    assert text(profile, "collectives", "group") == "3"
    assert (row["in_elements"], row["out_elements"], row["group_size"]) == (64, 512, 8)
    assert (row["sequence"], row["correlation"]) == (41, 3)
    untold = in_pieces(trace(kernel(name="ncclKernel_ReduceScatter_RING_LL_Sum_half(x)")), 99)
    assert text(untold, "collectives") == "reduce_scatter"
    assert "collectives.in_elements" in untold.header.not_measured


def test_synchronizations_tell_what_waits() -> None:
    args = {"cuda_sync_kind": "Context Sync", "stream": 4294967295, "correlation": 9}
    event = kernel(cat="cuda_sync", name="Context Sync", args=args)
    row = one(in_pieces(trace(event), 99), "synchronizations")
    assert (row["kind"], row["stream"]) == (Synchronization.CONTEXT, UNKNOWN)


def test_counters_have_a_row_for_each_value() -> None:
    hardware = {
        "ph": "C", "cat": "hardware_counters", "name": "sm__cycles_active.avg", "ts": 5, "tid": 0,
        "pid": "GPU 1 Counters", "args": {"": 2**70},
    }  # fmt: skip
    profile = in_pieces(trace(hardware), 99)
    row = one(profile, "counters")
    assert (row["device"], row["value"]) == (1, 2.0**70)
    assert text(profile, "counters") == "sm__cycles_active.avg"
    several = {**hardware, "name": "HBM", "args": {"read": 1, "write": 2.5}}
    assert in_pieces(trace(several), 99).columns("counters")["value"].tolist() == [1, 2.5]


def test_addresses_beyond_63_bits_keep_their_bits() -> None:
    args = {"Device Type": 1, "Device Id": 0, "Bytes": -512, "Addr": 2**64 - 512}
    event = {"ph": "i", "name": "[memory]", "ts": 1, "args": args}
    row = one(in_pieces(trace(event), 99), "memory")
    assert (row["address"], row["bytes"]) == (-512, -512)


def test_devices_and_ranks_are_as_the_trace_tells() -> None:
    header = profile_of(PROFILES / "hta_a100_launch_bound_rank0.json.gz").header
    assert (header.rank, header.world_size) == (0, 16)
    assert header.processes == {4515: "pyper:trainer:0:0"}
    device = header.devices[0]
    assert device.name == "NVIDIA A100-SXM4-80GB"
    assert device.compute_capability == (8, 0)
    assert (device.sm_count, device.threads_per_multiprocessor) == (108, 2048)
    assert (device.shared_bytes_per_multiprocessor, device.shared_bytes_per_block) == (
        167_936,
        166_912,
    )


def test_the_ranks_of_process_groups_are_told() -> None:
    groups = [{"pg_name": "0", "ranks": [0, 1, 2, 3]}, {"pg_name": "tp", "ranks": [2, 3]}, 7, {}]
    told = {"rank": 2, "world_size": 4, "pg_config": groups}
    facts = in_pieces(trace(kernel(), distributedInfo=told), 99).header.facts
    assert (facts[GROUP_RANKS + "0"], facts[GROUP_RANKS + "tp"]) == ("0, 1, 2, 3", "2, 3")


def test_amd_devices_have_no_compute_capability_and_no_registers() -> None:
    header = profile_of(PROFILES / "mi300_bert_small.json.gz").header
    assert header.devices[0].compute_capability is None
    assert header.devices[0].sm_count == 304
    assert "kernels.registers" in header.not_measured


def test_what_a_trace_lacks_is_not_measured_with_its_reason() -> None:
    cpu = profile_of(PROFILES / "hta_rank_non_gpu.json.gz").header.not_measured
    assert cpu["kernels"] == "the trace has nothing of a GPU: only the CPU was recorded"
    assert cpu["memory"] == "the trace was recorded without memory (`profile_memory=True`)"
    assert "operators.shapes" not in cpu
    old = profile_of(PROFILES / "v100_resnet50_workers0.json.gz").header.not_measured
    assert "memory.address" in old
    assert "operators.stack" not in old
    bare = in_pieces(trace(kernel(cat="cpu_op")), 99).header.not_measured
    assert "operators.shapes" in bare


@pytest.mark.parametrize("head", [b"{", b'\xef\xbb\xbf\n {"a"', b"  ["])
def test_json_is_recognised(head: bytes) -> None:
    assert recognises(head)


@pytest.mark.parametrize("head", [b"", b"SQLite format 3\0", b'"ID","Process ID"', b"==PROF=="])
def test_other_files_are_not(head: bytes) -> None:
    assert not recognises(head)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ['},{"', "]}", "\\", '\\"', "\\\\", '"', "{[", "a\nb", "ProfilerStep#1", "ncclKernel_X"]
)
NUMBERS = st.integers(-(2**31), 2**31 - 1)
TIMES = st.integers(0, 10**13) | st.integers(0, 10**15).map(lambda ns: ns / 1000)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
ARGS = st.fixed_dictionaries(
    {},
    optional={
        "correlation": NUMBERS,
        "External id": NUMBERS,
        "registers per thread": NUMBERS,
        "grid": st.tuples(NUMBERS, NUMBERS, NUMBERS),
        "Input Dims": VALUES.filter(lambda value: value is not None),
        "Call stack": TEXTS,
        "occupancy": VALUES,
    },
)
EVENTS = st.fixed_dictionaries(
    {
        "ph": st.sampled_from("XXXXsif"),
        "cat": st.sampled_from(["kernel", "cpu_op", "cuda_runtime", "user_annotation", "ac2g"]),
        "name": TEXTS,
        "ts": TIMES,
        "args": ARGS,
    },
    optional={"dur": TIMES, "pid": NUMBERS, "tid": NUMBERS, "x": VALUES},
)
KEYS = st.dictionaries(TEXTS.map(lambda key: f"_{key}"), VALUES, max_size=2)
LAYOUTS = st.sampled_from([(None, True), (None, False), (1, True), ("\t", False)])


@settings(max_examples=50, deadline=None)
@given(st.lists(EVENTS, max_size=8), KEYS, KEYS, st.integers(1, 300), LAYOUTS)
def test_any_events_in_any_layout_and_blocks_say_what_json_says(
    events: list[dict[str, Any]],
    before: dict[str, Any],
    after: dict[str, Any],
    size: int,
    layout: tuple[Any, bool],
) -> None:
    document = {"schemaVersion": 1, **before, "traceEvents": events, **after}
    content = json.dumps(document, indent=layout[0], ensure_ascii=layout[1])
    profile = in_pieces(content.encode(), size)
    assert rows_read(profile) == rows_of(content)


def test_devices_that_the_trace_does_not_number_are_numbered_by_their_order() -> None:
    metadata = TraceMetadata()
    metadata.take("deviceProperties", b'[{"name": "NVIDIA A100"}, {"name": "NVIDIA A30"}]')
    assert [(each.index, each.name) for each in metadata.devices] == [
        (0, "NVIDIA A100"), (1, "NVIDIA A30"),
    ]  # fmt: skip
    metadata.take("deviceProperties", b'[{"name": "NVIDIA A100"}, {"id": 3, "name": "NVIDIA A30"}]')
    assert [(each.index, each.name) for each in metadata.devices] == [(3, "NVIDIA A30")]

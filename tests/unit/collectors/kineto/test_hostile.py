"""Traces that are damaged, malicious or of something else: a sentence, or the usable part."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from gpuadvisor.collectors.kineto import blocks, document
from gpuadvisor.collectors.kineto.reader import read, read_blocks
from gpuadvisor.columns import MemoryProfile
from gpuadvisor.domain.profile import CUT_OFF
from gpuadvisor.errors import UsageError
from tests.kineto_oracle import rows_of, rows_read

pytestmark = pytest.mark.slow

SMALL = Path(__file__).parents[3] / "data" / "profiles" / "workloads" / "pageable_copy.json.gz"
MIB = 1 << 20


class Endless:
    """Content that a block repeats, so that a large file need not exist."""

    def __init__(self, head: bytes, block: bytes, times: int, tail: bytes = b"") -> None:
        self._parts = (head, block, times, tail)
        self.damage = ""

    def __iter__(self) -> Iterator[bytes]:
        head, block, times, tail = self._parts
        yield head
        for _ in range(times):
            yield block
        if tail:
            yield tail


def profile_of(path: Path) -> MemoryProfile:
    profile = MemoryProfile()
    profile.finish(read(path, profile))
    return profile


def written(folder: Path, content: bytes | str) -> Path:
    path = folder / "trace.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def events(*elements: str) -> str:
    return '{"schemaVersion": 1, "traceEvents": [\n' + ",\n".join(elements) + "\n]}"


def kernel(name: str = "k", **changed: Any) -> str:
    event = {"ph": "X", "cat": "kernel", "name": name, "ts": 5, "dur": 2, "args": {"stream": 7}}
    return json.dumps({**event, **changed})


def names(profile: MemoryProfile) -> list[str]:
    numbers = profile.columns("kernels", ["name"])["name"]
    return [profile.header.texts[number] for number in numbers]


GOOD = kernel("good")


@pytest.mark.parametrize(
    "bad",
    [
        kernel(ts={}),
        kernel(ts=-3),
        kernel(ts=None),
        kernel(ts="soon"),
        kernel(ts="sNaN"),
        kernel(ts="Infinity"),
        kernel(ts=1e300),
        kernel(dur=-1),
        kernel(dur=[]),
        kernel(dur=1e18),
        kernel(name=7),
        kernel(pid=2**63),
        kernel(args=[]),
        kernel(args=None),
        kernel(args={"stream": "seven"}),
        kernel(args={"correlation": 2**63}),
        kernel(args={"correlation": 1.5}),
        kernel(args={"device": 2**15}),
        kernel(args={"grid": [1, 2]}),
        kernel(args={"shared memory": 2**31}),
        '{"ph": "X", "cat": "kernel", "name": "no time"}',
        '{"ph": "X", "cat": "kernel", "name": "k", "ts": NaN, "dur": 1}',
        '{"ph": "X", "cat": "kernel", "name": "k", "ts": 1e999, "dur": 1}',
        '{"ph": "X", "cat": "kernel", "name": "k", "ts": 0.-12, "dur": 1}',
        '{"ph": "X" "cat": "kernel", "name": "k", "ts": 1, "dur": 1}',
        '{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1,}',
        '{"ph": "X", "args": ' + '{"a":' * 5000 + "1" + "}" * 5000 + ', "ts": {}}',
        "[]",
        "null, 7, true",
    ],
)
def test_one_bad_event_does_not_cost_the_others(tmp_path: Path, bad: str) -> None:
    profile = profile_of(written(tmp_path, events(GOOD, bad, kernel("also good"))))
    assert names(profile) == ["good", "also good"]


def test_what_was_left_out_is_counted_in_a_sentence(tmp_path: Path) -> None:
    bad = [kernel(ts=-1), kernel(args={"stream": "x"}), "{]}", kernel(ts="x")]
    profile = profile_of(written(tmp_path, events(GOOD, *bad[:2], bad[3])))
    warnings = " ".join(profile.header.warnings)
    assert profile.header.facts[CUT_OFF] == "1 element of the trace could not be read."
    assert "2 events with missing, negative or wrong values were left out." in warnings
    assert "1 element of the trace could not be read." in warnings


@pytest.mark.parametrize("literal", ["NaN", "-nan", "inf", "-Infinity", "nan"])
def test_numbers_that_are_none_cost_nothing_that_is_not_used(tmp_path: Path, literal: str) -> None:
    odd = kernel("not a nan, inf", args={"memory bandwidth (GB/s)": "X", "stream": 9})
    profile = profile_of(written(tmp_path, events(GOOD, odd.replace('"X"', literal, 2))))
    odd_name = names(profile)
    assert len(odd_name) <= 2
    profile = profile_of(
        written(tmp_path, events(GOOD, odd.replace(': "X", "s', f': {literal}, "s')))
    )
    assert names(profile) == ["good", "not a nan, inf"]
    assert profile.columns("kernels")["stream"].tolist() == [7, 9]


@pytest.mark.parametrize(
    ("name", "expected"),
    [(b"br\xff\xfeoken", "br\ufffd\ufffdoken"), (b"\\ud800 alone", "? alone"), (b"a\nb", "a\nb")],
)
def test_texts_that_are_none_are_repaired(tmp_path: Path, name: bytes, expected: str) -> None:
    content = events(GOOD, kernel("NAME")).encode().replace(b"NAME", name)
    profile = profile_of(written(tmp_path, content))
    assert names(profile) == ["good", expected]
    profile.header.texts[-1].encode()


def test_of_a_key_that_repeats_the_last_counts(tmp_path: Path) -> None:
    twice = '{"ph": "X", "cat": "cpu_op", "cat": "kernel", "name": "a", "name": "b", "ts": 1}'
    assert names(profile_of(written(tmp_path, events(twice)))) == ["b"]


@pytest.mark.parametrize("cut", range(100, 47_000, 997))
def test_of_a_truncated_trace_the_whole_events_are_kept(tmp_path: Path, cut: int) -> None:
    content = gzip.decompress(SMALL.read_bytes())[:cut]
    profile = profile_of(written(tmp_path, content))
    begin = content.find(b'"traceEvents": [')
    kept = content[: content.rfind(b"\n  },")] + b"\n  }]}"
    expected = rows_of(kept.decode()) if 0 < begin < content.rfind(b"\n  },") else {}
    assert rows_read(profile) == expected
    assert "ends early or breaks at byte" in profile.header.warnings[0]
    assert profile.header.facts[CUT_OFF] == profile.header.warnings[0]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_of_a_truncated_or_damaged_archive_the_start_is_kept(tmp_path: Path, pack: Any) -> None:
    many = events(*(kernel(f"k{number % 50}", ts=number) for number in range(60_000)))
    packed = pack(many.encode())
    cut = profile_of(written(tmp_path, packed[: len(packed) // 2]))
    assert 0 < cut.rows("kernels") < 60_000
    assert cut.header.warnings
    middle = len(packed) // 2
    damaged = packed[:middle] + bytes(64) + packed[middle + 64 :]
    profile = profile_of(written(tmp_path, damaged))
    assert 0 < profile.rows("kernels") <= 60_000


TENSORFLOW = b"""{"traceEvents": [
    {"ph": "M", "name": "process_name", "pid": 3,
     "args": {"name": "/job:localhost/replica:0/task:0/gpu:7 Compute"}},
    {"ph": "X", "cat": "Op", "name": "MatMul", "pid": 3, "tid": 0, "ts": 146408341914, "dur": 9},
    {"ph": "C", "cat": "Memory", "name": "gpu_bfc", "pid": 0, "ts": 146408341914,
     "args": {"allocated": 715776}}]}"""
XLA = b"""{"displayTimeUnit": "ns", "metadata": {"highres-ticks": true}, "traceEvents": [
    {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
    {"ph": "X", "pid": 1, "tid": 13, "ts": 5.1, "dur": 2.0, "name": "fusion_3"}]}"""
ONNX_RUNTIME = b"""[
    {"cat": "Session", "pid": 7, "tid": 7, "dur": 99, "ts": 4, "ph": "X", "name": "model_run"},
    {"cat": "Node", "pid": 7, "tid": 7, "dur": 9, "ts": 5, "ph": "X", "name": "Conv_kernel_time"},
    {"cat": "Kernel", "pid": 7, "tid": 7, "dur": 8, "ts": 6, "ph": "X", "name": "implicit_gemm",
     "args": {"stream": "7", "block_x": "256"}}]"""


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not JSON"),
        (b"\0" * 100, "is not JSON"),
        (b"<!DOCTYPE html><html>{}</html>", "is not JSON"),
        ('{"traceEvents": []}'.encode("utf-16"), "is not JSON"),
        (b"7", "is not JSON"),
        (b"{}", "is JSON, but not a trace of the torch profiler"),
        (b"[1, 2, 3]", "is JSON, but not a trace of the torch profiler"),
        (b'[{"Duration": 1, "Name": "sgemm"}]', "is JSON, but not a trace of the torch profiler"),
        (b'{"name": "package", "version": "1"}', "is JSON, but not a trace of the torch profiler"),
        (
            b'{"traceEvents": [{"ph": "B", "cat": "v8", "name": "compile", "ts": 1}]}',
            "a trace of Chrome, it seems, and not a trace of the torch profiler",
        ),
        (TENSORFLOW, "is a timeline of TensorFlow, it seems, and not .*; read are traces of torch"),
        (XLA, "is a trace of XLA's profiler"),
        (ONNX_RUNTIME, "is a profile of ONNX Runtime"),
        (b'[{"ph": "C", "name": "heap", "ts": 1, "args": {"used": 5}}]', "of another program"),
        (  # as torch.autograd.profiler wrote it
            b'[{"name": "aten::empty", "ph": "X", "ts": 4.7, "dur": 4.1, "tid": 1, "pid": "CPU'
            b' functions", "args": {}}]',
            "PyTorch's profiler before Kineto",
        ),
    ],
)
def test_another_file_is_refused_in_one_sentence(tmp_path: Path, content: bytes, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        profile_of(written(tmp_path, content))


def test_a_path_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(UsageError, match="cannot be read"):
            profile_of(path)


def test_a_trace_without_events_says_so(tmp_path: Path) -> None:
    profile = profile_of(written(tmp_path, '{"schemaVersion": 1, "traceEvents": []}'))
    assert profile.header.warnings == ("The trace has no events.",)


@pytest.mark.parametrize(
    ("head", "block"),
    [
        (b'{"schemaVersion": 1, "x": "', b"a" * MIB),
        (b'{"schemaVersion": 1, "x": ', b"[" * MIB),
        (b'{"schemaVersion": 1, "x": ', b"1" * MIB),
        (b'{"traceEvents": [{"name": "', b"a" * MIB),
        (b'{"traceEvents": [{"name": "', b'\\"' * MIB),
        (b'{"traceEvents": [', b"1, " * MIB),
        (b'{"traceEvents": [', b"[" * MIB),
    ],
    ids=["string", "depth", "number", "name", "escapes", "numbers", "deep_events"],
)
def test_a_value_without_end_is_refused_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch, head: bytes, block: bytes
) -> None:
    monkeypatch.setattr(document, "MAX_VALUE_BYTES", 4 * MIB)
    tracemalloc.start()
    with pytest.raises(UsageError, match="holds a value of more than 4 MiB"):
        read_blocks(Endless(head, block, 10_000), Path("trace.json"), MemoryProfile())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 120 * MIB


def test_memory_does_not_grow_with_the_file() -> None:
    class Forgetting:
        def add(self, table: str, columns: Any) -> None:
            pass

    peaks = []
    line = (",\n" + kernel("},{" * 5, args={"stream": 7, "x": ["}", "\\"]})).encode()
    for times in (4, 16):
        content = Endless(b'{"traceEvents": [' + GOOD.encode(), line * 5_000, times, b"]}")
        tracemalloc.start()
        read_blocks(content, Path("trace.json"), Forgetting())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]


def test_space_without_end_takes_no_memory() -> None:
    content = Endless(b'{"schemaVersion": 1, ', b" \n" * MIB, 40, b'"traceEvents": []}')
    tracemalloc.start()
    read_blocks(content, Path("trace.json"), MemoryProfile())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * MIB


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Any) -> None:
    monkeypatch.setattr(blocks, "RATIO_COUNTS_FROM_BYTES", 8 * MIB)
    bomb = pack(b'{"traceEvents": [' + b" " * (64 * MIB))
    with pytest.raises(UsageError, match="unpacks to more than 400 times its size"):
        profile_of(written(tmp_path, bomb))


def test_a_nested_bomb_unpacks_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not JSON"):
        profile_of(written(tmp_path, gzip.compress(gzip.compress(b"{}"))))


def test_more_texts_than_fit_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuadvisor.collectors.kineto.batch.MAX_BYTES", 100_000)
    many = events(*(kernel(f"unique {number}") for number in range(2_000)))
    profile = profile_of(written(tmp_path, many))
    assert profile.rows("kernels") == 2_000
    assert len(profile.header.texts) < 1_000
    assert "lost a text" in profile.header.warnings[0]


def test_a_text_of_a_megabyte_is_shortened(tmp_path: Path) -> None:
    profile = profile_of(written(tmp_path, events(kernel("x" * MIB))))
    assert len(names(profile)[0]) == 65_536


@pytest.mark.parametrize("seed", range(300))
def test_any_change_of_bytes_ends_in_a_header_or_a_sentence(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    content = bytearray(gzip.decompress(SMALL.read_bytes()))
    for _ in range(chance.choice((1, 3, 30, 300))):
        _mutate(content, chance)
    packed = chance.choice((bytes, zlib.compress, gzip.compress, zstandard.compress))
    data = bytearray(packed(bytes(content)))
    if chance.random() < 0.2:
        _mutate(data, chance)
    try:
        header = profile_of(written(tmp_path, bytes(data))).header
    except UsageError as error:
        assert str(error).count("\n") == 0
    else:
        assert header.duration_ns >= 0


MUTATIONS = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"-",
    b"9" * 30,
    b"\xff",
    b"\0",
    b"e9",
]


def _mutate(content: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(content) or 1)
    end = at + chance.choice((0, 1, 1, 2, 50))
    content[at:end] = chance.choice([*MUTATIONS, b"", bytes(content[at : at + 400])])

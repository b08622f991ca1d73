"""A profile as a Chrome trace: Kineto's reader finds the same in it again."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest

from gpuadvisor.domain.finding import Scope, ScopeKind
from gpuadvisor.domain.profile import UNKNOWN, Direction, Memory, Range
from gpuadvisor.domain.unprofiled import (
    Steadiness,
    UnprofiledSteps,
    unprofiled_steps,
    with_unprofiled_steps,
)
from gpuadvisor.errors import UsageError
from gpuadvisor.profiling import exporting
from gpuadvisor.profiling.exporting import MOST_MARKS, MOST_TRACKS
from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.rules.facts.summary import Facts
from tests.diagnoses import INPUT, KERNEL
from tests.profile_reports import GEMM, H100, counted, hostile, many_devices, whole
from tests.profiles import Made

TABLES = ("kernels", "copies", "calls", "operators", "ranges", "memory", "collectives")
TEXTS = ("name", "shapes", "types", "stack", "type", "group")


def exported(profile, folder, name="out.json"):
    exporting.export(Facts(profile), folder / name)
    return folder / name


def events(path):
    return json.loads(path.read_text("ascii"))["traceEvents"]


def rows(profile, table):
    """The rows of a table with their texts, in an order of their own."""
    columns = dict(profile.columns(table))
    texts = profile.header.texts
    for name in columns.keys() & set(TEXTS):
        columns[name] = [texts[number] for number in columns[name]]
    return sorted(map(repr, zip(*(np.asarray(columns[n]).tolist() for n in columns), strict=True)))


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("make", [whole, many_devices])
def test_what_is_read_back_is_the_same(make, table, tmp_path):
    profile = make()
    again = read_profile(exported(profile, tmp_path))
    assert rows(again, table) == rows(profile, table)


def test_a_trace_is_told_what_steps_took_without_the_profiler_unless_it_tells_it(tmp_path):
    def read(folder, told=None):
        profile = whole()
        folder.mkdir()
        exporting.export(Facts(profile), file := folder / "out.json")
        document = json.loads(file.read_text("ascii"))
        file.write_text(json.dumps(document | dict(told.facts() if told else {})), "ascii")
        return read_profile(file, UnprofiledSteps(5e6)).header

    told = UnprofiledSteps(2e6, Steadiness.of([1e6, 2e6, 3e6], 5))
    assert unprofiled_steps(read(tmp_path / "silent").facts) == UnprofiledSteps(5e6)
    telling = read(tmp_path / "telling", told)
    assert unprofiled_steps(telling.facts).facts() == told.facts()
    assert with_unprofiled_steps(telling, UnprofiledSteps(1.0)) is telling


def test_the_device_is_read_back_too(tmp_path):
    again = read_profile(exported(whole(rank=3, world_size=8), tmp_path))
    assert again.header.devices == (H100,)
    assert (again.header.rank, again.header.world_size) == (3, 8)


def test_compressed_where_the_name_says_so(tmp_path):
    path = exported(whole(), tmp_path, "out.json.gz")
    assert json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


def test_arrows_lead_from_each_call_to_what_it_launched(tmp_path):
    found = events(exported(whole(number=1), tmp_path))
    starts = {each["id"]: each for each in found if each["ph"] == "s"}
    ends = {each["id"]: each for each in found if each["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) == 3  # a copy, a product, a collective
    by_time = {each["ts"]: each for each in found if each["ph"] == "X"}
    for number, start in starts.items():
        call, work = by_time[start["ts"]], by_time[ends[number]["ts"]]
        assert call["cat"] == "cuda_runtime"
        assert call["args"]["correlation"] == work["args"]["correlation"]
        assert (work["pid"], work["tid"]) == (ends[number]["pid"], ends[number]["tid"])


def test_idle_times_stand_on_a_track_of_their_own(tmp_path):
    found = events(exported(whole(), tmp_path))
    (track,) = (e["pid"] for e in found if e.get("args", {}).get("name") == exporting.ANNOTATIONS)
    idle = [each for each in found if each["pid"] == track and each["ph"] == "X"]
    assert {each["name"] for each in idle} >= {"idle: waiting for data"}
    longest = max(idle, key=lambda each: each["dur"])
    assert longest["args"]["cause"] == "waiting for data"
    assert longest["args"]["launched by"] == "cudaMemcpyAsync"


def test_all_idle_times_are_shown_but_those_that_are_too_short(tmp_path):
    made, begin = Made(), 0.0
    for idle_us in [100] * 30 + [4] * 3 + [0]:
        made.kernel("k", (begin, 10))
        begin += 10 + idle_us
    found = events(exported(made.profile(), tmp_path))
    shown = [each["dur"] for each in found if each.get("cat") == "gpuadvisor"]
    assert shown == [100] * 30
    tracks = [each["args"]["name"] for each in found if each["name"] == "thread_name"]
    assert "GPU 0 (3 gaps below 5 us left out)" in tracks


def test_memory_is_a_counter_too(tmp_path):
    found = events(exported(whole(number=1), tmp_path))
    values = [each["args"]["allocated"] for each in found if each["ph"] == "C"]
    assert values == [2 << 20, 1 << 20]


@pytest.mark.parametrize("direction", [each for each in Direction if each < Direction.MIGRATION])
@pytest.mark.parametrize("source", [Memory.PAGEABLE, Memory.DEVICE, Memory.MANAGED])
def test_every_copy_keeps_what_it_is(direction, source, tmp_path):
    made = Made()
    source = Memory.NOT_KNOWN if direction is Direction.MEMSET else source
    made.copy((1, 2), direction=direction, source=source, bytes=9)
    columns = read_profile(exported(made.profile(), tmp_path)).columns("copies")
    assert columns["direction"].tolist() == [direction]
    assert columns["source"].tolist() == [source]
    assert columns["bytes"].tolist() == [9]


def test_times_are_exact_to_the_nanosecond(tmp_path):
    made = Made()
    for number in range(1000):
        made.kernel("k", (number * 1e6 + number / 1000, 0.001 * number))
    profile = made.profile()
    again = read_profile(exported(profile, tmp_path))
    for column in ("begin_ns", "duration_ns"):
        before, after = (each.columns("kernels")[column].tolist() for each in (profile, again))
        assert before == after


def test_names_stay_names(tmp_path):
    profile = hostile()
    path = exported(profile, tmp_path)
    assert sum(each.get("cat") == "kernel" for each in events(path)) == profile.rows("kernels")
    again = read_profile(path)
    assert again.rows("kernels") == profile.rows("kernels")
    assert "\udcff" not in "".join(again.header.texts)


def test_a_process_with_a_devices_number_keeps_a_place_of_its_own(tmp_path):
    made = Made()
    made.launched("k", (0, 1), (2, 3), device=1)  # its call is made by process 1
    found = events(exported(made.profile(), tmp_path))
    places = {each["cat"]: each["pid"] for each in found if each["ph"] == "X"}
    assert places["cuda_runtime"] == 1
    assert places["kernel"] != 1


def test_what_json_cannot_say_is_left_out(tmp_path):
    made = Made()
    made.kernel("k", (0, 1))
    for value in (1.5, float("nan"), float("inf")):
        made.row("counters", time_ns=5, device=0, name="c", value=value)
    made.operator("aten::x", (0, 1), flops=float("inf"), shapes="[[not json")
    found = events(exported(made.profile(), tmp_path))
    assert [each["args"] for each in found if each["ph"] == "C"] == [{"value": 1.5}]
    (operator,) = (each for each in found if each.get("cat") == "cpu_op")
    assert operator["args"] == {"Input Dims": "[[not json"}


def test_a_negative_time_is_none(tmp_path):
    made = Made()
    made.kernel("k", (-5, 1))
    (kernel,) = (e for e in events(exported(made.profile(), tmp_path)) if e.get("cat") == "kernel")
    assert kernel["ts"] == 0


def test_kernels_that_were_counted_have_no_timeline(tmp_path):
    with pytest.raises(UsageError, match="The profile has no timeline to show: Nsight Compute"):
        exporting.export(Facts(counted()), tmp_path / "out.json")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(tmp_path):
    with pytest.raises(UsageError, match=r"cannot write .*out\.json: No such file"):
        exporting.export(Facts(whole()), tmp_path / "no" / "out.json")


def test_nothing_is_left_of_an_export_that_failed(tmp_path):
    class Broken:
        """A profile whose last table fails."""

        header = whole().header
        inner = whole()

        def rows(self, table):
            return self.inner.rows(table)

        def columns(self, table, names=None):
            if table == "memory":
                raise RuntimeError("lost")
            return self.inner.columns(table, names)

    (tmp_path / "out.json").write_text("as it was")
    with pytest.raises(RuntimeError, match="lost"):
        exporting.export(Facts(Broken()), tmp_path / "out.json")
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    assert (tmp_path / "out.json").read_text() == "as it was"


def test_unknown_values_are_left_out(tmp_path):
    made = Made()
    made.kernel("k", (0, 1))
    (kernel,) = (e for e in events(exported(made.profile(), tmp_path)) if e.get("cat") == "kernel")
    assert kernel["args"] == {"device": 0, "stream": 7}
    assert UNKNOWN not in kernel["args"].values()


def marks(found):
    (track,) = (e["pid"] for e in found if e.get("args", {}).get("name") == exporting.FINDINGS)
    return [each for each in found if each["pid"] == track and each["ph"] == "X"], track


def test_findings_stand_on_tracks_of_their_own_over_what_they_are_about(tmp_path):
    facts = Facts(whole(number=2))
    kernel = replace(KERNEL, scope=Scope(ScopeKind.KERNEL, GEMM))
    operator = replace(KERNEL, rule="fuse", scope=Scope(ScopeKind.OPERATOR, "aten::mm"))
    exporting.export(facts, tmp_path / "out.json", (INPUT, kernel, operator))
    found = events(tmp_path / "out.json")
    shown, track = marks(found)
    names = {e["tid"]: e["args"]["name"] for e in found
             if e["pid"] == track and e["name"] == "thread_name"}  # fmt: skip
    assert names == {1: "1. input_bound", 2: "2. uncoalesced_loads", 3: "3. fuse"}
    of_kernel = [(e["ts"], e["dur"]) for e in shown if e["tid"] == 2]
    assert of_kernel == [(400, 200), (1400, 200)]
    assert [e["ts"] for e in shown if e["tid"] == 3] == [380, 1380]
    (waiting, *_) = (e for e in shown if e["tid"] == 1)
    assert waiting["args"]["what to do"] == INPUT.advice
    assert waiting["args"]["worth"] == "32 to 61 % of the run"


def test_a_finding_about_an_optimizer_does_not_stand_over_the_closure_that_it_calls(tmp_path):
    made = Made()
    made.launched("gemm", (12, 5), (20, 5))
    made.operator("aten::mm", (10, 10), sequence=7, forward_thread=0)
    engine = "autograd::engine::evaluate_function: MmBackward0"
    made.operator(engine, (100, 50), thread=9, sequence=7, forward_thread=1)
    made.operator("aten::add_", (200, 10))
    made.range("Optimizer.step#Adam.step", (0, 300))
    adam = replace(KERNEL, scope=Scope(ScopeKind.OPERATOR, "Optimizer.step#Adam.step"))
    exporting.export(Facts(made.profile()), tmp_path / "out.json", (adam,))
    ((mark,), _) = marks(events(tmp_path / "out.json"))
    assert (mark["ts"], mark["dur"]) == (200, 100)


def test_what_is_about_nothing_that_was_recorded_is_about_the_whole_run(tmp_path):
    facts = Facts(whole(number=2))
    gone = replace(KERNEL, scope=Scope(ScopeKind.KERNEL, "no such kernel"))
    exporting.export(facts, tmp_path / "out.json", (gone,))
    ((mark,), _) = marks(events(tmp_path / "out.json"))
    assert (mark["ts"], mark["dur"]) == (facts.window.begin_ns / 1e3, facts.window.run_ns / 1e3)


def test_a_finding_has_a_bounded_number_of_marks(tmp_path):
    made = Made()
    for number in range(MOST_MARKS + 10):
        made.kernel("k", (10 * number, 1 + number / 1000))
    found = [replace(KERNEL, scope=Scope(ScopeKind.KERNEL, "k"))] * (MOST_TRACKS + 5)
    exporting.export(Facts(made.profile()), tmp_path / "out.json", found)
    shown, _ = marks(events(tmp_path / "out.json"))
    assert len(shown) == MOST_MARKS * MOST_TRACKS
    assert min(mark["ts"] for mark in shown) == 100, "the longest are kept"


def test_marks_change_nothing_of_what_is_read_back(tmp_path):
    profile = whole()
    exporting.export(Facts(profile), tmp_path / "out.json", (INPUT, KERNEL))
    again = read_profile(tmp_path / "out.json")
    assert [rows(again, table) for table in TABLES] == [rows(profile, table) for table in TABLES]


@pytest.mark.parametrize("kind", list(Range))
def test_a_range_is_of_the_same_kind_afterwards(tmp_path, kind):
    made = Made()
    made.launched("gemm", (0, 5), (10, 50))
    name = {Range.STEP: "ProfilerStep#1", Range.LOADER: "enumerate(DataLoader)#x.__next__"}
    made.range(name.get(kind, "poll"), (20, 30), kind)
    again = read_profile(exported(made.profile(devices=(H100,)), tmp_path))
    assert again.columns("ranges")["kind"].tolist() == [kind]

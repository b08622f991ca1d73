"""Reports of Nsight Compute, read by NVIDIA's own package in a process of its own.

`pip install ncu-report` for those that need the package; it is NVIDIA's, and under its own licence.
"""

import gzip
import importlib.util
import random
import sys
from pathlib import Path

import pytest

from gpuadvisor.collectors.nsight import compute_csv, compute_report
from gpuadvisor.columns import MemoryProfile
from gpuadvisor.errors import UsageError

DATA = Path(__file__).parents[3] / "data" / "profiles"
NAME = "a10g_gemm_esmm_a"
needs_package = pytest.mark.skipif(
    importlib.util.find_spec("ncu_report") is None, reason="needs `pip install ncu-report`"
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("ncu") / f"{NAME}.ncu-rep"
    path.write_bytes(gzip.decompress((DATA / f"{NAME}.ncu-rep.gz").read_bytes()))
    return path


def profile_of(reader, path, **options):
    profile = MemoryProfile()
    profile.finish(reader.read(path, profile, **options))
    return profile


def python(folder, body):
    """A program that is called as an interpreter is, and does something else."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_a_report_is_recognised_by_its_content(report):
    assert compute_report.recognises(report.read_bytes()[:4096])
    assert not compute_report.recognises(b"SQLite format 3\x00")


@needs_package
def test_a_report_says_what_its_csv_says(report, tmp_path):
    path = tmp_path / f"{NAME}.raw.csv"
    path.write_bytes(gzip.decompress((DATA / f"{NAME}.raw.csv.gz").read_bytes()))
    ours, csv = profile_of(compute_report, report), profile_of(compute_csv, path)
    printed, held = _metrics(csv), _metrics(ours)
    assert printed.keys() == held.keys()
    for key, (value, unit) in printed.items():
        # The CSV has 6 decimals, of some metrics 2, and leaves out units of passes.
        assert value == pytest.approx(held[key][0], rel=1e-5, abs=0.005), key
        assert unit in ("", held[key][1]), key
    for column in ("duration_ns", "registers", "shared_bytes", "grid_x", "block_x", "stream"):
        expected = csv.columns("kernels")[column].tolist()
        assert ours.columns("kernels")[column].tolist() == expected, column
    assert ours.header.devices == csv.header.devices


def _metrics(profile):
    texts = profile.header.texts
    rows = zip(*(column.tolist() for column in profile.columns("metrics").values()), strict=True)
    return {(row, texts[m]): (value, texts[unit]) for row, m, value, unit in rows}


@needs_package
@pytest.mark.parametrize("seed", range(10))
def test_reports_with_bytes_changed(report, tmp_path, seed):
    chance = random.Random(seed)
    content = bytearray(report.read_bytes())
    for _ in range(chance.choice([1, 50, 5000])):
        content[chance.randrange(4, len(content))] = chance.randrange(256)
    path = tmp_path / "mutated.ncu-rep"
    path.write_bytes(content[: len(content) if seed % 2 else len(content) // 2])
    try:
        assert profile_of(compute_report, path).rows("kernels") > 0
    except UsageError as error:
        assert "\n" not in str(error)


def test_a_missing_package_is_said_with_both_ways_out(report, tmp_path):
    with pytest.raises(UsageError, match=r"pip install ncu-report.*--page raw --csv"):
        profile_of(compute_report, report, python=python(tmp_path, "exit 3"))


def test_a_crash_of_the_package_is_no_crash_of_ours(report, tmp_path):
    with pytest.raises(UsageError, match="SIGSEGV"):
        profile_of(compute_report, report, python=python(tmp_path, "kill -SEGV $$"))


def test_what_came_before_a_crash_is_kept(report, tmp_path):
    line = '{"name": "gemm", "metrics": {"gpu__time_duration.sum": [5000.0, "ns"]}}'
    profile = profile_of(
        compute_report,
        report,
        python=python(tmp_path, f"echo '{line}'; echo '{line[:20]}'; kill -SEGV $$"),
    )
    assert profile.columns("kernels")["duration_ns"].tolist() == [5000]
    assert "SIGSEGV" in profile.header.warnings[0]


def test_lines_that_are_no_kernels_cost_nothing(report, tmp_path):
    odd = [
        '{"metrics": {}}', '{"name": 7, "metrics": {}}', '{"name": "a", "metrics": [1]}', "[]", "7",
        "[" * 100_000,
        r"""{"name": "odd \ud800", "metrics": {"a": 1, "b": [1], "c": [[], ""], "d": [1, 2],
         "e": [NaN, ""], "f": [1e999, ""], "g": [1e300, "Gbyte"], "h": ["\udcff", ""],
         "i\udcff": [2, "Kbyte"]}}""".replace("\n", " "),
    ]  # fmt: skip
    (tmp_path / "lines").write_text("\n".join(odd))
    said = python(tmp_path, f"cat {tmp_path / 'lines'}")
    profile = profile_of(compute_report, report, python=said)
    assert profile.rows("kernels") == 1
    assert _metrics(profile) == {(0, "i?"): (2000.0, "byte")}
    assert "odd ?" in profile.header.texts


def test_a_package_that_never_ends_is_ended(report, tmp_path, monkeypatch):
    monkeypatch.setattr(compute_report, "TIMEOUT_S", 0.2)
    with pytest.raises(UsageError, match=r"did not end within 0\.2 s"):
        profile_of(compute_report, report, python=python(tmp_path, "sleep 60"))


FAKE = """
class Values:
    def __init__(self, values, unit=""):
        self.values, self.text = values, unit
    def num_instances(self): return len(self.values)
    def as_uint64(self, number): return self.values[number]
    def value(self): return sum(self.values)
    def unit(self): return self.text
class Sampled(Values):
    def correlation_ids(self): return Values([0x700, 0x710, 0x720, 0x730])
class Unplaced(Values):
    def correlation_ids(self): return None
class Line:
    def __init__(self, line): self.number = line
    def file_name(self): return "/src/kernel.cu"
    def line(self): return self.number
class Action:
    NameBase_DEMANGLED = 0
    metrics = {
        "smsp__pcsamp_sample_count": Sampled([7, 40, 3, 0]),
        "smsp__pcsamp_warps_issue_stalled_long_scoreboard": Sampled([5, 20, 0, 0]),
        "smsp__pcsamp_warps_issue_stalled_long_scoreboard_not_issued": Sampled([4, 19, 0, 0]),
        "smsp__pcsamp_warps_issue_stalled_selected": Sampled([2, 20, 3, 0]),
        "smsp__pcsamp_warps_issue_stalled_wait": Unplaced([1]),
    }
    def __init__(self, lines): self.lines = lines
    def name(self, base): return "gemm"
    def metric_names(self): return self.metrics
    def __getitem__(self, name): return self.metrics[name]
    def source_info(self, address):
        return Line(9 if address < 0x720 else 12) if self.lines else None
    def sass_by_pc(self, address): return "@P0   FADD R1, R2" if address == 0x710 else "???"
def load_report(path): return [[Action(True), Action(False)]]
"""
"""Two kernels as `ncu_report` has them, one with lines and one without."""


def test_samples_are_summed_by_line_and_where_there_is_none_by_instruction(report, tmp_path):
    (tmp_path / "ncu_report.py").write_text(FAKE)
    there = f"import sys, runpy; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = sys.argv[1:]"
    run = f"{there}; runpy.run_path(sys.argv[0], run_name='__main__')"
    fake = python(tmp_path, f'shift 3; exec {sys.executable} -c "{run}" "$@"')
    profile = profile_of(compute_report, report, python=fake)
    texts = profile.header.texts
    words = ("line", "instruction", "reason")
    columns = profile.columns("stalls")
    rows = [
        (kernel, *(texts[columns[word][row]] for word in words), samples)
        for row, (kernel, samples) in enumerate(
            zip(columns["kernel"].tolist(), columns["samples"].tolist(), strict=True)
        )
    ]
    assert rows == [
        (0, "/src/kernel.cu:9", "", "long_scoreboard", 25),
        (0, "/src/kernel.cu:9", "", "selected", 22),
        (0, "/src/kernel.cu:12", "", "selected", 3),
        (1, "", "+0x10 @P0 FADD R1, R2", "long_scoreboard", 20),
        (1, "", "+0x10 @P0 FADD R1, R2", "selected", 20),
        (1, "", "+0x0", "long_scoreboard", 5),
        (1, "", "+0x20", "selected", 3),
        (1, "", "+0x0", "selected", 2),
    ]
    assert "stalls" not in profile.header.not_measured


def test_samples_that_are_none_cost_nothing(report, tmp_path):
    odd = (
        '["a", "", "wait", -1], ["a", "", "wait"], 7, ["a", "", "b", 1e9], ["\\udcff", "", "b", 3]'
    )
    line = f'{{"name": "gemm", "metrics": {{"a": [1, ""]}}, "stalls": [{odd}]}}'
    (tmp_path / "lines").write_text(f'{line}\n{{"name": "x", "metrics": {{}}, "stalls": 3}}')
    profile = profile_of(compute_report, report, python=python(tmp_path, f"cat {tmp_path}/lines"))
    assert profile.columns("stalls")["samples"].tolist() == [3]


def test_a_report_without_samples_says_so(report, tmp_path):
    line = '{"name": "gemm", "metrics": {"gpu__time_duration.sum": [5000.0, "ns"]}, "stalls": []}'
    profile = profile_of(compute_report, report, python=python(tmp_path, f"echo '{line}'"))
    assert profile.rows("stalls") == 0
    assert "where in kernels warps wait" in profile.header.not_measured["stalls"]


@pytest.mark.parametrize("content", [b"", b"hello", b"NVR\x00" + b"\xff" * 100])
def test_what_is_no_report_is_refused(tmp_path, content):
    path = tmp_path / "file.ncu-rep"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="--page raw --csv") as caught:
        profile_of(compute_report, path)
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        profile_of(compute_report, tmp_path / "none.ncu-rep", python=sys.executable)

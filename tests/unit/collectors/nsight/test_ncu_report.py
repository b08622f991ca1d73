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

"""What `ncu --csv` prints, of every page, version and country, becomes the same profile."""

import gzip
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuadvisor.collectors.nsight import compute_csv
from gpuadvisor.collectors.nsight.compute_csv import decimal_mark, number
from gpuadvisor.collectors.nsight.compute_metrics import base_unit
from gpuadvisor.columns import MemoryProfile
from gpuadvisor.domain.profile import UNKNOWN
from gpuadvisor.errors import UsageError

DATA = Path(__file__).parents[3] / "data" / "profiles"
RAW_HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","dram__bytes.sum","gpu__time_duration.sum",'
    '"launch__registers_per_thread","launch__shared_mem_per_block_dynamic",'
    '"launch__shared_mem_per_block_static"\n'
)
RAW_UNITS = (
    '"","","","","","","","","","","","Mbyte","usecond","register/thread","Kbyte/block",'
    '"byte/block"\n'
)
RAW_ROW = (
    '"0","535","a.out","127.0.0.1","gemm(float *, int)","1","7","(256, 2, 1)","(1056, 1, 3)","0",'
    '"9.0","1,234.5","370.752","40","32.768","1,024"\n'
)
DETAILS_HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Kernel Time","Context","Stream",'
    '"Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type"\n'
)


def details_row(label, unit, value, kernel="0", section="GPU Speed Of Light Throughput"):
    return (
        f'"{kernel}","535","a.out","127.0.0.1","gemm{kernel}","2024-Jan-01","1","7","{section}",'
        f'"{label}","{unit}","{value}","",""\n'
    )


def read(path):
    profile = MemoryProfile()
    profile.finish(compute_csv.read(path, profile))
    return profile


@pytest.fixture
def profile_of(tmp_path):
    """A function that reads a file with this content."""

    def make(content):
        path = tmp_path / "report.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read(path)

    return make


def real(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(gzip.decompress((DATA / f"{name}.gz").read_bytes()))
    return read(path)


def metrics(profile, kernel=0):
    """Value and unit by metric."""
    texts = profile.header.texts
    rows = zip(*(column.tolist() for column in profile.columns("metrics").values()), strict=True)
    return {texts[m]: (value, texts[unit]) for row, m, value, unit in rows if row == kernel}


def kernels(profile):
    return {name: column.tolist() for name, column in profile.columns("kernels").items()}


class TestReal:
    def test_a10g(self, tmp_path):
        profile = real("a10g_gemm_esmm_a.raw.csv", tmp_path)
        found = kernels(profile)
        assert found["duration_ns"][:2] == [9621632, 1157440]
        assert found["registers"] == [108, 36, 128, 216, 216]
        assert found["shared_bytes"][0] == 32768
        assert (found["grid_x"][0], found["block_x"][0]) == (32, 256)
        assert profile.header.texts[found["name"][0]].startswith("void one_warptiling<(int)128")
        measured = metrics(profile)
        assert measured["dram__cycles_elapsed.avg.per_second"] == (
            pytest.approx(6.240409e9), "hertz"
        )  # fmt: skip
        assert measured["profiler__replayer_bytes_mem_accessible.sum"] == (
            pytest.approx(1.887446e9), "byte"
        )  # fmt: skip
        assert profile.header.warnings == ()

    def test_units_may_differ_from_file_to_file(self, tmp_path):
        name = "launch__shared_mem_per_block_dynamic"  # byte/block here, Kbyte/block in the other
        for file in ("a10g_gemm_esmm_a.raw.csv", "a10g_gemm_esmm_b.raw.csv"):
            assert metrics(real(file, tmp_path))[name] == (0.0, "byte/block")

    def test_h100(self, tmp_path):
        profile = real("h100_planted.raw.csv", tmp_path)
        found = kernels(profile)
        assert found["duration_ns"][0] == 370752
        assert found["grid_x"][:2] == [1056, 524288]
        assert found["shared_bytes"][3] == 102400
        assert (found["device"][0], found["stream"][0]) == (0, 7)
        (gpu,) = profile.header.devices
        assert gpu.name == "NVIDIA H100 80GB HBM3"
        assert gpu.compute_capability == (9, 0)
        assert gpu.memory_bandwidth_bytes_per_s == pytest.approx(3352.32e9)
        assert gpu.shared_bytes_per_block == 232448
        assert gpu.clock_hz == 1.98e9
        assert profile.header.processes == {535: "planted"}
        assert metrics(profile)["SM_A.TriageCompute.l1tex__data_pipe_lsu_wavefronts.avg"] == (
            69297.09, ""
        )  # fmt: skip

    def test_every_number_of_the_file_is_there(self, tmp_path):
        profile = real("h100_planted.raw.csv", tmp_path)
        text = gzip.decompress((DATA / "h100_planted.raw.csv.gz").read_bytes()).decode()
        header, _, *rows = [line[1:-1].split('","') for line in text.splitlines()]
        cells = [
            cell
            for row in rows
            for name, cell in zip(header[11:], row[11:], strict=True)
            if not name.startswith("device__attribute_") and re.fullmatch(r"[\d.,]+", cell)
        ]
        assert profile.rows("metrics") == len(cells) > 15_000

    def test_what_is_the_same_for_all_kernels_is_a_fact(self, tmp_path):
        facts = real("h100_planted.raw.csv", tmp_path).header.facts
        assert facts["device__attribute_multiprocessor_count"] == "132"
        assert facts["launch__func_cache_config"] == "CachePreferNone"

    def test_what_was_not_measured_is_said(self, tmp_path):
        profile = real("a10g_gemm_esmm_a.raw.csv", tmp_path)
        assert kernels(profile)["begin_ns"] == [UNKNOWN] * 5
        assert {"copies", "kernels.begin_ns"} <= profile.header.not_measured.keys()


class TestRawPage:
    def test_a_kernel(self, profile_of):
        found = kernels(profile_of(RAW_HEADER + RAW_UNITS + RAW_ROW))
        assert found["duration_ns"] == [370752]
        assert [found[f"grid_{axis}"] for axis in "xyz"] == [[1056], [1], [3]]
        assert [found[f"block_{axis}"] for axis in "xyz"] == [[256], [2], [1]]
        assert (found["registers"], found["shared_bytes"]) == ([40], [33792])

    def test_lines_of_ncu_and_the_program_are_passed_over(self, profile_of):
        profile = profile_of(
            "==PROF== Connected to process 1\nhello \"world, it's me\n"
            + RAW_HEADER + RAW_UNITS + "==PROF== Profiling gemm\n" + RAW_ROW
            + "==PROF== Disconnected\n"
        )  # fmt: skip
        assert profile.rows("kernels") == 1
        assert profile.header.warnings == ()

    def test_a_file_without_the_line_of_units(self, profile_of):
        with pytest.raises(UsageError, match="the line of units below the names is missing"):
            profile_of(RAW_HEADER + RAW_ROW)

    def test_ranges_of_nvtx_are_no_metrics(self, profile_of):
        column = '"thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",'
        header = RAW_HEADER.replace('"Kernel Name"', column + '"Kernel Name"')
        row = RAW_ROW.replace('"gemm', '"12","gemm')
        found = metrics(profile_of(header + RAW_UNITS.replace(',"', ',"","', 1) + row))
        assert not any("Domain" in name for name in found)
        assert "dram__bytes.sum" in found

    def test_the_same_report_twice(self, profile_of):
        twice = 2 * (RAW_HEADER + RAW_UNITS + RAW_ROW)
        assert kernels(profile_of(twice))["duration_ns"] == [370752, 370752]

    def test_two_reports_after_each_other(self, profile_of):
        other = RAW_HEADER.replace("dram__bytes.sum", "lts__t_bytes.sum")
        profile = profile_of(
            RAW_HEADER + RAW_UNITS + RAW_ROW + other + RAW_UNITS + RAW_ROW.replace("370", "371")
        )
        assert kernels(profile)["duration_ns"] == [370752, 371752]
        assert "lts__t_bytes.sum" in metrics(profile, 1)

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
    def test_encodings(self, profile_of, encoding):
        content = (
            (RAW_HEADER + RAW_UNITS + RAW_ROW).replace("gemm(", "größe(").replace("\n", "\r\n")
        )
        profile = profile_of(content.encode(encoding))
        name = profile.header.texts[kernels(profile)["name"][0]]
        assert name == "größe(float *, int)"

    def test_numbers_of_another_country(self, profile_of):
        row = RAW_ROW.replace("1,234.5", "1.234,5").replace("370.752", "370,752")
        row = row.replace("32.768", "32,768000").replace("1,024", "1.024")
        profile = profile_of(RAW_HEADER + RAW_UNITS + row)
        assert metrics(profile)["dram__bytes.sum"] == (1234.5e6, "byte")
        assert kernels(profile)["duration_ns"] == [370752]
        assert kernels(profile)["shared_bytes"] == [33792]


class TestDetailsPage:
    def test_a_line_a_metric(self, profile_of):
        profile = profile_of(
            DETAILS_HEADER
            + details_row("Duration", "usecond", "1,370.75")
            + details_row("Memory Throughput", "%", "43.20")
            + details_row("Memory Throughput", "Tbyte/second", "1.45", section="Memory")
            + details_row("Registers Per Thread", "register/thread", "32")
            + details_row("", "", "")
            + details_row("dram__bytes.sum", "Gbyte", "2", kernel="1")
        )
        assert kernels(profile)["duration_ns"] == [1370750, UNKNOWN]
        assert kernels(profile)["registers"] == [32, UNKNOWN]
        first = metrics(profile)
        assert first["gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"][0] == 43.2
        assert first["dram__bytes.sum.per_second"] == (1.45e12, "byte/second")
        assert metrics(profile, 1) == {"dram__bytes.sum": (2e9, "byte")}

    def test_a_metric_of_two_sections_counts_once(self, profile_of):
        profile = profile_of(DETAILS_HEADER + details_row("Duration", "ns", "5") * 2)
        assert profile.rows("metrics") == 1

    def test_a_line_may_end_where_only_rules_have_more(self, profile_of):
        early = details_row("Duration", "ns", "5").replace(',"",""\n', ",\n")
        cut = details_row("Memory Throughput", "%", "43.20").replace('0","",""\n', "")
        profile = profile_of(DETAILS_HEADER + early + details_row("Waves Per SM", "", "2") + cut)
        assert len(metrics(profile)) == 2
        assert kernels(profile)["duration_ns"] == [5]
        assert len(profile.header.warnings) == 1  # of the line that was cut within a number

    def test_sums_over_kernels_are_refused(self, profile_of):
        with pytest.raises(UsageError, match="--print-summary"):
            profile_of(
                '"Process ID","Process Name","Host Name","Kernel Name","Context","Invocations",'
                '"Section Name","Metric Name","Metric Unit","Minimum","Maximum","Average"\n'
            )


@pytest.mark.parametrize(
    ("unit", "factor", "base"),
    [
        ("Kbyte", 1e3, "byte"),
        ("Mbyte/block", 1e6, "byte/block"),
        ("Gbyte/s", 1e9, "byte/second"),
        ("Tbyte/second", 1e12, "byte/second"),
        ("byte/nsecond", 1e9, "byte/second"),
        ("nsecond", 1e-9, "second"),
        ("ns", 1e-9, "second"),
        ("us", 1e-6, "second"),
        ("usecond", 1e-6, "second"),
        ("msecond", 1e-3, "second"),
        ("ms", 1e-3, "second"),
        ("Ghz", 1e9, "hertz"),
        ("Mhz", 1e6, "hertz"),
        ("hz", 1.0, "hertz"),
        ("cycle/nsecond", 1e9, "hertz"),
        ("sector/us", 1e6, "sector/second"),
        ("%", 1.0, "%"),
        ("%/Kbyte", 1e-3, "%/byte"),
        ("inst/cycle", 1.0, "inst/cycle"),
        ("register/thread", 1.0, "register/thread"),
        ("", 1.0, ""),
    ],
)
def test_base_units(unit, factor, base):
    assert base_unit(unit) == (pytest.approx(factor), base)


@pytest.mark.parametrize(
    ("text", "mark", "value"),
    [
        ("1,450,976,005,523.91", ".", 1450976005523.91),
        ("12690040.000000", ".", 12690040.0),
        ("69,297", ".", 69297.0),
        ("-3.5", ".", -3.5),
        ("1e-05", ".", 1e-05),
        ("12 (1; 2; 9)", ".", 12.0),
        ("1.234.567,5", ",", 1234567.5),
        ("1\u202f234,5", ",", 1234.5),
        ("1'234.5", ".", 1234.5),
        ("0,5", ",", 0.5),
        ("1_000", ".", None),
        ("0x10", ".", None),
        ("1,2", ".", None),
        ("nan", ".", None),
        ("no data", ".", None),
        ("", ".", None),
        (".", ".", None),
        ("9" * 500, ".", None),
        ("1.2.3", ".", None),
    ],
)
def test_numbers(text, mark, value):
    assert number(text, mark) == value


@pytest.mark.parametrize(
    ("texts", "mark"),
    [
        (["1,234", "5"], "."),
        (["0.000000", "1,024"], "."),
        (["0,000000", "1.024"], ","),
        (["1.234.567,89"], ","),
        (["(256, 1, 1)", "9.0", "3.5"], "."),
    ],
)
def test_the_decimal_mark_is_told_by_what_reads_one_way(texts, mark):
    assert decimal_mark(texts) == mark


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15))
def test_what_is_printed_is_read(value):
    printed = f"{value:,.6f}"
    swapped = printed.translate(str.maketrans(",.", ".,"))
    assert number(printed) == float(printed.replace(",", ""))
    assert number(swapped, ",") == number(printed)


class TestHostile:
    @pytest.mark.parametrize(
        "content",
        [
            "",
            "hello\nworld\n",
            "time,value\n1,2\n",
            '"ID","Kernel Name"\n"0","gemm"\n',
            RAW_HEADER,
            RAW_HEADER + RAW_UNITS,
            b"\x00" * 1000,
            b"\xff\xfe",
            RAW_HEADER[:60],
        ],
    )
    def test_what_is_something_else_is_refused_with_one_sentence(self, profile_of, content):
        with pytest.raises(UsageError, match="--page raw --csv") as caught:
            profile_of(content)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("said", "answer"),
        [
            ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "doctor"),
            ("==WARNING== No kernels were profiled.", "--kernel-name"),
        ],
    )
    def test_why_there_is_nothing_in_it(self, profile_of, said, answer):
        with pytest.raises(UsageError, match=answer):
            profile_of(f"==PROF== Connected\n{said}\n")

    def test_a_missing_file_and_a_folder(self, tmp_path):
        for path in (tmp_path, tmp_path / "none.csv"):
            with pytest.raises(UsageError, match="cannot be read"):
                read(path)

    def test_a_line_without_end(self, profile_of):
        line = b"x" * (compute_csv.LONGEST_LINE * 25)  # 100 MB
        with pytest.raises(UsageError, match="characters"):
            profile_of(line)
        profile = profile_of((RAW_HEADER + RAW_UNITS + RAW_ROW).encode() + line)
        assert profile.rows("kernels") == 1
        assert "left out" in profile.header.warnings[0]

    def test_a_field_without_end(self, profile_of):
        profile = profile_of(RAW_HEADER + RAW_UNITS + RAW_ROW + '"' + "x\n" * 200_000)
        assert profile.rows("kernels") == 1
        assert "left out" in profile.header.warnings[0]

    def test_a_record_without_end(self, profile_of, monkeypatch):
        monkeypatch.setattr(compute_csv, "LONGEST_RECORD", 10_000)
        profile = profile_of(RAW_HEADER + RAW_UNITS + RAW_ROW + '"' + 'x","\n' * 5000)
        assert profile.rows("kernels") == 1
        assert "record" in profile.header.warnings[0]

    def test_lines_of_another_length(self, profile_of):
        ragged = '"1","2"\n' + RAW_ROW.rstrip("\n") + ',"more"\n\n'
        profile = profile_of(RAW_HEADER + RAW_UNITS + ragged + RAW_ROW)
        assert profile.rows("kernels") == 1
        assert "2 lines of the file are incomplete" in profile.header.warnings[0]

    @pytest.mark.parametrize(
        "cell", ["-1", "99999999999999999999999", "1e300", "text", "\x00", "nan", "�"]
    )
    def test_cells_that_are_no_sensible_numbers(self, profile_of, cell):
        row = re.sub(r'"(370.752|40|32.768|7|535)"', lambda _: f'"{cell}"', RAW_ROW)
        found = kernels(profile_of(RAW_HEADER + RAW_UNITS + row))
        assert found["registers"] == [UNKNOWN]
        assert found["shared_bytes"] == [UNKNOWN]

    def test_files_with_bytes_changed(self, profile_of):
        for seed in range(150):
            chance = random.Random(seed)
            rows = RAW_HEADER + RAW_UNITS + RAW_ROW * 3
            if seed % 3 == 0:
                rows = DETAILS_HEADER + details_row("Duration", "us", "1.5") * 4
            content = bytearray(rows.encode())
            for _ in range(chance.choice([1, 5, 40])):
                place = chance.randrange(len(content))
                content[place : place + chance.choice([0, 1, 9])] = bytes(
                    chance.choices(b'",\n\r\x00\xff=01.', k=chance.choice([0, 1, 3]))
                )
            try:
                profile = profile_of(bytes(content))
            except UsageError as error:
                assert "\n" not in str(error), seed
                continue
            assert max(kernels(profile)["name"]) < len(profile.header.texts), seed
            assert profile.columns("metrics")["kernel"].max(initial=0) < profile.rows("kernels")

    @settings(max_examples=100, deadline=None)
    @given(text=st.text(alphabet='",\n=ID Kernel Name0.\u202f(', max_size=300))
    def test_any_text_after_the_header(self, tmp_path_factory, text):
        path = tmp_path_factory.mktemp("text") / "report.csv"
        path.write_text(RAW_HEADER + RAW_UNITS + RAW_ROW + text, "utf-8")
        assert read(path).rows("kernels") >= 1


def test_a_file_is_recognised_by_its_content():
    for content in (RAW_HEADER, DETAILS_HEADER, "==PROF== Connected to process 1\n"):
        assert compute_csv.recognises(content.encode())
        assert compute_csv.recognises(content.encode("utf-16"))
    for other in (b"", b"time,value\n", b'{"ID": 1}', b"SQLite format 3\x00", b"\xff\xfe\x00"):
        assert not compute_csv.recognises(other)

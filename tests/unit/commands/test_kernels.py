"""`gpuadvisor kernels` and `gpuadvisor report` of tuned kernels: lists, files and pages."""

import json
from dataclasses import replace

import pytest

import gpuadvisor
from gpuadvisor.cli import main
from gpuadvisor.domain.ceiling import Ceiling
from gpuadvisor.domain.study import Verdict
from gpuadvisor.storage.profiles.library import open_profiles
from tests.tuned_kernels import RESULT, kept


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def softmax(**changes):
    return kept(
        kernel="softmax",
        problem={"rows": 4096},
        language="triton",
        verdict=Verdict.NO_GAIN,
        best=None,
        started="2026-11-25T10:00:00+00:00",
        **changes,
    )


def test_a_line_for_each_result_the_newest_first(capsys):
    kept()
    softmax()
    assert main(["kernels"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["kernel", "problem"]
    assert [row.split()[0] for row in rows] == ["softmax", "transpose"]
    assert "1.61x [99 % interval 1.60-1.62] the default's speed" in rows[1]
    assert "the default is as good as the best found" in rows[0]


def test_nothing_is_no_error_and_says_what_to_do(capsys):
    assert main(["kernels"]) == 0
    assert "no kernel was tuned yet: `gpuadvisor tune-kernel FILE`" in capsys.readouterr().err
    assert main(["kernels", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"] == []


def test_one_kernel_with_its_place_on_the_roofline_and_its_parameters(capsys):
    kept()
    assert main(["kernels", "transpose"]) == 0
    text = capsys.readouterr().out
    assert "best     block_x=16, unroll=2: 158 µs, 3.39 TB/s" in text
    assert "it reaches 71% of the 4.80 TB/s of its memory (data sheet of NVIDIA H200, not " in text
    assert "measured): bound by memory" in text
    assert (
        "what makes times differ: block_x 100%, unroll 0%; not of one parameter alone: 0%" in text
    )


def test_a_measured_ceiling_takes_the_place_of_the_data_sheet(capsys):
    kept()
    with open_profiles() as profiles:
        ceiling = Ceiling("dram", 4e12, "bytes/s", "2026-11-24T09:00:00+00:00")
        profiles.add_ceilings("", "NVIDIA H200", [ceiling])
    assert main(["kernels", "transpose", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["kernels"]
    place = found["roofline"]
    assert place["memory_ceiling"]["measured"] == "2026-11-24T09:00:00+00:00"
    assert place["best"]["memory_share"] == pytest.approx(2 * 4 * 8192**2 / 0.1584e-3 / 4e12)
    assert (place["best"]["bound"], place["compute_ceiling"]) == ("memory", None)
    assert [each["name"] for each in found["parameters"]] == ["block_x", "unroll"]
    assert found["parameters"][0]["share"] > 0.9 > 0.1 > found["parameters"][1]["share"]


def test_operations_are_compared_with_the_ceiling_of_the_type(capsys):
    kept(useful_flops=6e9, useful_bytes=None, dtype="bfloat16")
    main(["kernels", "transpose", "--json"])
    place = json.loads(capsys.readouterr().out)["kernels"][0]["roofline"]
    assert (place["precision"], place["memory_ceiling"]) == ("bf16", None)
    ceiling = place["compute_ceiling"]["value"]
    assert place["best"]["compute_share"] == pytest.approx(6e9 / 0.1584e-3 / ceiling)


def test_float32_beyond_its_own_ceiling_was_computed_on_tensor_cores(capsys):
    kept(useful_flops=1.6e10)  # 101 TFLOP/s, where 67 are possible without
    main(["kernels", "transpose", "--json"])
    place = json.loads(capsys.readouterr().out)["kernels"][0]["roofline"]
    assert (place["precision"], place["best"]["compute_share"] < 1) == ("tf32", True)


def test_what_a_program_reads_is_written(here):
    kept()
    softmax()
    names = ["transpose", "softmax", "-o", "best.json"]
    assert main(["kernels", *names]) == 0
    known = json.loads((here / "best.json").read_text())["kernels"]
    assert sorted(known) == ["softmax", "transpose"]
    point = gpuadvisor.best(
        "transpose", file=here / "best.json", gpu="9.0", rows=8192, columns=8192
    )
    assert point == RESULT.best


def test_several_files_of_one_kernel(here, capsys):
    kept()
    kept(device="NVIDIA A100", compute_capability=(8, 0))
    words = ["transpose", "--gpu", "h200", "-o", "t.h", "-o", "t.py", "-o", "t.csv"]
    assert main(["kernels", *words]) == 0
    assert "#  define block_x 16" in (here / "t.h").read_text()
    assert "A100" not in (here / "t.h").read_text()
    assert "triton.Config" in (here / "t.py").read_text()
    assert len((here / "t.csv").read_text().splitlines()) == 13


@pytest.mark.parametrize(
    "words, said",
    [
        (["transpos"], "there is no tuned kernel transpos; there are: transpose"),
        (["-o", "best.xml"], "ends in none of .json, .h"),
        (["-o", "both.h"], "holds one kernel: name one of softmax, transpose"),
        (["transpose", "--gpu", "T4"], "--gpu T4: these were tuned on NVIDIA H200"),
        (["-o", "nowhere/best.json"], "cannot write nowhere/best.json"),
    ],
)
def test_what_cannot_be_done_is_said(words, said, capsys):
    kept()
    softmax()
    assert main(["kernels", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_damaged_file_is_named_and_the_others_are_shown(capsys):
    kept()
    damaged = softmax()
    from pathlib import Path

    Path(damaged.record).with_suffix(".study").write_text("{")
    assert main(["kernels"]) == 0
    said = capsys.readouterr()
    assert "transpose" in said.out
    assert "is damaged" in said.err


# -- the page --------------------------------------------------------------------------------------


def test_a_page_of_a_kernel(here):
    kept()
    assert main(["report", "transpose"]) == 0
    page = (here / "transpose.html").read_text()
    for said in (
        "1.61x", "faster than the default", "block_x=16, unroll=2", "Which parameters matter",
        "gpuadvisor.best(&#x27;transpose&#x27;, rows=8192, columns=8192)", "GPUADVISOR_ARCH == 900",
        "71% of the 4.80 TB/s", "1 crashed: an illegal address",
    ):  # fmt: skip
        assert said in page, said


def test_a_kernel_with_several_sizes_is_one_page(capsys):
    kept()
    kept(problem={"rows": 512, "columns": 512}, speedup=replace(RESULT.speedup, ratio=1.1))
    assert main(["report", "transpose", "--markdown"]) == 0
    text = capsys.readouterr().out
    assert "1.10x to 1.61x faster than the default." in text
    assert "What was measured: rows=512, columns=512 on NVIDIA H200" in text


def test_a_triton_kernel_shows_its_configurations(capsys):
    softmax()
    assert main(["report", "softmax", "--markdown"]) == 0
    text = capsys.readouterr().out
    assert 'triton.Config({"block_x": 32, "unroll": 1})' in text
    assert "nothing was shown to be faster than the default" in text


def test_json_is_that_of_tune_kernel(capsys):
    kept()
    assert main(["report", "transpose", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["kernels"]
    assert (found["kernel"], found["best"]) == ("transpose", RESULT.best)


@pytest.mark.parametrize(
    "words, said",
    [
        (["nothing", "--kind", "kernel"], "there is no tuned kernel nothing; there are: transpose"),
        (["nothing"], "There is no study or profile 'nothing'"),
    ],
)
def test_a_kernel_that_is_not_there(words, said, capsys):
    kept()
    assert main(["report", *words]) == 2
    assert said in capsys.readouterr().err


def test_the_newest_kernel_without_a_name(here, capsys):
    assert main(["report", "--kind", "kernel"]) == 1
    assert "no kernel was tuned yet" in capsys.readouterr().err
    kept()
    softmax()
    assert main(["report", "--kind", "kernel"]) == 0
    assert [path.name for path in here.iterdir()] == ["softmax.html"]

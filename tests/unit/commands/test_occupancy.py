"""`gpuadvisor occupancy`: what it takes, and what it shows."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest

from gpuadvisor.cli import main
from gpuadvisor.commands._arguments import parse_size
from gpuadvisor.commands.occupancy import parse_block
from gpuadvisor.errors import UsageError


def occupancy(line, *more):
    return main(["occupancy", *line.split(), *more])


@pytest.mark.parametrize(
    ("text", "size"),
    [("100k", 102400), ("48KiB", 49152), ("1.5 kb", 1536), ("77", 77), ("0", 0), ("1m", 1 << 20)],
)
def test_sizes(text, size):
    assert parse_size(text, "--smem") == size


@pytest.mark.parametrize("text", ["", "-1", "100g", "k", "1e3", "nan", "0x10", "9" * 20, "1.k"])
def test_sizes_that_are_none(text):
    with pytest.raises(UsageError, match="--smem takes a size"):
        parse_size(text, "--smem")


@pytest.mark.parametrize(("text", "threads"), [("384", 384), ("16x16", 256), ("8X8x2", 128)])
def test_blocks(text, threads):
    assert parse_block(text) == threads


@pytest.mark.parametrize("text", ["", "x", "16x", "1x2x3x4", "1x1x65", "2048x1", "-4", "1.5"])
def test_blocks_that_are_none(text):
    with pytest.raises(UsageError):
        parse_block(text)


def test_the_page_shows_limiters_steps_and_charts(capsys):
    assert occupancy("--cc 9.0 --regs 168 --block 384 --smem 100k") == 0
    page = capsys.readouterr().out
    assert "occupancy 18.8%: 1 block and 12 of 64 warps an SM, limited by registers" in page
    assert "registers              1  limits  64,512 a block" in page
    assert "registers a thread 168 -> 80: 37.5%, 2 blocks" in page
    charts = page.split("occupancy over ")[1:]
    assert [chart.splitlines()[0] for chart in charts] == [
        "threads a block (^ 384)",
        "registers a thread (^ 168)",
        "shared memory a block (^ 100 KiB)",
    ]
    assert page.isascii()


def test_the_caret_stands_below_the_launchs_own_value(capsys):
    occupancy("--cc 8.0 --regs 128 --block 256")
    chart = capsys.readouterr().out.split("occupancy over registers")[1].splitlines()
    column = next(line for line in chart if "^" in line[1:] and "+" in line).index("^")
    filled = [line[:6].strip() for line in chart[1:6] if line[column : column + 1] == "#"]
    assert filled == ["20%"]  # 16 of 64 warps
    assert [line[column - 8 : column - 7] for line in chart[1:6]].count("#") == 2


def test_json(capsys):
    assert occupancy("--gpu h100 --regs 64 --block 16x16 --json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["version"], document["compute_capability"]) == (1, "9.0")
    assert (document["occupancy"], document["limited_by"]) == (0.5, ["registers"])
    assert document["limits_blocks"]["barriers"] is None
    assert document["next_steps"][0]["changes"] == {"registers_per_thread": 48}
    assert [256, 0.5] in document["curves"]["threads_per_block"]


def test_svg(tmp_path, capsys):
    path = tmp_path / "plot.svg"
    assert occupancy("--cc 7.5 --regs 64 --block 256 --svg", str(path)) == 0
    root = ElementTree.parse(path).getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    assert len(root.findall(f"{space}circle")) == 3
    assert root.find(f"{space}title").text == "Theoretical occupancy 100.0%"
    assert occupancy("--cc 7.5 --block 32 --svg", str(tmp_path)) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_a_launch_that_is_impossible_is_shown_and_fails(capsys):
    assert occupancy("--cc 9.0 --regs 300 --block 256") == 1
    said = capsys.readouterr()
    assert "registers a thread 300 -> 255" in said.out
    assert "cannot be launched: a thread has 300 registers, but at most 255" in said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--cc 9.1 --block 32", "compute capability 9.1 is not known"),
        ("--cc nine --block 32", "or give its compute capability, as 9.0"),
        ("--gpu voodoo --block 32", "is not known by name"),
        ("--cc 9.0 --block 0", "at least 1 thread"),
        ("--cc 9.0 --block 32 --regs -1", "cannot be negative"),
        ("--cc 9.0 --block 32 --carveout 101%", "more"),
        ("--cc 9.0 --gpu h100 --block 32", "not allowed with"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(capsys, arguments, words):
    assert occupancy(arguments) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""


def test_without_a_gpu_one_must_be_named(monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert occupancy("--block 32") == 1
    assert "--gpu H100 or --gpu 9.0" in capsys.readouterr().err


def test_carveout_as_a_share(capsys):
    assert occupancy("--cc 8.0 --block 32 --smem 20k --carveout 37% --json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["limits_blocks"]["shared_memory"] == 3  # 60.7 KiB become 64 KiB
    assert {"carveout_bytes": 102400} in [step["changes"] for step in document["next_steps"]]

"""Where a gate's outcome is written: each once, whatever it came to, or not measured at all."""

import argparse
import json
from pathlib import Path

import pytest

from gpuadvisor.commands.gate._outputs import add_outputs, outputs, place_in_repository
from gpuadvisor.errors import AdvisorError, Interrupted, RefusedError, UsageError
from tests.unit.reports.test_gate_formats import result


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def in_github(monkeypatch):
    Path("summary").write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary")


def gated(*words, found=None, error=None):
    parser = argparse.ArgumentParser()
    add_outputs(parser)
    with outputs(parser.parse_args(words)) as written:
        written.begin("train.py", "examples/train.py")
        if error is not None:
            raise error
        written.add(found or result("pass"))


def test_without_options_it_is_printed_and_nothing_is_written(capsys):
    gated()
    assert "Pass: compared with main" in capsys.readouterr().out
    assert not list(Path.cwd().iterdir())


def test_several_files_in_folders_that_are_made(capsys):
    gated("--output", "junit", "--output", "json=out/a/gate.json", "--output", "json=b=c.json")
    assert Path("gpuadvisor-gate.xml").read_text().startswith("<?xml")
    assert json.loads(Path("out/a/gate.json").read_text())["verdict"] == "pass"
    assert Path("b=c.json").exists()
    out, err = capsys.readouterr()
    assert "Pass:" in out
    assert err.count("wrote ") == 3


def test_the_standard_output_is_of_one_text(capsys):
    gated("--json", "--output", "junit=gate.xml")
    assert json.loads(capsys.readouterr().out)["name"] == "train.py"


def test_what_is_refused_is_written_too(capsys):
    with pytest.raises(RefusedError):
        gated("--json", "--output", "junit=gate.xml", error=RefusedError("the GPU is busy"))
    assert "the GPU is busy" in Path("gate.xml").read_text()
    assert json.loads(capsys.readouterr().out)["verdict"] == "refused"


def test_what_is_interrupted_is_not(capsys):
    with pytest.raises(Interrupted):
        gated("--json", "--output", "junit=gate.xml", error=Interrupted("interrupted"))
    assert capsys.readouterr().out == ""
    assert not list(Path.cwd().iterdir())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--output", "yaml"], "--output yaml: choose one of bencher, github, gitlab, json, junit"),
        (["--output", "junit=."], r"cannot write \.: it is a folder"),
        (["--output", "junit=file/x"], "cannot write file/x: .* is no folder"),
        (["--output", "junit=/proc/x"], "cannot write /proc/x"),
        (["--output", "junit=" + "x" * 300], "cannot write xxx.*: File name too long"),
        (["--json", "--output", "junit=-"], "json and junit cannot both go to the standard output"),
        (["--output", "json=a", "--output", "junit=./a"], "json and junit cannot both go to ./a"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is_measured(words, sentence):
    Path("file").write_text("")
    with pytest.raises(UsageError, match=sentence) as raised:
        gated(*words, error=AssertionError("it was measured"))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("verdict", "raised"), [("pass", True), ("fail", False)])
def test_a_file_that_cannot_be_written_afterwards_hides_no_verdict(verdict, raised, capsys):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    words = ("--output", "json=/dev/full", "--output", "junit=gate.xml")
    try:
        gated(*words, found=result(verdict))
        assert not raised
    except AdvisorError as error:
        assert raised
        assert "cannot write /dev/full" in str(error)
    else:
        assert "cannot write /dev/full" in capsys.readouterr().err
    assert Path("gate.xml").exists()


def test_github_gets_its_summary_and_annotations_by_itself(in_github, capsys):
    gated(found=result("fail"))
    out, err = capsys.readouterr()
    assert "Fail:" in out
    assert err.startswith("::error title=")
    assert Path("summary").read_text().startswith("before\n<!-- gpuadvisor-gate -->\n")


def test_github_gets_nothing_twice(in_github, capsys):
    gated("--output", "github", "--output", "markdown=summary")
    out, err = capsys.readouterr()
    assert out.startswith("::notice")
    assert "::notice" not in err
    assert Path("summary").read_text().count("gpuadvisor-gate") == 1


def test_github_gets_nothing_where_it_shall_not(in_github, capsys):
    gated("--no-ci")
    assert capsys.readouterr().err == ""
    assert Path("summary").read_text() == "before\n"


def test_the_place_of_a_script_is_that_in_its_repository(monkeypatch):
    Path(".git").mkdir()
    Path("examples").mkdir()
    monkeypatch.chdir("examples")
    assert place_in_repository("train.py", is_module=False) == "examples/train.py"
    assert place_in_repository("package.train", is_module=True) == ""
    assert place_in_repository(None, is_module=False) == ""

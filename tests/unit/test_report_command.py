"""`gpuadvisor report`: from the store to a page, Markdown or JSON."""

import argparse
import json
from dataclasses import replace

import pytest

from gpuadvisor.commands import report
from gpuadvisor.errors import UsageError
from gpuadvisor.storage.database import open_store
from tests.unit.studies import study


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store of its own, and a current directory of its own."""
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with open_store() as opened:
        yield opened


@pytest.fixture
def keep(store):
    """A function that stores a finished study."""

    def finished(name, **changes):
        result = study(study=name, **changes)
        store.create_study(
            name, result.script, result.args, result.environment, result.level, result.objective
        )
        store.finish_study(result)

    return finished


def run(*words):
    parser = argparse.ArgumentParser()
    report.add_arguments(parser)
    return report.run(parser.parse_args(words))


def test_the_newest_study_becomes_a_page_here(keep, tmp_path, capsys):
    keep("train-1")
    keep("train-2", script="other.py")
    assert run() == 0
    page = tmp_path / "here" / "train-2.html"
    assert "other.py" in page.read_text("utf-8")
    assert capsys.readouterr().out == f"wrote {page}\n"


def test_a_study_by_its_name(keep, tmp_path):
    keep("train-1")
    keep("train-2")
    run("train-1", "--html", "x.html")
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["x.html"]


def test_markdown_on_the_standard_output(keep, tmp_path, capsys):
    keep("train-1")
    run("--markdown")
    assert capsys.readouterr().out.startswith("### `train.py --epochs 3`")
    assert list((tmp_path / "here").iterdir()) == []


def test_markdown_in_a_file(keep, tmp_path):
    keep("train-1")
    run("--markdown", "pr.md")
    assert "1.42x faster" in (tmp_path / "here" / "pr.md").read_text("utf-8")


def test_json_alone_on_the_standard_output(keep, tmp_path, capsys):
    keep("train-1")
    run("--json", "--html", "x.html")
    captured = capsys.readouterr()
    assert json.loads(captured.out)["study"] == "train-1"
    assert "x.html" in captured.err


def test_the_lines_of_known_knobs_are_in_the_page(keep, tmp_path):
    keep("train-1", settings={"tf32": True, "arg:batch-size": 64, "gone_since": 1})
    run()
    page = (tmp_path / "here" / "train-1.html").read_text("utf-8")
    assert "set_float32_matmul_precision" in page
    assert "--batch-size 64" in page


def test_there_is_no_study(store):
    with pytest.raises(UsageError, match=r"no study yet: run `gpuadvisor tune script\.py` first"):
        run()


def test_an_unknown_name_lists_the_known_ones(keep):
    keep("train-1")
    keep("train-2")
    with pytest.raises(UsageError, match="no study is called 'x'; there are: train-2, train-1"):
        run("x")


def test_a_study_that_is_not_finished_is_no_newest_one(keep, store, capsys):
    keep("train-1")
    result = replace(study(), study="train-2")
    store.create_study("train-2", "a.py", (), result.environment, result.level, result.objective)
    run("--json")
    assert json.loads(capsys.readouterr().out)["study"] == "train-1"


def test_no_study_is_finished(store):
    result = study()
    store.create_study("train-1", "a.py", (), result.environment, result.level, result.objective)
    with pytest.raises(UsageError, match=r"no study has a result yet \(train-1\)"):
        run()


def test_a_name_with_a_slash_stays_in_this_folder(keep, tmp_path):
    keep("../a/b c")
    run()
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["a-b-c.html"]


def test_a_file_that_cannot_be_written(keep):
    keep("train-1")
    with pytest.raises(UsageError, match=r"cannot write no/such/x\.html"):
        run("--html", "no/such/x.html")

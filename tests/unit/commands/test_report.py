"""`gpuadvisor report`: from the store to a page, Markdown or JSON."""

import argparse
import json
from dataclasses import replace

import pytest

from gpuadvisor.commands import report
from gpuadvisor.domain.profile import TABLES
from gpuadvisor.errors import MissingError, UsageError
from gpuadvisor.storage.database import open_store
from gpuadvisor.storage.profiles.library import open_profiles
from gpuadvisor.storage.profiles.writer import Origin
from tests.profile_reports import whole
from tests.studies import study


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


@pytest.fixture
def keep_profile(store):
    """A function that stores a profile with something of everything."""

    def stored(name):
        profile = whole()
        with open_profiles() as profiles:
            origin = Origin(f"/data/{name}.json", 1, f"{name:0<64}", name, name)
            with profiles.writer(origin) as writer:
                for table in TABLES:
                    if profile.rows(table):
                        writer.add(table, profile.columns(table))
                writer.finish(profile.header)

    return stored


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
    with pytest.raises(MissingError, match=r"no study yet: run `gpuadvisor tune script\.py` first"):
        run()


def test_an_unknown_name_lists_near_ones_of_both_kinds(keep, keep_profile):
    keep("train-1")
    keep_profile("trains")
    with pytest.raises(UsageError, match="no study or profile 'trai'; there are: studies train-1"):
        run("trai")
    with pytest.raises(UsageError, match="; profiles trains"):
        run("trai")
    with pytest.raises(UsageError, match="no profile 'x'; there are: profiles trains"):
        run("x", "--kind", "profile")


def test_an_unknown_name_where_nothing_is_stored(store):
    with pytest.raises(UsageError, match="no study or profile 'x', and none is stored: name a"):
        run("x")


def test_a_profile_by_its_name(keep_profile, tmp_path):
    keep_profile("train")
    run("train")
    assert "of the run the GPU was busy" in (tmp_path / "here" / "train.html").read_text("utf-8")


def test_the_newest_profile_where_there_is_no_study(keep_profile, capsys):
    keep_profile("a")
    keep_profile("b")
    run("--json")
    assert json.loads(capsys.readouterr().out)["profile"] == "b"


def test_a_study_has_no_part(keep):
    keep("train")
    with pytest.raises(UsageError, match="--whole is for profiles, and train is a study"):
        run("train", "--whole")


def test_a_name_of_both_needs_its_kind(keep, keep_profile, capsys):
    keep("train")
    keep_profile("train")
    with pytest.raises(UsageError, match="'train' is a study and a profile: add `--kind study`"):
        run("train")
    run("train", "--kind", "study", "--json")
    assert json.loads(capsys.readouterr().out)["study"] == "train"
    run("train", "--kind", "profile", "--json")
    assert json.loads(capsys.readouterr().out)["profile"] == "train"


def test_there_is_no_profile(keep):
    keep("train")
    with pytest.raises(MissingError, match="no profile is stored yet: `gpuadvisor import FILE`"):
        run("--kind", "profile")


def test_a_profile_as_markdown_in_a_file(keep_profile, tmp_path):
    keep_profile("train")
    run("train", "--markdown", "x.md")
    assert "### `train`" in (tmp_path / "here" / "x.md").read_text("utf-8")


def test_a_study_that_is_not_finished_is_no_newest_one(keep, store, capsys):
    keep("train-1")
    result = replace(study(), study="train-2")
    store.create_study("train-2", "a.py", (), result.environment, result.level, result.objective)
    run("--json")
    assert json.loads(capsys.readouterr().out)["study"] == "train-1"


def test_no_study_is_finished(store):
    result = study()
    store.create_study("train-1", "a.py", (), result.environment, result.level, result.objective)
    with pytest.raises(MissingError, match=r"no study has a result yet \(train-1\)"):
        run()


def test_a_name_with_a_slash_stays_in_this_folder(keep, tmp_path):
    keep("../a/b c")
    run()
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["a-b-c.html"]


def test_a_file_that_cannot_be_written(keep):
    keep("train-1")
    with pytest.raises(UsageError, match=r"cannot write no/such/x\.html"):
        run("--html", "no/such/x.html")

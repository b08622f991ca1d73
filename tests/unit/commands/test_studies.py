"""`gpuadvisor studies`: which are listed, and several side by side."""

import argparse
import json
import re
from dataclasses import replace

import pytest

from gpuadvisor.commands import studies
from gpuadvisor.domain.study import Speedup, Verdict
from gpuadvisor.errors import UsageError
from gpuadvisor.reports.study.wording import verdict_sentence
from gpuadvisor.storage.database import open_store
from tests.json_page import documented
from tests.studies import create, environment, study, study_without_gain


@pytest.fixture
def keep(tmp_path, monkeypatch):
    """A function that stores a finished study of a script in a folder."""
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def finished(name, folder="/data/vision", result=None, **changes):
        # No trials: a list shows none, and each takes its time to store.
        result = replace(result or study(), study=name, **{"trials": (), **changes})
        with open_store() as store:
            create(store, result, folder)
            store.finish_study(result)

    return finished


def run(*words):
    parser = argparse.ArgumentParser()
    studies.add_arguments(parser)
    return studies.run(parser.parse_args(words))


def listed(capsys, *words):
    assert run(*words, "--json") == 0
    return [each["study"] for each in json.loads(capsys.readouterr().out)["studies"]]


def test_a_line_a_study_the_newest_first(keep, capsys):
    keep("train-1")
    keep("train-2", "/elsewhere", study_without_gain())
    assert run() == 0
    header, newest, oldest = capsys.readouterr().out.splitlines()
    assert re.split("  +", header) == [
        *("study", "when (utc)", "script", "device", "verdict", "speed-up", "took", "plan"),
    ]
    assert re.split("  +", oldest.strip()) == [
        *("train-1", "2026-10-02 14:12", "/data/vision/train.py", "NVIDIA H100 80GB HBM3"),
        *("faster", "1.42x (1.39-1.45)", "18 min 42 s", "train.plan.toml"),
    ]
    assert re.split("  +", newest.strip())[4:6] == ["no gain", "0.998x (0.993-1.003)"]
    assert newest.index("no gain") == oldest.index("faster") == header.index("verdict")


def test_a_speedup_that_says_nothing_is_called_as_in_the_report(keep, capsys):
    """Of three pairs one of which was held up, the interval spans six powers of ten."""
    nothing = study(verdict=Verdict.INCONCLUSIVE, speedup=Speedup(0.85, 0.0007, 1053.0, 3))
    assert "cannot be compared with the unchanged script" in verdict_sentence(nothing)
    keep("train-1")
    keep("train-2", result=nothing)
    assert run() == 0
    newest, oldest = (re.split("  +", line) for line in capsys.readouterr().out.splitlines()[1:])
    assert (newest[6], oldest[6]) == ("cannot be compared", "1.42x (1.39-1.45)")
    assert run("train-1", "train-2") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "1.42x (1.39-1.45) cannot be compared" in shown
    assert "The intervals of the speed-ups overlap" not in shown


def test_a_study_without_a_result_is_listed_and_called_so(keep, capsys):
    keep("train-1")
    with open_store() as store:
        known = study()
        store.create_study("m-1", "p.m", (), known.environment, known.level, known.objective,
                           folder="/x", is_module=True)  # fmt: skip
    run()
    line = capsys.readouterr().out.splitlines()[1]
    assert "-m p.m in /x" in line
    assert "no result yet" in line


def test_a_verification_is_called_so(keep, capsys):
    keep("train-1", verifies="/x/a.plan.toml")
    run()
    assert "verifies /x/a.plan.toml" in capsys.readouterr().out


@pytest.mark.parametrize("verdict", Verdict)
def test_every_verdict_can_be_listed_and_chosen(keep, capsys, verdict):
    assert set(studies.VERDICTS) == set(map(str, Verdict))
    keep("train-1", verdict=verdict)
    assert listed(capsys, "--verdict", str(verdict)) == ["train-1"]
    assert run() == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ["m-1", "infer-1", "train-2", "train-1"]),
        (("--last", "2"), ["m-1", "infer-1"]),
        (("--script", "train.py"), ["train-2", "train-1"]),
        (("--script", "/data/a/train.py"), ["train-1"]),
        (("--script", "pkg.m"), ["m-1"]),
        (("--script", "a/train.py"), []),
        (("--folder", "/data"), ["infer-1", "train-2", "train-1"]),
        (("--folder", "/data/b/"), ["infer-1", "train-2"]),
        (("--folder", "/dat"), []),
        (("--verdict", "no_gain"), ["infer-1"]),
        (("--verdict", "no_gain", "--verdict", "faster", "--last", "3"), ["m-1", "infer-1",
                                                                        "train-2"]),
        (("--script", "train.py", "--last", "1"), ["train-2"]),
    ],
)  # fmt: skip
def test_filters(keep, capsys, words, expected):
    keep("train-1", "/data/a")
    keep("train-2", "/data/b")
    keep("infer-1", "/data/b", study_without_gain(), script="sub/infer.py")
    keep("m-1", "/other", script="pkg.m", is_module=True)
    assert listed(capsys, *words) == expected


def test_a_script_by_its_path_from_here(keep, capsys, tmp_path):
    keep("train-1", str(tmp_path))
    keep("train-2", "/other")
    assert listed(capsys, "--script", "./train.py") == ["train-1"]


def test_where_there_is_none_the_way_out_is_said(keep, capsys):
    assert run() == 0
    assert "`gpuadvisor tune script.py` makes one" in capsys.readouterr().err
    keep("train-1")
    assert run("--script", "other.py") == 0
    assert "leave a filter out" in capsys.readouterr().err


def test_all_renderers(keep, capsys, tmp_path):
    keep("train-1")
    keep("train-2", script="<b>.py")
    for words in ((), ("train-1", "train-2")):
        run(*words, "--markdown", "x.md", "--html", "x.html")
        assert "train-1" in (tmp_path / "x.md").read_text("utf-8")
        page = (tmp_path / "x.html").read_text("utf-8")
        assert page.startswith("<!DOCTYPE html>")
        assert "&lt;b&gt;.py" in page
        assert "<b>" not in page


def test_two_side_by_side(keep, capsys):
    keep("a")
    other = environment(torch="2.8.0", git_commit="0" * 40)
    keep("b", settings={"num_workers": 8, "tf32": False}, environment=other,
         speedup=Speedup(1.2, 1.15, 1.25, 6), contributions=())  # fmt: skip
    run("a", "b")
    said = capsys.readouterr().out
    assert "The speed-ups differ beyond their intervals: that of a is larger." in said
    assert re.search(r"^tf32 +on +off *$", said, re.M)
    assert re.search(r"^fused_optimizer +on +– *$", said, re.M)  # noqa: RUF001
    assert "The same in all: num_workers=8." in said
    assert re.search(r"^PyTorch +2\.7\.1\+cu126 +2\.8\.0 *$", said, re.M)
    assert re.search(r"^bf16_autocast +1\.17x \(1\.14-1\.20\) +– *$", said, re.M)  # noqa: RUF001
    assert "The script's code may have changed between a and b." in said
    assert "Cannot be compared" not in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("train-1",), "one study is nothing to compare: name another, or see `gpuadvisor report"),
        (("train-1", "train-1"), "train-1 is named twice"),
        (("train-1", "trian-2"), "There is no study 'trian-2': did you mean train-2 or train-1?"),
        (("train-1", "x"), "There is no study 'x': the newest are open-1, train-2, train-1."),
        (("train-1", "open-1"), "Study open-1 has no result yet"),
        (("train-1", "train-2", "--last", "1"), "--last narrows the list: leave it out"),
        (("--last", "0"), "--last 0: give a number above zero"),
    ],
)
def test_what_cannot_be_shown_is_one_sentence_with_a_way_out(keep, words, sentence):
    keep("train-1")
    keep("train-2")
    with open_store() as store:
        known = study()
        store.create_study("open-1", "x.py", (), known.environment, known.level, known.objective)
    with pytest.raises(UsageError) as raised:
        run(*words)
    assert str(raised.value).startswith(sentence)


def test_the_json_of_the_list_is_documented(keep, capsys):
    keep("train-1")
    run("--json")
    document = json.loads(capsys.readouterr().out)
    fields = {f"studies[].{name}" for name in document["studies"][0]} | set(document)
    assert fields == documented("A list of studies as JSON").keys()


def test_the_json_of_a_comparison_is_documented(keep, capsys):
    keep("a")
    keep("b", script="other.py", settings={})
    run("a", "b", "--json")
    document = json.loads(capsys.readouterr().out)
    fields = {f"not_comparable[].{name}" for name in document["not_comparable"][0]}
    assert fields | set(document) == documented("Studies side by side as JSON").keys()
    assert document["settings"]["tf32"] == [True, None]
    assert document["studies"][1]["folder"] == "/data/vision"
    assert "trials" not in document["studies"][0]

"""Each verdict says one thing, in every format: nothing claims more than was shown."""

import html
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from rich.console import Console

from gpuadvisor.domain.study import Aspect, Equivalence, Objective, Speedup, Verdict
from gpuadvisor.reports import strict_json
from gpuadvisor.reports.json_studies import study_json
from gpuadvisor.reports.study import wording
from gpuadvisor.reports.study.document import print_summary, study_html, study_markdown
from gpuadvisor.storage.database import open_store
from tests.studies import (
    STUDIES,
    create,
    inconclusive_study,
    rehearsal,
    snippets,
    study,
    study_without_gain,
    untried_study,
    unverified_study,
)

RESULTS = {
    "equivalent": Equivalence("equivalent", "difference of 10 losses", 0.002, 0.01),
    "wrong": Equivalence("wrong", "difference of 10 losses", 0.5, 0.01),
    "not_checked": Equivalence("not_checked", "", reason="no loss was seen"),
    "none": None,
}


def terminal(result):
    file = io.StringIO()
    print_summary(result, snippets(), Console(file=file, width=80))
    return file.getvalue()


def page(result):
    """What a reader sees of the page, with what a tooltip or a screen reader says."""
    body = re.sub(r"<style>.*?</style>", "", study_html(result, snippets()), flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", " ", body))


def machine(result):
    return strict_json.text(study_json(result))


PROSE = {
    "terminal": terminal,
    "markdown": lambda result: study_markdown(result, snippets()),
    "page": page,
}
FORMATS = {**PROSE, "json": machine}


def said(show, result):
    """What a format says, on one line and without what only marks it up."""
    return " ".join(re.sub(r"[`\\]", "", show(result)).split())


def judged(verdict, status, **changes):
    """A study of a verdict whose results, of the proof and of the rehearsal, have a status."""
    result = STUDIES[verdict](equivalence=RESULTS[status], **changes)
    if result.rehearsal is None:
        return result
    return replace(result, rehearsal=replace(result.rehearsal, equivalence=RESULTS[status]))


@pytest.mark.parametrize(
    ("verdict", "status", "show"), list(product(Verdict, RESULTS, PROSE)), ids=str
)
def test_nothing_is_claimed_that_was_not_shown(verdict, status, show):
    text = said(PROSE[show], judged(verdict, status))
    is_gain = verdict in (Verdict.FASTER, Verdict.FASTER_UNVERIFIED)
    claimed = {
        "faster": is_gain,
        "not verified": verdict is Verdict.FASTER_UNVERIFIED,
        "equivalent": is_gain and status == "equivalent",
        "best left as it is": verdict is Verdict.NO_GAIN,
        "No gain": verdict is Verdict.NO_GAIN,
        "gpuadvisor run --plan": verdict is Verdict.FASTER,
    }
    assert {words: words in text for words in claimed} == claimed
    if claimed["equivalent"]:  # and by what
        assert "equivalent: difference of 10 losses 0.002 (limit 0.01)" in text


@pytest.mark.parametrize(("verdict", "status"), list(product(Verdict, RESULTS)), ids=str)
def test_a_machine_reads_the_same(verdict, status):
    document = study_json(judged(verdict, status))
    assert document["verdict"] == verdict.value
    known = status if status != "none" else "not_checked"
    assert document["equivalence"]["status"] == known


@pytest.mark.parametrize("objective", Objective, ids=str)
def test_each_verdict_has_its_own_headline(objective):
    headlines = {wording.headline(STUDIES[each](objective=objective)) for each in Verdict}
    assert len(headlines) == len(Verdict)


@pytest.mark.parametrize("verdict", Verdict, ids=str)
def test_the_headline_is_the_same_everywhere(verdict):
    result = STUDIES[verdict]()
    for show in PROSE.values():
        assert wording.headline(result) in said(show, result)


@pytest.mark.parametrize("show", PROSE)
class TestTheSentences:
    def test_faster(self, show):
        text = said(PROSE[show], study())
        assert "1.42x faster" in text
        assert "99 % interval 1.39-1.45, 8 interleaved pairs" in text
        assert "saves 3 h 10 min of the 10 h 42 min of your 90 epochs" in text
        assert "not verified" not in text

    @pytest.mark.parametrize("is_timed", [False, True])
    def test_results_of_a_whole_run_that_is_doubted_are_not_called_equivalent(self, show, is_timed):
        doubted = replace(study().rehearsal, doubt="it may end", doubt_is_timed=is_timed)
        text = said(PROSE[show], replace(study(), rehearsal=doubted))
        assert ("; results of a whole run may differ." in text) != is_timed

    def test_files_of_which_nothing_is_known_are_not_called_equivalent(self, show):
        text = said(PROSE[show], study())
        assert "(limit 0.01); what is in the written files was not compared." in text
        assert "the written files (what is in best.pt depends on random numbers: only" in text
        known = replace(rehearsal(), covered=tuple(Aspect), not_covered={})
        assert "files was not compared" not in said(PROSE[show], study(rehearsal=known))

    def test_unverified(self, show):
        text = said(PROSE[show], unverified_study())
        assert "1.42x faster, not verified" in text
        assert "a second epoch (the script makes one pass over its data)" in text
        assert "the script's end (it did not end within 60 s)" in text
        assert "let the script make two epochs or more and end by itself after its last" in text
        assert "--plan FILE writes one all the same" in text

    def test_unverified_as_the_script_has_no_end(self, show):
        why = "the unchanged script's shortened life did not end within 28 s"
        lacks = {Aspect.ROWS: why, Aspect.FILES: why, Aspect.END: why}
        endless = replace(rehearsal(), covered=(Aspect.BATCHES,), not_covered=lacks)
        text = said(PROSE[show], unverified_study(rehearsal=endless))
        assert "To have that rehearsed, let the script end by itself after its last epoch." in text

    def test_unverified_as_something_was_not_seen(self, show):
        partly = replace(rehearsal(), covered=(Aspect.BATCHES, Aspect.ROWS), not_covered={})
        text = said(PROSE[show], unverified_study(rehearsal=partly))
        assert re.search(r"[A-Z][\w' ]+ (was|were) not rehearsed: it was not seen\.", text)

    def test_unverified_with_a_plan_that_was_asked_for(self, show):
        text = said(PROSE[show], unverified_study(plan="mine.toml"))
        assert "because you named a place for it" in text
        assert "gpuadvisor run --plan mine.toml train.py" in text

    def test_unverified_without_any_rehearsal(self, show):
        text = said(PROSE[show], unverified_study(rehearsal=None))
        assert "Nothing of the script's life was rehearsed: the budget had no room for it." in text
        assert "A larger --budget gives a rehearsal the time that it needs." in text

    def test_no_gain(self, show):
        text = said(PROSE[show], study_without_gain())
        assert "he best of 18 settings, num_workers=8, measured 0.998x" in text
        assert "0.993-1.003, 6 interleaved pairs), so it gains 0.3 % at most." in text

    def test_inconclusive(self, show):
        text = said(PROSE[show], inconclusive_study())
        assert "1.03x (99 % interval 0.97-1.09, 8 interleaved pairs)" in text
        assert "which shows neither a gain nor that there is none" in text
        assert "it would probably take 25 min 00 s more" in text

    def test_runs_that_differ_too_much_have_no_interval(self, show):
        text = said(PROSE[show], inconclusive_study(speedup=Speedup(0.27, 1e-9, 66_609_559.0, 3)))
        assert (
            "he best of 18 settings, num_workers=8, cannot be compared with the unchanged script "
            "by 3 pairs of runs, as runs differ too much." in text
        )
        assert "0.27" not in text and "66,609" not in text

    def test_what_looked_best_is_not_left_out_for_what_was_not_tried(self, show):
        left = {"untried": {"compile": "the budget had no room for it"}}
        wide = Speedup(17.0, 1e-3, 3e5, 3)
        text = said(PROSE[show], inconclusive_study(**left, speedup=wide))
        assert "--only num_workers,compile" in text
        assert "compares that again, and tries what is left" in text
        none = Speedup(1.0, 0.99, 1.01, 8)
        text = said(PROSE[show], inconclusive_study(**left, speedup=none))
        assert "--only compile" in text and "compares that again" not in text

    def test_inconclusive_as_a_rehearsal_refuted_the_best(self, show):
        gone = {"settings": {}, "speedup": None, "best": None, "dropped": study().dropped}
        text = said(PROSE[show], inconclusive_study(**gone))
        assert "best of 18 settings does something else in a rehearsal: persistent_workers" in text
        assert "--without persistent_workers searches among what is left" in text
        assert "the data set's state: dataset.level was 1 in the second epoch" in text

    def test_not_tried(self, show):
        text = said(PROSE[show], untried_study())
        assert "he budget had no room for a setting" in text
        assert "--budget 8m" in text
        assert "tf32, compile" in text

    def test_not_tried_as_no_knob_applies(self, show):
        text = said(PROSE[show], untried_study(untried={}))
        assert "has nothing to set in this script: " in text
        assert "no run was made with a setting" in text

    def test_not_tried_as_all_failed(self, show):
        failed = tuple(each for each in study().trials if each.measurement is None)
        text = said(PROSE[show], untried_study(untried={}, trials=failed))
        assert "one of 6 settings ran to its end with usable results" in text

    def test_what_was_not_tried_is_listed_with_its_reason(self, show):
        text = said(PROSE[show], study())
        assert "compile made the script 1.21x slower" in text
        assert "num_workers=32" in text

    @pytest.mark.parametrize("verdict", [Verdict.INCONCLUSIVE, Verdict.NOT_TRIED], ids=str)
    def test_interrupted(self, show, verdict):
        text = said(PROSE[show], STUDIES[verdict](interrupted="Ctrl-C"))
        assert "he study ended early" in text
        assert "--resume" in text


@pytest.mark.parametrize("verdict", Verdict, ids=str)
def test_a_stored_study_reads_as_it_did(tmp_path, verdict):
    result = STUDIES[verdict]()
    with open_store(tmp_path / "gpuadvisor.db") as store:
        create(store, result)
        store.finish_study(result)
        stored = store.load_study(result.study)
    for show in FORMATS.values():
        assert show(stored) == show(result)


README = (Path(__file__).parents[3] / "README.md").read_text("utf-8")


@pytest.mark.parametrize("verdict", Verdict, ids=str)
def test_the_readme_explains_it(verdict):
    assert f"\n| `{verdict}` | " in README


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_what_the_readme_lets_pass_in_continuous_integration():
    asked = re.findall(r"^jq -e '(\.verdict [^']+)' result\.json", README, re.MULTILINE)
    passed = [
        {
            verdict.value
            for verdict in Verdict
            if subprocess.run(
                ["jq", "-e", question],
                input=json.dumps({"verdict": verdict.value}).encode(),
                stdout=subprocess.DEVNULL,
            ).returncode
            == 0
        }
        for question in asked
    ]
    assert passed == [{"no_gain", "inconclusive", "not_tried"}, {"no_gain"}]

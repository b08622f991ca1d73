"""The page: complete in itself, well formed, and honest whatever the study holds."""

import re
from dataclasses import replace

import pytest

from gpuadvisor.domain.knobs import Contribution, Snippet
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.reports.study.document import study_html
from tests import pages, studies
from tests.pages import Page, svgs
from tests.studies import CPU, environment, measurement, snippets, study, study_without_gain


def failed(number):
    return Trial(number, {"tf32": True}, "search", TrialState.CRASHED)


def gained(number, gain):
    return Trial(number, {"a": number}, "search", TrialState.COMPLETE, gain=gain)


STUDIES = {
    **{str(verdict): make() for verdict, make in studies.STUDIES.items()},
    "interrupted": study_without_gain(interrupted="Ctrl-C", trials=()),
    "no trials": study(trials=()),
    "one trial": study(trials=study().trials[:1]),
    "only failures": study_without_gain(trials=(failed(0), failed(1))),
    "many trials": study(trials=tuple(gained(n, 1 + n / 500) for n in range(500))),
    "extreme gains": study(trials=(gained(0, 0.001), gained(1, 250.0), gained(2, float("nan")))),
    "equal gains": study(trials=tuple(gained(n, 1.0) for n in range(5))),
    "one step": study(baseline=replace(measurement(), step_ms=(5.0,)), best=None),
    "equal steps": study(baseline=replace(measurement(), step_ms=(5.0,) * 9)),
    "zero steps": study(baseline=replace(measurement(), step_ms=(0.0,) * 9)),
    "odd steps": study(baseline=replace(measurement(), step_ms=(float("nan"), float("inf"), 1.0))),
    "no steps": study(baseline=replace(measurement(), step_ms=(), windows=())),
    "tiny and huge": study(baseline=measurement(1e-4), best=measurement(1e6)),
    "losses": study(contributions=(Contribution("a", 1, 0.9, 0.8, 0.95),)),
    "large gain": study(contributions=(Contribution("a", 1, 40.0, 35.0, 46.0),)),
    "no contribution": study(contributions=(Contribution("a", 1, 1.0),)),
    "odd contribution": study(contributions=(Contribution("a", 1, float("nan")),)),
    "cpu": study(environment=environment(CPU, cuda=None, driver=None, git_dirty=None)),
}


@pytest.fixture(scope="module", params=STUDIES, ids=lambda name: name.replace(" ", "_"))
def content(request):
    return study_html(STUDIES[request.param], snippets())


class TestEveryPage(pages.Checks):
    """Of each study."""

    def test_it_names_no_address(self, content):
        assert not re.search(r"https?:", content)


def test_a_gain_has_three_plots_for_wide_and_narrow_pages():
    found = svgs(study_html(study()))
    assert len(found) == 6
    assert sum('class="narrow"' in svg for svg in found) == 3


def test_the_conclusion():
    text = Page(study_html(study())).text
    assert "1.42x" in text
    assert "99 % interval 1.39-1.45, 8 interleaved pairs" in text
    assert "mean relative difference of 10 losses 0.0021 (limit 0.01)" in text


def test_no_gain_claims_nothing():
    content = study_html(study_without_gain())
    assert "No gain" in content
    assert "faster" not in Page(content).text
    assert "How to keep it" not in content
    assert "What each knob is worth" not in content


def test_every_trial_is_in_the_table_and_in_the_plot():
    content = study_html(study())
    rows = re.search(r'<table class="trials">.*?</table>', content, re.DOTALL)[0]
    assert rows.count("<tr>") == len(study().trials) + 1
    plot = next(svg for svg in svgs(content) if "Gain of every trial" in svg)
    assert plot.count('class="mark ') == len(study().trials)
    assert "Trial 12 (search): out of memory" in plot
    assert "tried to allocate 12.0 GiB, 3.1 GiB were free" in rows


def test_the_best_so_far_ignores_wrong_results_and_repeats():
    trials = (
        gained(0, 1.1),
        replace(gained(1, 3.0), state=TrialState.WRONG),
        replace(gained(2, 2.0), phase="proof"),
    )
    plot = svgs(study_html(study(trials=trials)))[2]
    path = re.search(r'd="(M[^"]+)" class="best-so-far"', plot)[1]
    heights = set(re.findall(r"V([\d.]+)", path)) | {path.split("H")[0].split()[1]}
    assert len(heights) == 1


def test_what_was_not_measured_is_said_in_words():
    bare = replace(measurement(energy_j=None), peak_memory_bytes=0)
    text = Page(study_html(study(baseline=bare))).text
    assert "not measured" in text
    assert "0 B" not in text


def test_sentences_in_a_table_may_wrap():
    content = study_html(study())
    found = re.search(r"<h2>Predicted and measured</h2>.*?</table>", content, re.DOTALL)[0]
    assert '<table class="words">' in found
    assert re.search(r"\.words td:last-child \{[^}]*white-space: normal", content)


def test_slow_steps_that_are_not_drawn_are_counted():
    stalls = replace(measurement(), step_ms=(10.0,) * 998 + (11.0, 5000.0))
    text = Page(study_html(study(baseline=stalls, best=None))).text
    assert "2 slower steps beyond the axis" in text


NASTY = "<script>alert(\"x\")</script> & 'y' \x00\udce9"


def test_no_text_of_the_user_is_markup():
    trial = Trial(0, {NASTY: NASTY}, "search", TrialState.CRASHED, NASTY)
    content = study_html(
        study(
            study=NASTY,
            script=NASTY,
            args=(NASTY,),
            notes=(NASTY,),
            no_effect={NASTY: NASTY},
            plan=NASTY,
            trials=(trial,),
            contributions=(Contribution(NASTY, NASTY, 1.2),),
            environment=environment(replace(CPU, name=NASTY), git_commit=NASTY),
        ),
        (Snippet(NASTY, NASTY, NASTY),),
    )
    page = Page(content)
    assert "script" not in page.tags
    assert "<script>alert(\"x\")</script> & 'y'" in page.text
    assert "\x00" not in content
    content.encode("utf-8")

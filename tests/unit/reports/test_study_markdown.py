"""Markdown for a pull request: the conclusion first, the evidence folded."""

import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from gpuadvisor.domain.knobs import Snippet
from gpuadvisor.domain.study import Equivalence, Objective, Speedup, Trial, TrialState
from gpuadvisor.reports.study.document import study_markdown
from tests.studies import measurement, snippets, study, study_without_gain


def table_rows(text):
    """The rows of all tables as lists of cells."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_the_headline_has_gain_interval_pairs_device_and_equivalence():
    assert (
        "**1.42x faster (99 % interval 1.39-1.45, 8 interleaved pairs)"
        " on NVIDIA H100 80GB HBM3, results equivalent by mean relative difference of 10 losses.**"
        in study_markdown(study())
    )


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        (Objective.LATENCY, "1.42x lower latency"),
        (Objective.MEMORY, "1.42x lower peak memory"),
        (Objective.ENERGY, "1.42x lower energy"),
    ],
)
def test_the_headline_is_about_the_objective(objective, words):
    assert words in study_markdown(study(objective=objective))


def test_baseline_and_best_stand_side_by_side():
    rows = {row[0]: row[1:] for row in table_rows(study_markdown(study())) if len(row) == 4}
    assert rows["Peak memory"] == ["18.4 GiB", "12.3 GiB", "-33.2 %"]
    assert rows["Energy per step"] == ["31.0 J", "25.1 J", "-19.0 %"]
    assert rows["Step time, median"][0].endswith(" ms")


def test_what_was_not_measured_is_said_in_words():
    result = study(baseline=measurement(energy_j=None), best=measurement(55, energy_j=None))
    assert ["Energy per step", "not measured", "not measured", ""] in table_rows(
        study_markdown(result)
    )


def test_contributions_come_with_the_most_valuable_first():
    text = study_markdown(study())
    assert ["`bf16_autocast`", "1.17x", "1.14-1.20"] in table_rows(text)
    assert text.index("| `bf16_autocast` |") < text.index("| `num_workers=8` |")


def test_how_to_apply_it():
    text = study_markdown(study(), snippets())
    assert "gpuadvisor run --plan train.plan.toml train.py -- --epochs 3" in text
    assert "```python\nDataLoader(..., num_workers=8)\n```" in text


def test_another_batch_size_is_compared_per_sample():
    text = study_markdown(study(best=measurement(100, samples=512)))
    rows = {row[0]: row[1:] for row in table_rows(text) if len(row) == 4}
    assert rows["Samples per step"] == ["256", "512", "+100 %"]
    assert "µs" in rows["Time per sample, mean"][0]
    assert "compare times and energies per sample" in text


def test_no_gain_claims_nothing():
    text = study_markdown(study_without_gain())
    assert "No gain on NVIDIA H100 80GB HBM3" in text
    assert "faster" not in text
    assert "How to keep it" not in text


def test_no_gain_after_a_proof_shows_the_interval():
    text = study_markdown(study_without_gain(speedup=Speedup(1.004, 0.99, 1.02, 12)))
    assert "measured 1.00x (99 % interval 0.99-1.02, 12 interleaved pairs)" in text


def test_a_verdict_without_proof_is_not_a_gain():
    assert "Inconclusive on NVIDIA H100" in study_markdown(study(speedup=None))


def test_an_interrupted_study_judges_no_knob():
    text = study_markdown(study_without_gain(interrupted="Ctrl-C after 12 trials"))
    assert "Inconclusive on NVIDIA H100" in text
    assert "Ctrl-C after 12 trials" in text
    assert "no gain was shown" not in text
    assert "--resume" in text


def test_a_run_that_something_disturbed_is_marked():
    shaken = replace(study().trials[1], disturbance="other processes took 31 % of the CPU")
    text = study_markdown(study(trials=(shaken,)))
    assert "complete (disturbed: other processes took 31 % of the CPU)" in text


def test_what_used_the_machine_beside_a_knob_that_showed_no_gain_is_told_with_it():
    shaken = (replace(each, disturbance="others used 2 cores") for each in study().trials)
    text = study_markdown(study(trials=tuple(shaken), settings={}))
    assert re.search(r"`pin_memory` \| no gain was shown.*; meanwhile others used 2 cores", text)


@pytest.mark.parametrize(("baselines", "seen"), [(2, ", where runs"), (1, " |"), (0, " |")])
def test_how_much_runs_differ_is_said_where_it_is_known(baselines, seen):
    trials = study().trials
    text = study_markdown(study(trials=(*trials[:baselines], *trials[2:]), settings={}))
    assert f"| `pin_memory` | no gain was shown{seen}" in text


@pytest.mark.parametrize(
    ("apart", "said"),
    [
        (1.1, "looked 1.50x faster in a single run, but was not proven"),
        (2.0, "looked faster in a single run, by less than runs of the unchanged script differ"),
    ],
)
def test_what_a_single_run_gained_is_told_where_runs_differ_by_less(apart, said):
    settings = {"tf32": True}
    done = TrialState.COMPLETE
    runs = (
        Trial(0, {}, "baseline", done, measurement=measurement(10.0)),
        Trial(1, {}, "baseline", done, measurement=measurement(10.0 * apart)),
        Trial(2, settings, "search", done, gain=1.5, measurement=measurement(8.0)),
    )
    assert said in study_markdown(study(speedup=None, settings=settings, trials=runs))


def test_what_did_not_help_has_its_reason():
    text = study_markdown(study()).partition("What did not help")[2].partition("</details>")[0]
    seen = "no further gain was shown, where runs of the unchanged script differ by 0.160 %"
    assert f"| `pin_memory` | {seen} |" in text
    assert "| `compile` | hung: no step within 300 s" in text
    assert "`tf32`" not in text


@pytest.mark.parametrize(
    ("equivalence", "sentence"),
    [
        (Equivalence("wrong", "losses", 0.5, 0.01), "Results are different: losses 0.5"),
        (
            Equivalence("not_checked", "", reason="no loss was seen."),
            "not checked: no loss was seen.",
        ),
        (Equivalence("equivalent", "losses", 0.001), "(limit not set)"),
        (Equivalence("equivalent", "768 random samples"), "equivalent: 768 random samples;"),
        (None, "Results were not checked."),
    ],
)
def test_equivalence_in_words(equivalence, sentence):
    assert sentence in study_markdown(study(equivalence=equivalence))


def test_no_text_of_the_user_is_markup():
    nasty = "<img src=x> | [a](b) *b* `c"
    text = study_markdown(
        study(script=nasty, notes=(nasty,), no_effect={nasty: nasty}),
        (Snippet(nasty, nasty, "```\nend"),),
    )
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    assert not set(re.findall(r"<(\w+)", page)) & {"img", "a", "em"}
    assert page.count("&lt;img src=x&gt; | [a](b) *b* `c") >= 4
    assert "````python\n```\nend\n````" in text


def test_every_table_is_regular():
    text = study_markdown(study(no_effect={"a|b": "c|d"}), snippets())
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert len(blocks) == 10
    for block in blocks:
        assert len({len(row) for row in table_rows(block)}) == 1


def test_details_are_closed_and_have_an_empty_line_inside():
    text = study_markdown(study())
    assert text.count("<details>") == text.count("</details>") == 7
    assert len(re.findall(r"</summary>\n\n", text)) == 7

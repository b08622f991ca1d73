"""A study on a terminal: the end of `gpuadvisor tune`."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Level, LoaderFacts, ScriptFacts
from gpuadvisor.domain.screening import Ratio, Screened, ScreenedAs
from gpuadvisor.domain.study import Equivalence, Speedup, Trial, TrialState, Verdict
from gpuadvisor.reports.study import wording
from gpuadvisor.reports.study.document import print_summary, study_markdown
from tests.studies import (
    FROZEN,
    inconclusive_study,
    measurement,
    rehearsal,
    snippets,
    study,
    study_without_gain,
)

LOADER = LoaderFacts(32, 0, False, False, None)
WRONG = Trial(2, {"compile": "default"}, "search", TrialState.WRONG, "the losses differ")


def printed(result, width=80, lines=(), **options):
    file = io.StringIO()
    print_summary(result, lines, Console(file=file, width=width, **options))
    return file.getvalue()


def test_the_conclusion_comes_first():
    first = printed(study()).strip().splitlines()[0]
    assert first == "1.42x faster (99 % interval 1.39-1.45, 8 interleaved pairs)"


def test_everything_that_was_found_is_there():
    text = printed(study(), lines=snippets())
    assert re.search(r"Step time, median +78\.7 ms +55\.5 ms +-29\.6 %", text)
    assert re.search(r"Peak memory +18\.4 GiB +12\.3 GiB", text)
    assert re.search(r"Energy per step +31\.0 J +25\.1 J", text)
    assert re.search(r"bf16_autocast +1\.17x +1\.14-1\.20", text)
    assert re.search(r"fused_optimizer +1\.02x +not measured", text)
    assert "Results are equivalent" in text
    assert "pin_memory, channels_last: no further gain was shown" in text
    assert "sdpa_backend: the script has no attention" in text
    assert "  train.plan.toml\n" in text
    assert "  gpuadvisor run --plan train.plan.toml train.py -- --epochs 3\n" in text
    assert "      loss = model(batch)\n" in text


def test_no_gain_in_friendly_words():
    text = printed(study_without_gain(), width=200)
    assert "No gain: the best of 18 settings, num_workers=8, measured 0.998x (99 %" in text
    assert "Nothing was changed: the script is best left as it is, at this level." in text
    assert "--level aggressive" in text
    assert "faster" not in text
    assert "Plan" not in text


def test_an_interrupted_study_says_how_to_go_on():
    text = printed(study_without_gain(interrupted="stopped by Ctrl-C"), width=200)
    assert "Inconclusive: the study ended early, after trying 18 settings." in text
    assert "--resume" in text
    assert "The study ended early: stopped by Ctrl-C" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_it_fits_the_terminal_but_for_what_may_be_copied(width):
    result = study(baseline=measurement(energy_j=None), plan="plan.toml", args=())
    lines = printed(result, width=width).splitlines()
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_memory_that_a_gain_takes_is_told_in_one_sentence(device):
    facts = ScriptFacts(device=device)
    plain, taking = (
        replace(measurement(peak_memory_bytes=mib << 20, facts=facts), warmup_steps=more)
        for mib, more in ((400, 5), (800, 9))
    )
    steps = [each.warmup_steps + each.steps for each in (taking, plain)]
    settings = {"channels_last": True, "host_memory": "all"}
    sides = [({}, plain), (settings, taking)] * 3
    runs = [Trial(n, s, "proof", TrialState.COMPLETE, "", m) for n, (s, m) in enumerate(sides)]
    runs.append(Trial(6, {"channels_last": True}, "ablation", TrialState.COMPLETE, "", plain))
    of = "of the GPU" if device == "cuda" else "in the script's process"
    said = (
        f"Runs with the settings took 400 MiB more memory {of} at the peak (800 MiB in {steps[0]}"
        f" steps instead of 400 MiB in {steps[1]});"
        " runs with one setting more took so much more: host_memory=all 400 MiB."
    )
    result = study(baseline=plain, settings=settings, trials=tuple(runs))
    assert said in printed(result, width=500)
    assert said.replace("_", "\\_") in study_markdown(result)
    only = replace(result, settings={"host_memory": "all"}, trials=tuple(
        replace(run, settings={"host_memory": "all"} if run.settings else {}) for run in runs[:6]
    ))  # fmt: skip
    assert f"400 MiB in {steps[1]}), for host_memory=all." in printed(only, width=500)
    assert "more memory" not in printed(replace(result, verdict=Verdict.INCONCLUSIVE), width=500)


def test_a_module_is_run_as_one():
    text = printed(study(script="package.train", is_module=True))
    assert "gpuadvisor run --plan train.plan.toml -m package.train -- --epochs 3" in text


def test_a_gain_that_is_only_not_proven_is_no_verdict_against_it():
    wide = inconclusive_study(speedup=Speedup(2.63, 0.93, 7.45, 4))
    text = " ".join(printed(wide).split())
    assert text.startswith("Inconclusive: the best of 18 settings, num_workers=8, measured 2.63x")
    assert (
        "`--only num_workers` with `--budget 44m` (it would probably take 25 min 00 s more),"
        in text
    )
    assert "or a quieter machine, narrows the interval." in text
    assert not set(wording.not_helpful(wide)) & set(wide.settings)


@pytest.mark.parametrize(
    ("ratios", "advised"),
    [
        (
            {"cpu_threads": 0.91},
            "looks slower, but a gain is not ruled out: `--only cpu_threads`",
        ),
        ({"cpu_threads": 1.02}, "a gain is possible: `--only cpu_threads`"),
        ({"cpu_threads": 0.91, "tf32": 1.2}, "a gain is possible: `--only tf32` with"),
    ],
)
def test_a_knob_that_was_slower_in_one_process_is_not_advised_beside_others(ratios, advised):
    screened = tuple(
        Screened(name, 1, ScreenedAs.UNRESOLVED, Ratio(ratio, 0.9 * ratio, 1.1 * ratio, 5))
        for name, ratio in ratios.items()
    )
    untried = dict.fromkeys(ratios, "the budget was spent")
    left = inconclusive_study(speedup=None, settings={}, screened=screened, untried=untried)
    assert advised in " ".join(printed(left).split())


@pytest.mark.parametrize(
    ("speedup", "shown"),
    [(Speedup(2.63, 0.93, 7.45, 4), "not proven"), (Speedup(1.42, 1.40, 1.45, 4), "-29.6 %")],
)
def test_what_two_runs_differ_by_is_no_share_that_was_gained(speedup, shown):
    text = printed(study(speedup=speedup))
    assert re.search(rf"Step time, mean .*{shown}", text)
    assert re.search(rf"Throughput .*{'not proven' if shown == 'not proven' else '42'}", text)


def test_what_looks_slower_is_no_gain_to_hope_for():
    slower = inconclusive_study(speedup=Speedup(0.28, 0.05, 1.60, 6))
    text = " ".join(printed(slower).split())
    assert "Nothing was changed: this looks slower, though a gain is not ruled out: `" in text
    assert "a gain is possible" not in text
    likely = inconclusive_study(speedup=Speedup(1.28, 0.95, 1.60, 6))
    assert "Nothing was changed, and a gain is possible: " in " ".join(printed(likely).split())


def test_what_is_not_known_of_the_time_is_not_said():
    text = " ".join(printed(inconclusive_study(needed_s=None)).split())
    assert "`--only num_workers` with a larger `--budget`, or a quieter machine," in text


def test_knobs_that_were_not_tried_are_no_verdict_against_the_script():
    left = study_without_gain(verdict=Verdict.INCONCLUSIVE, untried={"compile": "no room"})
    text = " ".join(printed(left).split())
    assert "6 interleaved pairs), and 1 knob was not tried." in text
    assert "Not tried compile: no room" in text


@pytest.mark.parametrize(
    ("level", "facts", "trials", "wider"),
    [
        ("balanced", ScriptFacts(device="cpu"), (), None),
        ("balanced", ScriptFacts(device="cpu", loaders=(LOADER,)), (), "aggressive"),
        ("conservative", ScriptFacts(False, "cpu", loaders=(LOADER,)), (), "balanced"),
        ("balanced", ScriptFacts(device="cpu"), (WRONG,), "aggressive"),
        ("aggressive", ScriptFacts(device="cpu", loaders=(LOADER,)), (WRONG,), None),
    ],
)
def test_a_wider_level_is_advised_where_it_tries_more(level, facts, trials, wider):
    best = Trial(1, {"tf32": True}, "search", TrialState.COMPLETE)
    device = Device("cpu", 0, "CPU")
    here = study_without_gain(
        level=Level.parse(level), baseline=measurement(facts=facts), trials=(best, *trials)
    )
    here = replace(here, environment=replace(here.environment, device=device))
    advice = wording.advice(here)
    assert ("--level" in advice) == (wider is not None)
    assert wider is None or f"`--level {wider}`" in advice


def test_only_the_newest_knob_is_blamed_for_a_run_that_failed():
    settings = {"tf32": True, "bf16": True, "compile": "default"}
    failed = Trial(9, settings, "search", TrialState.WRONG, "the losses differ")
    cut = study(
        verdict=Verdict.INCONCLUSIVE, plan=None, speedup=None, interrupted="interrupted",
        no_effect={}, screened=(), trials=(failed,), settings={"tf32": True},
    )  # fmt: skip
    assert wording.not_helpful(cut) == {"compile": "wrong results: the losses differ"}


def test_a_path_is_never_wrapped():
    path = "/".join(["a-long-folder"] * 12) + "/train.plan.toml"
    assert f"  {path}\n" in printed(study(plan=path), width=60)


def test_it_is_plain_when_piped_and_without_colours():
    assert "\x1b" not in printed(study(), lines=snippets())


def test_no_color_is_respected(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    text = printed(study(), force_terminal=True, color_system="truecolor")
    assert not re.search(r"\x1b\[[\d;]*3\d", text)


def test_results_that_differ_are_said():
    result = study(equivalence=Equivalence("wrong", "losses", 0.5, 0.01))
    assert "Results are different: losses 0.5 (limit 0.01)" in printed(result)


def test_what_a_script_printed_cannot_command_the_terminal():
    text = printed(study(notes=("\x1b[2J gone [bold]x[/bold]",)), force_terminal=True)
    assert "\x1b[2J" not in text
    assert "[bold]x[/bold]" in text


def test_a_console_that_knows_only_ascii():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    result = study(baseline=measurement(0.05), notes=("naïve",))
    print_summary(result, (), Console(file=file, width=80))
    file.flush()
    assert b"na?ve" in file.buffer.getvalue()


def test_intervals_have_no_column_where_none_was_measured():
    few = tuple(replace(each, low=None, high=None) for each in study().contributions)
    text = printed(study(contributions=few))
    assert re.search(r"^fused_optimizer +1\.02x$", text, re.MULTILINE)
    assert "not measured" not in text.split("Knob", 1)[1].split("Predicted", 1)[0]


def test_a_finding_is_named_once_and_in_few_words():
    found = study().expectations[0]
    notes = (f"{found.summary}, worth 8 to 17 % of the time", "other")
    text = printed(study(notes=notes), width=120)
    assert "The model waits for the input pipeline" in text
    assert "idle for 17%" not in text
    assert "\n  other" in text


def test_a_finding_of_a_rule_that_is_gone_keeps_its_sentence():
    gone = replace(study().expectations[0], rule="no_longer_there", summary="It was slow")
    assert "It was slow (no_longer_there)" in printed(study(expectations=(gone,)))


def test_predictions_stand_beside_what_was_measured():
    expected = study().expectations[0]
    slower = replace(
        expected,
        measured_pct=-24.2,
        measured_low_pct=-30.4,
        measured_high_pct=-18.1,
        settings={"tf32": True},
    )
    missing = replace(expected, low_pct=None, measured_pct=None, why="no knob can try it")
    once = replace(expected, measured_low_pct=None, measured_high_pct=None)
    screened = replace(missing, screened_pct=(3.0, 2.4, 3.6), settings={"tf32": True})
    alone = replace(screened, screened_of_computing=True)
    wide = replace(expected, measured_low_pct=-21054.0, measured_high_pct=100.0)
    other = replace(expected, of_foretold_pct=15.3)
    several = replace(expected, cured_too=("a", "b"), together_pct=(8.0, 30.0))
    every = (expected, slower, missing, screened, alone, once, wide, other, several)
    rows = wording.expectation_rows(study(expectations=every))
    assert [row[1:] for row in rows] == [
        ("8 to 17 %", "11 % (9 to 12 %) with num_workers=8"),
        ("8 to 17 %", "24 % longer (18 to 30 %) with tf32"),
        ("not estimated", "not measured: no knob can try it"),
        (
            "not estimated",
            "3 % (2 to 4 %) with tf32 in one running process, no proof; not measured: no knob can"
            " try it",
        ),
        (
            "not estimated",
            "3 % (2 to 4 %) with tf32, for which a loader may be too slow, in one running process,"
            " no proof; not measured: no knob can try it",
        ),
        ("8 to 17 %", "not measured: single runs of the search are no proof"),
        ("8 to 17 %", "cannot be told with num_workers=8, as runs differ too much"),
        (
            "8 to 17 %",
            "11 % (9 to 12 %) with num_workers=8; of the runs that this was predicted from, 15 %",
        ),
        (
            "8 to 17 %",
            "11 % (9 to 12 %) with num_workers=8; it cures a, b, too (together 8 to 30 %)",
        ),
    ]


def test_what_was_rehearsed_and_what_it_means():
    text = printed(study(), width=200)
    assert (
        "Compared in shortened runs over 2 epochs and 1,280 samples of each side: the batches,"
        in text
    )
    skipping = printed(study(rehearsal=rehearsal(epochs=3, lived_epochs=(1, 2, 90))), width=200)
    assert "Compared in shortened runs over epochs 1, 2 and 90 and 1,280 samples" in skipping
    assert "Not rehearsed: the written files (what is in best.pt depends on random" in text
    assert "Forecast: it saves 3 h 10 min of the 10 h 42 min of your 90 epochs." in text
    assert (
        "The first step comes 12 s later (seen once), which is earned back after 540 steps." in text
    )
    assert "A later epoch takes 70.9 % of the unchanged script's time." in text
    assert "`persistent_workers` was left out: the data set's state: `dataset.level` was" in text


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"epochs": None, "saved_s": 42.0, "whole_s": 192.0},
         "it saves 42 s of the 3 min 12 s of an epoch."),
        ({"epochs": None, "saved_s": 4e6, "whole_s": 8e6},
         "it saves 30 min 00 s of each hour that it goes on."),
        ({"epochs": 1, "saved_s": -42.0, "whole_s": 192.0},
         "it loses 42 s on top of the 3 min 12 s of your 1 epoch."),
        ({"epochs": None, "steps": 600_000, "saved_s": 3600.0, "whole_s": 18000.0},
         "it saves 1 h 00 min of the 5 h 00 min of its 600,000 steps."),
        ({"break_even_steps": None}, "(seen once), which is never earned back"),
        ({"extra_start_s": -3.0}, "The first step comes 3.0 s earlier."),
    ],
)  # fmt: skip
def test_the_forecast_in_words(changes, sentence):
    forecast = replace(rehearsal().forecast, **changes)
    assert sentence in printed(study(rehearsal=rehearsal(forecast=forecast)), width=200)


def test_a_start_that_compiles_is_said_to_have_found_what_was_compiled_before():
    compiled = rehearsal(settings={"compile": "default"})
    text = printed(study(rehearsal=compiled), width=200)
    assert "12 s later (seen once, with what was in the compilers' caches), which is" in text


def test_a_problem_names_its_suspects():
    text = printed(study(rehearsal=rehearsal(problems=(FROZEN,))), width=200)
    assert "under the plan; `persistent_workers` can cause that." in text


def test_settings_that_change_results_are_named():
    changing = rehearsal(changes_results=("arg:batch-size",), equivalence=None)
    text = printed(study(rehearsal=changing), width=200)
    assert "as these change them on purpose: `arg:batch-size`." in text


def test_files_that_runs_left_are_named():
    text = printed(study(left=tuple(f"run{n}.log" for n in range(14))), width=400)
    assert "Runs left files in the script's folder: `run0.log`, " in text
    assert "`run9.log` and 4 more." in text

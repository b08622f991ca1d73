"""What a study shows while it runs."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from gpuadvisor.domain.knobs import LoaderFacts, ScriptFacts
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.domain.screening import Ratio, Screened, ScreenedAs
from gpuadvisor.domain.study import Objective, Trial, TrialState
from gpuadvisor.tui.progress import ConsoleProgress, FirstLook, loader_bound
from tests.simulation import measurement


@pytest.fixture
def shown():
    return io.StringIO()


@pytest.fixture
def progress(shown):
    return ConsoleProgress(Console(file=shown, width=100, highlight=False))


def ended(number, settings, phase="search", state=TrialState.COMPLETE, gain=1.0, reason=""):
    run = measurement([10.0]) if state is TrialState.COMPLETE else None
    return Trial(number, settings, phase, state, reason, run, gain=gain)


STANDING = {"tf32": True, "workers": 4}


@pytest.mark.parametrize(
    ("settings", "phase", "label"),
    [
        ({}, "baseline", "baseline"),
        ({}, "proof", "baseline"),
        (STANDING, "proof", "best"),
        (STANDING, "ablation", "best"),
        ({"tf32": True}, "ablation", "best without workers"),
        ({}, "ablation", "baseline"),
        ({**STANDING, "bf16": True}, "search", "+ bf16=True"),
        ({"tf32": True, "workers": 8}, "search", "+ workers=8"),
        ({"workers": 4, "compile": "default"}, "search", "+ compile=default - tf32"),
        ({"tf32": True}, "search", "- workers"),
    ],
)
def test_a_run_is_named_by_what_is_new_in_it(progress, shown, settings, phase, label):
    progress.on_best(STANDING, 1.5)
    progress.on_trial_start(7, settings, phase)
    progress.on_trial_end(ended(7, settings, phase))
    line = shown.getvalue()
    assert line.startswith(f"   7  {label:<42} ")
    # In a proof runs are compared with those of their pairs, and not with the first ones.
    assert line.rstrip().endswith("1.00x" if settings and phase != "proof" else "10.0 ms")


def test_no_setting_of_a_run_is_left_out_of_its_line(shown):
    """`compile` was, of a first trial that had four settings: it looked as if that had none."""
    progress = ConsoleProgress(Console(file=shown, width=40, highlight=False))
    settings = {"dataloader_workers": 15, "channels_last": True, "bf16_autocast": True}
    progress.on_trial_end(ended(4, {**settings, "compile": "default"}, gain=2.91))
    assert "+ compile=default " in shown.getvalue()
    assert shown.getvalue().rstrip().endswith("2.91x")


def test_a_terminal_breaks_lines_between_words_and_a_pipe_not_at_all(shown):
    reason = "clearly slower than what was found before"
    pruned = ended(3, {"host_memory": "32M"}, state=TrialState.PRUNED, reason=reason)
    for is_terminal in (False, True):
        console = Console(file=shown, force_terminal=is_terminal, width=80, color_system=None)
        progress = ConsoleProgress(console)
        progress.on_trial_end(pruned)
        progress.on_message(f"{reason}, and {reason}")
    piped, told, *rows = shown.getvalue().splitlines()
    assert piped.endswith(f"pruned: {reason}")
    assert told == f"  {reason}, and {reason}"
    assert [row.split()[-1] for row in rows] == ["than", "before", "was", "before"]
    assert rows[2].startswith("  clearly")
    assert rows[3] == "  found before"


def test_only_what_the_search_stands_on_counts(progress, shown):
    """A run that is better by chance is not what the next one is compared with."""
    progress.on_trial_end(ended(3, {"tf32": True}, gain=1.004))
    progress.on_trial_start(4, {"bf16": True}, "search")
    progress.on_trial_end(ended(4, {"bf16": True}))
    assert "   4  + bf16=True " in shown.getvalue()


def test_a_run_that_failed_says_why(progress, shown):
    progress.on_trial_end(
        ended(3, {"tf32": True}, state=TrialState.CRASHED, reason="KeyError: 'a' [b]")
    )
    assert shown.getvalue().rstrip().endswith("crashed: KeyError: 'a' [b]")


def test_what_a_script_raised_cannot_command_the_terminal(progress, shown):
    progress.on_trial_end(
        ended(3, {}, state=TrialState.CRASHED, reason="RuntimeError: \x1b[31m \u202e")
    )
    assert "RuntimeError: ?[31m ?" in shown.getvalue()


def test_a_screened_value_shows_what_it_brings_and_how_long_that_took(progress, shown):
    known = Ratio(1.13, 1.12, 1.14, 4)
    layout = Screened("channels_last", True, ScreenedAs.GAINS, known, {}, 6.2)
    progress.on_screened(layout)
    beside = replace(layout, ratio=Ratio(0.83, 0.82, 0.84, 4), beside={"compile": "default"})
    progress.on_screened(beside)
    first, second = shown.getvalue().splitlines()
    assert " ".join(first.split()) == "channels_last=True 1.13x (1.12-1.14) 6.2 s"
    progress.on_screened(replace(layout, state=ScreenedAs.UNRESOLVED))
    assert shown.getvalue().endswith("6.2 s  not decided\n")
    assert second.split()[:4] == ["channels_last=True", "beside", "compile", "0.83x"]


def test_values_that_were_not_timed_are_told_in_a_line_for_each_knob(progress, shown):
    why = "no time was left for it"
    for knob, value in [("compile", "default"), ("threads", 1), ("compile", "dynamic")]:
        progress.on_screened(Screened(knob, value, ScreenedAs.UNRESOLVED, why=why))
    progress.on_phase("search", "2 knobs")
    lines = [" ".join(line.split()) for line in shown.getvalue().splitlines()]
    assert lines == [f"compile=default, dynamic {why}", f"threads=1 {why}", "Search 2 knobs"]
    progress.on_phase("proof")
    assert shown.getvalue().count(why) == 2


def test_such_values_are_told_though_nothing_follows(shown):
    with ConsoleProgress(Console(file=shown, width=100)) as progress:
        progress.on_screened(Screened("compile", "default", ScreenedAs.UNRESOLVED, why="no time"))
    assert shown.getvalue().split() == ["compile=default", "no", "time"]


def test_one_that_failed_says_why_and_cannot_command_the_terminal(progress, shown):
    why = "RuntimeError: \x1b[31m"
    progress.on_screened(Screened("fused", True, ScreenedAs.FAILED, why=why))
    assert " ".join(shown.getvalue().split()) == "fused=True RuntimeError: ?[31m"


def test_a_rehearsal_shows_each_shortened_life(progress, shown):
    progress.on_phase("rehearsal", "shortened lives, to their ends")
    for name in ("unchanged script", "best"):
        progress.on_life_start(name)
    progress.on_life_end("unchanged script", 12.3)
    progress.on_life_end("best", 9.0, "it ended with status 1: \x1b[31m")
    title, plain, best = shown.getvalue().splitlines()
    assert title == "Rehearsal  shortened lives, to their ends"
    assert plain.split() == ["unchanged", "script,", "shortened", "12", "s"]
    assert best.split(maxsplit=2)[2] == "it ended with status 1: ?[31m"


def test_on_a_pipe_there_are_lines_only(progress, shown):
    with progress:
        progress.on_phase("search", "2 knobs")
        progress.on_trial_start(1, {"tf32": True}, "search")
        progress.on_event(1, {"event": "warm"})
        progress.on_time_left(60.0)
        progress.on_message("a sentence")
    assert shown.getvalue() == "Search  2 knobs\n  a sentence\n"


def test_on_a_terminal_there_is_a_status_line():
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120, highlight=False)
    with ConsoleProgress(console) as progress:
        progress.on_best(STANDING, 1.5)
        progress.on_trial_start(1, {**STANDING, "bf16": True}, "search")
        progress.on_event(1, {"event": "compiled"})
        progress.on_time_left(61.0)
        progress.on_life_start("best")
        assert "best (shortened, to its end)" in str(progress._status.status)
        progress.on_life_end("best", 3.0)
        assert str(progress._status.status) == (
            "+ bf16=True (compiling) - at most 1:00 left - best so far 1.50x"
        )
        progress.on_time_left(0.0)
        progress.on_event(1, {"event": "compiled"})
        assert str(progress._status.status) == (
            "+ bf16=True (compiling) - past the budget - best so far 1.50x"
        )


@pytest.mark.parametrize(
    ("objective", "figure"), [(Objective.MEMORY, "1.00 GiB"), (Objective.ENERGY, "not measured")]
)
def test_what_is_to_be_improved_is_shown(shown, objective, figure):
    progress = ConsoleProgress(Console(file=shown, width=100, highlight=False), objective)
    progress.on_trial_end(ended(1, {"tf32": True}))
    assert f"10.0 ms  {figure:>10}" in shown.getvalue()


@pytest.mark.parametrize(("held", "words"), [((32, 32), ""), ((32, 90), "610 samples/s")])
def test_steps_of_other_sizes_are_told_by_their_samples(progress, shown, held, words):
    """Episodes get longer as they are learnt: a step's time says nothing then."""
    windows = tuple(StepWindow(10, 1.0, 10.0 * samples, 0.0) for samples in held)
    trial = replace(ended(1, {}), measurement=measurement([10.0], windows=windows))
    progress.on_trial_end(trial)
    assert ("samples/s" in shown.getvalue()) is bool(words)
    assert words in shown.getvalue()


# -- what is told first ------------------------------------------------------------------------


def window(steps=4, seconds=0.5, pid=7, **changes):
    known = {"loader_samples": 32 * steps, "root_samples": 0, "data_wait_s": 0.15 * seconds}
    return {"event": "window", "pid": pid, "steps": steps, "seconds": seconds, **known, **changes}


def told(*events):
    """The sentences of each event in turn."""
    look = FirstLook()
    return [look.take(event) for event in events]


def test_it_is_told_once_after_a_second_of_steps():
    first, second, third = told(window(), window(), window())
    assert (first, third) == (None, None)
    assert second == (
        "first look: 125 ms a step, 256 samples/s, 15.0 % of it waiting for the DataLoader; "
        "not settled yet"
    )


def test_few_slow_steps_are_not_enough():
    assert told(window(steps=2, seconds=3.0)) == [None]


def test_a_script_without_a_loader_has_its_samples_from_the_model():
    alone = window(8, 1.0, loader_samples=0, root_samples=64, data_wait_s=0.0)
    assert told(alone) == ["first look: 125 ms a step, 64.0 samples/s; not settled yet"]


def test_what_did_not_count_after_all_is_left_out():
    dropped = {"event": "dropped", "pid": 7, "windows": 1}
    assert told(window(seconds=0.9), dropped, window(), window())[-2:] == [
        None,
        "first look: 125 ms a step, 256 samples/s, 15.0 % of it waiting for the DataLoader; "
        "not settled yet",
    ]
    better = {"event": "step", "pid": 7, "marker": "optimizer"}
    assert told(window(seconds=0.9), better, window()) == [None, None, None]


def test_steps_of_other_processes_are_not_added():
    assert told(window(), window(pid=8)) == [None, None]


def loading(wait, workers=4):
    windows = (StepWindow(10, 1.0, 320.0, wait),)
    facts = ScriptFacts(loaders=(LoaderFacts(32, workers, False, False, 2),))
    return measurement([100.0], windows=windows, facts=facts)


@pytest.mark.parametrize(
    ("wait", "words"),
    [
        (0.15, "15.0 % of that is waiting for the DataLoader (4 workers): without it a step would "
         "be 1.18x as fast, if all else takes as long as now"),
        (0.0, "none of that is waiting for the DataLoader (4 workers)"),
        (0.5, "a step would be 2.00x as fast, if all"),
        (0.99, "loading decides its speed"),
        (1.2, "loading decides its speed"),
    ],
)  # fmt: skip
def test_the_bound_is_what_is_left_without_waiting(wait, words):
    assert words in loader_bound(loading(wait))


def test_what_the_gpu_does_meanwhile_is_told_apart():
    run = loading(0.5)
    run = replace(run, facts=replace(run.facts, idle_while_waiting=0.4))
    assert loader_bound(run) == (
        "50.0 % of that is waiting for the DataLoader (4 workers), while the GPU has nothing to do"
        " in 20.0 %: without it a step would be about 1.25x as fast, 2.00x at most, if all else"
        " takes as long as now"
    )


def test_without_a_loader_nothing_is_said_of_one():
    assert loader_bound(measurement([100.0])) is None


def test_a_study_shows_both_of_its_first_run_only():
    shown = io.StringIO()
    progress = ConsoleProgress(Console(file=shown, width=200, highlight=False))
    failed = Trial(0, {}, "baseline", TrialState.CRASHED, "it failed")
    for number in range(3):
        progress.on_trial_start(number, {}, "baseline")
        for _ in range(4):
            progress.on_event(number, window())
        run = replace(failed, number=number, measurement=loading(0.15), state=TrialState.COMPLETE)
        progress.on_trial_end(run if number else failed)
    lines = shown.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["first", "0", "first", "1", "15.0", "2"]

"""What is told of the unchanged script's first run, and when."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from gpuadvisor.domain.knobs import LoaderFacts, ScriptFacts
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.tui.progress import ConsoleProgress, FirstLook, loader_bound
from tests.simulation import measurement


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
         "be at most 1.18x as fast"),
        (0.0, "none of that is waiting for the DataLoader (4 workers)"),
        (0.5, "at most 2.00x as fast"),
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
        " in 20.0 %: without it a step would be about 1.25x as fast, 2.00x at most"
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

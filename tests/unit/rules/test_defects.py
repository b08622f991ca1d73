"""The generator of programs with one defect: `benchmarks/defects`."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from select import select

import pytest

from gpuadvisor.domain.finding import Span
from gpuadvisor.profiling.resolving import resolve_profile
from gpuadvisor.rules.calibration import Fit, read
from gpuadvisor.rules.registry import load_rules

FOLDER = Path(__file__).parents[3] / "benchmarks" / "defects"
TRACE = Path(__file__).parents[2] / "data" / "profiles" / "h100_small_cnn_train.json.gz"


@pytest.fixture(scope="module")
def pairs(made):
    return list(made("pairs").all_pairs())


def test_there_are_enough_of_each_kind(pairs, made):
    names = [each.name for each in pairs]
    assert len(set(names)) == len(names)
    healthy = sum(each.defect == "healthy" for each in pairs)
    assert healthy >= 30
    assert len(names) - healthy >= 200
    families = {each.family for each in pairs}
    assert families == {*made("catalogue").ALL}


def test_a_name_says_all_of_a_pair(pairs, made):
    again = [made("pairs").pair_named(each.name) for each in pairs]
    assert again == pairs
    assert [each.recipe(True) for each in again] == [each.recipe(True) for each in pairs]


def test_a_cure_changes_nothing_but_the_defect(pairs, made):
    defects = made("catalogue").DEFECTS
    for each in pairs:
        planted, cured = (asdict(each.recipe(form)) for form in (False, True))
        changed = {name for name in planted if planted[name] != cured[name]}
        if each.defect == "healthy":
            assert not changed
        else:
            defect = defects[each.defect]
            assert changed
            assert changed <= {*defect.bad, *defect.cured}, each.name


def test_the_rules_that_name_a_defect_are_rules(made):
    known = {rule.name for rule in load_rules()}
    for name, defect in made("catalogue").DEFECTS.items():
        assert set(defect.accepts) <= known, name


def test_the_part_of_a_pair_is_decided_by_its_seed_alone(pairs, made):
    part_of = made("pairs").part_of
    assert all(each.part == part_of(each.seed) for each in pairs)
    told = [part_of(seed) for seed in range(5)]
    assert told == ["held_out", "fit", "held_out", "fit", "fit"]  # for ever


def test_each_defect_has_three_in_five_pairs_to_fit_to(pairs, made):
    for name, defect in made("catalogue").DEFECTS.items():
        parts = [each.part for each in pairs if each.defect == name]
        if defect.every == 1:
            assert parts.count("fit") == 0.6 * len(parts)


@pytest.mark.slow
def test_a_programs_steps_are_those_of_its_recipe(pairs, made):
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    steps = made("programs").steps
    tried = {each.defect: each for each in pairs if each.defect not in ("healthy", "graph_breaks")}
    for each in tried.values():
        for cured in (False, True):
            recipe = each.recipe(cured)
            recipe = type(recipe)(**{**asdict(recipe), "workers": 0, "batch_ms": 0.0, "host_ms": 0})
            assert len(list(islice(steps(recipe, "cpu"), 2))) == 2, each.name
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_the_sizes_for_a_gpu_fit_together(pairs, made):
    import torch

    dtypes = made("programs").DTYPES
    for each in pairs:
        recipe = replace(each.recipe(False), sync="", pieces=1)
        if each.seed > 2 or not recipe.fused_recurrence:
            continue
        dtype = dtypes.get(recipe.precision, torch.float32)
        with torch.device("meta"):
            model = made("programs").Model(recipe, True).to(dtype)
            batch = torch.empty((model.samples, *model.shape), dtype=dtype)
        model(batch).square().mean().backward()


def row(pair="a-b-1", part="fit", low=10.0, high=50.0, gain=30.0, rule="sync_in_loop", **more):
    finding = {
        "rule": rule, "severity": "warning", "improvement_pct": {"low": low, "high": high},
    }  # fmt: skip
    return {
        "pair": pair, "part": part, "defect": "values_read", "accepts": ["sync_in_loop"],
        "gain_pct": {"value": gain, "low": gain - 1, "high": gain + 1},
        "device": {"gpu": "NVIDIA H200"}, "date": "2026-12-01T10:00:00+00:00",
        "diagnosis": {"findings": [finding]},
    } | more  # fmt: skip


def recording(places=20, part="fit"):
    """Rows whose gains lie up to 19 points below the ranges, evenly."""
    return [
        row(f"{part}-x-{k}", part, low=40.0, gain=21.0 + k * 20 / places) for k in range(places)
    ]


@pytest.mark.parametrize(("count", "points"), [(8, None), (9, 5.0), (18, 5.0), (19, 0.0)])
def test_how_many_may_miss_depends_on_how_many_there_are(made, count, points):
    assert made("fit").fitted([5.0, *([0.0] * (count - 1))]) == points


def test_ranges_hold_as_much_as_they_say_of_what_was_never_seen(made):
    import numpy as np

    draw = np.random.default_rng(0)
    fitted = made("fit").fitted
    for count in (9, 15, 19, 30, 100):
        covered = []
        for _ in range(400):
            points = fitted(draw.gamma(2.0, 0.2, count).tolist())
            covered.append(float((draw.gamma(2.0, 0.2, 50) <= points).mean()))
        assert np.mean(covered) >= 0.9 - 3 * np.std(covered) / 20


def test_what_was_held_out_changes_no_fit(made):
    fit = made("fit")
    rows = recording() + recording(part="held_out")
    fits = fit.fits_of(fit.cases_of(rows))
    assert fits == {"sync_in_loop": Fit(18.0, 20)}
    for each in rows:
        if each["part"] == "held_out":
            each["gain_pct"]["value"] = 99.0
    cases = fit.cases_of(rows)
    assert fit.fits_of(cases) == fits
    tried = [each for each in cases if each.part == "held_out"]
    assert fit.held(tried, fits).inside == 0


def test_coverage_and_width_are_of_the_held_out_part(made):
    fit = made("fit")
    cases = fit.cases_of(recording() + recording(10, "held_out"))
    table = fit.table(cases, fit.fits_of(cases))
    assert "| sync_in_loop | 20 | 0 of 10 (at least 0%) | 10 | 9 of 10 (at least 61%) | 46 |" in (
        table
    )


def test_profiles_whose_steps_were_timed_are_fitted_by_themselves(made):
    fit = made("fit")
    timed = [row(f"t-x-{k}", gain=50.0) for k in range(20)]
    for each in timed:
        each["diagnosis"]["unprofiled_step_ms"] = 2.0
    told = read(fit.written(recording() + timed))
    assert told.fits == {"sync_in_loop": Fit(18.0, 20)}
    assert told.timed == {"sync_in_loop": Fit(0.0, 20)}


def test_a_pair_has_a_line_of_each_kind(made, tmp_path):
    timed = row(gain=50.0)
    timed["diagnosis"] = {**timed["diagnosis"], "unprofiled_step_ms": 2.0}
    results = tmp_path / "results.jsonl"
    results.write_text("".join(json.dumps(each) + "\n" for each in (row(), timed, row(gain=31.0))))
    told = made("fit").read([results])
    assert [each["gain_pct"]["value"] for each in told] == [31.0, 50.0]


def test_a_fit_whose_ranges_would_say_nothing_is_none(made):
    fit = made("fit")
    scattered = [row(f"s-x-{k}", gain=98.0 if k % 2 else 0.0) for k in range(20)]
    assert fit.fits_of(fit.cases_of(scattered)) == {}


def test_each_pair_left_out_in_turn_is_judged_by_the_others(made):
    fit = made("fit")
    cases = fit.cases_of(recording(30))
    told = fit.left_out(cases)
    assert (told.inside, told.count) == (27, 30)  # nine tenths


def test_a_rule_with_too_few_pairs_is_not_calibrated(made):
    fit = made("fit")
    cases = fit.cases_of(recording(8) + recording(4, "held_out"))
    assert "| sync_in_loop | too few | 0 of 4 (at least 0%) | 10 | not calibrated | |" in (
        fit.table(cases, fit.fits_of(cases))
    )


def test_what_is_written_is_what_the_product_reads(made):
    fit = made("fit")
    rows = recording() + recording(10, "held_out")
    told = read(fit.written(rows))
    assert (told.gpu, told.date, told.coverage) == ("NVIDIA H200", "2026-12-01", 0.9)
    assert told.fits == {"sync_in_loop": Fit(18.0, 20)}


@pytest.mark.parametrize(
    ("gpus", "why"), [(("",), "on a CPU"), (("NVIDIA H200", "NVIDIA T4"), "one GPU at a time")]
)
def test_nothing_is_fitted_to_cpus_or_to_several_gpus(made, gpus, why):
    rows = [row(device={"gpu": gpu}) for gpu in gpus]
    with pytest.raises(SystemExit, match=why):
        made("fit").written(rows)


def test_ranges_are_those_before_the_last_calibration(made):
    finding = {
        "rule": "sync_in_loop", "severity": "notice", "improvement_pct": {"low": 20, "high": 30},
        "uncalibrated_pct": {"low": 10, "high": 50},
    }  # fmt: skip
    (case,) = made("fit").cases_of([row(diagnosis={"findings": [finding]})])
    assert case.given == Span(10, 50)


def test_scores_tell_what_was_found_first_and_on_healthy_programs(made):
    healthy = {"defect": "healthy", "accepts": [], "gain_pct": None}
    rows = [
        row("right"),
        row("wrong", rule="launch_bound"),
        row("cheap", gain=2.0, rule="launch_bound"),
        row("unnamed", accepts=[]),
        row("calm", **healthy, diagnosis={"findings": []}),
        row("loud", **healthy),
    ]
    told = made("fit").scores(rows)
    assert "first finding right: 1 of 2 programs" in told
    assert "(1 more that none names, 1 that cost less)" in told
    assert "nothing above a notice: 1 of 2" in told
    assert "wrong: launch_bound; right is ['sync_in_loop']" in told
    assert "loud: sync_in_loop" in told


def test_a_larger_defect_than_the_planted_one_is_told(made):
    """A step of 10 ms with the defect and 8 ms without: is the GPU idle for longer than 2 ms?"""
    told = []
    for busy_ms in (4.0, 7.0, None):
        wrong = row("wrong", rule="launch_bound")
        wrong["gain_pct"] |= {"planted_ms": 10.0, "cured_ms": 8.0, "cured_busy_ms": busy_ms}
        told.append("which costs 20 %, the GPU is idle for 40 %" in made("fit").scores([wrong]))
    assert told == [True, False, False]


def test_the_last_line_of_a_pair_counts_and_failures_do_not(made, tmp_path):
    lines = [row("a", gain=1.0), row("b"), row("a", gain=2.0), {"pair": "c", "error": "no"}]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    found = made("fit").read([tmp_path / "results.jsonl"])
    assert [(each["pair"], each["gain_pct"]["value"]) for each in found] == [
        ("a", 2.0),
        ("b", 30.0),
    ]


def test_a_gain_has_the_interval_of_its_rounds(made):
    gain = made("timing").Gain.of([10.0, 10.0, 10.0], [8.0, 8.0, 8.0])
    assert (gain.value, gain.low, gain.high) == pytest.approx((20, 20, 20))
    assert gain.is_precise
    wide = made("timing").Gain.of([10.0, 12.0, 11.0], [8.0, 9.0, 10.0])
    assert wide.low < wide.value < wide.high
    assert not wide.is_precise


FORM = """
import json, os, sys
def say(it): print(json.dumps(it), flush=True)
def lives(pid):
    try: os.kill(pid, 0)
    except ProcessLookupError: return False
    return True
path, cured = sys.argv[1], "--cured" in sys.argv
if not cured:
    with open(path, "w") as file: file.write(str(os.getpid()))
say("ready")
input()
beside = cured and lives(int(open(path).read()))
say({"beside": beside})
for line in sys.stdin: say(5.0 if line == "busy\\n" else 8.0 if cured else 10.0)
"""


@pytest.mark.parametrize("alone", [False, True])
def test_what_is_slower_beside_another_process_is_timed_alone(made, tmp_path, alone):
    script = tmp_path / "form.py"
    script.write_text(FORM)
    timing = made("timing")
    gain, ran_on, seconds = timing.in_turns(
        [str(script), str(tmp_path / "pid")], lambda: nullcontext(0.0), alone=alone
    )
    assert ran_on["beside"] is not alone
    assert gain.value == pytest.approx(20.0)
    assert gain.cured_busy_ms == 5.0
    assert gain.rounds == (timing.MOST_ROUNDS if alone else timing.FEWEST_ROUNDS)
    assert set(seconds) == {"started", "waited", "warmed", "rounds"}
    assert not timing.living


def test_recording_goes_on_after_the_last_whole_line(made, tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text('{"pair": "a"}\n{"pair": "b", "err')
    results = made("record").Results(path)
    assert [each["pair"] for each in results.rows] == ["a"]
    results.add({"pair": "b"})
    assert [each["pair"] for each in made("record").Results(path).rows] == ["a", "b"]


TAKES_A_TURN = """
from turns import take_turn
print("ready", flush=True)
held = take_turn()
print("mine", flush=True)
input()
"""


def test_one_program_at_a_time_uses_the_gpu(made, tmp_path):
    environment = os.environ | {"DEFECTS_TOKEN": str(tmp_path / "token")}
    with made("turns").Gpu(tmp_path / "token") as gpu, gpu.turn():
        other = subprocess.Popen(
            [sys.executable, "-c", TAKES_A_TURN], cwd=FOLDER, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert other.stdout.readline() == "ready\n"
        assert not select([other.stdout], [], [], 0.2)[0]
    assert other.stdout.readline() == "mine\n"
    with made("turns").Gpu(tmp_path / "token") as gpu:
        told = threading.Event()

        def end():
            told.set()
            other.communicate()

        timer = threading.Timer(0.2, end)
        timer.start()
        with gpu.turn():  # which the other had until it ended
            assert told.is_set()
        timer.join()


@pytest.mark.slow
def test_a_recording_that_is_killed_goes_on(made, tmp_path):
    """The whole way on a CPU: timed, diagnosed by the real program, killed, and gone on with."""
    path = tmp_path / "results.jsonl"
    words = [
        sys.executable, str(FOLDER / "record.py"), str(path), "--device", "cpu", "--lanes", "1",
        "--rounds", "1", "--only", "slow_python|convolution-healthy",
        "--home", str(tmp_path / "home"),
    ]  # fmt: skip
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        line = first.stdout.readline()
        time.sleep(1.0)
        os.kill(first.pid, signal.SIGKILL)
    assert "slow_python" in line
    before = path.read_bytes()
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert path.read_bytes().startswith(before)
    rows = made("fit").read([path])
    assert sorted(each["defect"] for each in rows) == ["healthy", "slow_python"], done
    (planted,) = (each for each in rows if each["defect"] == "slow_python")
    assert planted["gain_pct"]["rounds"] >= 5
    assert planted["diagnosis"]["account"] is not None
    assert {"gpuadvisor", "commit", "driver", "date", "device"} <= planted.keys()
    again = tmp_path / "again.jsonl"
    words = [str(FOLDER / "rediagnose.py"), str(path), str(again), str(tmp_path / "home")]
    subprocess.run([sys.executable, *words], check=True)
    told = made("fit").read([again])
    gains = ({each["pair"]: each["gain_pct"] for each in some} for some in (told, rows))
    assert next(gains) == next(gains)


@pytest.mark.parametrize(
    ("value", "less", "more"),
    [
        (4, 3, 5),
        (1, 0, 2),
        (0.4, 0.3, 0.5),
        (0.9, 0.675, 1.0),
        (1.2, 1.15, 1.25),
        (8.0, 6.0, 10.0),
        ((4, "x"), (3, "x"), (5, "x")),
        (True, True, True),
        ("word", "word", "word"),
    ],
)
def test_constants_are_a_quarter_smaller_and_larger(made, value, less, more):
    varied = made("constants").varied
    assert varied(value, -0.25) == pytest.approx(less)
    assert varied(value, 0.25) == pytest.approx(more)


def test_a_constant_is_another_one_for_all_who_read_it_and_then_the_same_again(made):
    constants = made("constants")
    own = {each.label: each for each in constants.constants()}
    asked = constants.Asked(resolve_profile(str(TRACE)), load_rules())
    first, ranges = asked.usual
    assert first != "nothing" and ranges
    for label in (
        "paces.MARGIN",
        "facts.idle_causes.PAUSE_NS",
        "catalogue.unfused_elementwise.LEAST_SHARE",
    ):
        assert asked.reaches(own[label])
        assert asked.with_another(own[label], own[label].value) == (False, 0.0)
    severities = own["engine.SEVERITIES"]
    high = tuple((100 * least, each) for least, each in severities.value)
    assert asked.with_another(severities, high) == (True, max(high for _, high in ranges.values()))
    margin = own["paces.MARGIN"]
    assert "gpuadvisor.rules.catalogue.allocator_churn" in margin.readers
    assert asked.with_another(margin, 2 * margin.value)[1] > 1
    assert asked.with_another(margin, margin.value) == (False, 0.0)


def test_what_is_fresh_is_judged_and_never_fitted_to(made, tmp_path, monkeypatch, capsys):
    files = {}
    for name, rows in (("seen", recording()), ("fresh", recording(10, "fit"))):
        files[name] = tmp_path / f"{name}.jsonl"
        rows = [{**each, "pair": f"{name}-{each['pair']}"} for each in rows]
        files[name].write_text("".join(json.dumps(each) + "\n" for each in rows))
    words = ["fit.py", "--seen", str(files["seen"]), "--fresh", str(files["fresh"])]
    monkeypatch.setattr("sys.argv", words)
    made("fit").main()
    assert "| sync_in_loop | 20 | 0 of 10 (at least 0%) | 10 | 9 of 10" in capsys.readouterr().out

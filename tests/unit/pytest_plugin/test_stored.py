"""Benchmarks beside recordings of other days."""

import random
import sys
from datetime import UTC, datetime, timedelta

import pytest
from scipy import special

from gpuadvisor.collectors.environment import environment
from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.baseline import RecordedRun, Recording
from gpuadvisor.domain.gate import GateVerdict
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.errors import RefusedError
from gpuadvisor.pytest_plugin import fresh_processes, stored
from gpuadvisor.pytest_plugin.comparing import Compared, SideRun
from gpuadvisor.storage.gate import add_to_baselines, read_baselines
from gpuadvisor.tuners.proof import MAX_REPEATED
from gpuadvisor.tuning.gate.options import GateOptions
from gpuadvisor.tuning.gate.stored import key_of
from gpuadvisor.tuning.preparation import devices_for
from tests.unit.pytest_plugin.test_plugin import alone  # noqa: F401 - a fixture

pytest_plugins = ["pytester"]
LOADED = special
"""What is loaded only within a run of pytest's own tester is forgotten with it: numpy breaks so."""
MONDAY = datetime(2026, 11, 23, 3, tzinfo=UTC)
PYTHON = TargetPython(sys.executable, "3.12.3", torch="2.9.0")


def run(time_s, clock_mhz=None):
    return RecordedRun((StepWindow(1, time_s),), None, 0, 0.0, clock_mhz)


def recorded(days, test="test", key=None, clock_mhz=None):
    """Return a recording a day, of one run with each of its times."""
    return [
        Recording(
            test,
            MONDAY + timedelta(days=number),
            key or {},
            tuple(run(time_s, clock_mhz) for time_s in times_s),
        )
        for number, times_s in enumerate(days)
    ]


def compared(days, now, beside=0, clock_mhz=None):
    found = Compared("gate.jsonl", stored=True)
    every = {"test": recorded(days, clock_mhz=1980.0)}
    every |= {f"other {number}": recorded(days) for number in range(beside)}
    stored.compare_days(every, {"test": [run(time_s, clock_mhz) for time_s in now]}, found)
    return found


WEEK = [[1.000], [1.005], [0.995], [1.010], [0.990]]


@pytest.mark.parametrize(
    ("now_s", "verdict"), [(1.0, "pass"), (0.5, "pass"), (1.1, "fail"), (1.02, "inconclusive")]
)
def test_a_new_day_has_a_verdict_and_its_figures_in_seconds(now_s, verdict):
    found = compared(WEEK, [now_s])
    difference, days = found.differences["test"]
    assert (str(difference.verdict), days) == (verdict, 5)
    document = found.document("test")
    assert document["runs"] == pytest.approx((now_s,))
    assert document["recorded"] == pytest.approx([time_s for (time_s,) in WEEK])
    sentence = found.regression("test")
    assert (sentence is None) == (verdict != "fail")
    assert sentence is None or (
        "than in gate.jsonl (" in sentence and "5 recorded days" in sentence
    )


def test_all_benchmarks_share_the_error_of_one_check():
    verdicts = [
        str(compared(WEEK, [1.05], beside).differences["test"][0].verdict) for beside in (0, 100)
    ]
    assert verdicts == ["fail", "inconclusive"]


def test_sessions_of_unchanged_benchmarks_fail_in_fewer_than_one_of_a_hundred():
    """Days differ by 2 %; what is more than 1 % above their mean would fail in most sessions."""
    generator = random.Random(5)
    wrong = naive = 0
    for _ in range(150):
        found = Compared("gate.jsonl", stored=True)
        of_tests = {
            f"test {number}": [[1 + generator.gauss(0, 0.02)] for _ in range(6)]
            for number in range(8)
        }
        days = {test: recorded(times[:5]) for test, times in of_tests.items()}
        stored.compare_days(days, {test: [run(t[5][0])] for test, t in of_tests.items()}, found)
        wrong += any(d.verdict is GateVerdict.FAIL for d, _ in found.differences.values())
        naive += any(d.ratio > 1.01 for d, _ in found.differences.values())
    assert wrong <= 1 and naive > 75


def test_what_ran_at_other_clocks_is_not_compared():
    assert "test" in compared(WEEK, [2.0], clock_mhz=1950.0).differences
    found = compared(WEEK, [2.0], clock_mhz=1500.0)
    assert not found.differences and "SM clock was 1500 MHz" in found.notes["test"]


class Processes:
    """Processes of pytest, of which some fail or are disturbed, by their numbers."""

    def __init__(self, fail=(), disturbed=(), what="others used the CPU"):
        self.fail, self.disturbed, self.what = fail, disturbed, what
        self.asked = []

    def __call__(self, tests):
        self.asked.append(list(tests))
        number = len(self.asked)
        times = {t: float(number) for t in tests if not (t == "b" and number in self.fail)}
        disturbance = self.what if number in self.disturbed else ""
        return SideRun(times, "it raised", disturbance, clocks_mhz={"a": 1980.0})

    def runs(self):
        return stored.runs_of(self, ["a", "b"], 3, lambda sentence: None)


def test_a_process_that_fills_caches_comes_before_those_that_count():
    made = Processes()
    found, failed = made.runs()
    assert len(made.asked) == 1 + 3 and not failed
    assert [each.windows[0].seconds for each in found["a"]] == [2.0, 3.0, 4.0]
    assert {each.sm_clock_mhz for each in found["a"]} == {1980.0}


def test_what_fails_once_is_run_again_and_what_fails_twice_is_not_kept():
    once = Processes(fail=[3])
    found, failed = once.runs()
    assert {test: len(runs) for test, runs in found.items()} == {"a": 3, "b": 3} and not failed
    assert once.asked[-1] == ["b"]
    found, failed = Processes(fail=[3, 4]).runs()
    assert list(found) == ["a"] and failed == {"b": "it fails now and then (it raised)"}
    found, failed = Processes(fail=[1]).runs()
    assert list(found) == ["a"] and failed == {"b": "it gave no time (it raised)"}


def test_disturbed_processes_are_run_again_unless_all_are():
    made = Processes(disturbed=[2, 3])
    found, _ = made.runs()
    assert [each.windows[0].seconds for each in found["a"]] == [4.0, 5.0, 6.0]
    always = Processes(disturbed=range(99))
    found, _ = always.runs()
    assert len(found["a"]) == 3 and len(always.asked) == 1 + MAX_REPEATED + 3
    with pytest.raises(RefusedError, match="wait until the GPU is free"):
        Processes(disturbed=range(99), what="another process used the GPU (7)").runs()


TESTS = """
def test_slow(gpu_benchmark): gpu_benchmark(int)
def test_fast(gpu_benchmark): gpu_benchmark(int)
def test_new(gpu_benchmark): gpu_benchmark(int)
def test_plain(): pass
"""
WORDS = ("-p", "gpuadvisor.pytest_plugin", "--gpu-benchmark-max-time=0", "-p", "no:cacheprovider")


@pytest.fixture
def pytest_with(pytester, monkeypatch):
    """A function that runs pytest with options and a store."""
    monkeypatch.setattr(fresh_processes, "inspect_python", lambda python: PYTHON)
    monkeypatch.setattr(fresh_processes, "reserved", lambda devices, checked: checked)
    monkeypatch.setattr(stored, "MAX_REPEATED", 0)  # other tests run beside this one
    pytester.makepyfile(test_it=TESTS)

    def run(*options):
        return pytester.runpytest_inprocess(*WORDS, "--gpu-benchmark-store=gate.jsonl", *options)

    return run


def here(measured_s=0.0):
    command = Command(sys.executable, "pytest", is_module=True)
    now = environment(PYTHON, devices_for(PYTHON, 1)[0], "test_it.py")
    return key_of(now, GateOptions(command, measure_s=measured_s))


def keep(pytester, test, time_s, key):
    for each in recorded([[time_s]] * 5, f"test_it.py::{test}", key):
        add_to_baselines(pytester.path / "gate.jsonl", each)


def test_a_check_fails_what_is_slower_and_says_what_it_cannot_tell(pytest_with, pytester):
    keep(pytester, "test_slow", 1e-9, here())
    keep(pytester, "test_fast", 1e3, here())
    result = pytest_with("--gpu-benchmark-check")
    result.assert_outcomes(failed=1, passed=3)
    result.stdout.fnmatch_lines([
        "this benchmark takes * % longer than in the recordings of gate.jsonl (* recorded days)*",
        "*test_it.py::test_slow * 5 *fail",
        "*test_it.py::test_fast * 5 *pass",
        "*inconclusive: there is no recording of test_it.py::test_new in *-benchmark-record*",
    ])  # fmt: skip


def test_recordings_of_another_machine_are_refused_before_anything_runs(pytest_with, pytester):
    for test in ("test_slow", "test_fast", "test_new"):
        keep(pytester, test, 1.0, {**here(), "CPU": "another"})
    result = pytest_with("--gpu-benchmark-check")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*-benchmark-check: the recordings of *CPU is *, and was another*"]
    )


def test_what_is_recorded_can_be_checked_on_other_days(pytest_with, pytester, monkeypatch):
    monkeypatch.setattr(stored, "RUNS", 1)
    result = pytest_with("--gpu-benchmark-record", "-k", "slow")
    result.stdout.fnmatch_lines(
        ["*recorded 1 of 1 benchmarks in gate.jsonl, in 1 processes: 1 day*"]
    )
    (only,) = read_baselines(pytester.path / "gate.jsonl").recordings
    assert (only.name, dict(only.key)) == ("test_it.py::test_slow", here())
    assert 0 < only.runs[0].measurement.mean_step_ms < 1e3 and only.runs[0].peak_memory_bytes == 0


def test_a_damaged_store_is_said_with_our_own_options(pytest_with, pytester):
    (pytester.path / "gate.jsonl").write_text("nonsense\n")
    result = pytest_with("--gpu-benchmark-check")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*gate.jsonl, line 1 *another file with --gpu-benchmark-store"])

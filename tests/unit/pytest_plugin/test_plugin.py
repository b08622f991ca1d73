"""The plugin in pytest itself: options, marker, tables, JSON, and what it costs others."""

import gc
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpuadvisor import pytest_plugin
from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.gate import GateSide
from gpuadvisor.pytest_plugin import document, fixture, tables, timing
from gpuadvisor.pytest_plugin.fresh_processes import Side
from gpuadvisor.tuning.gate.sides import ReadySide

pytest_plugins = ["pytester"]
LOADED = (document, fixture, tables, timing)
"""What is loaded only within a run of pytest's own tester is forgotten with it: torch breaks so."""
PLUGIN = ("-p", "gpuadvisor.pytest_plugin", "--gpu-benchmark-max-time=0")
STATS = {
    "min", "max", "mean", "stddev", "rounds", "median", "iqr", "q1", "q3", "iqr_outliers",
    "stddev_outliers", "outliers", "ld15iqr", "hd15iqr", "ops", "total", "data", "iterations",
}  # fmt: skip
"""What pytest-benchmark 5.3 writes of a benchmark."""


@pytest.fixture(autouse=True)
def alone(monkeypatch, pytester):
    """No other plugin, no settings of folders above, and none of what earlier tests left."""
    gc.freeze()  # each benchmark collects garbage first: half a second, after a thousand tests
    pytester.makeini("[pytest]")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)


@pytest.fixture
def no_warm_up(monkeypatch):
    monkeypatch.setattr(timing, "WARMUP_S", 0.0)


@pytest.fixture
def run(pytester, no_warm_up):
    """A function that runs pytest on a file of tests."""

    def with_arguments(text, *arguments):
        pytester.makepyfile(test_it=text)
        return pytester.runpytest_inprocess(*PLUGIN, *arguments)

    return with_arguments


SUMS = """
import pytest

@pytest.mark.gpu_benchmark(group="sums")
@pytest.mark.parametrize("n", [10, 20000])
def test_sum(gpu_benchmark, n):
    gpu_benchmark.extra_info["n"] = n
    assert gpu_benchmark(sum, range(n), start=1) == sum(range(n)) + 1

def test_sort(gpu_benchmark):
    calls = []
    made = lambda: calls.append(1) or (([3, 1],), {})
    assert gpu_benchmark.pedantic(sorted, setup=made, rounds=4, warmup_rounds=2) == [1, 3]
    assert len(calls) == 4 + 2 + 1
"""


def test_tables_and_json(run, pytester):
    result = run(SUMS, "--gpu-benchmark-json=out/found.json")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines([
        "*gpu-benchmark: 1 test -*",
        "Name (time in *s)*Min*Median*IQR*Rounds*Iterations*Clock",
        "test_sort * 4 * 1 *CPU",
        "*gpu-benchmark 'sums': 2 tests*",
        "test_sum?10? *(1.0)*",
        "test_sum?20000? *(*)*",
    ])  # fmt: skip
    written = json.loads((pytester.path / "out" / "found.json").read_text())
    assert written.keys() == {"machine_info", "commit_info", "benchmarks", "datetime", "version"}
    small, large, plain = written["benchmarks"]
    assert small["stats"].keys() == STATS
    assert (small["group"], small["param"], small["params"]) == ("sums", "10", {"n": 10})
    assert (plain["group"], plain["param"], plain["fullname"]) == (
        None,
        None,
        "test_it.py::test_sort",
    )
    assert large["extra_info"] == {"n": 20000} and large["options"]["timer"] == "perf_counter"
    for stats in (small["stats"], large["stats"], plain["stats"]):
        assert stats["min"] <= stats["q1"] <= stats["median"] <= stats["q3"] <= stats["max"]
        assert stats["rounds"] == len(stats["data"])


def test_pytest_benchmark_reads_it(run, pytester):
    storage = pytest.importorskip("pytest_benchmark.storage.file")
    run(SUMS, "--gpu-benchmark-json=0001_x.json")
    read = list(storage.FileStorage(pytester.path, None).load_benchmarks("0001_x.json"))
    assert [each["name"] for each in read] == ["test_sum[10]", "test_sum[20000]", "test_sort"]
    assert all(each["median"] > 0 for each in read)


def shown(result):
    """Return the tables of a run: the title of each, and the first words of its lines."""
    tables = {}
    for line in result.outlines:
        if "gpu-benchmark" in line and "test" in line:
            tables[line.strip("- ")] = rows = []
        elif tables and line.startswith("test_"):
            rows.append(line.split()[0])
    return tables


LAYOUTS = [
    (["--gpu-benchmark-sort=name"], ["test_sum[10]", "test_sum[20000]"], "Min Median IQR Rounds"),
    (["--gpu-benchmark-sort=ops"], ["test_sum[20000]", "test_sum[10]"], "Min Median IQR Rounds"),
    (["--gpu-benchmark-columns=OPS, max"], ["test_sum[10]", "test_sum[20000]"], "OPS Max Clock"),
]


@pytest.mark.parametrize(("words", "order", "columns"), LAYOUTS)
def test_tables_are_laid_out_as_asked(words, order, columns, run):
    result = run(SUMS, *words)
    assert shown(result)["gpu-benchmark 'sums': 2 tests"] == order
    assert any(columns in " ".join(line.split()) for line in result.outlines)


@pytest.mark.parametrize(
    ("by", "titles"),
    [
        ("func", ["'test_sort': 1 test", "'test_sum': 2 tests"]),
        ("param:n", [": 1 test", "'n=10': 1 test", "'n=20000': 1 test"]),
        ("group,param", [": 1 test", "'sums 10': 1 test", "'sums 20000': 1 test"]),
    ],
)
def test_tables_hold_what_has_something_in_common(by, titles, run):
    found = shown(run(SUMS, f"--gpu-benchmark-group-by={by}"))
    expected = [f"gpu-benchmark{'' if each[0] == ':' else ' '}{each}" for each in titles]
    assert list(found) == expected


HABITS = """
def test_habits(gpu_benchmark):
    gpu_benchmark.group = "mine"
    calls = []
    assert gpu_benchmark.pedantic(
        calls.append, setup=lambda: ((1,), {}), teardown=lambda n: calls.append(-n), rounds=3
    ) is None
    if gpu_benchmark.enabled:
        assert calls == [1, -1] * 4 and gpu_benchmark.stats["rounds"] == 3
    else:
        assert calls == [1, -1] and gpu_benchmark.stats is None

def test_called(gpu_benchmark):
    calls = []
    gpu_benchmark(calls.append, 1)
    assert gpu_benchmark.disabled == (len(calls) == 1)

def test_plain(): pass
"""


@pytest.mark.parametrize(
    ("words", "outcomes", "tables"),
    [
        ([], {"passed": 3}, 2),
        (["--gpu-benchmark-disable"], {"passed": 3}, 0),
        (["--gpu-benchmark-skip"], {"passed": 1, "skipped": 2}, 0),
        (["--gpu-benchmark-only"], {"passed": 2, "skipped": 1}, 2),
    ],
)
def test_benchmarks_are_left_out_as_asked(words, outcomes, tables, run):
    result = run(HABITS, *words)
    result.assert_outcomes(**outcomes)
    assert len(shown(result)) == tables


ONE = "def test_one(gpu_benchmark): gpu_benchmark(int)"


@pytest.mark.parametrize(
    ("mode", "outcome"), [("cpu", "passed"), ("skip", "skipped"), ("fail", "errors")]
)
def test_without_a_gpu(mode, outcome, run, pytester, monkeypatch):
    monkeypatch.setattr(fixture, "has_gpu", lambda: False)
    run(ONE, f"--gpu-benchmark-no-gpu={mode}").assert_outcomes(**{outcome: 1})
    pytester.makeini(f"[pytest]\ngpu_benchmark_no_gpu = {mode}")
    run(ONE).assert_outcomes(**{outcome: 1})


def test_beside_other_workers_it_is_refused(run, pytester):
    pytester.makeconftest("def pytest_configure(config): config.workerinput = {}")
    result = run(ONE + "\ndef test_other(): pass")
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["*does not run under pytest-xdist*with -n0 or *"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (ONE + "; gpu_benchmark(int)", "*times one function a test*"),
        (f"import pytest\n@pytest.mark.gpu_benchmark(rounds=1)\n{ONE}", "*does not know rounds*"),
        (f"import pytest\n@pytest.mark.gpu_benchmark('x')\n{ONE}", "*without a name*"),
    ],
)
def test_what_is_wrong_is_said(text, sentence, run):
    result = run(text)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([sentence])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--gpu-benchmark-min-rounds=0"], "*has to be 1 or more*"),
        (["--gpu-benchmark-max-time=nan"], "*has to be 0 or more*"),
        (["-o", "gpu_benchmark_no_gpu=maybe"], "*'maybe'*cpu, skip, fail*"),
        (["--gpuadvisor-base=main", "-p", "numbers_of_processes"], "*--gpuadvisor-base*-n0*"),
        (["--gpu-benchmark-record", "-p", "numbers_of_processes"], "*-benchmark-record*-n0*"),
        (["--gpu-benchmark-check", "--gpu-benchmark-record"], "*-record*with --*-check*"),
        (["--gpuadvisor-base=main", "--gpu-benchmark-disable"], "*-base*with --*-disable*"),
        (["--gpu-benchmark-json=."], "*-json: . cannot be written*"),
        (["--gpuadvisor-link=data"], "*-link cannot be had without --gpuadvisor-base*"),
        (["--gpu-benchmark-columns=min,best"], "*there is no column best, but min, *"),
        (["--gpu-benchmark-group-by=file"], "*nothing is grouped by file, but by group, *"),
        (["--gpu-benchmark-sort=best"], "*invalid choice: 'best'*"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(words, sentence, run, pytester):
    pytester.makepyfile(
        numbers_of_processes="def pytest_addoption(parser):\n"
        "    parser.addoption('--numprocesses', type=int, default=2)"
    )
    pytester.syspathinsert()
    result = run(ONE, *words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([sentence])


def test_a_regression_fails_the_test_with_the_sentence(run, pytester):
    """Shown by pairs (test_comparing.py); here the result is there already."""
    pytester.makeconftest("""
        import pytest
        from gpuadvisor.domain.gate import Difference, GateVerdict
        from gpuadvisor.pytest_plugin import session_of
        from gpuadvisor.pytest_plugin.comparing import Compared
        slower = Difference("step_time", GateVerdict.FAIL, 1.09, 1.05, 1.13, 1.09, 0.01, 0.03)
        def pytest_runtestloop(session):
            found = Compared("main", {"test_it.py::test_one": (slower, 4)})
            session_of(session.config).compared = found
    """)
    result = run(ONE + "\ndef test_two(gpu_benchmark): gpu_benchmark(int)")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines([
        "this benchmark takes 9.0 % longer than in main (+5.0 to +13.0 % in 4 pairs of *)*",
        "test_it.py::test_one * +9.0 % * 4 *fail",
    ])  # fmt: skip


def test_a_side_runs_what_it_is_asked_for_and_tells_the_times(run, pytester):
    side = pytester.mkdir("side")
    (side / "tests.json").write_text('["test_it.py::test_one", "test_it.py::test_gone"]')
    result = run(
        ONE + "\ndef test_two(gpu_benchmark): gpu_benchmark(int)", f"--gpu-benchmark-side={side}"
    )
    result.assert_outcomes(passed=1, deselected=1)
    (line,) = (side / "times.jsonl").read_text().splitlines()
    assert json.loads(line)["test"] == "test_it.py::test_one" and json.loads(line)["time_s"] > 0


def test_a_sides_process_gets_the_users_options_and_its_own_files(pytester):
    """The names of tests are another matter: they are taken from the version itself."""
    pytester.makepyfile(test_it=ONE)
    (pytester.path / "tests").mkdir()
    given = ["test_it.py", "-k", "test_it.py", "--pdb", "-x", f"--confcutdir={pytester.path}/tests"]
    config = pytester.parseconfig(*PLUGIN, "--rootdir=.", *given)
    worktree = pytester.mkdir("worktree")
    (worktree / "test_it.py").write_text(ONE)
    command = Command("python", "pytest", is_module=True, folder=str(worktree))
    version = GateSide("main", "abc", (), str(worktree))
    ready = ReadySide(version, command, TargetPython("python", "3.12"), {})
    cpu, folder = Device("cpu", 0, "CPU"), pytester.path / "side"
    side = Side(config, ready, pytester.path, worktree, cpu, folder)
    line = side.line(["test_it.py::test_one", "test_it.py::test_two[1]", "test_new.py::test_new"])
    assert line[:3] == ["python", "-m", "pytest"] and line[-1] == str(worktree / "test_it.py")
    assert line.count("test_it.py") == 1 and line[line.index("test_it.py") - 1] == "-k"
    assert "--pdb" not in line and line.index("-x") < line.index("--maxfail=0")
    assert f"--confcutdir={worktree}/tests" in line and f"--rootdir={worktree}" in line
    assert side.line(["test_new.py::test_new"]) is None


OWN = """
import sys
from types import SimpleNamespace
from gpuadvisor.collectors.devices import list_gpus
from gpuadvisor.collectors.load import LoadMeter
from gpuadvisor.pytest_plugin.fresh_processes import on_gpu
gpu, = list_gpus()

def told(used):
    sys.modules["torch"] = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: used))
    ours, others = on_gpu(gpu)
    meter = LoadMeter(gpu, ours=ours)
    meter.begin(), meter.end()
    return [*ours], [each.pid for each in others], meter.disturbance()
"""


def test_pytest_itself_may_be_on_the_gpu_also_in_a_container(ask):
    environ = {"FAKE_NVML_MODELS": "h100", "FAKE_NVML_PIDS": "1"}
    used, unused = ask(OWN, "[told(True), told(False)]", **environ)
    assert used == [[1], [], ""]
    assert unused == [[], [1], "another process used the GPU (1)"]


LIGHT = """
import sys, pytest
import _pytest.pytester  # what pytest itself may load
before = set(sys.modules)
import gpuadvisor.pytest_plugin
print("own:", *sorted(set(sys.modules) - before))
status = pytest.main(["-q", "-p", "gpuadvisor.pytest_plugin", "test_plain.py"])
print("unused:", *(name for name in sys.modules if name.startswith("gpuadvisor")))
status |= pytest.main(["-q", "-p", "gpuadvisor.pytest_plugin", "--gpu-benchmark-max-time=0",
                       "test_it.py"])
print("used:", *sys.modules)
sys.exit(status)
"""


def test_it_loads_nothing_until_a_test_asks(pytester):
    pytester.makepyfile(test_plain="def test_plain(): pass", test_it=ONE)
    argv = [sys.executable, "-c", LIGHT]
    done = subprocess.run(argv, cwd=pytester.path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    own, unused, used = (
        set(line.split()[1:])
        for line in done.stdout.splitlines()
        if line.startswith(("own:", "unused:", "used:"))
    )
    assert own - {"__future__"} == {"gpuadvisor", "gpuadvisor.pytest_plugin"} == unused
    heavy = {
        "numpy",
        "optuna",
        "pandas",
        "psutil",
        "pynvml",
        "rich",
        "scipy",
        "sqlalchemy",
        "torch",
    }
    assert not heavy & used


@pytest.fixture
def options():
    """The names of all options, and of what the ini file may set, as options."""
    added = []

    class Parser:
        def getgroup(self, name, *_):
            return self

        def addoption(self, name, *_, **__):
            added.append(name)

        def addini(self, name, *_, **__):
            added.append(f"--{name.replace('_', '-')}")

    pytest_plugin.pytest_addoption(Parser())
    return {name for name in added if name.startswith("--")}


def test_every_option_has_a_prefix_of_ours(options):
    """An option, a setting or a fixture of another plugin's name would stop pytest."""
    assert options and all(
        name.startswith(("--gpu-benchmark-", "--gpuadvisor-")) for name in options
    )


def test_pages_and_tests_name_the_options_that_there_are(options):
    root = Path(__file__).parents[3]
    named = r"--(?:gpu-benchmark|gpuadvisor)-[a-z0-9-]*[a-z0-9]"
    page = (root / "docs" / "pytest.md").read_text("utf-8")
    assert options - set(re.findall(named, page)) == {"--gpu-benchmark-side"}
    pages = [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("examples/ci/*")]
    tests = [*Path(__file__).parent.glob("*.py"), *root.glob("tests/*/test_pytest_plugin.py")]
    files = [*pages, *tests]
    for path in files:
        assert set(re.findall(named, path.read_text("utf-8"))) <= options, path

"""However a script ends, the user learns why, and nothing of it is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from gpuadvisor.collectors.script.endings import WITHOUT_TORCH, Ending, conclude
from gpuadvisor.collectors.script.events import RunRecorder
from gpuadvisor.collectors.script.request import Command, Event, Limits, RunOutcome
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.collectors.script.templates import Template
from gpuadvisor.domain.study import TrialState
from gpuadvisor.errors import AdvisorError
from tests.integration import runs

ROOT = Path(__file__).parents[2]

LEFT = "import atexit, gc; atexit.register(gc.freeze)"
"""Has a script whose torch was forked end in a third of the time: a look for garbage copies it."""
TRAIN = f"""
{LEFT}
import time, torch
def train(steps):
    model = torch.nn.Linear(4, 1)
    for _ in range(steps):
        model(torch.randn(2, 4)).mean().backward()
        time.sleep(0.01)
"""
"""Steps without an optimizer, whose first use would import a quarter of torch."""


HIDING = f"""
{LEFT}
import time, torch
class Hiding:
    def __init__(self, tensor):
        self.tensor = tensor
    @property
    def __dict__(self):
        raise ValueError("nothing to see here")
class Model(torch.nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        return y if n < {{good}} else Hiding(y)
model = Model(4, 1)
with torch.no_grad():
    for n in range(12):
        model(torch.ones(2, 4))
        time.sleep(0.01)
"""
"""A script whose outputs can be looked into for so many calls."""
ODD = f"""
{LEFT}
import time, torch
class Hidden:
    @property
    def __dict__(self):
        raise ValueError("nothing to see here")
class Model(torch.nn.Module):
    def parameters(self, recurse=True):
        return iter([3])
    def forward(self, x):
        return torch.ones(2)
model = Model()
for n in range(12):
    model(Hidden())
    time.sleep(0.01)
"""
"""A model whose parameters and inputs are nothing that torch knows."""
SABOTAGE = "import sys; sys.modules['gpuadvisor.collectors.script.child.clock'].compilations = None"


def run_text(
    folder: Path,
    text: str,
    limits: Limits = runs.PATIENT,
    template: Template | None = None,
    **environment: str,
) -> RunOutcome:
    (folder / "script.py").write_text(textwrap.dedent(text))
    command = Command(sys.executable, "script.py", folder=str(folder))
    wanted = runs.request(command, runs.QUICK, limits, **environment)
    return run_script(replace(wanted, template=template))


@pytest.fixture
def run(tmp_path):
    return partial(run_text, tmp_path)


ENDS = [
    ("raise ValueError('no data')", "crashed", "ValueError: no data", "script.py, line 1"),
    ("x = 1\nif x\n    pass", "crashed", "SyntaxError: expected ':'", "script.py, line 2"),
    (
        "print('/aten/Loss.cu:245: nll_loss_forward: block: [0,0,0], thread: [3,0,0] Assertion"
        " `t >= 0 && t < n_classes` failed.')\n"
        "raise RuntimeError('CUDA error: device-side assert triggered\\nAsynchronous')",
        "crashed",
        "device-side assert triggered: in nll_loss_forward, `t >= 0 && t < n_classes` did not hold",
        "script.py, line 2",
    ),
    ("", "unsupported", "did not import torch; the steps of a script without torch are those", ""),
    ("import sys; sys.exit(0)", "unsupported", "ended without a step", ""),
    ("import sys; sys.exit(3)", "crashed", "ended with exit status 3", ""),
    ("import sys; sys.exit('no GPU')", "crashed", "ended with exit status 1: no GPU", ""),
    ("input('Go on? ')", "crashed", "reads from the standard input", "script.py, line 1"),
    ("import ctypes; ctypes.string_at(0)", "crashed", "killed by SIGSEGV (a segmentation", ""),
    (
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "crashed",
        "killed by SIGKILL (often the system ran out of memory)",
        "",
    ),
    (
        "import argparse; p = argparse.ArgumentParser(); p.add_argument('--data', required=True)\n"
        "p.parse_args()",
        "crashed",
        "exit status 2: script.py: error: the following arguments are required: --data",
        "",
    ),
    (
        "import sys; sys.excepthook = lambda *_: print('mine')\nraise KeyError('a')",
        "crashed",
        "KeyError: 'a'",
        "script.py, line 2",
    ),
    (
        "import os; os.environ.clear(); os.chdir('/'); os.closerange(3, 64)\n1 / 0",
        "crashed",
        "ZeroDivisionError: division by zero",
        "script.py, line 2",
    ),
    (
        "import json\ndef f():\n    json.loads('{')\nf()",
        "crashed",
        "json.decoder.JSONDecodeError: Expecting property name",
        "script.py, line 3",
    ),
    ("raise RuntimeError('x' * 100_000)", "crashed", "RuntimeError: xxx", "script.py, line 1"),
]


@pytest.mark.parametrize(("text", "state", "reason", "place"), ENDS)
def test_the_reason_is_told(run, text, state, reason, place):
    outcome = run(text)
    assert outcome.state == TrialState(state), outcome.output
    assert reason in outcome.reason
    assert outcome.place == place
    assert not place or place not in outcome.reason  # callers add it
    assert outcome.measurement is None


def test_the_output_holds_the_traceback_and_the_usage(run):
    assert "Traceback" in run("raise ValueError").output
    usage = run(
        "import argparse; p = argparse.ArgumentParser(); p.add_argument('x'); p.parse_args()"
    )
    assert "usage: script.py" in usage.output


def test_what_was_printed_before_a_crash_is_kept(run):
    assert "loading" in run("print('loading'); import ctypes; ctypes.string_at(0)").output


def test_floods_of_output_are_drained(run):
    began = time.monotonic()
    outcome = run("for _ in range(50): print('x' * 1_000_000)\nprint('end')")
    assert time.monotonic() - began < runs.PATIENT.idle_s
    assert len(outcome.output) <= 64 * 1024
    assert outcome.output.endswith("end")


@pytest.mark.parametrize("also", ["", "import signal; signal.signal(signal.SIGTERM, lambda *_: 0)"])
def test_a_script_that_hangs_before_its_first_step(run, also):
    outcome = run(f"{also}\nimport time; time.sleep(60)", limits=Limits(startup_s=1))
    assert outcome.state is TrialState.HUNG
    assert outcome.reason.startswith("no step within 1 s")


def test_what_the_budget_has_no_room_for_is_not_called_hung(run):
    outcome = run("import time; time.sleep(60)", limits=Limits(startup_s=1, room_s=1))
    assert outcome.state is TrialState.PRUNED
    assert outcome.reason.startswith(
        "no step within 1 s, which is all that the budget has room for: it did not import torch; "
    )


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([], "no step was seen"),
        ([90], "its first step was seen after 90 s, and no second one in the 150 s that followed"),
        ([90, 200], "2 steps were seen"),
    ],
)
def test_what_is_known_of_the_steps_of_a_run_that_took_too_long_is_told(steps, said):
    recorder = RunRecorder(lambda: None)
    for number, at_s in enumerate(steps, 1):
        kind = {"event": "alive", "steps": number} if number > 1 else {"event": "step"}
        recorder.take({**kind, "marker": "optimizer", "pid": 1}, at_s)
    request = runs.request(Command("python", "train.py"), limits=Limits(total_s=240, room_s=240))
    outcome = conclude(request, recorder, Ending.OUT_OF_TIME, None, "", 240.0, [])
    assert (outcome.state, outcome.reason) == (
        TrialState.PRUNED,
        f"not measured within 240 s, which is all that the budget has room for: {said}",
    )


def test_a_script_that_never_imports_torch_is_told_so_before_the_time_out(tmp_path, monkeypatch):
    monkeypatch.setattr("gpuadvisor.collectors.script.runner.WAITING_S", 0.3)
    (tmp_path / "script.py").write_text("while True: pass")
    command = Command(sys.executable, "script.py", folder=str(tmp_path))
    request = runs.request(command, limits=Limits(startup_s=60, import_s=1))
    heard: list[Event] = []
    outcome = run_script(replace(request, on_event=heard.append))
    assert (outcome.state, outcome.reason) == (
        TrialState.HUNG,
        f"it did not import torch within 1 s; {WITHOUT_TORCH}",
    )
    assert 1 <= outcome.wall_s < request.limits.startup_s
    (waiting,) = [event for event in heard if event["event"] == "waiting"]
    assert (waiting["torch"], waiting["limit_s"]) == (None, 1)


def test_a_script_that_does_other_work_after_its_first_step_is_told_of(
    tmp_path, monkeypatch, torch_imported
):
    monkeypatch.setattr("gpuadvisor.collectors.script.runner.WAITING_S", 3600.0)
    (tmp_path / "script.py").write_text(
        "import os, time, torch\n"
        "model = torch.nn.Linear(2, 1)\n"
        "for number in range(8):\n"
        "    model(torch.ones(1, 2)).sum().backward()\n"
        "    while not os.path.exists('told'): time.sleep(0.01)\n"
    )
    command = Command(sys.executable, "script.py", folder=str(tmp_path))
    heard: list[str] = []

    def hear(event: Event) -> None:
        heard.append(event["event"])
        if event["event"] == "step":
            monkeypatch.setattr("gpuadvisor.collectors.script.runner.WAITING_S", 0.0)
        elif event["event"] == "few_steps":
            (tmp_path / "told").touch()

    run_script(replace(runs.request(command), on_event=hear, template=torch_imported))
    assert heard.count("few_steps") == 1
    assert "waiting" not in heard


def test_cancelling(tmp_path):
    (tmp_path / "script.py").write_text("import time\ntime.sleep(60)")
    command = Command(sys.executable, "script.py", folder=str(tmp_path))
    began = time.monotonic()
    request = replace(runs.request(command), cancelled=lambda: time.monotonic() - began > 0.3)
    outcome = run_script(request)
    assert outcome.state is TrialState.PRUNED
    assert time.monotonic() - began < 50  # it would have slept for a minute


def test_an_interpreter_that_is_not_there(tmp_path):
    with pytest.raises(AdvisorError, match="cannot start"):
        run_script(runs.request(Command(str(tmp_path / "python"), "script.py")))


LINGERING = {
    "child": "subprocess.Popen(sleep)",
    "own session": "subprocess.Popen(sleep, start_new_session=True)",
    "own environment": "subprocess.Popen(sleep, start_new_session=True, env={}); time.sleep(60)",
    "daemon": "if os.fork() == 0:\n os.setsid()\n if os.fork() == 0: os.execvp(sleep[0], sleep)",
    "daemon without environment": (
        "if os.fork() == 0:\n os.setsid()\n if os.fork() == 0: os.execve(sleep[0], sleep, {})\n"
        " os._exit(0)\nos.wait()"
    ),
}


@pytest.mark.parametrize("how", LINGERING)
def test_nothing_is_left_running(run, tmp_path, how):
    program = tmp_path / f"sleeper-{os.getpid()}"
    program.symlink_to("/bin/sleep")
    start = f"import os, subprocess, time\nsleep = [{str(program)!r}, '60']\n{LINGERING[how]}"
    run(start, limits=Limits(startup_s=1))
    time.sleep(0.1)
    assert not running(program)


def running(program):
    """Count the program's processes."""
    lines = [each.info["cmdline"] or [""] for each in psutil.process_iter(["cmdline"])]
    return [line[0] for line in lines].count(str(program))


def test_nothing_is_left_of_runs_side_by_side(tmp_path):
    program = tmp_path / f"sleeper-{os.getpid()}"
    program.symlink_to("/bin/sleep")
    how = LINGERING["daemon without environment"]

    over = tmp_path / "over"

    def work(name):
        """Run one that ends as soon as both have begun, or once the other one has ended."""
        folder = tmp_path / name
        folder.mkdir()
        (folder / "script.py").write_text(
            f"import os, subprocess, time\nsleep = [{str(program)!r}, '300']\n{how}\n"
            f"while not os.path.exists({str(tmp_path / 'both' if name == 'first' else over)!r}):\n"
            "    time.sleep(0.01)"
        )
        run_script(runs.request(Command(sys.executable, "script.py", folder=str(folder))))
        is_left = running(program) > 0  # nobody knows whose it is while the other one runs
        over.touch()
        return is_left

    with ThreadPoolExecutor(2) as pool:
        found = pool.map(work, ("first", "second"))
        wait_until(lambda: running(program) == 2)
        (tmp_path / "both").touch()
        assert list(found) == [True, False]


def test_nothing_is_left_of_runs_that_end_together(tmp_path):
    program = tmp_path / f"sleeper-{os.getpid()}"
    program.symlink_to("/bin/sleep")
    how = LINGERING["daemon without environment"]
    (tmp_path / "script.py").write_text(
        f"import os, subprocess, time\nsleep = [{str(program)!r}, '60']\n{how}\ntime.sleep(60)"
    )
    command = Command(sys.executable, "script.py", folder=str(tmp_path))
    request = replace(runs.request(command), cancelled=lambda: running(program) == 3)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: run_script(request), range(3)))
    assert not running(program)


def test_a_script_sees_that_what_it_detached_has_ended(run):
    outcome = run("""
        import os, subprocess, time
        text = subprocess.run(["sh", "-c", "sleep .3 & echo $!"], stdout=subprocess.PIPE).stdout
        deadline = time.monotonic() + 60
        while os.path.exists(f"/proc/{int(text)}"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    """)
    assert outcome.reason == f"ended without a step: it did not import torch; {WITHOUT_TORCH}"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_killed_processes_shared_is_removed(tmp_path, method):
    name = f"gpuadvisor-{uuid.uuid4().hex}"
    text = f"""
import multiprocessing, multiprocessing.connection, multiprocessing.shared_memory, time

def work():
    memory = multiprocessing.shared_memory.SharedMemory({name!r}, create=True, size=100)
    listener = multiprocessing.connection.Listener(family="AF_UNIX")
    open("socket", "w").write(listener.address)
    time.sleep(60)

if __name__ == "__main__":
    child = multiprocessing.get_context({method!r}).Process(target=work)
    child.start()
    child.join()
"""
    note = tmp_path / "socket"
    (tmp_path / "script.py").write_text(text)
    command = Command(sys.executable, "script.py", folder=str(tmp_path))
    there = lambda: note.exists() and note.read_text() != ""  # noqa: E731
    outcome = run_script(replace(runs.request(command), cancelled=there))
    assert outcome.state is TrialState.PRUNED
    socket = Path(note.read_text())
    assert not socket.parent.exists()
    assert not Path("/dev/shm", name).exists()


def test_a_run_that_begins_is_no_orphan_of_one_that_ends(tmp_path):
    (tmp_path / "script.py").write_text("raise SystemExit(7)")
    request = runs.request(Command(sys.executable, "script.py", folder=str(tmp_path)))
    with ThreadPoolExecutor(3) as pool:
        outcomes = list(pool.map(lambda _: run_script(request), range(12)))
    assert {outcome.state for outcome in outcomes} == {TrialState.CRASHED}
    assert all("exit status 7" in outcome.reason for outcome in outcomes)


def test_what_the_script_did_not_start_runs_on(run):
    with subprocess.Popen(["sleep", "60"], start_new_session=True, env={}) as other:
        run("print('done')")
        assert other.poll() is None
        other.kill()


def test_gpuadvisor_killed_in_the_middle(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(60)")
    driver = (
        "import sys\n"
        "from gpuadvisor.collectors.script.request import Command\n"
        "from gpuadvisor.collectors.script.runner import run_script\n"
        "from tests.integration import runs\n"
        f"run_script(runs.request(Command(sys.executable, 'script.py', folder={str(tmp_path)!r})))"
    )
    parent = subprocess.Popen([sys.executable, "-c", driver], cwd=ROOT)
    try:
        note = tmp_path / "pid"
        wait_until(lambda: note.exists() and note.read_text())
        parent.send_signal(signal.SIGKILL)
        wait_until(lambda: not psutil.pid_exists(int(note.read_text())))
    finally:
        parent.kill()
        parent.wait()


def wait_until(true, seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class TestWithTorch:
    """Each of these imports torch, which takes seconds unless it is forked."""

    @pytest.fixture
    def run_forked(self, tmp_path, torch_imported):
        return partial(run_text, tmp_path, template=torch_imported)

    def test_out_of_memory(self, run_forked):
        text = "import torch\nraise torch.OutOfMemoryError('CUDA out of memory. Tried to')"
        outcome = run_forked(text)
        assert outcome.state is TrialState.OUT_OF_MEMORY
        assert outcome.reason.endswith("OutOfMemoryError: CUDA out of memory. Tried to")

    def test_a_script_without_steps(self, run_forked):
        outcome = run_forked("import torch; torch.ones(1)")
        assert outcome.state is TrialState.UNSUPPORTED
        assert "gpuadvisor.step()" in outcome.reason

    def test_hanging_after_some_steps(self, run_forked):
        outcome = run_forked(f"{TRAIN}\ntrain(3); time.sleep(60)", limits=Limits(idle_s=1))
        assert outcome.state is TrialState.HUNG
        assert outcome.reason == "no sign of life for 1 s"

    @pytest.fixture(scope="class")
    @classmethod
    def odd(cls, tmp_path_factory, torch_imported):
        """What a script ends in whose child fails, and which leaves without a farewell."""
        child = "import subprocess, sys; subprocess.run([sys.executable, '-c', '1/0'])"
        text = f"import os\n{child}\n{TRAIN}\ntrain(6); os._exit(0)"
        return run_text(tmp_path_factory.mktemp("odd"), text, template=torch_imported)

    def test_leaving_by_os_exit(self, odd):
        assert (odd.state, odd.steps) == (TrialState.COMPLETE, 6)
        assert odd.short
        assert odd.printed is None  # it was not ended

    def test_failing_after_some_steps(self, run_forked):
        outcome = run_forked(f"{TRAIN}\ntrain(6)\nopen('missing.csv')")
        assert outcome.state is TrialState.CRASHED
        assert "missing.csv" in outcome.reason
        assert outcome.steps == 6

    @pytest.mark.parametrize("good", [0, 1])
    def test_an_output_that_cannot_be_looked_into_ends_no_script(self, run_forked, good):
        """Also where others could be before it: a part of them would be compared as if all."""
        outcome = run_forked(HIDING.format(good=good))
        assert outcome.state is TrialState.COMPLETE, outcome.output
        assert outcome.measurement.trace.outputs == ()
        (unseen,) = outcome.measurement.facts.unseen
        assert unseen == (
            "gpuadvisor could not keep the script's outputs, so nothing is compared by them: "
            "ValueError: nothing to see here"
        )

    def test_outputs_that_can_be_looked_into_are_kept(self, run_forked):
        outcome = run_forked(HIDING.format(good=99))
        assert len(outcome.measurement.trace.outputs) == 3
        assert not outcome.measurement.facts.unseen

    def test_parameters_and_inputs_of_another_kind_end_no_script(self, run_forked):
        outcome = run_forked(ODD)
        assert outcome.state is TrialState.COMPLETE, outcome.output
        (unseen,) = outcome.measurement.facts.unseen
        assert unseen.startswith("gpuadvisor could not look at the module that the script calls: ")
        assert outcome.measurement.facts.varying_shapes
        assert outcome.measurement.samples_per_step is None

    def test_a_failure_of_the_harness_is_not_blamed_on_the_script(self, run_forked):
        outcome = run_forked(f"{TRAIN}\ntrain(2)\n{SABOTAGE}\ntrain(9)")
        assert outcome.state is TrialState.CRASHED
        clock = "gpuadvisor.collectors.script.child.clock"
        assert outcome.own.startswith(f"{clock}, line ")
        begin = f"gpuadvisor failed as it watched the script, in {outcome.own}: TypeError: "
        assert outcome.reason.startswith(begin)
        assert outcome.place.startswith("script.py, line ")

    @pytest.mark.parametrize(
        "line", ["torch.nn.Linear(2, 2)(torch.ones(3))", "torch.ones(1).sum().backward()"]
    )
    def test_a_failure_in_a_call_that_it_stands_around_is_the_scripts(self, run_forked, line):
        outcome = run_forked(f"{TRAIN}\ntrain(2)\n{line}")
        assert (outcome.state, outcome.own) == (TrialState.CRASHED, "")
        assert outcome.reason.startswith("RuntimeError: ")

    @pytest.mark.slow
    def test_a_bad_exit_status_after_some_steps(self, run_forked):
        outcome = run_forked(f"import sys\n{TRAIN}\ntrain(6); sys.exit(3)")
        assert outcome.reason == "ended with exit status 3"

    def test_a_failing_child_is_the_scripts_own_business(self, odd):
        assert "ZeroDivisionError" in odd.output
        assert (odd.state, odd.reason, odd.place) == (TrialState.COMPLETE, "", "")

    def test_torch_in_a_subprocess_only(self, run, tmp_path):
        (tmp_path / "inner.py").write_text(f"{TRAIN}\ntrain(1000)")
        outcome = run("import subprocess, sys; subprocess.run([sys.executable, 'inner.py'])")
        assert outcome.state is TrialState.COMPLETE
        assert not outcome.short
        assert outcome.printed is not None

    def test_a_hostile_script(self, run, tmp_path):
        """Its own modules, start-up file, signals, descriptors, folder and environment."""
        for name in ("rules", "storage", "collectors", "tuners"):
            (tmp_path / f"{name}.py").write_text("mine = True")
        start = tmp_path / "start"
        start.mkdir()
        (start / "sitecustomize.py").write_text("import builtins; builtins.started = True")
        outcome = run(
            f"""
import os, signal, sys
import collectors, rules, storage, tuners
import gpuadvisor, gpuadvisor.domain.device, gpuadvisor.rules, gpuadvisor.tuners.search
assert started and rules.mine and storage.mine and collectors.mine and tuners.mine
assert not any("harness" in entry for entry in sys.path), sys.path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.environ.clear()
{TRAIN}
os.chdir("/")
train(3)
os.closerange(3, 1024)
files = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
try:
    train(1000)
except KeyboardInterrupt:
    train(1000)
""",
            PYTHONPATH=str(start),
        )
        assert outcome.state is TrialState.COMPLETE, outcome.output
        assert not outcome.short

    def test_an_environment_without_gpuadvisor(self, tmp_path):
        torch = pytest.importorskip("torch")
        home = tmp_path / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
        packages = next(home.glob("lib/python*/site-packages"))
        (packages / "torch.pth").write_text(str(Path(torch.__file__).parents[1]))
        script = tmp_path / "script.py"
        # A `.pth` file in a folder that another one names is not read: an editable install of
        # gpuadvisor, which is one, is not found here.
        script.write_text(f"import gpuadvisor\n{TRAIN}\ntrain(6); gpuadvisor.step()")
        command = Command(str(home / "bin" / "python"), str(script))
        outcome = run_script(runs.request(command))
        assert outcome.state is not TrialState.CRASHED, outcome.output

    def test_steps_of_a_script_without_torch(self, tmp_path):
        """It is measured as any other, and not waited for until it imports torch."""
        script = tmp_path / "script.py"
        lines = ["import time, gpuadvisor", "while True:", "    time.sleep(0.002)"]
        script.write_text("\n".join([*lines, "    gpuadvisor.step()"]))
        request = runs.request(Command(sys.executable, str(script)), runs.QUICK)
        outcome = run_script(replace(request, limits=replace(runs.PATIENT, import_s=20)))
        assert outcome.state is TrialState.COMPLETE, outcome.reason
        assert (outcome.measurement.marker, outcome.measurement.trace.losses) == ("explicit", ())
        assert outcome.measurement.mean_step_ms > 2
        script.write_text("\n".join([lines[0], "for n in range(9):", "    gpuadvisor.step()"]))
        assert run_script(request).steps == 9

    def test_a_broken_harness_does_not_break_the_script(self, run):
        break_it = "import sys; sys.modules['gpuadvisor.collectors.script.child.session'] = None"
        outcome = run(f"{break_it}\n{TRAIN}\ntrain(6)\nprint('trained')")
        assert outcome.state is TrialState.UNSUPPORTED
        assert "could not hook torch" in outcome.reason
        assert "trained" in outcome.output


def test_what_a_script_starts_does_not_outlive_it_once_it_was_measured(tmp_path: Path) -> None:
    """Such a process, as a worker of a loader is, would tell of an error in the script's output."""
    told = tmp_path / "told"
    script = f"""
{TRAIN}
import os
reading, writing = os.pipe()
if not os.fork():
    os.close(writing)
    os.read(reading, 1)  # until nobody is there to write
    open({str(told)!r}, "w").close()
    print("Traceback", flush=True)
    os._exit(1)
train(100_000)
"""
    (tmp_path / "train.py").write_text(script)
    command = Command(sys.executable, "train.py", folder=str(tmp_path))
    outcome = run_script(runs.request(command, runs.QUICK))
    assert (outcome.state, outcome.printed) == (TrialState.COMPLETE, "")
    assert not told.exists()

"""Bad input on the command line, and `run`: one sentence each, the right status, no traceback."""

from __future__ import annotations

import os
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuadvisor import cli
from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.study import Objective, Plan, Speedup, Verdict
from gpuadvisor.storage import locks
from gpuadvisor.storage.database import open_store
from gpuadvisor.tuning import preparation
from gpuadvisor.tuning.plans.file import write_plan
from gpuadvisor.tuning.trials import first_run
from tests.integration import program

ECHO = "import sys, os; print(sys.argv[1:]); sys.exit(int(os.environ.get('STATUS', 0)))"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder with a script, in which no study elsewhere on this machine holds the CPU."""
    monkeypatch.setattr(locks, "PREFIX", f"gpuadvisor-tests-{os.getpid()}-")
    (tmp_path / "train.py").write_text(ECHO)
    (tmp_path / "folder").mkdir()
    (tmp_path / "note.ipynb").write_text("{}")
    for name, value in program.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ask(home, capsys):
    """Run a command line in this process; returns the status and the only line on stderr."""

    def ask(line: str) -> tuple[int, str]:
        status = cli.main(shlex.split(line))
        captured = capsys.readouterr()
        (sentence,) = captured.err.splitlines()
        assert captured.out == ""
        assert sentence.startswith("gpuadvisor: ")
        return status, sentence.removeprefix("gpuadvisor: ")

    return ask


@pytest.fixture
def no_probe(monkeypatch):
    """Believe that this Python has torch and no GPU; it takes seconds to ask it anew."""
    python = TargetPython(sys.executable, "3.12.3", torch="2.7.1")
    monkeypatch.setattr(first_run, "target_python", lambda command, asked: python)
    program.PYTHONS.mkdir(mode=0o700, parents=True, exist_ok=True)
    monkeypatch.setattr(preparation, "_known_pythons", lambda: program.PYTHONS)


USAGE = [
    ("tune", "the following arguments are required: script; `gpuadvisor tune --help`"),
    ("tine train.py", "invalid choice: 'tine' (choose from"),
    ("wacth --once", "there is no command wacth: did you mean watch?"),
    ("--bar", "there is no option --bar; `gpuadvisor --help`"),
    ("doctor --wrong", "doctor takes no --wrong; `gpuadvisor doctor --help`"),
    ("doctor --jsn", "doctor has no --jsn: did you mean --json?"),
    ("diagnose trace.json --al", "diagnose has no --al: did you mean --all?"),
    ("diagnose train.py --epochs 1", "put the script's own arguments after --"),
    ("doctor -- x", "doctor takes nothing after --"),
    ("tune nope.py", "there is no script nope.py in /"),
    ("tune folder", "folder is a folder: name the script in it, or use -m for a package"),
    (
        "tune note.ipynb",
        "note.ipynb is a notebook: make a script of it, as with `jupyter nbconvert",
    ),
    ("diagnose note.ipynb --json --markdown", "--json takes the standard output: give --markdown"),
    ("tune python train.py", "tune has no train.py: put the script's own arguments after --"),
    ("tune python -- train.py", "python is no script: leave it out and name the script itself"),
    (
        "tune train.py --epochs 1",
        "put the script's own arguments after --, as in `gpuadvisor tune train.py -- --epochs 1`",
    ),
    (
        "tune train.py --budget 5m --lr 1 -- --epochs 1",
        "as in `gpuadvisor tune train.py --budget 5m -- --lr 1 --epochs 1`",
    ),
    ("tune train.py --only bf16", "--only bf16: there is no such knob; did you mean bf16_autocast"),
    ("tune train.py --without tf32,bf16", "--without bf16: there is no such knob"),
    ("tune train.py --without wrokers", "--without wrokers: there is no such knob"),
    ("tune train.py --budget soon", "--budget 'soon' is neither a time nor a number of trials"),
    ("tune train.py --level reckless", "argument --level: invalid choice: 'reckless'"),
    ("tune train.py --objective fun", "argument --objective: invalid choice: 'fun'"),
    ("tune train.py --arg lr", "--arg 'lr': write it as NAME=VALUE,VALUE such as"),
    ("tune train.py --arg lr 1,2", "--arg 'lr': write it as NAME=VALUE,VALUE such as"),
    ("tune train.py --arg='l r=1'", "--arg 'l r=1': write it as NAME=VALUE,VALUE such as"),
    ("tune train.py --jobs 0", "--jobs 0: give a number above zero"),
    ("tune train.py --jobs two", "argument --jobs: invalid int value: 'two'"),
    ("tune train.py --tolerance -1", "--tolerance -1: give a number above zero"),
    ("tune train.py --tolerance nan", "--tolerance nan: give a number above zero"),
    ("tune train.py --timeout 0", "--timeout 0: give a number above zero"),
    ("tune train.py --python nope", "the Python nope does not exist: give the path"),
    ("tune train.py --python folder", "folder is a folder: give the interpreter in it, such as"),
    ("tune train.py --python train.py", "train.py is not an executable file: give the path"),
    ("tune train.py --plan no/x.toml", "written to no/x.toml: there is no folder /"),
    ("tune train.py --plan folder", "written to folder: it is a folder; choose another place"),
    ("run train.py", "the following arguments are required: --plan; `gpuadvisor run --help`"),
    ("run --plan no.toml train.py", "cannot read a plan no.toml: No such file or directory"),
    ("run --plan folder train.py", "cannot read a plan folder: Is a directory"),
    ("run --plan train.py train.py", "train.py is not a plan: it is not valid TOML"),
]


@pytest.mark.parametrize(("line", "sentence"), USAGE)
def test_one_sentence_says_what_is_wrong(ask, line, sentence):
    status, said = ask(line)
    assert sentence in said
    assert status == 2


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("report", "no study yet: run `gpuadvisor tune script.py` first"),
        ("report --kind profile", "no profile is stored yet: `gpuadvisor import FILE` adds one"),
        ("diagnose", "no profile is stored yet: name a script or a trace file"),
        ("jobs", "There is no telemetry in "),
        ("watch --at 1h", "There is no telemetry in "),
        ("db export -o night.csv", "There is no telemetry in "),
        ("suggest-block 9 --gpu H100 --smem 900k", "no block of this kernel can be launched on"),
    ],
)
def test_nothing_to_work_on_is_a_failure_and_no_wrong_command_line(ask, line, sentence):
    status, said = ask(line)
    assert sentence in said
    assert status == 1


def test_what_this_machine_or_store_does_not_have(ask, no_probe):
    assert "--jobs 2: there is no GPU that torch can use" in ask("tune train.py --jobs 2")[1]
    assert "--objective energy needs a GPU" in ask("tune train.py --objective energy")[1]
    assert "there is no unfinished study of this script" in ask("tune train.py --resume")[1]
    named = ask("tune train.py --resume --study mine")
    assert named == (2, "There is no study 'mine': none is stored yet.")


class TestUnexpected:
    """Anything else that goes wrong is a bug, and says so without a traceback."""

    @pytest.fixture
    def broken(self, monkeypatch):
        def fail(error: BaseException):
            monkeypatch.setattr("gpuadvisor.commands.tune._options", lambda args: _raise(error))

        return fail

    @pytest.mark.parametrize(
        "error", [ValueError("x\ny"), KeyError(), RecursionError("deep"), ImportError("no optuna")]
    )
    def test_a_bug(self, ask, broken, error):
        broken(error)
        status, said = ask("tune train.py")
        assert status == 1
        assert said.startswith(f"this is a bug in gpuadvisor ({type(error).__name__}")
        assert said.endswith("run it again with --debug and report the output")

    @pytest.mark.parametrize(
        ("end", "status"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)]
    )
    def test_a_signal_while_a_class_is_made_is_none(self, ask, broken, end, status):
        error = RuntimeError("Error calling __set_name__ on 'reactive' instance")
        error.__cause__ = end  # as Python has it until 3.12
        broken(error)
        if status == 130:
            assert ask("tune train.py") == (130, "interrupted")
        else:
            with pytest.raises(SystemExit, match="143"):
                ask("tune train.py")

    def test_a_full_disk(self, ask, broken):
        broken(OSError(28, "No space left on device", "/tmp/x"))
        status, said = ask("tune train.py")
        assert status == 1
        assert said.startswith("/tmp/x: No space left on device")

    def test_debug_shows_the_traceback(self, home, broken):
        broken(ValueError("x"))
        with pytest.raises(ValueError, match="x"):
            cli.main(["tune", "train.py", "--debug"])

    def test_ctrl_c(self, ask, broken):
        broken(KeyboardInterrupt())
        assert ask("tune train.py") == (130, "interrupted")


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.usefixtures("no_probe")
class TestStore:
    """Where the store cannot be used, nothing is run."""

    def test_a_home_that_cannot_be_made(self, ask, home, monkeypatch):
        monkeypatch.setenv("GPUADVISOR_HOME", str(home / "train.py" / "store"))
        status, said = ask("tune train.py")
        assert status == 5
        assert "cannot be created (Not a directory): set GPUADVISOR_HOME to a folder" in said

    def test_a_database_that_is_none(self, ask, home):
        (home / "store").mkdir()
        (home / "store" / "gpuadvisor.db").write_text("not a database, but rather long" * 99)
        status, said = ask("tune train.py")
        assert status == 5
        assert "is not a SQLite database: move it away" in said

    def test_a_full_disk(self, ask, home):
        """A limit on the size of files stands for the disk."""
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
        try:
            status, said = ask("tune train.py")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, before)
        assert status == 5
        assert "GPUADVISOR_HOME" in said


UNVERIFIED = Verdict.FASTER_UNVERIFIED
PLAN = Plan(
    script="train.py",
    args=(),
    settings={"arg:epochs": "3", "tf32": True},
    speedup=Speedup(1.42, 1.39, 1.45, 8),
    level=Level.BALANCED,
    objective=Objective.THROUGHPUT,
)
NONSENSE = [
    ("tf32 = true", "tf32 = 'yes'", 'x.toml: knobs.tf32 = "yes": it must be'),
    ("tf32 = true", "tf33 = true", "`knobs.tf33` is not a knob of this gpuadvisor; did you mean"),
    ("tf32 = true", "tf32 = [1]", "`knobs.tf32` must be true, false, a finite number or text"),
    ("tf32 = true", "dataloader_workers = 100000", "it must be a whole number from 0 to 256"),
    ("tf32 = true", "compile = 'default'\ncompile_cudagraphs = true", "cannot be set together"),
    ("format = 2", "format = 9", "is 9, but this gpuadvisor reads plans up to format 2"),
    ("[plan]", "[plam]", "x.toml is not a plan: it has no [plan] table"),
    ("ratio = 1.42", "ratio = -1", "`speedup.ratio` must be a number above 0"),
    ("[knobs]", "[knobs", "it is not valid TOML"),
]


class TestRun:
    @pytest.fixture
    def plan(self, home) -> Path:
        write_plan(PLAN, home / "x.toml")
        return home / "x.toml"

    @pytest.mark.parametrize(("old", "new", "sentence"), NONSENSE)
    def test_a_plan_edited_into_nonsense(self, ask, plan, old, new, sentence):
        text = plan.read_text()
        assert old in text
        plan.write_text(text.replace(old, new))
        status, said = ask("run --plan x.toml train.py")
        assert status == 2
        assert sentence in said

    def test_the_script_gets_its_arguments_and_keeps_its_status(self, home, plan):
        words = ("run", "--plan", "x.toml", "train.py", "--", "--epochs=1", "--data", "a b")
        answer = program.run(home, *words, STATUS="7")
        assert (answer.status, answer.out) == (7, "['--epochs=3', '--data', 'a b']\n")

    def test_a_plan_from_elsewhere_warns_and_runs(self, home):
        known = {"device": "NVIDIA H100\x1b[31m", "torch": "1.0.0"}
        changes = {"script": "other.py", "environment": known, "verdict": UNVERIFIED}
        write_plan(Plan(**{**vars(PLAN), **changes}), home / "x.toml")
        answer = program.run(home, "run", "--plan", "x.toml", "train.py")
        assert answer.status == 0
        assert "the plan was proven on NVIDIA H100?[31m, this is" in answer.err
        assert "the plan was proven with torch 1.0" in answer.err
        assert "the plan was proven for other.py, not for train.py" in answer.err
        assert "the plan's gain is not verified" in answer.err
        assert all(line.startswith("gpuadvisor: ") for line in answer.err.splitlines())

    def test_signals_reach_the_script(self, home, plan):
        (home / "train.py").write_text(
            "import signal, sys, time\n"
            "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
            "print('ready', file=sys.stderr, flush=True); time.sleep(60)"
        )
        running = program.Running(home, "run", "--plan", "x.toml", "train.py")
        running.wait_for("ready")
        running.process.send_signal(signal.SIGTERM)
        assert running.end().status == 9


FAILING = {
    "raises": ("x = {}\nx['lr']", 3, "cannot be measured: KeyError: 'lr' at train.py, line 2"),
    "needs": (
        "import argparse; p = argparse.ArgumentParser(); p.add_argument('--data', required=True)\n"
        "p.parse_args()",
        3,
        "the following arguments are required: --data; it has to run by itself before it can be "
        "tuned; its own arguments go after --",
    ),
    "never steps": (
        "print('done')",
        3,
        "did not import torch; the steps of a script without torch",
    ),
}


@pytest.mark.parametrize("name", FAILING)
def test_scripts_that_cannot_be_measured(home, capsys, no_probe, name):
    text, status, sentence = FAILING[name]
    (home / "train.py").write_text(text)
    assert cli.main(["tune", "train.py"]) == status
    err = capsys.readouterr().err
    assert err.splitlines()[-1].startswith("gpuadvisor: train.py cannot be measured: ")
    assert sentence in err
    shown = {
        "raises": "  | KeyError: 'lr'",
        "needs": "  | usage: train.py",
        "never steps": "  | done",
    }
    assert shown[name] in err
    with open_store() as store:
        assert store.study_names() == []


def test_an_interpreter_without_torch(home):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / "bare"], check=True)
    answer = program.run(home, "tune", "train.py", "--python", "bare/bin/python")
    assert answer.status == 2
    assert "/bare/bin/python: install torch there, or give the Python that has it" in answer.err


@pytest.mark.parametrize("command", ["explain", "explain input_bound"])
def test_a_reader_that_has_seen_enough_is_no_failure(command):
    shell = f"{sys.executable} -m gpuadvisor {command} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] in ("0", "141")  # 0 where the pipe holds all of it
    assert done.stderr == ""


@pytest.mark.parametrize("redirected", ["2>&-", "<&- >&- 2>&-"])
def test_closed_streams(redirected, tmp_path):
    shell = f"{sys.executable} -m gpuadvisor tune nowhere.py {redirected}"
    assert subprocess.run(["bash", "-c", shell], cwd=tmp_path, timeout=60).returncode == 2


def test_a_reader_of_messages_that_is_gone(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "gpuadvisor", "tune", "nowhere.py"]
    assert subprocess.run(command, cwd=tmp_path, stderr=writer, timeout=60).returncode == 141
    os.close(writer)

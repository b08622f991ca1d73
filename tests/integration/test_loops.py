"""Scripts whose loops end early are run by the interpreter as they always are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuadvisor.collectors.script.bundle import bundle_folder
from gpuadvisor.collectors.script.request import Command, RunRequest
from gpuadvisor.collectors.script.runner import run_life
from gpuadvisor.collectors.script.specification import VARIABLE, Shortening, Specification
from gpuadvisor.domain.study import TrialState
from tests.integration.runs import CPU, PATIENT

STEPS = """
import sys
progress = sys.modules["gpuadvisor.collectors.script.child.shortening.loops"].current().progress
class Optimizer:
    def __init__(self): progress.optimizer_built()
    def step(self): progress.stepped(self)
"""
TRAIN = """
from steps import Optimizer
class Trainer:
    def run(self):
        optimizer, epochs = Optimizer(), 0
        for epoch in range(90):
            epochs += 1
            for batch in range(100): optimizer.step()
        return epochs
"""
MAIN = (
    TRAIN
    + """
import inspect, multiprocessing, pickle, sys
def work(trainer): print(__name__, trainer.run(), flush=True)
if __name__ == "__main__":
    print(Trainer().run(), sys.argv[1:], sys.path[0], __spec__ and __spec__.name, __file__)
    assert type(pickle.loads(pickle.dumps(Trainer()))) is Trainer
    assert "in range(90):" in inspect.getsource(Trainer)
    process = multiprocessing.get_context("spawn").Process(target=work, args=(Trainer(),))
    process.start(); process.join()
"""
)


def run(
    folder: Path, *words: str, shortened: bool = True, path: str = ""
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ}
    if shortened:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(bundle_folder()), path]))
        environment[VARIABLE] = Specification(shortening=Shortening(str(folder))).to_json()
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True
    )


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)


def test_a_script_is_main_in_its_own_folder_and_loaded_again_by_spawned_processes(tmp_path):
    write(tmp_path, steps=STEPS, train=MAIN)
    done = run(tmp_path, "train.py", "--epochs", "3")
    assert done.stderr == ""
    folder = tmp_path.resolve()
    assert done.stdout.splitlines() == [
        f"2 ['--epochs', '3'] {folder} None {folder / 'train.py'}",
        "__mp_main__ 2",
    ]


def test_a_module_of_a_package_and_one_that_it_imports(tmp_path):
    (tmp_path / "package").mkdir()
    write(tmp_path, steps=STEPS)
    write(
        tmp_path / "package",
        __init__="",
        inner=TRAIN,
        train="from package.inner import Trainer\nprint(Trainer().run(), __spec__.name)\n",
    )
    done = run(tmp_path, "-m", "package.train")
    assert (done.stdout, done.stderr) == ("2 package.train\n", "")


ENDLESS = """
class Trainer:
    def run(self, most=None):
        optimizer, count = Optimizer(), 0
        while True:
            optimizer.step()
            count += 1
            if most is not None and count >= most: break
            if count > 500: raise RuntimeError("it goes on and on")
        return count
"""


@pytest.mark.parametrize(
    ("where", "is_ended"),
    [("a path", True), ("a repository", True), ("a library", False), ("elsewhere", False)],
)
def test_a_trainer_that_lies_beside_its_scripts(tmp_path, where, is_ended):
    """minGPT's is found by $PYTHONPATH, or installed from its source, and loops for ever."""
    scripts, source = tmp_path / "scripts", tmp_path / "src"
    for folder in (scripts, source):
        folder.mkdir()
    if where == "a repository":
        (tmp_path / ".git").mkdir()
    if where == "a library":
        (source / "trainer-1.0.dist-info").mkdir()
    write(source, steps=STEPS, trainer="from steps import Optimizer" + ENDLESS)
    main = "import sys\nsys.path.append('../src')\nfrom trainer import Trainer\n"
    write(scripts, train=f"{main}print(Trainer().run())\n")
    path = str(source) if where in ("a path", "a library") else ""
    done = run(scripts, "train.py", path=path)
    assert (done.stdout == "64\n") is is_ended, done.stderr
    assert ("it goes on and on" in done.stderr) is not is_ended


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\nfor i in range(3) print(i)\n",
        "def f(n):\n    for i in range(n):\n        print(i); 1 / (2 - i)\nf(9)\n",
        "import sys\nfor i in range(2): print(i)\nsys.exit('the end')\n",
    ],
    ids=["syntax error", "exception", "exit"],
)
def test_what_ends_a_script_is_told_as_ever(tmp_path, text):
    if "1 /" in text and sys.version_info < (3, 11):
        pytest.skip("Python 3.10 shows one frame more")
    write(tmp_path, train=text)
    mine, usual = run(tmp_path, "train.py"), run(tmp_path, "train.py", shortened=False)
    assert (mine.returncode, mine.stdout) == (usual.returncode, usual.stdout)
    assert mine.stderr == usual.stderr


COMPILED = """
import torch
import torch._dynamo
def helper(layer, x):
    for i in range(3): x = layer(x)
    k = 0
    while k < 2:
        x = layer(x)
        k += 1
    return x
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.more(helper(self.layer, x))
    def more(self, x: torch.Tensor):
        for i in range(2): x = self.layer(x)
        return x
class Scripted(torch.nn.Module):
    def forward(self, x):
        for i in range(3): x = self.more(x)
        return x
    def more(self, x):
        for i in range(2): x = torch.relu(x)
        return x
x = torch.ones(2, 4)
torch.jit.script(Scripted())(x)
model = torch.compile(Model(), fullgraph=True, backend="eager")
steps = 0
for step in range(500):
    model(x).sum().backward()
    model.zero_grad()
    steps += 1
print(steps, torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""


@pytest.mark.slow
def test_compilers_meet_nothing_of_it(tmp_path):
    write(tmp_path, train=COMPILED)
    command = Command(sys.executable, "train.py", folder=str(tmp_path))
    request = RunRequest(command, Specification(seed=1), CPU, PATIENT)
    life = run_life(request, Shortening("", steps=20))
    assert life.state is TrialState.COMPLETE, life.reason + life.output
    assert life.output.split() == ["20", "1"]
    (loop,) = life.loops
    assert (loop.place, loop.planned, loop.done) == ("train.py, line 31", 500, 20)

"""Why a version is slower, of two real scripts under torch's own profiler."""

import sys
from pathlib import Path

import pytest

from gpuadvisor.collectors.devices import cpu_device
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.gate import GateResult, GateSide, GateVerdict
from gpuadvisor.profiling.explaining import explain
from gpuadvisor.tuning.gate.options import GateOptions
from gpuadvisor.tuning.trials.trial_runner import Side

SCRIPT = """
import itertools, os, time, torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 1)

    def forward(self, x):
        return self.inner(x)

def fetch():
    time.sleep(float(os.environ["WAIT"]))
    return torch.ones(4, 8)

net = Net()
for step in itertools.count():
    time.sleep(1.2 * (step == 2))  # so that it is warm after four steps
    net(fetch()).mean().backward()
"""


class Heard(list):
    on_message = list.append


@pytest.fixture
def sides(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "train.py").write_text(SCRIPT)
    command = Command(sys.executable, "train.py", folder=str(tmp_path))
    return [Side(command, cpu_device(), environment={"WAIT": wait}) for wait in ("0.05", "0.15")]


@pytest.mark.slow
def test_the_function_that_got_slower_is_named_and_nothing_is_left(sides, tmp_path):
    """Also where the profiler begins while it is still looked for what the script calls."""
    nobody, heard = GateSide("", None, (), ""), Heard()
    failed = GateResult(GateVerdict.FAIL, "", nobody, nobody)
    found = explain(heard, lambda: False, *sides, GateOptions(sides[0].command), failed)
    assert (found.note.partition("while a version was profiled")[0], found.steps) == (
        "",
        6,
    )  # of two profiles
    cause = found.causes[0]
    assert (cause.name, cause.source, cause.head_count) == ("fetch", "train.py:12", 1)
    assert cause.more_ms == pytest.approx(100, rel=0.4)
    assert [each.name for each in cause.inside] == ["sleep"]
    assert heard == ["it failed: both versions are profiled twice, to say why"]
    assert list(Path(tmp_path, "temporary").iterdir()) == []

"""Xid errors while something is compared, by the real nvidia-ml-py on a fake driver's library."""

import pytest

BEGIN = """
from gpuadvisor.collectors.devices import cpu_device, list_gpus
from gpuadvisor.collectors.gpu_errors import GpuErrors
scene(MODELS="h100,h100")
gpus = list_gpus()
errors = GpuErrors(gpus[1])

def heard(count):
    found, end = [], time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < end
        time.sleep(0.005)
        found += errors.take()
    return found
"""


def test_those_of_its_own_gpu_are_told_but_not_what_a_script_did(play):
    told = play(
        BEGIN
        + """
scene(MODELS="h100,h100", XIDS="0:79,1:31,1:45,1:79,1:13,1:4711")
result = heard(2)
errors.close()
"""
    )
    assert [sentence[:25] for sentence in told] == [
        "GPU 1 reported Xid 79, th",
        "GPU 1 reported Xid 4711: ",
    ]


def test_a_cpu_has_none_and_a_driver_may_tell_of_none(play):
    program = """
errors.close()
result = [GpuErrors(cpu_device()).take(), errors.take()]
"""
    fault = {"FAKE_NVML_FAULTS": "nvmlDeviceRegisterEvents=3"}
    assert play(BEGIN + program, **fault) == [[], []]


GATE = """
from types import SimpleNamespace
from gpuadvisor.collectors.script.request import Command, RunOutcome
from gpuadvisor.domain.study import TrialState
from gpuadvisor.errors import RefusedError
from gpuadvisor.tuning.trials import trial_runner
from gpuadvisor.tuning.gate.options import GateOptions
from gpuadvisor.tuning.gate.runs import Runs
from gpuadvisor.tuning.trials.trial_runner import Side

def crashes(request, *meters):
    scene(MODELS="h100,h100", XIDS=XIDS)
    time.sleep(0.2)
    return RunOutcome(TrialState.CRASHED, "CUDA error", None, "", 1.0)

trial_runner.run_script = crashes
ears = SimpleNamespace(
    on_message=print, on_run_start=lambda *_: None, on_run_end=lambda run: None
)
command = Command("python", "train.py")
runs = Runs(GateOptions(command), gpus[1], ears, lambda: False, errors=errors)
try:
    result = runs.run(Side(command, gpus[1]), "base", "first").problem
except RefusedError as error:
    result = f"{error.exit_code}: {error}"
errors.close()
"""


@pytest.mark.parametrize(
    ("xids", "result"),
    [
        ("1:31", "crashed: CUDA error"),
        ("0:79", "crashed: CUDA error"),
        ("1:31,1:79", "7: GPU 1 reported Xid 79, the GPU fell off the bus: reboot"),
    ],
)
def test_a_gate_is_refused_by_one_and_not_taken_for_a_version_that_crashes(play, xids, result):
    assert play(BEGIN + GATE.replace("XIDS=XIDS", f"XIDS={xids!r}")).startswith(result)

"""The SM clock while a run is measured, by the real nvidia-ml-py on a fake driver's library."""

from gpuadvisor.collectors.clocks import ClockSampler
from gpuadvisor.collectors.devices import cpu_device

IMPORT = """
import time
from gpuadvisor.collectors.clocks import PERIOD_S, ClockSampler
from gpuadvisor.collectors.devices import list_gpus
from gpuadvisor.collectors.environment import environment
from gpuadvisor.collectors.interpreter import TargetPython
gpu, = list_gpus()
clock = ClockSampler(gpu)

def sampled(measured=True):
    clock.begin() if measured else None
    time.sleep(8 * PERIOD_S)
    clock.pause()
    return clock.end()

def between():
    clock.begin()
    time.sleep(4 * PERIOD_S)
    clock.pause()
    now = time.monotonic()
    return clock.between(now - 1, now), clock.between(now - 2, now - 1)

now = environment(TargetPython("python", "3.12.3"), gpu, "train.py").sm_clock_mhz
"""


def test_its_mean_is_known_after_each_run(ask):
    first, without, second, (meanwhile, before), now = ask(
        IMPORT, "[sampled(), sampled(False), sampled(), between(), now]", FAKE_NVML_MODELS="h100"
    )
    assert first == second == meanwhile == now > 0
    assert without is before is None


def test_a_driver_that_does_not_say(ask):
    fault = {"FAKE_NVML_FAULTS": "nvmlDeviceGetClockInfo=3", "FAKE_NVML_MODELS": "h100"}
    assert ask(IMPORT, "sampled()", **fault) is None


def test_a_cpu_has_none():
    clock = ClockSampler(cpu_device())
    clock.begin()
    assert clock.end() is None

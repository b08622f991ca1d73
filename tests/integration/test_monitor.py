"""`gpuadvisor.monitor()` in a program of its own, on GPUs of the fake library."""

import json
import subprocess
import sys
from textwrap import indent

import pytest

PRELUDE = """
import json, os, signal, sys, threading, time
from pathlib import Path
import gpuadvisor

def scene(**settings):
    lines = "".join(f"{name}={value}\\n" for name, value in settings.items())
    Path(os.environ["FAKE_NVML_CONTROL"]).write_text(lines)

result = {}
"""
EPILOGUE = """
import psutil
result["processes"] = [child.name() for child in psutil.Process().children(recursive=True)]
result["threads"] = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
print(json.dumps(result))
"""
BUSY = {"FAKE_NVML_LOAD": "busy"}


@pytest.fixture
def play(nvml_environ, tmp_path):
    """A function that runs a program, which fills `result`; what it leaves behind is in there."""

    def run(program, **environ):
        control = {"FAKE_NVML_CONTROL": str(tmp_path / "scene")}
        done = subprocess.run(
            [sys.executable, "-c", PRELUDE + program + EPILOGUE],
            env={**nvml_environ, **control, **environ},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def left(result):
    return result["processes"], result["threads"]


def test_a_block_has_the_figures_of_every_gpu(play):
    result = play(
        """
with gpuadvisor.monitor() as block:
    time.sleep(2.5)
    result["inside"] = [t.name for t in threading.enumerate()]
result["block"], result["shown"] = block.as_dict(), str(block)
""",
        FAKE_NVML_FAULTS="nvmlDeviceGetTotalEnergyConsumption=3",  # not supported
        **BUSY,
    )
    assert "gpuadvisor-monitor" in result["inside"]
    assert left(result) == ([], [])
    found = result["block"]
    assert found["problem"] is None
    assert [gpu["index"] for gpu in found["gpus"]] == [0, 1]
    first, second = found["gpus"]
    assert first["power_mean_w"] == first["power_max_w"] == pytest.approx(700)
    assert first["energy_j"] == pytest.approx(700 * found["seconds"])
    assert first["energy_source"] == "power"
    assert first["seconds"] == pytest.approx(found["seconds"])
    assert first["samples"] > 3  # more than one a second
    assert first["gpu_utilization_mean_pct"] == first["gpu_utilization_max_pct"] == 100
    assert second["gpu_utilization_mean_pct"] == pytest.approx(95)
    assert 0 < first["tensor_active_mean_pct"] < first["sm_active_mean_pct"] <= 100
    assert first["throttle_reasons"] == ["its power limit"]
    assert first["unknown"] == {}
    assert result["shown"].startswith(f"2 GPUs for {found['seconds']:.2f} s")


def test_what_happens_in_the_block_shows(play):
    result = play("""
scene(LOAD="idle")
with gpuadvisor.monitor(gpus=[0]) as block:
    time.sleep(1)
    scene(LOAD="busy")
    time.sleep(2)
(gpu,) = block.as_dict()["gpus"]
result["gpu"] = gpu
""")
    gpu = result["gpu"]
    assert 0 < gpu["gpu_utilization_mean_pct"] < gpu["gpu_utilization_max_pct"] == 100
    assert gpu["power_mean_w"] < gpu["power_max_w"] == pytest.approx(700)
    assert gpu["memory_before_bytes"] < gpu["memory_after_bytes"] == gpu["memory_peak_bytes"]


ENDINGS = {
    "an exception": ('raise ValueError("mine")', "ValueError('mine')"),
    "Ctrl-C": ("signal.raise_signal(signal.SIGINT)", "KeyboardInterrupt()"),
    "an exit": ("sys.exit(3)", "SystemExit(3)"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_exception_passes_through_and_the_figures_are_there(play, ending):
    statement, expected = ENDINGS[ending]
    result = play(
        f"""
try:
    with gpuadvisor.monitor() as block:
        {statement}
except BaseException as error:
    result["error"] = repr(error)
result["powers"] = [gpu.power_max_w for gpu in block.gpus]
""",
        **BUSY,
    )
    assert result["error"] == expected
    assert result["powers"] == [pytest.approx(700), pytest.approx(668.5)]
    assert left(result) == ([], [])


NO_GPUS = {
    "no driver": ({"FAKE_NVML_FAULTS": "nvmlInitWithFlags=9"}, "driver is not loaded"),
    "no GPU": ({"FAKE_NVML_MODELS": ""}, "sees none"),
    "all hidden": ({"CUDA_VISIBLE_DEVICES": ""}, "hides every GPU"),
    "a driver that hangs": ({"FAKE_NVML_HANG": "nvmlInitWithFlags"}, "driver is starting"),
}


@pytest.mark.parametrize("case", NO_GPUS)
def test_without_a_gpu_the_program_runs_and_the_problem_is_told(play, case):
    environ, problem = NO_GPUS[case]
    wait_s = 1 if "hangs" in case else 60
    result = play(
        f"""
with gpuadvisor.monitor(wait_s={wait_s}) as block:
    result["ran"] = True
result.update(gpus=len(block.gpus), problem=block.problem, shown=str(block))
""",
        **environ,
    )
    assert (result["ran"], result["gpus"]) == (True, 0)
    assert problem in result["problem"]
    assert result["problem"] in result["shown"]
    assert left(result) == ([], [])


def test_a_driver_that_hangs_in_the_block_does_not_hold_up_its_end(play):
    result = play("""
with gpuadvisor.monitor(gpus=[0]) as block:
    scene(HANG="nvmlDeviceGetPowerUsage")
    time.sleep(5)
result["block"] = block.as_dict()
""")
    (gpu,) = result["block"]["gpus"]
    assert "does not answer" in result["block"]["problem"]
    assert (gpu["energy_j"], gpu["power_mean_w"]) == (None, None)
    assert "does not answer" in gpu["unknown"]["energy_j"]
    assert gpu["seconds"] < result["block"]["seconds"]
    assert left(result) == ([], [])


def test_ctrl_c_while_the_driver_starts_leaves_nothing(play):
    result = play(
        """
def interrupt():
    while not any(each.read_text() for each in Path("/proc/self/task").glob("*/children")):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

other = threading.Thread(target=interrupt)
other.start()
try:
    with gpuadvisor.monitor(wait_s=60) as block:
        result["ran"] = True
except KeyboardInterrupt:
    result["interrupted"] = True
other.join()
import psutil
# One that `subprocess.Popen` had not returned yet ends by itself, as its input does.
psutil.wait_procs(psutil.Process().children(), timeout=60)
""",
        FAKE_NVML_HANG="nvmlInitWithFlags",
    )
    assert "ran" not in result
    assert result["interrupted"]
    assert left(result) == ([], [])


@pytest.mark.parametrize("name", ["telemetry", "gpuadvisor-monitor"])
def test_ctrl_c_while_a_thread_starts_leaves_nothing(play, name):
    """On a busy machine a thread takes long to start, which `Thread.start` waits for."""
    result = play(f"""
start = threading.Thread.start

def interrupted(thread):
    start(thread)
    if thread.name == {name!r}:
        signal.raise_signal(signal.SIGINT)

threading.Thread.start = interrupted
try:
    with gpuadvisor.monitor():
        result["ran"] = True
except KeyboardInterrupt:
    result["interrupted"] = True
""")
    assert "ran" not in result
    assert result["interrupted"]
    assert left(result) == ([], [])


def test_a_gpu_that_is_not_there_is_refused_before_the_block(play):
    result = play("""
try:
    with gpuadvisor.monitor(gpus=[5]):
        result["ran"] = True
except gpuadvisor.AdvisorError as error:
    result["error"] = str(error)
""")
    assert "ran" not in result
    assert result["error"] == "there is no GPU 5: this process can use 2, numbered from 0"
    assert left(result) == ([], [])


def test_only_the_gpus_of_this_process_are_measured(play):
    result = play(
        """
with gpuadvisor.monitor() as mine, gpuadvisor.monitor(["GPU-fa4e0000"], fast=False) as other:
    pass
result.update(mine=[gpu.index for gpu in mine.gpus], other=[gpu.index for gpu in other.gpus])
""",
        CUDA_VISIBLE_DEVICES="1",
    )
    assert (result["mine"], result["other"]) == ([1], [0])


def test_blocks_nest_and_run_in_several_threads(play):
    thread = """
with gpuadvisor.monitor() as outer:
    with gpuadvisor.monitor() as inner:
        time.sleep(0.2)
found.append((outer.seconds, inner.seconds, len(outer.gpus), len(inner.gpus)))
"""
    result = play(
        f"found = result['found'] = []\ndef measure():\n{indent(thread, '    ')}\n"
        "threads = [threading.Thread(target=measure) for _ in range(2)]\n"
        "for each in threads: each.start()\n"
        "for each in threads: each.join()\n"
    )
    assert len(result["found"]) == 2
    assert all(outer > inner and gpus == [2, 2] for outer, inner, *gpus in result["found"])
    assert left(result) == ([], [])


def test_a_block_is_measured_once(play):
    result = play("""
block = gpuadvisor.monitor()
with block:
    pass
try:
    with block:
        result["ran"] = True
except gpuadvisor.AdvisorError as error:
    result["error"] = str(error)
result["gpus"] = len(block.gpus)
""")
    assert "ran" not in result
    assert "once" in result["error"]
    assert result["gpus"] == 2


def test_it_brings_nothing_heavy_into_the_program(play):
    result = play("""
gpuadvisor.monitor()
result["before"] = list(sys.modules)
with gpuadvisor.monitor():
    pass
result["after"] = list(sys.modules)
""")
    assert not {"subprocess", "gpuadvisor.collectors.telemetry.supervisor"} & {*result["before"]}
    assert not {"pynvml", "psutil", "numpy", "pandas", "torch"} & {*result["after"]}

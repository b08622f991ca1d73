"""Every check on invented machines, and the command on this one."""

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpuadvisor.collectors.devices import Inventory
from gpuadvisor.collectors.energy import ComputeProcess
from gpuadvisor.collectors.interpreter import TargetPython, TorchGpu
from gpuadvisor.commands import doctor
from gpuadvisor.doctor import render
from gpuadvisor.doctor.check import Check, CheckState, GpuUse, MachineState, examine
from gpuadvisor.doctor.checks import host
from gpuadvisor.doctor.checks.gpus import (
    check_driver,
    check_energy,
    check_gpu,
    check_gpu_processes,
    check_performance_counters,
)
from gpuadvisor.doctor.checks.interpreter import check_compiler, check_python, check_torch
from gpuadvisor.domain.device import Device

OK, WARNING, PROBLEM = CheckState.OK, CheckState.WARNING, CheckState.PROBLEM
CPU = Device("cpu", 0, "A CPU", cores=8, memory_bytes=2**34)
H100 = Device("cuda", 0, "NVIDIA H100", "GPU-1", 85 * 10**9, (9, 0), 8)
T4 = Device("cuda", 1, "Tesla T4", "GPU-2", 16 * 10**9, (7, 5), 8)
SEEN = Inventory((H100,), driver="580.95.05", driver_cuda=(13, 0))
USE = GpuUse(H100, ())
CPU_TORCH = TargetPython("/v/python", "3.12.3", has_header=True, torch="2.9.0+cpu")
GPU_TORCH = replace(
    CPU_TORCH,
    torch="2.9.0",
    cuda="12.8",
    cudnn="9.10.2",
    triton="3.5.0",
    cuda_available=True,
    gpus=(TorchGpu("NVIDIA H100", (9, 0), 85 * 10**9, "GPU-1"),),
    architectures=("sm_80", "sm_90"),
)
NO_GPU = MachineState(CPU, CPU_TORCH, inventory=Inventory(reason="no driver is there: install one"))
ONE_GPU = MachineState(CPU, GPU_TORCH, inventory=SEEN, gpus=(USE,))


def on_torch(**changes):
    return replace(ONE_GPU, python=replace(GPU_TORCH, **changes))


def on_gpu(gpu, **changes):
    return replace(on_torch(**changes), gpus=(replace(USE, gpu=gpu),))


BLIND = {"cuda_available": False, "gpus": (), "architectures": ()}
TABLE = [
    (check_python, NO_GPU, OK, "3.12.3 (/v/python)"),
    (
        check_python,
        MachineState(CPU, python_problem="/x does not exist: give a path"),
        PROBLEM,
        "/x does not",
    ),
    (check_python, on_torch(version="3.9.1"), PROBLEM, "3.9.1 (/v/python) is too old"),
    (check_torch, ONE_GPU, OK, "2.9.0, CUDA 12.8, cuDNN 9.10.2"),
    (check_torch, NO_GPU, OK, "without CUDA"),
    (check_torch, on_torch(cudnn=None), OK, "no cuDNN"),
    (
        check_torch,
        on_torch(torch=None, torch_problem="torch is not installed"),
        PROBLEM,
        "not installed",
    ),
    (check_torch, replace(ONE_GPU, python=CPU_TORCH), WARNING, "beside a GPU"),
    (check_torch, on_torch(torch="2.1.0"), WARNING, "older than 2.4"),
    (check_torch, on_torch(torch="2.10.0a0+git"), OK, "2.10.0a0"),
    (check_driver, ONE_GPU, OK, "580.95.05, knows CUDA up to 13.0"),
    (check_driver, on_torch(cuda="14.0", **BLIND), PROBLEM, "torch is built for CUDA 14.0"),
    (check_driver, on_torch(cuda="13.9", **BLIND), PROBLEM, "it does not say why"),
    (check_driver, on_torch(cuda="14.0"), OK, "580"),  # a forward compatibility package
    (check_driver, on_torch(cuda_problem="out of memory", **BLIND), PROBLEM, "out of memory"),
    (check_driver, on_torch(gpus=()), WARNING, "can use 0 of 1 GPUs"),
    (check_gpu, ONE_GPU, OK, "9.0, 79.2 GiB; fp16 tensor cores, TF32, bf16, flash attention, FP8"),
    (check_gpu, on_gpu(T4, architectures=("sm_75",)), OK, "7.5, 14.9 GiB; fp16 tensor cores"),
    (check_gpu, on_gpu(T4), PROBLEM, "no kernels for compute capability 7.5"),
    (check_gpu, on_gpu(replace(H100, compute_capability=(12, 0))), PROBLEM, "capability 12.0"),
    (check_gpu, on_torch(architectures=("sm_50", "compute_80")), OK, "FP8"),
    (check_gpu, on_torch(architectures=("sm_90a",)), OK, "FP8"),
    (check_gpu, on_gpu(replace(H100, compute_capability=None)), WARNING, "not known"),
    (check_gpu, NO_GPU, WARNING, "no driver is there; scripts are tuned and profiled on the CPU"),
    (check_gpu, replace(NO_GPU, python=GPU_TORCH), WARNING, "torch sees NVIDIA H100, but"),
    (check_gpu_processes, ONE_GPU, OK, "nothing else"),
    (check_gpu_processes, replace(ONE_GPU, gpus=(GpuUse(H100, None),)), WARNING, "not known"),
    (
        check_gpu_processes,
        replace(ONE_GPU, gpus=(GpuUse(H100, tuple(ComputeProcess(i, "a", 1) for i in range(5))),)),
        WARNING,
        "a 0, a 1, a 2, 2 more",
    ),
    (check_energy, ONE_GPU, OK, "counter"),
    (
        check_energy,
        replace(ONE_GPU, gpus=(GpuUse(H100, (), "not supported"),)),
        WARNING,
        "not supported",
    ),
    (host.check_cpu, replace(NO_GPU, root=Path("/none")), OK, "A CPU, 8 cores, 16.0 GiB"),
    (host.check_cpu, MachineState(replace(CPU, cores=1)), WARNING, "1 core,"),
]


@pytest.mark.parametrize(
    ("check", "facts", "state", "words"),
    TABLE,
    ids=[f"{check.__name__}-{words}" for check, _, _, words in TABLE],
)
def test_a_check_says(check, facts, state, words):
    (result,) = check(facts)
    assert result.state is state, result
    assert words in result.detail
    assert bool(result.fix) == (state is not OK) or check is check_energy


@pytest.mark.parametrize(
    "check",
    [check_torch, check_driver, check_gpu_processes, check_performance_counters, check_compiler],
)
def test_a_check_that_does_not_apply_says_nothing(check):
    assert list(check(MachineState(CPU))) == []


@pytest.mark.parametrize(
    ("limit", "seen", "fix"),
    [(4.0, 64, "set OMP_NUM_THREADS=4"), (0.8, 2, "set OMP_NUM_THREADS=1"), (8.0, 8, "")],
)
def test_threads_are_not_to_be_more_than_a_containers_cpu_limit(limit, seen, fix):
    found = [(each.state, each.fix) for each in host.judge_threads(limit, seen)]
    assert found == ([(WARNING, fix)] if fix else [])


def test_a_cpu_limit_is_read_where_nobody_set_the_threads(tmp_path):
    for name, text in {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "50000 100000"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    limited = replace(ONE_GPU, root=tmp_path, environ={})
    assert [each.name for each in host.check_cpu(limited)] == ["cpu limit", "cpu"]
    told = replace(limited, environ={"OMP_NUM_THREADS": "1"})
    assert [each.name for each in host.check_cpu(told)] == ["cpu"]


def test_notes_about_the_gpus_are_shown_with_their_fix():
    noted = replace(ONE_GPU, inventory=replace(SEEN, notes=("GPU 1 is lost: reboot",)))
    assert list(check_gpu(noted))[1] == Check("gpus", WARNING, "GPU 1 is lost", "reboot")


@pytest.mark.parametrize(
    ("setting", "capabilities", "version", "state"),
    [
        ("0", 0, "550.1", OK),
        ("1", 0, "580.1", WARNING),
        ("1", 1 << 21, "550.1", OK),
        ("1", 1 << 38, "580.1", OK),
        ("1", 1 << 38, "550.1", WARNING),
        (None, 0, "580.1", WARNING),
    ],
)
def test_counters_are_open_or_not(tmp_path, setting, capabilities, version, state):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text(f"Name:\tpython\nCapEff:\t{capabilities:016x}\n")
    if setting:
        (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
        params = tmp_path / "proc/driver/nvidia/params"
        params.write_text(f"RmLogonRC: 1\nRmProfilingAdminOnly: {setting}\n")
    facts = replace(ONE_GPU, inventory=replace(SEEN, driver=version), root=tmp_path)
    (result,) = check_performance_counters(facts)
    assert result.state is state


@pytest.mark.parametrize(
    ("python", "tools", "environ", "missing"),
    [
        (CPU_TORCH, ["g++"], {}, ""),
        (CPU_TORCH, ["clang++"], {}, "a C++ compiler"),
        (CPU_TORCH, ["clang++"], {"CXX": "clang++ -O1"}, ""),
        (replace(CPU_TORCH, has_header=False), [], {}, "a C++ compiler and Python.h"),
        (GPU_TORCH, ["clang"], {}, ""),
        (GPU_TORCH, ["gcc"], {"CC": "icc"}, "a C compiler"),
        (replace(GPU_TORCH, triton=None), ["gcc"], {}, "Triton"),
    ],
)
def test_compiling_needs_what_inductor_starts(tmp_path, python, tools, environ, missing):
    for tool in tools:
        (tmp_path / tool).touch(0o755)
    facts = MachineState(CPU, python, environ={"PATH": str(tmp_path), **environ})
    (result,) = check_compiler(facts)
    assert (result.state is WARNING) == bool(missing), result
    assert missing in result.detail


PLACE = host.Place(host.Path("/data"), 10 * host.GIB, True, True)


@pytest.mark.parametrize(
    ("judge", "changes", "state"),
    [
        (host.judge_store, {}, OK),
        (host.judge_store, {"executable": False}, OK),
        (host.judge_store, {"free_bytes": 10 * host.MIB}, PROBLEM),
        (host.judge_store, {"free_bytes": 100 * host.MIB}, WARNING),
        (host.judge_cache, {}, OK),
        (host.judge_cache, {"executable": False}, WARNING),
        (host.judge_cache, {"writable": False}, WARNING),
        (host.judge_cache, {"free_bytes": 100 * host.MIB}, WARNING),
    ],
)
def test_a_disk_has_room_and_rights(judge, changes, state):
    assert judge(replace(PLACE, **changes)).state is state


def test_the_folders_follow_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "a/b"))
    chosen = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "not/yet/there")}
    store, cache = host.check_disk_space(replace(NO_GPU, environ=chosen))
    assert store.detail.startswith(str(tmp_path / "a/b"))
    assert cache.detail.startswith(str(tmp_path / "not/yet/there"))


def test_a_store_that_cannot_be_made_is_a_problem(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "file" / "folder"))
    store, *_ = host.check_disk_space(NO_GPU)
    assert store.state is PROBLEM
    assert store.fix.startswith("set GPUADVISOR_HOME")


@pytest.mark.parametrize(("free_bytes", "state"), [(64 * 2**20, WARNING), (2**33, OK)])
def test_shared_memory_holds_the_batches_of_workers(free_bytes, state):
    assert host.judge_shared_memory(free_bytes).state is state


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "store"))


def test_checks_are_found_and_run_in_order():
    names = [check.name for check in examine(ONE_GPU)]
    assert names[:4] == ["python", "torch", "driver", "gpu 0"]


def test_a_check_that_fails_is_a_warning(monkeypatch):
    def check_cpu(facts):
        return 1 / 0

    monkeypatch.setitem(host.CHECKS, max(host.CHECKS), check_cpu)
    failed = [check for check in examine(ONE_GPU) if check.name == "cpu"]
    assert failed[0].state is WARNING
    assert "ZeroDivisionError" in failed[0].detail


CHECKS = [Check("torch", OK, "2.9"), Check("gpu", WARNING, "none", "buy one")]


def test_text_is_aligned_and_plain():
    assert render.as_text(CHECKS).splitlines() == [
        "torch  ok       2.9",
        "gpu    warning  none",
        "                fix: buy one",
        "",
        "Ready to tune, 1 warning.",
    ]


def test_json_has_a_version_and_every_check():
    document = json.loads(render.as_json(CHECKS, "1.2.3"))
    assert document["schema_version"] == 1
    assert document["fit_for_tuning"] is True
    assert document["checks"][1] == {
        "name": "gpu",
        "state": "warning",
        "detail": "none",
        "fix": "buy one",
    }


def test_a_problem_is_counted():
    checks = [*CHECKS, Check("python", PROBLEM, "too old"), Check("store", PROBLEM, "full")]
    assert render.summary(checks) == "Tuning cannot work here yet: 2 problems, 1 warning."


def run(*argv):
    parser = argparse.ArgumentParser()
    doctor.add_arguments(parser)
    return doctor.run(parser.parse_args(argv))


def test_the_command_ends_with_1_where_tuning_cannot_work(capsys):
    assert run("--python", "/nonexistent/python", "--json") == 1
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert checks[0]["state"] == "problem"
    assert "does not exist" in checks[0]["detail"]


def test_the_command_on_two_gpus(nvml_environ, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('left out for speed')")
    program = (
        "import argparse, sys\n"
        "from gpuadvisor.commands import doctor\n"
        "parser = argparse.ArgumentParser()\n"
        "doctor.add_arguments(parser)\n"
        "sys.exit(doctor.run(parser.parse_args()))"
    )
    environ = {**nvml_environ, "PYTHONPATH": str(tmp_path), "FAKE_NVML_MODELS": "h100,t4"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == ""
    rows = {line[:20].strip(): line for line in done.stdout.splitlines()}
    assert "NVIDIA H100 80GB HBM3, compute capability 9.0" in rows["gpu 0"]
    assert "Tesla T4" in rows["gpu 1"]
    assert "left out for speed" in rows["torch"]
    assert "\x1b" not in done.stdout


def test_the_module_costs_help_nothing():
    heavy = {"rich", "pynvml", "torch", "gpuadvisor.doctor", "json", "subprocess"}
    probe = "import sys, gpuadvisor.commands.doctor; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert not heavy & set(done.stdout.split())

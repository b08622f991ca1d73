"""Around a run: energy, neighbours on the GPU, the target Python, the fingerprint."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuadvisor.collectors.energy import EnergyMeter, other_processes
from gpuadvisor.collectors.environment import environment
from gpuadvisor.collectors.interpreter import TargetPython, describe_python, inspect_python
from gpuadvisor.domain.device import Device
from gpuadvisor.errors import UsageError

CPU = Device("cpu", 0, "A CPU")
PYTHON = TargetPython("/usr/bin/python", "3.12.3", torch="2.9.0", cuda="12.8", cudnn="9.10.2")
IMPORT = """
from gpuadvisor.collectors.devices import list_gpus
from gpuadvisor.collectors.energy import EnergyMeter, other_processes
from gpuadvisor.collectors.environment import environment
from gpuadvisor.collectors.interpreter import TargetPython
gpu = list_gpus()[0]
meter = EnergyMeter(gpu)
python = TargetPython("/usr/bin/python", "3.12.3")
"""


def test_energy_is_read_in_joules(ask):
    first, second = ask(IMPORT, "[meter.read_j(), meter.read_j()]")
    assert second - first == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("code", "words"), [(3, "not supported"), (4, "no permission"), (15, "lost"), (13, "too old")]
)
def test_energy_that_cannot_be_read_has_a_reason(ask, code, words):
    faults = f"nvmlDeviceGetTotalEnergyConsumption={code}"
    joules, reason = ask(IMPORT, "[meter.read_j(), meter.unavailable()]", FAKE_NVML_FAULTS=faults)
    assert joules is None
    assert words in reason


def test_a_counter_that_hangs_does_not_hang_the_caller(ask):
    impatient = (
        f"{IMPORT}\nfrom gpuadvisor.collectors.nvml import library\nlibrary.CALL_TIMEOUT_S = 0.1"
    )
    hang = "nvmlDeviceGetTotalEnergyConsumption"
    assert ask(impatient, "[meter.read_j(), meter.read_j()]", FAKE_NVML_HANG=hang) == [None, None]


def test_the_energy_of_a_cpu_is_not_measured():
    meter = EnergyMeter(CPU)
    assert meter.read_j() is None
    assert "not measured" in (meter.unavailable() or "")


def test_a_neighbour_on_the_gpu_is_named(ask):
    pid = os.getpid()
    (found,) = ask(IMPORT, "other_processes(gpu)", FAKE_NVML_PIDS=str(pid))
    assert found["pid"] == pid
    assert found["name"] == Path(f"/proc/{pid}/comm").read_text("utf-8").strip()
    assert found["memory_bytes"] == 2**30


def test_own_processes_and_their_children_are_no_neighbours(ask):
    child = f"{IMPORT}\nimport os"
    expression = f"[p.pid for p in other_processes(gpu, [{os.getpid()}])]"
    assert ask(child, expression, FAKE_NVML_PIDS=f"{os.getpid()},1") == [1]
    spawned = "[p.pid for p in other_processes(gpu, [os.getppid()])]"
    assert ask(child, spawned, FAKE_NVML_PIDS=f"{os.getpid()},1") == [1]


def test_an_old_driver_lists_processes_by_its_older_call(ask):
    environ = {
        "FAKE_NVML_PIDS": "1",
        "FAKE_NVML_FAULTS": "nvmlDeviceGetComputeRunningProcesses_v3=13",
    }
    assert ask(IMPORT, "[p.pid for p in other_processes(gpu)]", **environ) == [1]


def test_neighbours_that_are_not_known_are_not_none(ask):
    faults = ",".join(f"nvmlDeviceGetComputeRunningProcesses_v{v}=4" for v in (2, 3))
    assert ask(IMPORT, "other_processes(gpu)", FAKE_NVML_FAULTS=faults) is None
    assert other_processes(CPU) == []


def test_the_fingerprint_of_a_gpu_has_its_clocks_and_limit(ask):
    found = ask(IMPORT, "environment(python, gpu, 'train.py')")
    assert found["driver"] == "580.95.05"
    assert (found["sm_clock_mhz"], found["sm_clock_max_mhz"]) == (345, 1980)
    assert found["power_limit_w"] == 700.0


def test_a_lost_gpu_leaves_a_fingerprint(ask):
    faults = "nvmlDeviceGetHandleByUUID=15"
    found = ask(IMPORT, "environment(python, gpu, 'train.py')", FAKE_NVML_FAULTS=faults)
    assert found["driver"] is None
    assert found["device"]["name"] == "NVIDIA H100 80GB HBM3"


def git(folder, *args):
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *args], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("step()\n")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "start")
    return path


def test_the_commit_of_the_script_is_kept(script):
    found = environment(PYTHON, CPU, script)
    assert len(found.git_commit or "") == 40
    assert found.git_dirty is False
    assert (found.torch, found.cuda, found.cudnn) == ("2.9.0", "12.8", "9.10.2")
    assert found.driver is None


@pytest.mark.parametrize(
    ("edited", "dirty"), [("train.py", True), ("other.py", True), ("unknown.txt", False)]
)
def test_edited_files_make_the_work_tree_dirty(script, edited, dirty):
    (script.parent / "other.py").write_text("old\n")
    git(script.parent, "add", "other.py")
    git(script.parent, "commit", "-m", "more")
    (script.parent / edited).write_text("changed\n")
    assert environment(PYTHON, CPU, script).git_dirty is dirty


def test_a_new_script_makes_the_work_tree_dirty(script):
    new = script.with_name("new.py")
    new.write_text("step()\n")
    assert environment(PYTHON, CPU, new).git_dirty is True


def test_a_hook_of_another_repository_does_not_mislead(script, monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert environment(PYTHON, CPU, script).git_commit is not None


@pytest.mark.parametrize("path", ["", os.devnull], ids=["no-git", "no-repository"])
def test_without_git_or_a_repository_the_commit_is_unknown(tmp_path, monkeypatch, path):
    if not path:
        monkeypatch.setenv("PATH", str(tmp_path))
    found = environment(PYTHON, CPU, tmp_path / "train.py")
    assert (found.git_commit, found.git_dirty) == (None, None)


def program(folder, text, name="python"):
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def with_torch(tmp_path, monkeypatch):
    """A function that gives the target Python a `torch` of this source."""

    def install(source):
        (tmp_path / "site" / "torch").mkdir(parents=True)
        (tmp_path / "site" / "torch" / "__init__.py").write_text(source)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))

    return install


TORCH = """
print("a library that talks while it is imported")
from types import SimpleNamespace as _N
__version__ = "2.9.0+cu128"
version = _N(cuda="12.8")
backends = _N(cudnn=_N(version=lambda: 91002))
_h100 = _N(name="NVIDIA H100", major=9, minor=0, total_memory=85, uuid="fa4e0000")
cuda = _N(
    is_available=lambda: True,
    device_count=lambda: 1,
    get_device_properties=lambda index: _h100,
    get_arch_list=lambda: ["sm_80", "sm_90"],
)
"""


def test_a_python_says_what_its_torch_can_do(with_torch):
    with_torch(TORCH)
    found = describe_python(sys.executable)
    assert found.executable == sys.executable
    assert found.version == ".".join(map(str, sys.version_info[:3]))
    assert (found.torch, found.cuda, found.cudnn) == ("2.9.0+cu128", "12.8", "9.10.2")
    assert found.cuda_available
    assert found.architectures == ("sm_80", "sm_90")
    (gpu,) = found.gpus
    assert (gpu.name, gpu.compute_capability, gpu.uuid) == ("NVIDIA H100", (9, 0), "GPU-fa4e0000")


def test_a_python_says_what_is_installed(with_torch, tmp_path, monkeypatch):
    with_torch(TORCH)
    origins = {
        "own-1.0.dist-info": '{"url": "file:///my%20code/own", "dir_info": {"editable": true}}',
        "other-2.0.dist-info": '{"url": "https://example.com/other.whl", "archive_info": {}}',
        "broken-3.0.dist-info": "[]",
    }
    for name, origin in origins.items():
        (tmp_path / "site" / name).mkdir(parents=True)
        (tmp_path / "site" / name / "direct_url.json").write_text(origin)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=os.pathsep)
    found = describe_python(sys.executable)
    assert {"broken-3.0", "other-2.0", "own-1.0"} < set(found.packages)
    assert any(name.startswith("pytest-") for name in found.packages)
    assert "/my code/own" in found.editable


def test_torch_is_imported_again_only_where_something_has_changed(
    with_torch, tmp_path, monkeypatch
):
    imports = tmp_path / "imports"
    noted = f"open({str(imports)!r}, 'a').write('.')\n{TORCH}"
    with_torch(noted)
    torch = tmp_path / "site" / "torch" / "__init__.py"
    changes = (
        lambda: None,
        lambda: torch.write_text(f"{noted}#"),
        lambda: (tmp_path / "site" / "numpy-2.1.0.dist-info").mkdir(),
        lambda: monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0"),
        lambda: [file.write_text("{") for file in (tmp_path / "kept").iterdir()],
    )
    found = []
    for count, change in enumerate(changes, start=1):
        change()
        found += [describe_python(sys.executable, kept=tmp_path / "kept") for _ in range(2)]
        assert len(imports.read_text()) == count
    assert found[0] == found[1]
    assert found[-1] == describe_python(sys.executable)
    assert "numpy-2.1.0" in found[-1].packages


@pytest.mark.parametrize("fails", ["raise OSError('no')", f"{TORCH}cuda.is_available = 1 / 0"])
def test_what_failed_is_tried_again(with_torch, tmp_path, fails):
    with_torch(fails)
    for _ in range(2):
        assert inspect_python(sys.executable, kept=tmp_path / "kept").torch_problem
    assert not (tmp_path / "kept").exists()


def test_what_torch_says_about_a_driver_is_kept(with_torch):
    with_torch(
        TORCH + "def old():\n"
        "    import warnings\n"
        "    warnings.warn('The NVIDIA driver on your system is too old')\n"
        "    return False\n"
        "cuda.is_available = old\n"
    )
    found = describe_python(sys.executable)
    assert not found.cuda_available
    assert "driver on your system is too old" in (found.cuda_problem or "")


def test_modules_of_the_current_folder_are_not_taken_for_the_real_ones(
    with_torch, tmp_path, monkeypatch
):
    with_torch(TORCH)
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    (tmp_path / "torch.py").write_text("raise SystemExit('the wrong torch')")
    monkeypatch.chdir(tmp_path)
    assert describe_python(sys.executable).torch == "2.9.0+cu128"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise ModuleNotFoundError('No module named torch', name='torch')", "not installed"),
        ("import a_part_of_torch", "No module named 'a_part_of_torch'"),
        ("raise OSError('libcudart.so.13: cannot open')", "libcudart.so.13"),
        ("raise SystemExit('no')", "cannot be imported"),
        ("import os; os.kill(os.getpid(), 11)", "crashed (SIGSEGV)"),
    ],
)
def test_a_python_without_a_working_torch_is_refused(with_torch, source, words):
    with_torch(source)
    with pytest.raises(UsageError, match="torch") as refusal:
        describe_python(sys.executable)
    assert words in str(refusal.value)


def test_a_torch_that_never_finishes_importing_is_given_up(with_torch):
    with_torch("import time; time.sleep(60)")
    with pytest.raises(UsageError, match=r"within 0\.5 s"):
        describe_python(sys.executable, timeout_s=0.5)


def test_a_missing_torch_can_be_inspected(with_torch):
    with_torch("import a_part_of_torch")
    assert inspect_python(sys.executable).torch is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#!/bin/sh\nexit 0\n", "does not act as Python 3: give"),
        ("#!/bin/sh\necho 'SyntaxError: invalid syntax' >&2; exit 1\n", "(SyntaxError: invalid"),
        ("#!/nonexistent/interpreter\n", "cannot be run"),
        ("\x7fELF of another machine", "cannot be run"),
    ],
)
def test_a_program_that_is_no_python_is_refused(tmp_path, text, words):
    with pytest.raises(UsageError) as refusal:
        describe_python(program(tmp_path, text))
    assert words in str(refusal.value)


def test_an_old_python_is_refused(tmp_path):
    said = '@gpuadvisor-probe {"version": "3.9.18", "has_header": false}'
    old = program(tmp_path, f"#!/bin/sh\necho '{said}'\n")
    with pytest.raises(UsageError, match=r"3\.9\.18, but 3\.10 or newer"):
        describe_python(old)


def test_a_path_that_is_no_program_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UsageError, match="does not exist"):
        describe_python(str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="not an executable file"):
        describe_python(str(tmp_path / "notes.txt"))
    with pytest.raises(UsageError, match="is a folder: give the interpreter in it"):
        describe_python(str(tmp_path))
